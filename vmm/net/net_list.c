/* SPDX-License-Identifier: MIT */
/* What is in the namespace: taps by name, and the addresses routed to them. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "vmm/net/net_int.h"

/* Taps are "t" and 10 characters of a label; the kernel's own devices (tunl0, ...) are not. */
static bool is_tap(const char *name)
{
    return name != NULL && strlen(name) == 11 && name[0] == 't' &&
           strspn(name + 1, "abcdefghijklmnopqrstuvwxyz0123456789") == 10;
}

static json_t *parse_list(const struct child_result *result, struct err *err)
{
    json_error_t fault;
    json_t *list; /* new */

    if (child_explain(result, "ip", err) != 0)
        return NULL;
    list = json_loadb(result->out, result->out_len, 0, &fault);
    if (list == NULL && result->out_len == 0) /* ip prints nothing for an empty list */
        list = json_array();
    if (!json_is_array(list)) {
        json_decref(list);
        (void)tr_err_set(err, UV_EPROTO, "ip -json: not understood: %s", fault.text);
        return NULL;
    }
    return list;
}

int net_list_run(struct net *net, struct op *op)
{
    const char *argv[] = {"ip", "-n", net->name, "-json", "link", "show", NULL};

    return net_has_namespace(net) ? net_run(net, op, argv, NULL) : 0;
}

/* Taps that are gone are forgotten, new ones noted. The uplink's presence is left in op->text. */
int net_list_then(struct net *net, struct op *op, const struct child_result *result)
{
    json_t *list = parse_list(result, &op->err), *item; /* new; borrowed */
    struct tap *t, *next;
    size_t i;
    bool uplink = false;
    int r = 0;

    if (list == NULL)
        return op->err.code;
    for (t = net->taps; t != NULL; t = next) {
        bool there = false;

        next = t->next;
        json_array_foreach(list, i, item)
        {
            const char *name = json_string_value(json_object_get(item, "ifname"));

            there |= name != NULL && strcmp(name, t->pair.tap) == 0;
        }
        if (!there && !t->attached)
            net_tap_forget(net, t);
    }
    json_array_foreach(list, i, item)
    {
        const char *name = json_string_value(json_object_get(item, "ifname"));

        uplink |= name != NULL && strcmp(name, RULES_UPLINK) == 0;
        if (is_tap(name) && net_tap_note(net, name, 0) == NULL)
            r = tr_err_set(&op->err, UV_ENOMEM, "out of memory");
    }
    json_decref(list);
    op->uplink = uplink;
    return r;
}

int net_routes_run(struct net *net, struct op *op)
{
    const char *argv[] = {"ip", "-n", net->name, "-json", "-4", "route", "show", NULL};

    return net_run(net, op, argv, NULL);
}

int net_routes_then(struct net *net, struct op *op, const struct child_result *result)
{
    json_t *list = parse_list(result, &op->err), *item; /* new; borrowed */
    size_t i;

    if (list == NULL)
        return op->err.code;
    json_array_foreach(list, i, item)
    {
        const char *dev = json_string_value(json_object_get(item, "dev"));
        const char *dst = json_string_value(json_object_get(item, "dst"));
        struct tap *t = dev != NULL ? net_tap_find(net, dev) : NULL;
        uint32_t address;

        if (t != NULL && dst != NULL && range_address(dst, &address) == 0 &&
            range_in_pool(&net->range, address))
            t->pair.address = address;
    }
    json_decref(list);
    return 0;
}

/* "100.64.0.0/10", or an address alone. */
static bool parse_dst(const char *dst, uint32_t *base, unsigned *prefix)
{
    char address[RANGE_TEXT];
    const char *slash = strchr(dst, '/');
    size_t len = slash != NULL ? (size_t)(slash - dst) : strlen(dst);

    *prefix = 32;
    if (len >= sizeof(address))
        return false;
    memcpy(address, dst, len);
    address[len] = '\0';
    return range_address(address, base) == 0 &&
           (slash == NULL || sscanf(slash + 1, "%2u", prefix) == 1);
}

int net_clash_run(struct net *net, struct op *op)
{
    const char *argv[] = {"ip", "-json", "-4", "route", "show", "table", "all", NULL};

    return net_run(net, op, argv, NULL);
}

static int exclude(struct net *net, uint32_t address)
{
    uint32_t *more = realloc(net->excluded, (net->n_excluded + 1) * sizeof(*more));

    if (more == NULL)
        return UV_ENOMEM;
    more[net->n_excluded++] = address;
    net->excluded = more;
    return 0;
}

/* Does the host use part of our range for something else? Single addresses (its own, or peers of a
 * VPN) are only kept out of the pool. What leads to our veth is ours, and unreachable routes with
 * our protocol number are (of whichever node) only a guard; what is wider than /8 is a default
 * route in parts. */
int net_clash_then(struct net *net, struct op *op, const struct child_result *result)
{
    json_t *list = parse_list(result, &op->err), *item; /* new; borrowed */
    int r = list == NULL ? op->err.code : 0;
    size_t i;

    net->n_excluded = 0;
    json_array_foreach(list, i, item)
    {
        const char *dst = json_string_value(json_object_get(item, "dst"));
        const char *dev = json_string_value(json_object_get(item, "dev"));
        const char *protocol = json_string_value(json_object_get(item, "protocol"));
        const char *type = json_string_value(json_object_get(item, "type"));
        char base[RANGE_TEXT];
        uint32_t address;
        unsigned prefix;

        if (dst == NULL || (dev != NULL && strcmp(dev, net->veth) == 0) ||
            !parse_dst(dst, &address, &prefix) || prefix < 8 ||
            !range_overlaps(&net->range, address, prefix))
            continue;
        if (protocol != NULL && strcmp(protocol, NET_PROTOCOL) == 0 && type != NULL &&
            strcmp(type, "unreachable") == 0)
            continue;
        if (prefix == 32) {
            r = exclude(net, address);
            if (r != 0)
                (void)tr_err_set(&op->err, r, "out of memory");
            continue;
        }
        r = tr_err_set(&op->err, UV_EADDRINUSE,
                       "net.range %s/%u: this host already uses %s (device %s): set net.range to a "
                       "network that is free here",
                       range_text(net->range.base, base), net->range.prefix, dst,
                       dev != NULL ? dev : "none");
        break;
    }
    json_decref(list);
    return r;
}
