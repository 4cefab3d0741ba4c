/* SPDX-License-Identifier: MIT */
#include "transom/config.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "conf/config_internal.h"

#define LIST_SEPARATOR ", " /* in the defaults of conf/options.def */

static void value_clear(struct config_value *v)
{
    free(v->text);
    for (size_t i = 0; i < v->n_items; i++)
        free(v->items[i]);
    free(v->items);
    memset(v, 0, sizeof(*v));
}

int config_set(struct tr_config *config, size_t i, const char *text, struct err *why)
{
    struct config_value *v = &config->values[i];
    int64_t number = 0;
    char *copy;
    int r = opt_check(&opt_table[i], text, &number, why);

    if (r != 0)
        return r;
    copy = strdup(text);
    if (copy == NULL)
        return tr_err_set(why, -ENOMEM, "out of memory");
    free(v->text);
    v->text = copy;
    v->number = number;
    return 0;
}

void config_list_clear(struct tr_config *config, size_t i)
{
    value_clear(&config->values[i]);
}

int config_list_add(struct tr_config *config, size_t i, const char *text, struct err *why)
{
    const struct opt *opt = &opt_table[i];
    struct config_value *v = &config->values[i];
    int64_t number;
    char **items;
    char *copy;
    int r;

    if ((int64_t)v->n_items >= opt->max)
        return tr_err_set(why, -EINVAL, "has too many items; at most %d are allowed",
                          (int)opt->max);
    r = opt_check(opt, text, &number, why);
    if (r != 0)
        return r;
    copy = strdup(text);
    items = copy != NULL ? realloc(v->items, (v->n_items + 1) * sizeof(*items)) : NULL;
    if (items == NULL) {
        free(copy);
        return tr_err_set(why, -ENOMEM, "out of memory");
    }
    v->items = items;
    items[v->n_items++] = copy;
    return 0;
}

/* The defaults of the table hold by construction (a unit test checks each), so that the only way
 * to fail is memory. */
static int set_default_list(struct tr_config *config, size_t i)
{
    char buf[512];
    char *at = buf;
    int r = 0;

    assert(strlen(opt_table[i].def) < sizeof(buf));
    strcpy(buf, opt_table[i].def); // NOLINT(clang-analyzer-security.insecureAPI.strcpy)
    while (r == 0 && at != NULL && *at != '\0') {
        char *end = strstr(at, LIST_SEPARATOR);

        if (end != NULL)
            *end = '\0';
        r = config_list_add(config, i, at, NULL);
        at = end != NULL ? end + strlen(LIST_SEPARATOR) : NULL;
    }
    return r;
}

static int new_with_table_defaults(struct tr_config **out)
{
    struct tr_config *config = calloc(1, sizeof(*config));
    int r = -ENOMEM;

    if (config == NULL)
        return r;
    config->values = calloc(opt_count, sizeof(*config->values));
    if (config->values == NULL)
        goto fail;
    for (size_t i = 0; i < opt_count; i++) {
        const struct opt *opt = &opt_table[i];

        if (opt->section)
            continue;
        r = opt_is_list(opt) ? set_default_list(config, i) : config_set(config, i, opt->def, NULL);
        if (r != 0)
            goto fail;
    }
    *out = config;
    return 0;
fail:
    assert(r != -EINVAL); /* the table contradicts itself */
    tr_config_free(config);
    return r;
}

/* Defaults that depend on other options or on the host. */
static int derive(struct tr_config *config)
{
    size_t preview = (size_t)opt_find("preview_domain"), node = (size_t)opt_find("node.name");
    char text[300], host[64] = "";
    int r = 0;

    if (*config->values[preview].text == '\0') {
        snprintf(text, sizeof(text), "preview.%s", tr_config_str(config, "domain"));
        r = config_set(config, preview, text, NULL);
    }
    if (r == 0 && *config->values[node].text == '\0') {
        if (gethostname(host, sizeof(host) - 1) != 0 || config_set(config, node, host, NULL) != 0 ||
            *host == '\0')
            r = config_set(config, node, "node", NULL); /* a host name that is no name */
    }
    return r;
}

int tr_config_new(struct tr_config **out)
{
    struct tr_config *config;
    int r = new_with_table_defaults(&config);

    if (r != 0)
        return r;
    r = derive(config);
    if (r != 0) {
        tr_config_free(config);
        return r;
    }
    *out = config;
    return 0;
}

void tr_config_free(struct tr_config *config)
{
    if (config == NULL)
        return;
    for (size_t i = 0; config->values != NULL && i < opt_count; i++)
        value_clear(&config->values[i]);
    free(config->values);
    free(config);
}

int tr_config_parse(const char *name, const char *text, size_t len, struct tr_config **out,
                    struct err *err)
{
    struct tr_config *config;
    int r;

    if (len > CONFIG_MAX_BYTES)
        return tr_err_set(err, -EFBIG, "%.200s: is longer than %d bytes; a configuration never is",
                          name, CONFIG_MAX_BYTES);
    r = new_with_table_defaults(&config);
    if (r != 0)
        return tr_err_set(err, r, "%.200s: out of memory", name);
    r = config_overlay(config, name, text, len, err);
    if (r == 0 && derive(config) != 0)
        r = tr_err_set(err, -ENOMEM, "%.200s: out of memory", name);
    if (r != 0) {
        tr_config_free(config);
        return r;
    }
    *out = config;
    return 0;
}

/* Read at most CONFIG_MAX_BYTES + 1, so that the caller sees when it is too long. *len begins 0. */
static int read_file(const char *path, char *buf, size_t *len)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = 0;
    int r = 0;

    if (fd < 0)
        return -errno;
    while (*len < CONFIG_MAX_BYTES + 1) {
        n = read(fd, buf + *len, CONFIG_MAX_BYTES + 1 - *len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            break;
        *len += (size_t)n;
    }
    if (n < 0)
        r = -errno;
    close(fd);
    return r;
}

int tr_config_load(const char *path, struct tr_config **out, struct err *err)
{
    char *buf = malloc(CONFIG_MAX_BYTES + 1);
    size_t len = 0;
    int r;

    if (buf == NULL)
        return tr_err_set(err, -ENOMEM, "%.200s: out of memory", path);
    r = read_file(path, buf, &len);
    if (r != 0)
        tr_err_set(err, r, "%.200s: cannot be read: %s", path, strerror(-r));
    else
        r = tr_config_parse(path, buf, len, out, err);
    free(buf);
    return r;
}

static const struct config_value *value_of(const struct tr_config *config, const char *name,
                                           bool list)
{
    int i = opt_find(name);

    assert(i >= 0 && opt_is_list(&opt_table[i]) == list);
    return &config->values[i];
}

const char *tr_config_str(const struct tr_config *config, const char *name)
{
    return value_of(config, name, false)->text;
}

int64_t tr_config_int(const struct tr_config *config, const char *name)
{
    assert(opt_find(name) >= 0 && opt_table[opt_find(name)].type == OPT_INT);
    return value_of(config, name, false)->number;
}

bool tr_config_bool(const struct tr_config *config, const char *name)
{
    assert(opt_find(name) >= 0 && opt_table[opt_find(name)].type == OPT_BOOL);
    return value_of(config, name, false)->number != 0;
}

size_t tr_config_list_len(const struct tr_config *config, const char *name)
{
    return value_of(config, name, true)->n_items;
}

const char *tr_config_list_get(const struct tr_config *config, const char *name, size_t i)
{
    const struct config_value *v = value_of(config, name, true);

    assert(i < v->n_items);
    return v->items[i];
}

bool tr_config_same(const struct tr_config *a, const struct tr_config *b, const char *name)
{
    int i = opt_find(name);
    const struct config_value *x, *y;

    assert(i >= 0);
    x = &a->values[i];
    y = &b->values[i];
    if (!opt_is_list(&opt_table[i]))
        return strcmp(x->text, y->text) == 0;
    if (x->n_items != y->n_items)
        return false;
    for (size_t j = 0; j < x->n_items; j++)
        if (strcmp(x->items[j], y->items[j]) != 0)
            return false;
    return true;
}
