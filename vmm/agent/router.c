/* SPDX-License-Identifier: MIT */
#include "vmm/agent/router.h"

#include <stdlib.h>
#include <string.h>
#include <uv.h>
#include "transom/hex.h"

/* Decode text[0..len) in place, with a NUL put behind. There must be room for it. */
static int decode(char *text, size_t len, bool plus, struct agent_text *out)
{
    size_t n = 0;

    for (size_t i = 0; i < len; i++) {
        if (text[i] == '%') {
            int hi, lo;

            if (i + 2 >= len)
                return UV_EINVAL;
            hi = tr_hex_digit(text[i + 1]);
            lo = tr_hex_digit(text[i + 2]);
            if (hi < 0 || lo < 0)
                return UV_EINVAL;
            text[n++] = (char)(hi << 4 | lo);
            i += 2;
        } else {
            text[n++] = plus && text[i] == '+' ? ' ' : text[i];
        }
    }
    text[n] = '\0';
    out->at = text;
    out->len = n;
    return 0;
}

/* Does the still encoded path match? Parameters are set to their encoded extent. */
static bool match(const char *pattern, const char *path, size_t path_len, struct agent_target *t)
{
    const char *end = path + path_len;

    t->n_params = 0;
    while (*pattern != '\0' && path < end) {
        if (*pattern == '*') {
            const char *slash = memchr(path, '/', (size_t)(end - path));
            size_t len = (size_t)((slash != NULL ? slash : end) - path);

            if (t->n_params == AGENT_MAX_PARAMS)
                return false;
            t->params[t->n_params].at = path;
            t->params[t->n_params++].len = len;
            path += len;
            pattern++;
        } else if (*pattern++ != *path++) {
            return false;
        }
    }
    if (*pattern == '*' && path == end && t->n_params < AGENT_MAX_PARAMS) { /* an empty one */
        t->params[t->n_params].at = path;
        t->params[t->n_params++].len = 0;
        pattern++;
    }
    return *pattern == '\0' && path == end;
}

static int decode_query(struct agent_target *t, char *query)
{
    while (query != NULL && *query != '\0') {
        char *next = strchr(query, '&');
        char *value;

        if (next != NULL)
            *next++ = '\0';
        value = strchr(query, '=');
        if (*query != '\0') {
            size_t i = t->n_query;
            size_t name_len = value != NULL ? (size_t)(value - query) : strlen(query);
            char *from = value != NULL ? value + 1 : query + name_len;

            if (i == AGENT_MAX_QUERY || decode(from, strlen(from), true, &t->query[i].value) != 0 ||
                decode(query, name_len, true, &t->query[i].name) != 0)
                return UV_EINVAL;
            t->n_query++;
        }
        query = next;
    }
    return 0;
}

int agent_route_find(const struct agent_route *routes, size_t n_routes, const char *method,
                     const char *target, const struct agent_route **route, struct agent_target *out)
{
    const struct agent_route *found = NULL;
    size_t path_len = strcspn(target, "?#");
    bool other_method = false;
    struct agent_target t;
    char *query, *at;
    int r;

    memset(&t, 0, sizeof(t));
    for (size_t i = 0; i < n_routes && found == NULL; i++) {
        if (!match(routes[i].pattern, target, path_len, &t))
            continue;
        if (strcmp(routes[i].method, method) == 0)
            found = &routes[i];
        else
            other_method = true;
    }
    if (found == NULL)
        return other_method ? UV_ENOTSUP : UV_ENOENT;

    /* Each parameter is copied with room for its NUL; the query behind them. */
    query = target[path_len] == '?' ? strdup(target + path_len + 1) : NULL;
    t.storage = malloc(path_len + AGENT_MAX_PARAMS + 1 + (query != NULL ? strlen(query) + 1 : 0));
    if (t.storage == NULL || (target[path_len] == '?' && query == NULL)) {
        free(t.storage);
        free(query);
        return UV_ENOMEM;
    }
    at = t.storage;
    r = 0;
    for (size_t i = 0; i < t.n_params && r == 0; i++) {
        size_t len = t.params[i].len;

        memcpy(at, t.params[i].at, len);
        r = decode(at, len, false, &t.params[i]);
        at += len + 1;
    }
    if (r == 0 && query != NULL)
        r = decode_query(&t, memcpy(at, query, strlen(query) + 1));
    free(query);
    if (r != 0) {
        free(t.storage);
        return r;
    }
    *route = found;
    *out = t;
    return 0;
}

void agent_target_fini(struct agent_target *t)
{
    free(t->storage);
    memset(t, 0, sizeof(*t));
}

const struct agent_text *agent_target_query(const struct agent_target *t, const char *name)
{
    for (size_t i = 0; i < t->n_query; i++) {
        if (strcmp(t->query[i].name.at, name) == 0 && t->query[i].name.len == strlen(name))
            return &t->query[i].value;
    }
    return NULL;
}
