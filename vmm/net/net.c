/* SPDX-License-Identifier: MIT */
/* The queue of operations. Path of one: push -> wake -> op_step (steps, each a program or a file)
 * -> op_finish -> cb -> the next. A failed step enters the undo list, whose end is op_finish, too.
 */
#include "vmm/net/net.h"

#include <errno.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/vfs.h>

#include "vmm/net/net_int.h"

#ifndef NSFS_MAGIC
#define NSFS_MAGIC 0x6e736673
#endif

#define PROGRAM_MS 20000

static void op_step(struct net *net, struct op *op);

/* --- taps known --- */

struct tap *net_tap_find(struct net *net, const char *name)
{
    struct tap *t;

    for (t = net->taps; t != NULL; t = t->next)
        if (strcmp(t->pair.tap, name) == 0)
            return t;
    return NULL;
}

struct tap *net_tap_by_label(struct net *net, const char *label)
{
    struct tap *t;

    for (t = net->taps; t != NULL; t = t->next)
        if (t->attached && strcmp(t->port.label, label) == 0)
            return t;
    return NULL;
}

struct tap *net_tap_note(struct net *net, const char *name, uint32_t address)
{
    struct tap *t = net_tap_find(net, name);

    if (t == NULL) {
        t = calloc(1, sizeof(*t));
        if (t == NULL)
            return NULL;
        (void)snprintf(t->pair.tap, sizeof(t->pair.tap), "%s", name);
        t->next = net->taps;
        net->taps = t;
    }
    if (address != 0)
        t->pair.address = address;
    return t;
}

void net_tap_forget(struct net *net, struct tap *tap)
{
    struct tap **p;

    for (p = &net->taps; *p != NULL; p = &(*p)->next) {
        if (*p != tap)
            continue;
        *p = tap->next;
        if (tap->attached)
            net->n_ports--;
        free(tap);
        return;
    }
}

struct rules_pair *net_pairs(struct net *net, bool attached_only, size_t *n)
{
    struct rules_pair *pairs;
    struct tap *t;
    size_t max = 1;

    *n = 0;
    for (t = net->taps; t != NULL; t = t->next)
        max++;
    pairs = calloc(max, sizeof(*pairs));
    if (pairs == NULL)
        return NULL;
    for (t = net->taps; t != NULL; t = t->next)
        if (t->pair.address != 0 && (t->attached || !attached_only))
            pairs[(*n)++] = t->pair;
    return pairs;
}

const struct net_port *net_port_get(const struct net *net, const char *label)
{
    struct tap *t;

    for (t = net->taps; t != NULL; t = t->next)
        if (t->attached && (label == NULL || strcmp(t->port.label, label) == 0))
            return &t->port;
    return NULL;
}

size_t net_n_ports(const struct net *net)
{
    return net->n_ports;
}

void net_inside(const struct net *net, char netns[33], char dns[16])
{
    snprintf(netns, 33, "%s", net->name);
    (void)range_text(net->range.ns, dns);
}

bool net_has_namespace(const struct net *net)
{
    char path[64];
    struct statfs fs;

    (void)snprintf(path, sizeof(path), "/run/netns/%s", net->name);
    return statfs(path, &fs) == 0 && fs.f_type == NSFS_MAGIC;
}

/* --- the queue --- */

static void check_closed(struct net *net)
{
    struct tap *t;
    size_t i;

    if (!net->closing || !net->wake_closed || net->outside != NULL || net->inside != NULL ||
        net->busy)
        return;
    if (net->close_cb != NULL)
        net->close_cb(net->close_arg);
    while ((t = net->taps) != NULL) {
        net->taps = t->next;
        free(t);
    }
    for (i = 0; i < net->n_dns; i++)
        free(net->dns[i]);
    if (net->traffic_fd >= 0)
        close(net->traffic_fd);
    free(net->excluded);
    free(net->dir);
    free(net);
}

static void op_finish(struct net *net, struct op *op)
{
    net->first = op->next;
    if (net->first == NULL)
        net->last = &net->first;
    net->busy = false;
    if (op->port_cb != NULL)
        op->port_cb(op->err.code, op->err.code == 0 ? &op->tap->port : NULL, &op->err, op->arg);
    else if (op->cb != NULL)
        op->cb(op->err.code, &op->err, op->arg);
    free(op);
    if (net->first != NULL && !net->closing)
        (void)uv_async_send(&net->wake);
    check_closed(net);
}

static void op_failed(struct net *net, struct op *op)
{
    if (op->undo == NULL || op->undoing || net->closing) {
        op_finish(net, op);
        return;
    }
    op->undoing = true;
    op->steps = op->undo;
    op->at = 0;
    op_step(net, op);
}

/* Run steps until one waits. */
static void op_step(struct net *net, struct op *op)
{
    int r;

    for (;;) {
        if (net->closing) {
            if (op->err.code == 0)
                (void)tr_err_set(&op->err, UV_ECANCELED, "canceled");
            op_finish(net, op);
            return;
        }
        if (op->steps[op->at].run == NULL) {
            op_finish(net, op);
            return;
        }
        r = op->steps[op->at].run(net, op);
        if (r == NET_WAIT)
            return;
        if (r < 0 && !op->undoing) {
            op_failed(net, op);
            return;
        }
        op->at++;
    }
}

void op_resume(struct net *net, struct op *op, int status)
{
    if (status < 0 && !op->undoing) {
        op_failed(net, op);
        return;
    }
    op->at++;
    op_step(net, op);
}

static void on_child(const struct child_result *result, void *arg)
{
    struct net *net = arg;
    struct op *op = net->first;
    const struct step *step = &op->steps[op->at];
    struct err ignored;
    struct err *err = op->undoing ? &ignored : &op->err;
    int r;

    net->child = NULL;
    if (net->closing)
        r = tr_err_set(err, UV_ECANCELED, "canceled");
    else if (step->then != NULL)
        r = step->then(net, op, result);
    else
        r = child_explain(result, "network", err);
    op_resume(net, op, r);
}

static void on_wake(uv_async_t *wake)
{
    struct net *net = wake->data;

    if (net->busy || net->first == NULL || net->closing)
        return;
    net->busy = true;
    op_step(net, net->first);
}

static void push(struct net *net, struct op *op)
{
    *net->last = op;
    net->last = &op->next;
    (void)uv_async_send(&net->wake);
}

/* Its callback is promised, so it cannot fail: a lack of so little memory ends the process. */
static struct op *op_new(const struct step *steps, void *arg)
{
    struct op *op = calloc(1, sizeof(*op));

    if (op == NULL)
        abort();
    op->steps = steps;
    op->arg = arg;
    return op;
}

/* --- programs --- */

int net_any_end(struct net *net, struct op *op, const struct child_result *result)
{
    (void)net;
    (void)op;
    (void)result;
    return 0;
}

int net_run(struct net *net, struct op *op, const char *const *argv, const char *input)
{
    int r = child_run(net->loop, argv, input, PROGRAM_MS, on_child, net, &net->child, &op->err);

    return r != 0 ? r : NET_WAIT;
}

int net_ip(struct net *net, struct op *op, bool inside, bool force, const char *batch)
{
    const char *argv[8];
    int n = 0;

    argv[n++] = "ip";
    if (force)
        argv[n++] = "-force";
    if (inside) {
        argv[n++] = "-n";
        argv[n++] = net->name;
    }
    argv[n++] = "-batch";
    argv[n++] = "-";
    argv[n] = NULL;
    return net_run(net, op, argv, batch);
}

int net_nft(struct net *net, struct op *op, bool inside, char *text)
{
    char path[64];
    const char *argv[] = {"nsenter", path, "nft", "-f", "-", NULL};
    int r;

    if (text == NULL)
        return tr_err_set(&op->err, UV_ENOMEM, "out of memory");
    (void)snprintf(path, sizeof(path), "--net=/run/netns/%s", net->name);
    r = net_run(net, op, inside ? argv : argv + 2, text);
    free(text);
    return r;
}

/* --- the API --- */

/* Short and unique for a name: interface names have 15 characters. */
static uint32_t hash_of(const char *s)
{
    uint32_t hash = 0x811c9dc5U;

    for (; *s != '\0'; s++)
        hash = (hash ^ (unsigned char)*s) * 0x01000193U;
    return hash;
}

static int take_names(struct net *net, const struct net_options *o, struct err *err)
{
    size_t len = strlen(o->name), i;

    if (len == 0 || len > 32 || strspn(o->name, "abcdefghijklmnopqrstuvwxyz0123456789_-") != len)
        return tr_err_set(err, UV_EINVAL,
                          "net.namespace: \"%.60s\": up to 32 of a-z, 0-9, _ and - are possible",
                          o->name);
    (void)snprintf(net->name, sizeof(net->name), "%s", o->name);
    (void)snprintf(net->veth, sizeof(net->veth), "trm-%08xh", hash_of(o->name));
    net->metric = 1000000 + hash_of(o->name) % 1000000;
    (void)snprintf(net->table, sizeof(net->table), "transom_%s", o->name);
    for (i = 0; net->table[i] != '\0'; i++)
        if (net->table[i] == '-') /* nft names have none; a dot is not in ours */
            net->table[i] = '.';
    if (asprintf(&net->dir, "%s/net", o->run_dir) < 0) {
        net->dir = NULL;
        return tr_err_set(err, UV_ENOMEM, "out of memory");
    }
    return 0;
}

static int take_dns(struct net *net, const struct net_options *o, struct err *err)
{
    uint32_t address;
    size_t i;

    for (i = 0; i < o->n_dns && i < NET_DNS_MAX; i++) {
        if (range_address(o->dns[i], &address) != 0)
            return tr_err_set(err, UV_EINVAL, "net.dns: \"%.60s\" is not an IPv4 address",
                              o->dns[i]);
        if (address >> 24 == 127)
            return tr_err_set(err, UV_EINVAL,
                              "net.dns: %s is this host's own: leave net.dns empty to use the "
                              "host's resolver",
                              o->dns[i]);
        net->dns[i] = strdup(o->dns[i]);
        if (net->dns[i] == NULL)
            return tr_err_set(err, UV_ENOMEM, "out of memory");
        net->n_dns++;
    }
    return 0;
}

static void on_wake_closed(uv_handle_t *handle)
{
    struct net *net = handle->data;

    net->wake_closed = true;
    check_closed(net);
}

int net_open(uv_loop_t *loop, const struct net_options *o, struct net **out, struct err *err)
{
    struct net *net = calloc(1, sizeof(*net));
    uint32_t random = 0;
    int r;

    if (net == NULL)
        return tr_err_set(err, UV_ENOMEM, "out of memory");
    net->loop = loop;
    net->last = &net->first;
    net->traffic_fd = -1;
    r = range_parse(o->range, &net->range, err);
    if (r == 0)
        r = take_names(net, o, err);
    if (r == 0)
        r = take_dns(net, o, err);
    if (r == 0)
        r = uv_async_init(loop, &net->wake, on_wake);
    if (r != 0) {
        while (net->n_dns > 0)
            free(net->dns[--net->n_dns]);
        free(net->dir);
        free(net);
        return r;
    }
    net->wake.data = net;
    /* A new manager does not begin where the last one began: old peers may still send there. */
    if (getrandom(&random, sizeof(random), GRND_NONBLOCK) == (ssize_t)sizeof(random))
        net->range.cursor = net->range.first + random % (net->range.last - net->range.first + 1);
    *out = net;
    return 0;
}

void net_up(struct net *net, net_cb cb, void *arg)
{
    struct op *op = op_new(net_up_steps, arg);

    op->cb = cb;
    push(net, op);
}

void net_attach(struct net *net, const char *label, const char *address, net_port_cb cb, void *arg)
{
    struct op *op = op_new(net_attach_steps, arg);

    op->undo = net_attach_undo;
    op->port_cb = cb;
    (void)snprintf(op->label, sizeof(op->label), "%s", label);
    if (address != NULL && address[0] != '\0' && range_address(address, &op->address) != 0)
        op->address = UINT32_MAX; /* not in any pool: refused there */
    push(net, op);
}

void net_detach(struct net *net, const char *label, net_cb cb, void *arg)
{
    struct op *op = op_new(net_detach_steps, arg);

    op->cb = cb;
    (void)snprintf(op->label, sizeof(op->label), "%s", label);
    push(net, op);
}

void net_sweep(struct net *net, net_cb cb, void *arg)
{
    struct op *op = op_new(net_sweep_steps, arg);

    op->cb = cb;
    push(net, op);
}

void net_down(struct net *net, net_cb cb, void *arg)
{
    struct op *op = op_new(net_down_steps, arg);

    op->cb = cb;
    push(net, op);
}

/* A name server that an operation waited for will not answer any more. */
static void on_dns_closed(struct net *net)
{
    if (net->busy && net->waits_dns) {
        net->waits_dns = false;
        op_step(net, net->first);
    } else {
        check_closed(net);
    }
}

static void on_outside_closed(void *arg)
{
    struct net *net = arg;

    net->outside = NULL;
    on_dns_closed(net);
}

static void on_inside_closed(void *arg)
{
    struct net *net = arg;

    net->inside = NULL;
    on_dns_closed(net);
}

/* End what waits in the queue. The one under way ends by itself. */
static void cancel_queue(struct net *net)
{
    struct op *op = net->busy ? net->first->next : net->first;

    if (net->busy) {
        net->first->next = NULL;
        net->last = &net->first->next;
    } else {
        net->first = NULL;
        net->last = &net->first;
    }
    while (op != NULL) {
        struct op *next = op->next;

        (void)tr_err_set(&op->err, UV_ECANCELED, "canceled");
        if (op->port_cb != NULL)
            op->port_cb(UV_ECANCELED, NULL, &op->err, op->arg);
        else if (op->cb != NULL)
            op->cb(UV_ECANCELED, &op->err, op->arg);
        free(op);
        op = next;
    }
}

static void on_closing(uv_handle_t *handle)
{
    cancel_queue(handle->data);
    on_wake_closed(handle);
}

void net_close(struct net *net, void (*cb)(void *arg), void *arg)
{
    if (net->closing)
        return;
    net->closing = true;
    net->close_cb = cb;
    net->close_arg = arg;
    if (net->child != NULL)
        child_cancel(net->child);
    if (net->outside != NULL)
        dnsmasq_close(net->outside, false, on_outside_closed, net);
    if (net->inside != NULL)
        dnsmasq_close(net->inside, false, on_inside_closed, net);
    uv_close((uv_handle_t *)&net->wake, on_closing);
}
