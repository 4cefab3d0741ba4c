/* SPDX-License-Identifier: MIT */
#include "vmm/driver/qmp_parse.h"

#include <stdlib.h>
#include <string.h>
#include <uv.h>

#define DEPTH_MAX 32 /* jansson recurses; QMP answers of ours nest 4 deep */

void qmp_parser_init(struct qmp_parser *p)
{
    memset(p, 0, sizeof(*p));
}

void qmp_parser_fini(struct qmp_parser *p)
{
    free(p->line);
    memset(p, 0, sizeof(*p));
}

static int append(struct qmp_parser *p, const char *data, size_t len)
{
    if (len > QMP_LINE_MAX - p->len)
        return UV_EMSGSIZE;
    if (len == 0)
        return 0;
    if (p->len + len > p->size) {
        size_t size = p->size == 0 ? 4096 : p->size;
        char *line;

        while (size < p->len + len)
            size *= 2;
        line = realloc(p->line, size);
        if (line == NULL)
            return UV_ENOMEM;
        p->line = line;
        p->size = size;
    }
    memcpy(p->line + p->len, data, len);
    p->len += len;
    return 0;
}

/* Brackets outside of strings, so that a hostile line cannot make the JSON parser recurse. */
static bool too_deep(const char *s, size_t len)
{
    bool in_string = false;
    int depth = 0;
    size_t i;

    for (i = 0; i < len; i++) {
        if (in_string) {
            if (s[i] == '\\')
                i++;
            else if (s[i] == '"')
                in_string = false;
        } else if (s[i] == '"') {
            in_string = true;
        } else if (s[i] == '{' || s[i] == '[') {
            if (++depth > DEPTH_MAX)
                return true;
        } else if (s[i] == '}' || s[i] == ']') {
            depth--;
        }
    }
    return false;
}

static int take_line(struct qmp_parser *p, qmp_message_cb cb, void *arg, struct err *err)
{
    json_error_t fault;
    json_t *message;
    size_t len = p->len;
    int r;

    p->len = 0;
    while (len > 0 && (p->line[len - 1] == '\r' || p->line[len - 1] == ' '))
        len--;
    if (len == 0)
        return 0;
    if (too_deep(p->line, len))
        return tr_err_set(err, UV_EPROTO, "QMP: message nests too deep");
    message = json_loadb(p->line, len, JSON_REJECT_DUPLICATES, &fault);
    if (message == NULL)
        return tr_err_set(err, UV_EPROTO, "QMP: not JSON: %s", fault.text);
    if (json_is_object(message))
        r = cb(message, arg);
    else
        r = tr_err_set(err, UV_EPROTO, "QMP: not an object");
    json_decref(message);
    return r;
}

int qmp_parse(struct qmp_parser *p, const char *data, size_t len, qmp_message_cb cb, void *arg,
              struct err *err)
{
    int r;

    while (len > 0) {
        const char *end = memchr(data, '\n', len);
        size_t n = end != NULL ? (size_t)(end - data) : len;

        r = append(p, data, n);
        if (r == UV_EMSGSIZE)
            return tr_err_set(err, r, "QMP: a message of more than %d bytes", QMP_LINE_MAX);
        if (r != 0)
            return tr_err_set(err, r, "out of memory");
        if (end == NULL)
            return 0;
        r = take_line(p, cb, arg, err);
        if (r != 0)
            return r;
        data += n + 1;
        len -= n + 1;
    }
    return 0;
}
