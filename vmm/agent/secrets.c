/* SPDX-License-Identifier: MIT */
#include "vmm/agent/secrets.h"

#include <stdlib.h>
#include <string.h>

#include "transom/log.h"
#include "vmm/agent/base64.h"
#include "vmm/agent/exec.h"
#include "vmm/agent/window.h"

int agent_secrets_new(struct agent *a, struct agent_secrets **out)
{
    *out = calloc(1, sizeof(**out));
    if (*out == NULL)
        return UV_ENOMEM;
    (*out)->agent = a;
    return 0;
}

static void wipe(struct agent_secret *list, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (list[i].value != NULL)
            explicit_bzero(list[i].value, list[i].len);
        free(list[i].value);
        free(list[i].name);
    }
    free(list);
}

static void show_in_log(const struct agent_secret *list, size_t n)
{
    for (size_t i = 0; i < n; i++)
        tr_log_secret_remove(list[i].value, list[i].len);
}

/* Our own log: values that stand there whole. All of them, or none. */
static int hide_in_log(const struct agent_secret *list, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        int r = tr_log_secret_add(list[i].value, list[i].len);

        if (r != 0) {
            show_in_log(list, i);
            return r;
        }
    }
    return 0;
}

static void drop(struct agent_secrets *s)
{
    show_in_log(s->list, s->n);
    wipe(s->list, s->n);
    tr_mask_unref(s->mask);
    s->list = NULL;
    s->n = 0;
    s->mask = NULL;
}

void agent_secrets_free(struct agent_secrets *s)
{
    drop(s);
    free(s);
}

static bool is_name(const char *name)
{
    size_t len = strlen(name);

    return len > 0 && len <= 128 && (name[0] < '0' || name[0] > '9') &&
           strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_") == len;
}

/* One item of the list into *out. False: an error was answered. */
static bool parse_one(struct agent_request *req, json_t *item, struct agent_secret *out)
{
    const char *name = NULL, *text = NULL;
    uint8_t *value;

    if (!json_is_object(item) || !agent_json_string(req, item, "name", &name) ||
        !agent_json_string(req, item, "value_b64", &text)) {
        if (!req->answered)
            agent_request_error(req, 400, NULL, "secrets must be a list of objects");
        return false;
    }
    if (name == NULL || !is_name(name) || text == NULL ||
        agent_base64_decode(text, &value, &out->len) != 0) {
        agent_request_error(req, 400, NULL, "a secret needs a name and a value_b64");
        return false;
    }
    out->value = (char *)value;
    out->name = strdup(name);
    if (out->name == NULL || out->len > TR_MASK_VALUE_MAX ||
        memchr(out->value, '\0', out->len) != NULL) {
        agent_request_error(req, 400, NULL, "the value of %s cannot be a secret", name);
        return false;
    }
    return true;
}

static int make_mask(const struct agent_secret *list, size_t n, struct tr_mask **out)
{
    struct tr_mask_secret *values = calloc(n + 1, sizeof(*values));
    int r;

    if (values == NULL)
        return UV_ENOMEM;
    for (size_t i = 0; i < n; i++)
        values[i] = (struct tr_mask_secret){list[i].value, list[i].len};
    r = tr_mask_new(values, n, out);
    free(values);
    return r;
}

static void replace(struct agent_request *req, struct agent_secret *list, size_t n,
                    json_int_t version)
{
    struct agent_secrets *s = req->agent->secrets;
    struct tr_mask *mask = NULL;
    int r = make_mask(list, n, &mask);

    if (r == 0)
        r = hide_in_log(list, n);
    if (r != 0) {
        wipe(list, n);
        tr_mask_unref(mask);
        agent_request_error(req, r == UV_E2BIG ? 413 : 500, NULL, "secrets: %s", uv_strerror(r));
        return;
    }
    drop(s);
    s->list = list;
    s->n = n;
    s->mask = mask;
    s->version = version;
    agent_windows_secrets_changed(req->agent->windows);
    agent_execs_secrets_changed(req->agent->execs);
    agent_request_empty(req, 204);
}

void agent_secrets_greeted(struct agent_secrets *s)
{
    s->version = 0;
}

void agent_secrets_handle_put(struct agent_request *req)
{
    json_t *body = agent_request_json(req), *items = json_object_get(body, "secrets");
    json_int_t version = json_integer_value(json_object_get(body, "version"));
    size_t n = json_array_size(items), done = 0;
    struct agent_secret *list;

    if (body == NULL)
        return;
    list = calloc(n + 1, sizeof(*list));
    if (!json_is_array(items) || n > AGENT_MAX_SECRETS || list == NULL) {
        agent_request_error(req, 400, NULL, "secrets must be a list of at most %d",
                            AGENT_MAX_SECRETS);
        free(list);
        json_decref(body);
        return;
    }
    while (done < n && parse_one(req, json_array_get(items, done), &list[done]))
        done++;
    json_decref(body);
    if (req->body != NULL)
        explicit_bzero(req->body, req->body_len);
    if (done < n)
        wipe(list, done + 1); /* the one that failed may be half there */
    else if (!agent_request_may_act(req))
        wipe(list, n);
    else if (version > 0 && version < req->agent->secrets->version) {
        wipe(list, n);
        agent_request_empty(req, 204);
    } else
        replace(req, list, n, version);
}

const struct agent_secret *agent_secret_find(const struct agent_secrets *s, const char *name)
{
    for (size_t i = 0; i < s->n; i++) {
        if (strcmp(s->list[i].name, name) == 0)
            return &s->list[i];
    }
    return NULL;
}

int agent_secrets_set_env(const struct agent_secrets *s, struct agent_child *child)
{
    int r = 0;

    for (size_t i = 0; i < s->n && r == 0; i++)
        r = agent_child_set(child, s->list[i].name, s->list[i].value);
    return r;
}

static void hide_string(const struct agent_secrets *s, json_t *value)
{
    size_t len;
    char *text = tr_mask_text(s->mask, json_string_value(value), json_string_length(value), &len);

    /* Bytes around a secret may no longer be UTF-8: then nothing of it is told. */
    if (text == NULL || json_string_setn(value, text, len) != 0)
        json_string_set(value, TR_MASK_TEXT);
    free(text);
}

void agent_secrets_hide_json(const struct agent_secrets *s, json_t *value)
{
    const char *name;
    json_t *item;
    size_t i;

    if (s->mask == NULL)
        return;
    if (json_is_string(value))
        hide_string(s, value);
    json_object_foreach(value, name, item) agent_secrets_hide_json(s, item);
    json_array_foreach(value, i, item) agent_secrets_hide_json(s, item);
}

void agent_secrets_hide_text(const struct agent_secrets *s, char *text, size_t size)
{
    size_t len;
    char *hidden;

    if (s->mask == NULL)
        return;
    hidden = tr_mask_text(s->mask, text, strlen(text), &len);
    if (len >= size)
        len = size - 1;
    if (hidden != NULL)
        memcpy(text, hidden, len);
    else
        len = 0;
    text[len] = '\0';
    free(hidden);
}
