/* SPDX-License-Identifier: MIT */
/* Bringing the node's network up, and all of it down again. Every step works over what a crashed
 * manager left. */
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "transom/log.h"
#include "vmm/net/net_int.h"

#define FORWARD_SWITCH "/proc/sys/net/ipv4/ip_forward"

/* --- up --- */

static int up_dir(struct net *net, struct op *op)
{
    char path[4096];
    char *p;

    (void)snprintf(path, sizeof(path), "%s", net->dir);
    for (p = strchr(path + 1, '/'); p != NULL; p = strchr(p + 1, '/')) {
        *p = '\0';
        if (mkdir(path, 0755) != 0 && errno != EEXIST)
            return tr_err_set(&op->err, -errno, "%s: %s", path, strerror(errno));
        *p = '/';
    }
    if (mkdir(path, 0755) != 0 && errno != EEXIST)
        return tr_err_set(&op->err, -errno, "%s: %s", path, strerror(errno));
    return 0;
}

static int up_namespace(struct net *net, struct op *op)
{
    const char *argv[] = {"ip", "netns", "add", net->name, NULL};
    char path[64];

    if (net_has_namespace(net))
        return 0;
    (void)snprintf(path, sizeof(path), "/run/netns/%s", net->name);
    (void)unlink(path); /* the empty file of one that a reboot or a crash took */
    return net_run(net, op, argv, NULL);
}

/* /proc/sys/net shows the namespace of whoever looks, so the writer must be inside. */
static int up_switches(struct net *net, struct op *op)
{
    char path[64];
    const char *argv[] = {"nsenter",
                          path,
                          "tee",
                          FORWARD_SWITCH,
                          "/proc/sys/net/ipv6/conf/all/disable_ipv6",
                          "/proc/sys/net/ipv6/conf/default/disable_ipv6",
                          NULL};

    (void)snprintf(path, sizeof(path), "--net=/run/netns/%s", net->name);
    if (access("/proc/sys/net/ipv6/conf/all", F_OK) != 0) /* a kernel without IPv6 */
        argv[4] = NULL;
    return net_run(net, op, argv, "1\n");
}

static int up_host_links(struct net *net, struct op *op)
{
    char batch[1024], host[RANGE_TEXT], ns[RANGE_TEXT], base[RANGE_TEXT];
    bool have = if_nametoindex(net->veth) != 0;
    int n = 0;

    /* Half a pair is of no use. */
    if (have && !op->uplink)
        n += snprintf(batch + n, sizeof(batch) - (size_t)n, "link del dev %s\n", net->veth);
    if (!have || !op->uplink)
        n += snprintf(batch + n, sizeof(batch) - (size_t)n,
                      "link add %s type veth peer name %s netns %s\n", net->veth, RULES_UPLINK,
                      net->name);
    (void)snprintf(batch + n, sizeof(batch) - (size_t)n,
                   "addr replace %s/30 dev %s\n"
                   "link set dev %s up\n"
                   "route replace %s/%u via %s dev %s src %s proto " NET_PROTOCOL "\n"
                   "route replace unreachable %s/%u metric %u proto " NET_PROTOCOL "\n",
                   range_text(net->range.host, host), net->veth, net->veth,
                   range_text(net->range.base, base), net->range.prefix,
                   range_text(net->range.ns, ns), net->veth, host, base, net->range.prefix,
                   net->metric);
    return net_ip(net, op, false, false, batch);
}

static int up_inner_links(struct net *net, struct op *op)
{
    char batch[512], host[RANGE_TEXT], ns[RANGE_TEXT], base[RANGE_TEXT];

    (void)snprintf(batch, sizeof(batch),
                   "link set dev lo up\n"
                   "addr replace %s/30 dev " RULES_UPLINK "\n"
                   "link set dev " RULES_UPLINK " up\n"
                   "route replace default via %s dev " RULES_UPLINK "\n"
                   "route replace unreachable %s/%u metric " NET_METRIC "\n",
                   range_text(net->range.ns, ns), range_text(net->range.host, host),
                   range_text(net->range.base, base), net->range.prefix);
    return net_ip(net, op, true, false, batch);
}

static int up_inner_rules(struct net *net, struct op *op)
{
    size_t n;
    struct rules_pair *pairs = net_pairs(net, false, &n);
    char *text = pairs != NULL ? rules_namespace(&net->range, pairs, n) : NULL;

    free(pairs);
    return net_nft(net, op, true, text);
}

static int survey_run(struct net *net, struct op *op)
{
    static const char *const argv[] = {"nft", "list", "chains", NULL};

    return net_run(net, op, argv, NULL);
}

static int write_forwarding(const char *value)
{
    int fd = open(FORWARD_SWITCH, O_WRONLY | O_CLOEXEC), r = 0;

    if (fd < 0)
        return -errno;
    if (write(fd, value, 1) != 1)
        r = -errno;
    (void)close(fd);
    return r;
}

static int forwarding_is_on(bool *on)
{
    int fd = open(FORWARD_SWITCH, O_RDONLY | O_CLOEXEC);
    char c = '0';
    int r = fd < 0 || read(fd, &c, 1) != 1 ? -errno : 0;

    if (fd >= 0)
        (void)close(fd);
    *on = c == '1';
    return r;
}

/* The mark in a table says that forwarding was off before the first node came. It goes from node to
 * node, and the last one to leave switches it off again. */
static int survey_then(struct net *net, struct op *op, const struct child_result *result)
{
    struct rules_survey survey;
    bool on;
    int r = child_explain(result, "nft", &op->err);

    if (r != 0)
        return r;
    rules_read_survey(result->out, net->table, &survey);
    r = forwarding_is_on(&on);
    if (r != 0)
        return tr_err_set(&op->err, r, FORWARD_SWITCH ": %s", strerror(-r));
    if (survey.blocker[0] != '\0')
        log_warn(
            "network: this host's own firewall (nftables chain %s) drops by default: unless it "
            "lets device %s through, machines reach neither the internet nor names",
            survey.blocker, net->veth);
    net->was_off = !on || survey.ours_was_off || survey.other_was_off;
    return 0;
}

static int up_host_rules(struct net *net, struct op *op)
{
    return net_nft(net, op, false, rules_host(&net->range, net->table, net->veth, net->was_off));
}

/* Only after the rules that bound it. */
static int up_forwarding(struct net *net, struct op *op)
{
    bool on;
    int r = forwarding_is_on(&on);

    (void)net;
    if (r == 0 && !on)
        r = write_forwarding("1");
    if (r != 0)
        return tr_err_set(&op->err, r,
                          FORWARD_SWITCH ": %s: machines need forwarding: set "
                                         "net.ipv4.ip_forward=1 on the host, or net.enabled: false",
                          strerror(-r));
    return 0;
}

static void on_dns(int status, const struct err *err, void *arg)
{
    struct net *net = arg;
    struct op *op = net->first;

    net->waits_dns = false;
    if (status != 0)
        op->err = *err;
    op_resume(net, op, status);
}

static int open_dns(struct net *net, struct op *op, const struct dnsmasq_options *options,
                    struct dnsmasq **out)
{
    int r;

    if (*out != NULL) /* up again: it runs */
        return 0;
    r = dnsmasq_open(net->loop, options, on_dns, net, out, &op->err);
    if (r != 0)
        return r;
    net->waits_dns = true;
    return NET_WAIT;
}

/* Without net.dns: a name server beside the manager, which asks whom the host asks, also when that
 * is a resolver on the host's own loopback. */
static int up_outside_dns(struct net *net, struct op *op)
{
    char host[RANGE_TEXT];
    struct dnsmasq_options options = {
        .dir = net->dir,
        .name = "dns-outside",
        .netns = "",
        .listen = range_text(net->range.host, host),
        .port = RULES_DNS_PORT,
    };

    return net->n_dns == 0 ? open_dns(net, op, &options, &net->outside) : 0;
}

static int up_inside_dns(struct net *net, struct op *op)
{
    char ns[RANGE_TEXT], host[RANGE_TEXT], relay[RANGE_TEXT + 8];
    const char *servers[NET_DNS_MAX];
    struct dnsmasq_options options = {
        .dir = net->dir,
        .name = "dns-machines",
        .netns = net->name,
        .listen = range_text(net->range.ns, ns),
        .port = 53,
        .servers = servers,
        .n_servers = net->n_dns,
    };
    size_t i;

    for (i = 0; i < net->n_dns; i++)
        servers[i] = net->dns[i];
    if (net->n_dns == 0) {
        (void)snprintf(relay, sizeof(relay), "%s#%d", range_text(net->range.host, host),
                       RULES_DNS_PORT);
        servers[0] = relay;
        options.n_servers = 1;
    }
    return open_dns(net, op, &options, &net->inside);
}

static int up_done(struct net *net, struct op *op)
{
    (void)op;
    net->up = true;
    return 0;
}

const struct step net_up_steps[] = {
    {net_clash_run, net_clash_then},
    {up_dir, NULL},
    {up_namespace, NULL},
    {up_switches, NULL},
    {net_list_run, net_list_then},
    {up_host_links, NULL},
    {up_inner_links, NULL},
    {net_routes_run, net_routes_then},
    {up_inner_rules, NULL},
    {survey_run, survey_then},
    {up_host_rules, NULL},
    {up_forwarding, NULL},
    {up_outside_dns, NULL},
    {up_inside_dns, NULL},
    {up_done, NULL},
    {NULL, NULL},
};

/* --- down --- */

static void on_inside_ended(void *arg)
{
    struct net *net = arg;

    net->inside = NULL;
    net->waits_dns = false;
    op_resume(net, net->first, 0);
}

static void on_outside_ended(void *arg)
{
    struct net *net = arg;

    net->outside = NULL;
    net->waits_dns = false;
    op_resume(net, net->first, 0);
}

static int down_inside_dns(struct net *net, struct op *op)
{
    (void)op;
    net->up = false;
    if (net->inside == NULL) {
        dnsmasq_remove(net->dir, "dns-machines");
        return 0;
    }
    dnsmasq_close(net->inside, true, on_inside_ended, net);
    return NET_WAIT;
}

static int down_outside_dns(struct net *net, struct op *op)
{
    (void)op;
    if (net->outside == NULL) {
        dnsmasq_remove(net->dir, "dns-outside");
        return 0;
    }
    dnsmasq_close(net->outside, true, on_outside_ended, net);
    return NET_WAIT;
}

/* Taps go first: their machines' processes would keep the namespace alive without a name. */
static int down_taps(struct net *net, struct op *op)
{
    struct tap *t;
    char *batch = NULL;
    size_t len;
    FILE *f;
    int r;

    if (net->taps == NULL || !net_has_namespace(net))
        return 0;
    f = open_memstream(&batch, &len);
    if (f == NULL)
        return tr_err_set(&op->err, UV_ENOMEM, "out of memory");
    for (t = net->taps; t != NULL; t = t->next)
        (void)fprintf(f, "link del dev %s\n", t->pair.tap);
    if (fclose(f) != 0) {
        free(batch);
        return tr_err_set(&op->err, UV_ENOMEM, "out of memory");
    }
    r = net_ip(net, op, true, true, batch);
    free(batch);
    return r;
}

static int down_links(struct net *net, struct op *op)
{
    char batch[256], base[RANGE_TEXT];
    int n = 0;

    if (if_nametoindex(net->veth) != 0)
        n = snprintf(batch, sizeof(batch), "link del dev %s\n", net->veth);
    (void)snprintf(batch + n, sizeof(batch) - (size_t)n,
                   "route del unreachable %s/%u metric %u proto " NET_PROTOCOL "\n",
                   range_text(net->range.base, base), net->range.prefix, net->metric);
    return net_ip(net, op, false, true, batch);
}

static int down_namespace(struct net *net, struct op *op)
{
    const char *argv[] = {"ip", "netns", "del", net->name, NULL};
    char path[64];

    while (net->taps != NULL)
        net_tap_forget(net, net->taps);
    (void)snprintf(path, sizeof(path), "/run/netns/%s", net->name);
    if (!net_has_namespace(net)) {
        (void)unlink(path);
        return 0;
    }
    return net_run(net, op, argv, NULL);
}

/* Switch forwarding off again if it was off and no other node is left. */
static int down_survey_then(struct net *net, struct op *op, const struct child_result *result)
{
    struct rules_survey survey;
    int r = child_explain(result, "nft", &op->err);

    if (r != 0)
        return r;
    rules_read_survey(result->out, net->table, &survey);
    if (survey.ours_was_off && !survey.others) {
        r = write_forwarding("0");
        if (r != 0)
            log_warn("network: cannot switch forwarding off again: %s", strerror(-r));
    }
    return 0;
}

static int down_rules(struct net *net, struct op *op)
{
    return net_nft(net, op, false, rules_host_remove(net->table));
}

static int down_check(struct net *net, struct op *op)
{
    (void)rmdir(net->dir);
    if (if_nametoindex(net->veth) != 0)
        return tr_err_set(&op->err, UV_EBUSY, "network: device %s is still there", net->veth);
    if (net_has_namespace(net))
        return tr_err_set(&op->err, UV_EBUSY, "network: namespace %s is still there", net->name);
    return 0;
}

const struct step net_down_steps[] = {
    {down_inside_dns, NULL},
    {down_outside_dns, NULL},
    {net_list_run, net_list_then},
    {down_taps, net_any_end},
    {down_links, net_any_end},
    {down_namespace, NULL},
    {survey_run, down_survey_then},
    {down_rules, NULL},
    {down_check, NULL},
    {NULL, NULL},
};
