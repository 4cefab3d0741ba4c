/* SPDX-License-Identifier: MIT */
/* Names of sandbox states, and the route record between C and JSON. Records come from Redis, which
 * others may write to: every length and every character that matters is checked here. */
#include "transom/state.h"

#include <arpa/inet.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#define RECORD_MAX 4096 /* bytes; ours are below 700 */

static const char *const state_names[] = {
    [TR_SANDBOX_ASLEEP] = "asleep",   [TR_SANDBOX_STARTING] = "starting",
    [TR_SANDBOX_RUNNING] = "running", [TR_SANDBOX_STOPPING] = "stopping",
    [TR_SANDBOX_FAILED] = "failed",
};
#define N_STATES (sizeof(state_names) / sizeof(state_names[0]))

const char *tr_sandbox_state_name(enum tr_sandbox_state state)
{
    return (size_t)state < N_STATES ? state_names[state] : "unknown";
}

int tr_sandbox_state_parse(const char *name, enum tr_sandbox_state *state)
{
    for (size_t i = 0; i < N_STATES; i++) {
        if (strcmp(name, state_names[i]) == 0) {
            *state = (enum tr_sandbox_state)i;
            return 0;
        }
    }
    return UV_EINVAL;
}

bool tr_label_valid(const char *s, size_t len)
{
    if (len != TR_LABEL_LEN)
        return false;
    for (size_t i = 0; i < len; i++) {
        if (!(s[i] >= 'a' && s[i] <= 'z') && !(s[i] >= '0' && s[i] <= '9'))
            return false;
    }
    return true;
}

/* Copy a text member into a fixed field. Absent counts as "". Control characters are refused: the
 * text goes into logs and pages. */
static int get_text(const json_t *o, const char *key, char *out, size_t cap, struct err *err)
{
    const json_t *v = json_object_get(o, key);
    const char *s;
    size_t len;

    out[0] = '\0';
    if (v == NULL)
        return 0;
    if (!json_is_string(v))
        return tr_err_set(err, UV_EINVAL, "%s: not a string", key);
    s = json_string_value(v);
    len = json_string_length(v);
    if (len >= cap)
        return tr_err_set(err, UV_EINVAL, "%s: longer than %zu bytes", key, cap - 1);
    for (size_t i = 0; i < len; i++) {
        if ((unsigned char)s[i] < 0x20 || s[i] == 0x7f)
            return tr_err_set(err, UV_EINVAL, "%s: control character", key);
    }
    memcpy(out, s, len + 1);
    return 0;
}

static int get_number(const json_t *o, const char *key, json_int_t min, json_int_t max,
                      json_int_t *out, struct err *err)
{
    const json_t *v = json_object_get(o, key);

    if (v == NULL)
        return tr_err_set(err, UV_EINVAL, "%s: missing", key);
    if (!json_is_integer(v))
        return tr_err_set(err, UV_EINVAL, "%s: not an integer", key);
    *out = json_integer_value(v);
    if (*out < min || *out > max)
        return tr_err_set(err, UV_EINVAL, "%s: out of range", key);
    return 0;
}

static bool address_valid(const char *s)
{
    struct in6_addr addr; /* room for either kind */

    return inet_pton(AF_INET, s, &addr) == 1 || inet_pton(AF_INET6, s, &addr) == 1;
}

static int parse_members(const json_t *o, struct tr_route *r, struct err *err)
{
    json_int_t v = 0, port = 0, instance = 0;
    char state[16];
    int e;

    if ((e = get_number(o, "v", 1, INT32_MAX, &v, err)) != 0)
        return e;
    if (v != 1)
        return tr_err_set(err, UV_EINVAL, "v: version %lld is not known", (long long)v);
    if ((e = get_text(o, "state", state, sizeof(state), err)) != 0)
        return e;
    if (tr_sandbox_state_parse(state, &r->state) != 0)
        return tr_err_set(err, UV_EINVAL, "state: \"%s\" is not known", state);
    if ((e = get_text(o, "address", r->address, sizeof(r->address), err)) != 0 ||
        (e = get_number(o, "instance", 0, INT64_MAX, &instance, err)) != 0 ||
        (e = get_text(o, "node", r->node, sizeof(r->node), err)) != 0 ||
        (e = get_text(o, "session", r->session, sizeof(r->session), err)) != 0 ||
        (e = get_text(o, "owner", r->owner, sizeof(r->owner), err)) != 0 ||
        (e = get_text(o, "reason", r->reason, sizeof(r->reason), err)) != 0)
        return e;
    if (r->address[0] != '\0' && !address_valid(r->address))
        return tr_err_set(err, UV_EINVAL, "address: not numeric");
    if (r->state == TR_SANDBOX_RUNNING) {
        if (r->address[0] == '\0')
            return tr_err_set(err, UV_EINVAL, "address: missing while running");
        if ((e = get_number(o, "port", 1, UINT16_MAX, &port, err)) != 0)
            return e;
    } else if (json_object_get(o, "port") != NULL &&
               (e = get_number(o, "port", 0, UINT16_MAX, &port, err)) != 0) {
        return e;
    }
    if (r->session[0] != '\0' && !tr_label_valid(r->session, strlen(r->session)))
        return tr_err_set(err, UV_EINVAL, "session: not an id");
    r->port = (uint16_t)port;
    r->instance = (uint64_t)instance;
    return 0;
}

int tr_route_parse(const char *label, const char *json, size_t len, struct tr_route *out,
                   struct err *err)
{
    struct tr_route r = {.state = TR_SANDBOX_ASLEEP};
    json_error_t je;
    json_t *o;
    int e;

    if (strnlen(label, TR_LABEL_LEN + 1) != TR_LABEL_LEN || !tr_label_valid(label, TR_LABEL_LEN))
        return tr_err_set(err, UV_EINVAL, "label: not [a-z0-9]{16}");
    if (len > RECORD_MAX)
        return tr_err_set(err, UV_EINVAL, "record of %zu bytes, the limit is %d", len, RECORD_MAX);
    /* jansson refuses invalid UTF-8 and, by default, \u0000 in strings. */
    o = json_loadb(json, len, JSON_REJECT_DUPLICATES, &je);
    if (o == NULL)
        return tr_err_set(err, UV_EINVAL, "JSON: %s", je.text);
    if (json_is_object(o))
        e = parse_members(o, &r, err);
    else
        e = tr_err_set(err, UV_EINVAL, "not an object");
    json_decref(o);
    if (e != 0)
        return e;
    memcpy(r.label, label, TR_LABEL_LEN + 1);
    *out = r;
    return 0;
}

char *tr_route_encode(const struct tr_route *route)
{
    json_t *o =
        json_pack("{s:i, s:s, s:s, s:i, s:I, s:s, s:s, s:s, s:s}", "v", 1, "state",
                  tr_sandbox_state_name(route->state), "address", route->address, "port",
                  (int)route->port, "instance", (json_int_t)route->instance, "node", route->node,
                  "session", route->session, "owner", route->owner, "reason", route->reason);
    char *text = NULL;
    size_t len;

    if (o == NULL)
        return NULL;
    /* Not json_dumps(): when its buffer cannot grow, jansson 2.14 goes on and leaves a hole. */
    len = json_dumpb(o, NULL, 0, JSON_COMPACT);
    if (len > 0)
        text = malloc(len + 1);
    if (text != NULL) {
        if (json_dumpb(o, text, len, JSON_COMPACT) == len) {
            text[len] = '\0';
        } else {
            free(text);
            text = NULL;
        }
    }
    json_decref(o);
    return text;
}
