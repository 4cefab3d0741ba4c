/* SPDX-License-Identifier: MIT */
/* One machine's place in the network: tap, address, route, neighbour, pin. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "vmm/net/net_int.h"

#define MTU 1500

static bool label_valid(const char *label)
{
    return strlen(label) == 16 && strspn(label, "abcdefghijklmnopqrstuvwxyz0123456789") == 16;
}

static bool address_used(uint32_t address, void *arg)
{
    struct net *net = arg;
    struct tap *t;
    size_t i;

    for (t = net->taps; t != NULL; t = t->next)
        if (t->pair.address == address)
            return true;
    for (i = 0; i < net->n_excluded; i++)
        if (net->excluded[i] == address)
            return true;
    return false;
}

static int choose_address(struct net *net, struct op *op, const struct tap *tap)
{
    char text[RANGE_TEXT];

    if (op->address == 0) {
        if (range_take(&net->range, address_used, net, &op->address) != 0)
            return tr_err_set(&op->err, UV_ENOSPC,
                              "all addresses of net.range are in use: stop a sandbox or widen it");
        return 0;
    }
    if (!range_in_pool(&net->range, op->address))
        return tr_err_set(&op->err, UV_EINVAL, "network: %s is not in net.range",
                          range_text(op->address, text));
    if ((tap == NULL || tap->pair.address != op->address) && address_used(op->address, net))
        return tr_err_set(&op->err, UV_EADDRINUSE, "network: %s belongs to another machine",
                          range_text(op->address, text));
    return 0;
}

static void fill_port(struct net *net, struct op *op, struct net_port *port)
{
    uint32_t a = op->address;

    memset(port, 0, sizeof(*port));
    (void)snprintf(port->label, sizeof(port->label), "%s", op->label);
    (void)snprintf(port->netns, sizeof(port->netns), "%s", net->name);
    (void)snprintf(port->tap, sizeof(port->tap), "t%.10s", op->label);
    (void)range_text(a, port->address);
    (void)range_text(net->range.ns, port->dns);
    (void)range_text(net->range.host, port->edge);
    (void)snprintf(port->gateway, sizeof(port->gateway), "%s", RULES_GATEWAY);
    /* Locally administered, and as unique as the address. */
    port->mac[0] = 0x02;
    port->mac[1] = 0x54;
    port->mac[2] = (uint8_t)(a >> 24);
    port->mac[3] = (uint8_t)(a >> 16);
    port->mac[4] = (uint8_t)(a >> 8);
    port->mac[5] = (uint8_t)a;
    port->mtu = MTU;
}

/* Decide on everything, and note the tap: from here on undo removes it. */
static int attach_choose(struct net *net, struct op *op)
{
    char name[16];
    struct tap *tap;
    int r;

    if (!net->up)
        return tr_err_set(&op->err, UV_ENETDOWN, "network: not up");
    if (!label_valid(op->label))
        return tr_err_set(&op->err, UV_EINVAL, "network: bad label \"%.20s\"", op->label);
    (void)snprintf(name, sizeof(name), "t%.10s", op->label);
    tap = net_tap_find(net, name);
    if (tap != NULL && tap->attached)
        return tr_err_set(&op->err, UV_EEXIST, "network: %s is attached already%s", op->label,
                          strcmp(tap->port.label, op->label) != 0
                              ? " (another label with the same beginning)"
                              : "");
    r = choose_address(net, op, tap);
    if (r != 0)
        return r;
    /* The tap of a machine that is taken over stays as it is; any other is made anew. */
    op->keep_tap = tap != NULL && tap->pair.address == op->address;
    op->stale = tap != NULL && !op->keep_tap ? tap->pair : (struct rules_pair){.address = 0};
    op->had_tap = tap != NULL;
    tap = net_tap_note(net, name, op->address);
    if (tap == NULL)
        return tr_err_set(&op->err, UV_ENOMEM, "out of memory");
    op->tap = tap;
    fill_port(net, op, &tap->port);
    return 0;
}

static int attach_links(struct net *net, struct op *op)
{
    const struct net_port *p = &op->tap->port;
    char batch[1024];
    int n = 0;

    if (op->had_tap && !op->keep_tap)
        n += snprintf(batch + n, sizeof(batch) - (size_t)n, "link del dev %s\n", p->tap);
    if (!op->keep_tap)
        n += snprintf(batch + n, sizeof(batch) - (size_t)n, "tuntap add dev %s mode tap vnet_hdr\n",
                      p->tap);
    (void)snprintf(batch + n, sizeof(batch) - (size_t)n,
                   "link set dev %s mtu %u up\n"
                   "addr replace " RULES_GATEWAY "/32 dev %s\n"
                   "route replace %s/32 dev %s\n"
                   "neigh replace %s lladdr %02x:%02x:%02x:%02x:%02x:%02x dev %s nud permanent\n",
                   p->tap, p->mtu, p->tap, p->address, p->tap, p->address, p->mac[0], p->mac[1],
                   p->mac[2], p->mac[3], p->mac[4], p->mac[5], p->tap);
    return net_ip(net, op, true, false, batch);
}

static int attach_links_then(struct net *net, struct op *op, const struct child_result *result)
{
    (void)net;
    if (result->status != 0 && strstr(result->errors, "open: ") != NULL)
        return tr_err_set(&op->err, UV_ENODEV,
                          "no /dev/net/tun on this host: load the tun module, or pass the device "
                          "into this container (%.200s)",
                          result->errors);
    return child_explain(result, "ip", &op->err);
}

static int attach_rules(struct net *net, struct op *op)
{
    char *add = rules_add(&op->tap->pair), *stale_add, *stale_delete, *text;

    if (op->stale.address == 0 || add == NULL)
        return net_nft(net, op, true, add);
    /* "add" before "delete" makes a delete of what may not be there succeed. */
    stale_add = rules_add(&op->stale);
    stale_delete = rules_remove(&op->stale);

    if (stale_add == NULL || stale_delete == NULL ||
        asprintf(&text, "%s%s%s", stale_add, stale_delete, add) < 0)
        text = NULL;
    free(stale_add);
    free(stale_delete);
    free(add);
    return net_nft(net, op, true, text);
}

static int attach_done(struct net *net, struct op *op)
{
    op->tap->attached = true;
    net->n_ports++;
    return 0;
}

const struct step net_attach_steps[] = {
    {attach_choose, NULL}, {attach_links, attach_links_then},
    {attach_rules, NULL},  {attach_done, NULL},
    {NULL, NULL},
};

/* --- detach, and the undoing of a half attach --- */

static int remove_link(struct net *net, struct op *op)
{
    char batch[64];

    if (op->tap != NULL && op->keep_tap) /* a running machine's: the next sweep's business */
        op->tap = NULL;
    if (op->tap == NULL)
        return 0;
    (void)snprintf(batch, sizeof(batch), "link del dev %s\n", op->tap->pair.tap);
    return net_ip(net, op, true, false, batch);
}

static int remove_pin(struct net *net, struct op *op)
{
    char *add, *delete, *text;

    if (op->tap == NULL)
        return 0;
    add = rules_add(&op->tap->pair);
    delete = rules_remove(&op->tap->pair);
    if (add == NULL || delete == NULL || asprintf(&text, "%s%s", add, delete) < 0)
        text = NULL;
    free(add);
    free(delete);
    return net_nft(net, op, true, text);
}

static int forget(struct net *net, struct op *op)
{
    if (op->tap != NULL)
        net_tap_forget(net, op->tap);
    op->tap = NULL;
    return 0;
}

const struct step net_attach_undo[] = {
    {remove_link, net_any_end},
    {remove_pin, net_any_end},
    {forget, NULL},
    {NULL, NULL},
};

static int detach_find(struct net *net, struct op *op)
{
    op->tap = net->up ? net_tap_by_label(net, op->label) : NULL;
    return 0;
}

/* A tap that is gone already is what was asked for. */
static int detach_link_then(struct net *net, struct op *op, const struct child_result *result)
{
    (void)net;
    if (strstr(result->errors, "Cannot find device") != NULL)
        return 0;
    return child_explain(result, "ip", &op->err);
}

const struct step net_detach_steps[] = {
    {detach_find, NULL}, {remove_link, detach_link_then}, {remove_pin, NULL}, {forget, NULL},
    {NULL, NULL},
};

/* --- sweep --- */

static int sweep_links(struct net *net, struct op *op)
{
    struct tap *t;
    char *batch = NULL;
    size_t len, n = 0;
    FILE *f;
    int r;

    f = open_memstream(&batch, &len);
    if (f == NULL)
        return tr_err_set(&op->err, UV_ENOMEM, "out of memory");
    for (t = net->taps; t != NULL; t = t->next) {
        if (t->attached)
            continue;
        (void)fprintf(f, "link del dev %s\n", t->pair.tap);
        n++;
    }
    if (fclose(f) != 0) {
        free(batch);
        return tr_err_set(&op->err, UV_ENOMEM, "out of memory");
    }
    r = n > 0 ? net_ip(net, op, true, true, batch) : 0;
    free(batch);
    return r;
}

/* The set as it should be, in one step. */
static int sweep_pins(struct net *net, struct op *op)
{
    size_t n, i, len;
    struct rules_pair *pairs;
    char *text = NULL;
    FILE *f;
    struct tap *t, *next;

    for (t = net->taps; t != NULL; t = next) {
        next = t->next;
        if (!t->attached)
            net_tap_forget(net, t);
    }
    pairs = net_pairs(net, true, &n);
    f = pairs != NULL ? open_memstream(&text, &len) : NULL;
    if (f == NULL) {
        free(pairs);
        return tr_err_set(&op->err, UV_ENOMEM, "out of memory");
    }
    (void)fputs("flush set inet " RULES_TABLE " machines\n", f);
    for (i = 0; i < n; i++) {
        char *add = rules_add(&pairs[i]);

        (void)fputs(add != NULL ? add : "", f);
        free(add);
    }
    free(pairs);
    if (fclose(f) != 0) {
        free(text);
        text = NULL;
    }
    return net_nft(net, op, true, text);
}

static int sweep_check(struct net *net, struct op *op)
{
    return net->up ? 0 : tr_err_set(&op->err, UV_ENETDOWN, "network: not up");
}

const struct step net_sweep_steps[] = {
    {sweep_check, NULL},
    {net_list_run, net_list_then},
    {sweep_links, net_any_end},
    {sweep_pins, NULL},
    {NULL, NULL},
};
