/* SPDX-License-Identifier: MIT */
#include "vmm/secret.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include "vmm/file.h"
#include "vmm/seal.h"
#include "vmm/table.h"
#include "vmm/text.h"

#define KEY_FILE   "secret.key"
#define RECORD_MAX (4 * VMM_SECRET_VALUE_MAX)
#define ID_SIZE    (VMM_OWNER_MAX + 1 + VMM_SECRET_NAME_MAX + 1)

struct vmm_secrets {
    char *dir;
    struct vmm_seal *seal;
    struct vmm_table by_id; /* "owner/name" */
    struct vmm_secret *first;
};

static void make_id(const char *owner, const char *name, char id[ID_SIZE])
{
    snprintf(id, ID_SIZE, "%s/%s", owner, name);
}

int vmm_secret_name_check(const char *name, struct err *err)
{
    /* What the shell, the C library, language runtimes and windows are steered by. */
    static const char *const taken[] = {
        "BASHOPTS", "BASH_ENV",      "CDPATH",         "DYLD_",       "ENV",    "GCONV_PATH",
        "GIT_SSH",  "GLOBIGNORE",    "HOME",           "HOSTNAME",    "IFS",    "LC_",
        "LD_",      "LOCPATH",       "LOGNAME",        "NLSPATH",     "OLDPWD", "NODE_OPTIONS",
        "PATH",     "PERL5OPT",      "PROMPT_COMMAND", "PS1",         "PS4",    "PUBLIC_",
        "PWD",      "PYTHONSTARTUP", "SHELL",          "SHELLOPTS",   "SHLVL",  "TERM",
        "TRANSOM_", "UID",           "USER",           "VIRTUAL_ENV", "_",
    };
    size_t len = strlen(name);

    if (len == 0 || len > VMM_SECRET_NAME_MAX)
        return tr_err_set(err, -EINVAL, "a secret's name has 1 to %d characters",
                          VMM_SECRET_NAME_MAX);
    for (size_t i = 0; i < len; i++) {
        char c = name[i];

        if (!((c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '_' ||
              (i > 0 && c >= '0' && c <= '9')))
            return tr_err_set(err, -EINVAL,
                              "a secret's name is that of an environment variable: "
                              "letters, digits and \"_\", no digit first");
    }
    for (size_t i = 0; i < sizeof(taken) / sizeof(taken[0]); i++) {
        size_t n = strlen(taken[i]);
        bool beginning = n > 1 && taken[i][n - 1] == '_';

        if (strncmp(name, taken[i], n) == 0 && (beginning || name[n] == '\0'))
            return tr_err_set(err, -EINVAL,
                              "%s cannot be a secret: it steers shells or other programs", name);
    }
    return 0;
}

static json_t *to_json(const struct vmm_secret *secret)
{
    return json_pack("{si, ss, ss, sI, sI, sO}", "v", 1, "owner", secret->owner, "name",
                     secret->name, "created_ms", (json_int_t)secret->created_ms, "updated_ms",
                     (json_int_t)secret->updated_ms, "sealed", secret->sealed);
}

static void secret_free(struct vmm_secret *secret)
{
    if (secret == NULL)
        return;
    json_decref(secret->sealed);
    free(secret);
}

static int link_in(struct vmm_secrets *s, struct vmm_secret *secret)
{
    char id[ID_SIZE];
    int r;

    make_id(secret->owner, secret->name, id);
    r = vmm_table_set(&s->by_id, id, secret);
    if (r != 0)
        return r;
    secret->next = s->first;
    s->first = secret;
    return 0;
}

static int save(const struct vmm_secrets *s, const struct vmm_secret *secret, struct err *err)
{
    char dir[VMM_PATH_SIZE], file[VMM_SECRET_NAME_MAX + 6];
    json_t *record;
    int r;

    snprintf(dir, sizeof(dir), "%s/%s", s->dir, secret->owner);
    snprintf(file, sizeof(file), "%s.json", secret->name);
    r = vmm_file_mkdirs(dir, 0700, err);
    if (r != 0)
        return r;
    record = to_json(secret);
    if (record == NULL)
        return tr_err_set(err, -ENOMEM, "out of memory");
    r = vmm_file_write_json(dir, file, record, err);
    json_decref(record);
    return r;
}

static int parse(const json_t *record, const char *owner, const char *name, struct vmm_secret *out,
                 struct err *err)
{
    const char *said_owner = json_string_value(json_object_get(record, "owner"));
    const char *said_name = json_string_value(json_object_get(record, "name"));
    const json_t *created = json_object_get(record, "created_ms");
    const json_t *updated = json_object_get(record, "updated_ms");
    json_t *sealed = json_object_get(record, "sealed");

    if (said_owner == NULL || strcmp(said_owner, owner) != 0 || said_name == NULL ||
        strcmp(said_name, name) != 0 || !json_is_integer(created) || !json_is_integer(updated) ||
        !json_is_object(sealed))
        return tr_err_set(err, -EBADMSG, "secret %s: a member is missing or wrong", name);
    snprintf(out->owner, sizeof(out->owner), "%s", owner);
    snprintf(out->name, sizeof(out->name), "%s", name);
    out->created_ms = json_integer_value(created);
    out->updated_ms = json_integer_value(updated);
    out->sealed = json_incref(sealed);
    return vmm_secret_name_check(name, err);
}

/* A broken record is set aside; only lack of memory is a fault. */
static int load_record(struct vmm_secrets *s, const char *owner, const char *file, struct err *err)
{
    char path[VMM_PATH_SIZE], name[VMM_SECRET_NAME_MAX + 1];
    struct vmm_secret *secret = calloc(1, sizeof(*secret));
    json_t *record = NULL;
    struct err why = {0};
    int r;

    if (secret == NULL)
        return tr_err_set(err, -ENOMEM, "out of memory");
    snprintf(path, sizeof(path), "%s/%s/%s", s->dir, owner, file);
    snprintf(name, sizeof(name), "%.*s", (int)strlen(file) - 5, file);
    r = vmm_file_read_json(path, RECORD_MAX, &record, &why);
    if (r == 0)
        r = parse(record, owner, name, secret, &why);
    json_decref(record);
    if (r == 0)
        r = link_in(s, secret);
    if (r == 0)
        return 0;
    secret_free(secret);
    if (r == -ENOMEM)
        return tr_err_set(err, r, "out of memory");
    vmm_file_set_aside(path, &why);
    return 0;
}

/* each(file) for every name in a folder that does not begin with a dot. */
static int for_each(const char *path,
                    int (*each)(struct vmm_secrets *s, const char *owner, const char *file,
                                struct err *err),
                    struct vmm_secrets *s, const char *owner, struct err *err)
{
    struct dirent *entry;
    DIR *d = opendir(path);
    int r = 0;

    if (d == NULL)
        return tr_err_set(err, -errno, "cannot read %s: %s", path, strerror(errno));
    while (r == 0 && (entry = readdir(d)) != NULL) {
        if (entry->d_name[0] != '.')
            r = each(s, owner, entry->d_name, err);
    }
    closedir(d);
    return r;
}

static int load_file(struct vmm_secrets *s, const char *owner, const char *file, struct err *err)
{
    size_t len = strlen(file);

    if (len <= 5 || len > VMM_SECRET_NAME_MAX + 5 || strcmp(file + len - 5, ".json") != 0)
        return 0;
    return load_record(s, owner, file, err);
}

static int load_owner(struct vmm_secrets *s, const char *none, const char *owner, struct err *err)
{
    char path[VMM_PATH_SIZE];

    (void)none;
    if (!vmm_owner_valid(owner))
        return 0;
    snprintf(path, sizeof(path), "%s/%s", s->dir, owner);
    return for_each(path, load_file, s, owner, err);
}

int vmm_secrets_open(const char *dir, const char *key_dir, struct vmm_secrets **out,
                     struct err *err)
{
    struct vmm_secrets *s;
    int r = vmm_file_mkdirs(dir, 0700, err);

    if (r != 0)
        return r;
    s = calloc(1, sizeof(*s));
    if (s == NULL || (s->dir = strdup(dir)) == NULL) {
        free(s);
        return tr_err_set(err, -ENOMEM, "out of memory");
    }
    r = for_each(dir, load_owner, s, NULL, err);
    if (r == 0)
        r = vmm_seal_open(key_dir, KEY_FILE, s->first == NULL, &s->seal, err);
    if (r != 0) {
        vmm_secrets_free(s);
        return r;
    }
    *out = s;
    return 0;
}

void vmm_secrets_free(struct vmm_secrets *s)
{
    struct vmm_secret *next;

    if (s == NULL)
        return;
    for (struct vmm_secret *secret = s->first; secret != NULL; secret = next) {
        next = secret->next;
        secret_free(secret);
    }
    vmm_table_fini(&s->by_id);
    vmm_seal_free(s->seal);
    free(s->dir);
    free(s);
}

const struct vmm_secret *vmm_secret_find(const struct vmm_secrets *s, const char *owner,
                                         const char *name)
{
    char id[ID_SIZE];

    if (strlen(owner) > VMM_OWNER_MAX || strlen(name) > VMM_SECRET_NAME_MAX)
        return NULL;
    make_id(owner, name, id);
    return vmm_table_get(&s->by_id, id);
}

const struct vmm_secret *vmm_secrets_first(const struct vmm_secrets *s)
{
    return s->first;
}

size_t vmm_secrets_count(const struct vmm_secrets *s)
{
    return s->by_id.n_entries;
}

/* What a sealed record is bound to: moved to another owner or name it does not open. */
static void make_context(const struct vmm_secret *secret, char context[ID_SIZE + 16])
{
    snprintf(context, ID_SIZE + 16, "secret %s/%s", secret->owner, secret->name);
}

static int seal_value(const struct vmm_secrets *s, struct vmm_secret *secret, const void *value,
                      size_t len, struct err *err)
{
    char context[ID_SIZE + 16];

    make_context(secret, context);
    return vmm_seal(s->seal, context, value, len, &secret->sealed, err);
}

static int check(const struct vmm_secrets *s, const char *owner, const char *name,
                 const void *value, size_t len, struct err *err)
{
    size_t n = 0;
    int r = vmm_secret_name_check(name, err);

    if (r != 0)
        return r;
    if (len > VMM_SECRET_VALUE_MAX)
        return tr_err_set(err, -E2BIG, "a secret's value has at most %d bytes",
                          VMM_SECRET_VALUE_MAX);
    if (len > 0 && memchr(value, '\0', len) != NULL)
        return tr_err_set(err, -EINVAL,
                          "the value holds a NUL byte, which no environment variable can carry");
    for (const struct vmm_secret *other = s->first; other != NULL; other = other->next)
        n += strcmp(other->owner, owner) == 0;
    if (n >= VMM_SECRETS_PER_USER && vmm_secret_find(s, owner, name) == NULL)
        return tr_err_set(err, -EDQUOT, "there are %d secrets already; delete some",
                          VMM_SECRETS_PER_USER);
    return 0;
}

int vmm_secret_set(struct vmm_secrets *s, const char *owner, const char *name, const void *value,
                   size_t len, bool *created, struct err *err)
{
    struct vmm_secret *old, *made;
    int r = check(s, owner, name, value, len, err);

    if (r != 0)
        return r;
    old = (struct vmm_secret *)vmm_secret_find(s, owner, name);
    made = calloc(1, sizeof(*made));
    if (made == NULL)
        return tr_err_set(err, -ENOMEM, "out of memory");
    snprintf(made->owner, sizeof(made->owner), "%s", owner);
    snprintf(made->name, sizeof(made->name), "%s", name);
    made->updated_ms = vmm_wall_ms();
    made->created_ms = old != NULL ? old->created_ms : made->updated_ms;
    r = seal_value(s, made, value, len, err);
    if (r == 0)
        r = save(s, made, err);
    if (r == 0 && old == NULL && (r = link_in(s, made)) != 0)
        (void)tr_err_set(err, r, "out of memory");
    if (r != 0) {
        secret_free(made);
        return r;
    }
    *created = old == NULL;
    if (old != NULL) {
        json_decref(old->sealed);
        old->sealed = json_incref(made->sealed);
        old->updated_ms = made->updated_ms;
        secret_free(made);
    }
    return 0;
}

int vmm_secret_value(const struct vmm_secrets *s, const struct vmm_secret *secret, uint8_t **value,
                     size_t *len, struct err *err)
{
    char context[ID_SIZE + 16];
    int r;

    make_context(secret, context);
    r = vmm_unseal(s->seal, context, secret->sealed, value, len, err);
    if (r != 0)
        (void)tr_err_wrap(err, "secret %s cannot be opened", secret->name);
    return r;
}

int vmm_secret_delete(struct vmm_secrets *s, const char *owner, const char *name, struct err *err)
{
    struct vmm_secret *secret = (struct vmm_secret *)vmm_secret_find(s, owner, name);
    char dir[VMM_PATH_SIZE], file[VMM_SECRET_NAME_MAX + 6], id[ID_SIZE];
    struct vmm_secret **p = &s->first;
    int r;

    if (secret == NULL)
        return -ENOENT;
    snprintf(dir, sizeof(dir), "%s/%s", s->dir, owner);
    snprintf(file, sizeof(file), "%s.json", name);
    r = vmm_file_remove(dir, file, err);
    if (r != 0)
        return r;
    while (*p != secret)
        p = &(*p)->next;
    *p = secret->next;
    make_id(owner, name, id);
    (void)vmm_table_take(&s->by_id, id);
    secret_free(secret);
    return 0;
}

static int seal_again(struct vmm_secrets *s, struct vmm_secret *secret, struct err *err)
{
    json_t *old = secret->sealed;
    uint8_t *value;
    size_t len;
    int r = vmm_secret_value(s, secret, &value, &len, err);

    if (r != 0)
        return r;
    r = seal_value(s, secret, value, len, err);
    explicit_bzero(value, len);
    free(value);
    if (r == 0 && (r = save(s, secret, err)) == 0) {
        json_decref(old);
        return 0;
    }
    json_decref(secret->sealed);
    secret->sealed = old;
    return r;
}

int vmm_secrets_rotate(struct vmm_secrets *s, size_t *n, struct err *err)
{
    int r = vmm_seal_rotate(s->seal, err);

    *n = 0;
    for (struct vmm_secret *secret = s->first; r == 0 && secret != NULL; secret = secret->next) {
        if (vmm_seal_is_current(s->seal, secret->sealed))
            continue;
        r = seal_again(s, secret, err);
        *n += r == 0;
    }
    return r == 0 ? vmm_seal_forget_old(s->seal, err) : r;
}
