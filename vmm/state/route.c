/* SPDX-License-Identifier: MIT */
/* Names of sandbox states, and the route record between C and JSON. Records come from Redis, which
 * others may write to: every length and every character that matters is checked here. */
#include "transom/route.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>
#include <uv.h>
#include "vmm/state/route_json.h"

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

static bool address_valid(const char *s)
{
    struct in6_addr addr; /* room for either kind */

    return inet_pton(AF_INET, s, &addr) == 1 || inet_pton(AF_INET6, s, &addr) == 1;
}

static int parse_place(const json_t *o, struct tr_route *r, struct err *err)
{
    json_int_t v = 0, port = 0, instance = 0;
    char state[16];
    int e;

    if ((e = tr_member_number(o, "v", 1, INT32_MAX, &v, err)) != 0)
        return e;
    if (v != 1)
        return tr_err_set(err, UV_EINVAL, "v: version %lld is not known", (long long)v);
    if ((e = tr_member_text(o, "state", state, sizeof(state), err)) != 0)
        return e;
    if (tr_sandbox_state_parse(state, &r->state) != 0)
        return tr_err_set(err, UV_EINVAL, "state: \"%s\" is not known", state);
    if ((e = tr_member_text(o, "address", r->address, sizeof(r->address), err)) != 0 ||
        (e = tr_member_number(o, "instance", 0, INT64_MAX, &instance, err)) != 0 ||
        (e = tr_member_text(o, "node", r->node, sizeof(r->node), err)) != 0 ||
        (e = tr_member_text(o, "session", r->session, sizeof(r->session), err)) != 0 ||
        (e = tr_member_text(o, "owner", r->owner, sizeof(r->owner), err)) != 0 ||
        (e = tr_member_text(o, "reason", r->reason, sizeof(r->reason), err)) != 0)
        return e;
    if (r->address[0] != '\0' && !address_valid(r->address))
        return tr_err_set(err, UV_EINVAL, "address: not numeric");
    if (r->state == TR_SANDBOX_RUNNING) {
        if (r->address[0] == '\0')
            return tr_err_set(err, UV_EINVAL, "address: missing while running");
        if ((e = tr_member_number(o, "port", 1, UINT16_MAX, &port, err)) != 0)
            return e;
    } else if (json_object_get(o, "port") != NULL &&
               (e = tr_member_number(o, "port", 0, UINT16_MAX, &port, err)) != 0) {
        return e;
    }
    if (r->session[0] != '\0' && !tr_label_valid(r->session, strlen(r->session)))
        return tr_err_set(err, UV_EINVAL, "session: not an id");
    r->port = (uint16_t)port;
    r->instance = (uint64_t)instance;
    return 0;
}

static int hex_value(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static int parse_key(const json_t *access, uint8_t key[TR_ROUTE_KEY_SIZE], struct err *err)
{
    char hex[2 * TR_ROUTE_KEY_SIZE + 1];
    int e = tr_member_text(access, "key", hex, sizeof(hex), err);
    bool bad = strlen(hex) != 2 * TR_ROUTE_KEY_SIZE;

    for (int i = 0; e == 0 && !bad && i < TR_ROUTE_KEY_SIZE; i++) {
        int hi = hex_value(hex[2 * i]), lo = hex_value(hex[2 * i + 1]);

        bad = hi < 0 || lo < 0;
        key[i] = (uint8_t)(bad ? 0 : hi * 16 + lo);
    }
    explicit_bzero(hex, sizeof(hex));
    if (e == 0 && bad)
        e = tr_err_set(err, UV_EINVAL, "access.key: not %d hexadecimal digits",
                       2 * TR_ROUTE_KEY_SIZE);
    return e;
}

/* is_private, and then key, embed. */
static int parse_access(const json_t *o, bool *is_private, uint8_t key[TR_ROUTE_KEY_SIZE],
                        bool *embed, struct err *err)
{
    const json_t *access = json_object_get(o, "access");
    char mode[16];
    int e;

    *is_private = *embed = false;
    if (access == NULL)
        return 0;
    if (!json_is_object(access))
        return tr_err_set(err, UV_EINVAL, "access: not an object");
    if ((e = tr_member_text(access, "mode", mode, sizeof(mode), err)) != 0)
        return e;
    if (strcmp(mode, "public") == 0)
        return 0;
    if (strcmp(mode, "private") != 0)
        return tr_err_set(err, UV_EINVAL, "access.mode: \"%s\" is not known", mode);
    *is_private = true;
    if ((e = tr_member_flag(access, "embed", embed, err)) != 0)
        return e;
    return parse_key(access, key, err);
}

static int parse_extra(const json_t *o, struct tr_route_extra **out, struct err *err)
{
    uint8_t key[TR_ROUTE_KEY_SIZE];
    bool is_private, embed;
    int e = parse_access(o, &is_private, key, &embed, err);

    if (e == 0)
        e = tr_route_places_parse(o, is_private ? key : NULL, embed, out, err);
    explicit_bzero(key, sizeof(key));
    return e;
}

static int parse_members(const json_t *o, struct tr_route *r, struct err *err)
{
    json_int_t agent_port = 0;
    int e;

    if ((e = parse_place(o, r, err)) != 0 || (e = tr_member_protocol(o, &r->protocol, err)) != 0 ||
        (e = tr_member_flag(o, "wake", &r->wake, err)) != 0)
        return e;
    if (json_object_get(o, "agent_port") != NULL &&
        (e = tr_member_number(o, "agent_port", 0, UINT16_MAX, &agent_port, err)) != 0)
        return e;
    r->agent_port = (uint16_t)agent_port;
    return parse_extra(o, &r->extra, err);
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
    if (len > TR_ROUTE_RECORD_MAX)
        return tr_err_set(err, UV_EINVAL, "record of %zu bytes, the limit is %d", len,
                          TR_ROUTE_RECORD_MAX);
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

void tr_route_fini(struct tr_route *route)
{
    tr_route_extra_unref(route->extra);
    route->extra = NULL;
}

/* ---- encoding ---- */

static json_t *encode_access(const struct tr_route_extra *x)
{
    char hex[2 * TR_ROUTE_KEY_SIZE + 1];
    json_t *access;

    for (int i = 0; i < TR_ROUTE_KEY_SIZE; i++) {
        hex[2 * i] = "0123456789abcdef"[x->key[i] >> 4];
        hex[2 * i + 1] = "0123456789abcdef"[x->key[i] & 15];
    }
    hex[2 * TR_ROUTE_KEY_SIZE] = '\0';
    access = json_pack("{s:s, s:s, s:b}", "mode", "private", "key", hex, "embed", (int)x->embed);
    explicit_bzero(hex, sizeof(hex));
    return access;
}

/* Add the members that differ from what their absence means. False: out of memory. */
static bool encode_optional(json_t *o, const struct tr_route *r)
{
    const struct tr_route_extra *x = r->extra;

    if (r->protocol != TR_PROTOCOL_HTTP1 &&
        json_object_set_new(o, "protocol", json_string(tr_protocol_name(r->protocol))) != 0)
        return false;
    if (r->wake && json_object_set_new(o, "wake", json_true()) != 0)
        return false;
    if (r->agent_port != 0 &&
        json_object_set_new(o, "agent_port", json_integer(r->agent_port)) != 0)
        return false;
    if (x == NULL)
        return true;
    return (x->n_rules == 0 || json_object_set_new(o, "rules", tr_route_rules_json(x)) == 0) &&
           (x->n_ports == 0 || json_object_set_new(o, "ports", tr_route_ports_json(x)) == 0) &&
           (!x->is_private || json_object_set_new(o, "access", encode_access(x)) == 0);
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
    if (!encode_optional(o, route)) {
        json_decref(o);
        return NULL;
    }
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
