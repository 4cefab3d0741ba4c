/* SPDX-License-Identifier: MIT */
#include "vmm/state/route_json.h"

#include <stdio.h>
#include <string.h>
#include <uv.h>

static const json_t *member(const json_t *o, const char *key)
{
    const json_t *v = json_object_get(o, key);

    return json_is_null(v) ? NULL : v;
}

int tr_member_text(const json_t *o, const char *key, char *out, size_t cap, struct err *err)
{
    const json_t *v = member(o, key);
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

int tr_member_number(const json_t *o, const char *key, json_int_t min, json_int_t max,
                     json_int_t *out, struct err *err)
{
    const json_t *v = member(o, key);

    if (v == NULL)
        return tr_err_set(err, UV_EINVAL, "%s: missing", key);
    if (!json_is_integer(v))
        return tr_err_set(err, UV_EINVAL, "%s: not an integer", key);
    *out = json_integer_value(v);
    if (*out < min || *out > max)
        return tr_err_set(err, UV_EINVAL, "%s: out of range (%lld to %lld)", key, (long long)min,
                          (long long)max);
    return 0;
}

int tr_member_flag(const json_t *o, const char *key, bool *out, struct err *err)
{
    const json_t *v = member(o, key);

    if (v != NULL && !json_is_boolean(v))
        return tr_err_set(err, UV_EINVAL, "%s: neither true nor false", key);
    *out = json_is_true(v);
    return 0;
}

int tr_member_protocol(const json_t *o, uint8_t *out, struct err *err)
{
    enum tr_protocol protocol = TR_PROTOCOL_HTTP1;
    char name[16];
    int e = tr_member_text(o, "protocol", name, sizeof(name), err);

    if (e == 0 && member(o, "protocol") != NULL && tr_protocol_parse(name, &protocol) != 0)
        e = tr_err_set(err, UV_EINVAL, "protocol: \"%s\" is not known", name);
    *out = (uint8_t)protocol;
    return e;
}

/* An array of at most max objects; absent counts as empty. */
static int get_objects(const json_t *o, const char *key, size_t max, const json_t **array,
                       size_t *n, struct err *err)
{
    *array = member(o, key);
    *n = 0;
    if (*array == NULL)
        return 0;
    if (!json_is_array(*array))
        return tr_err_set(err, UV_EINVAL, "%s: not an array", key);
    *n = json_array_size(*array);
    if (*n > max)
        return tr_err_set(err, UV_EINVAL, "%s: more than %zu", key, max);
    for (size_t i = 0; i < *n; i++) {
        if (!json_is_object(json_array_get(*array, i)))
            return tr_err_set(err, UV_EINVAL, "%s[%zu]: not an object", key, i);
    }
    return 0;
}

/* prefix points into o. */
static int parse_rule(const json_t *o, struct tr_route_rule *rule, struct err *err)
{
    const json_t *prefix = json_object_get(o, "prefix");
    json_int_t port = 0;
    int e;

    if (!json_is_string(prefix) || json_string_length(prefix) > TR_ROUTE_PREFIX_MAX)
        return tr_err_set(err, UV_EINVAL, "prefix: not a string of at most %d bytes",
                          TR_ROUTE_PREFIX_MAX);
    if ((e = tr_member_number(o, "port", 1, UINT16_MAX, &port, err)) != 0 ||
        (e = tr_member_protocol(o, &rule->protocol, err)) != 0 ||
        (e = tr_member_flag(o, "strip", &rule->strip, err)) != 0)
        return e;
    rule->prefix = json_string_value(prefix);
    rule->prefix_len = (uint16_t)json_string_length(prefix);
    rule->port = (uint16_t)port;
    return 0;
}

static int parse_port(const json_t *o, struct tr_route_port *port, struct err *err)
{
    json_int_t number = 0;
    int e = tr_member_number(o, "port", 1, UINT16_MAX, &number, err);

    port->port = (uint16_t)number;
    return e != 0 ? e : tr_member_protocol(o, &port->protocol, err);
}

/* "port: missing" becomes "rules[3].port: missing". */
static int in_item(struct err *err, const char *array, size_t i)
{
    char text[sizeof(err->msg)];

    if (err != NULL) {
        memcpy(text, err->msg, sizeof(text));
        (void)tr_err_set(err, err->code, "%s[%zu].%s", array, i, text);
    }
    return UV_EINVAL;
}

int tr_route_places_parse(const json_t *o, const uint8_t *key, bool embed,
                          struct tr_route_extra **out, struct err *err)
{
    struct tr_route_rule rules[TR_ROUTE_RULES_MAX];
    struct tr_route_port ports[TR_ROUTE_PORTS_MAX];
    const json_t *rule_array, *port_array;
    size_t n_rules, n_ports;
    int e;

    if ((e = get_objects(o, "rules", TR_ROUTE_RULES_MAX, &rule_array, &n_rules, err)) != 0 ||
        (e = get_objects(o, "ports", TR_ROUTE_PORTS_MAX, &port_array, &n_ports, err)) != 0)
        return e;
    for (size_t i = 0; i < n_rules; i++) {
        if (parse_rule(json_array_get(rule_array, i), &rules[i], err) != 0)
            return in_item(err, "rules", i);
    }
    for (size_t i = 0; i < n_ports; i++) {
        if (parse_port(json_array_get(port_array, i), &ports[i], err) != 0)
            return in_item(err, "ports", i);
    }
    return tr_route_extra_new(rules, n_rules, ports, n_ports, key, embed, out, err);
}

json_t *tr_route_rules_json(const struct tr_route_extra *extra)
{
    json_t *array = json_array();

    for (size_t i = 0; array != NULL && extra != NULL && i < extra->n_rules; i++) {
        const struct tr_route_rule *rule = &extra->rules[i];

        if (json_array_append_new(array,
                                  json_pack("{s:s, s:i, s:b, s:s}", "prefix", rule->prefix, "port",
                                            (int)rule->port, "strip", (int)rule->strip, "protocol",
                                            tr_protocol_name(rule->protocol))) != 0) {
            json_decref(array);
            return NULL;
        }
    }
    return array;
}

json_t *tr_route_ports_json(const struct tr_route_extra *extra)
{
    json_t *array = json_array();

    for (size_t i = 0; array != NULL && extra != NULL && i < extra->n_ports; i++) {
        if (json_array_append_new(
                array, json_pack("{s:i, s:s}", "port", (int)extra->ports[i].port, "protocol",
                                 tr_protocol_name(extra->ports[i].protocol))) != 0) {
            json_decref(array);
            return NULL;
        }
    }
    return array;
}
