/* SPDX-License-Identifier: MIT */
/* The machines' network: one named namespace per node with a routed tap per machine, joined to the
 * manager's own namespace by a veth pair; packet policy by nftables; name service by dnsmasq.
 *
 *   guest eth0 ADDR/32 -- tap (169.254.1.1) [namespace] uplink NS -- veth HOST [manager's] -- out
 *
 * HOST and NS are the first two usable addresses of net.range, machines have the rest. Everything
 * derives from the namespace's name, so nodes on one host need distinct names and ranges.
 * IPv6 is off in the namespace. One loop thread; no callback runs before its call returned; calls
 * on one struct net are carried out in order. */
#ifndef VMM_NET_H
#define VMM_NET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>
#include "transom/err.h"

struct net;

struct net_options {
    const char *name;       /* net.namespace: [a-z0-9_-]{1,32} */
    const char *range;      /* net.range, e.g. "100.64.0.0/10"; /8 to /28 */
    const char *const *dns; /* net.dns: resolvers by IPv4 address; none: the host's own */
    size_t n_dns;
    const char *run_dir; /* run_dir; files go to run_dir/net/ */
};

/* What one machine gets. */
struct net_port {
    char label[17];
    char netns[33];   /* name of the namespace, for struct vm_spec */
    char tap[16];     /* tap in it */
    char address[16]; /* of the machine, /32 */
    char gateway[16]; /* 169.254.1.1, reachable on the link */
    char dns[16];     /* name server for the guest */
    char edge[16];    /* where the gateway's connections to the machine come from */
    uint8_t mac[6];   /* for the machine's interface */
    uint16_t mtu;
};

typedef void (*net_cb)(int status, const struct err *err, void *arg);
typedef void (*net_port_cb)(int status, const struct net_port *port, const struct err *err,
                            void *arg);

/* Check the options; touches nothing. Returns 0 and *out, or < 0 with err. */
TR_MUST_CHECK int net_open(uv_loop_t *loop, const struct net_options *options, struct net **out,
                           struct err *err);

/* Bring everything up, over whatever a crashed manager left: machines that run keep their taps and
 * connections. Then attach may be called. A failure leaves what was there before plus what can be
 * removed by net_down(). */
void net_up(struct net *net, net_cb cb, void *arg);

/* Give a machine its tap, address, route and pins. address NULL or "": the next free one (an
 * address is reused as late as possible); else that one (adoption: a tap in use is kept as it is).
 * UV_EEXIST: the label is attached already; UV_EADDRINUSE; UV_ENOSPC: range used up. */
void net_attach(struct net *net, const char *label, const char *address, net_port_cb cb, void *arg);

/* Take all that away again. An unknown label is a success. */
void net_detach(struct net *net, const char *label, net_cb cb, void *arg);

/* Remove the taps of the namespace that were not attached since net_open(): what machines of an
 * earlier manager left. Call it once adoption is done. */
void net_sweep(struct net *net, net_cb cb, void *arg);

/* Attached ports: borrowed, valid until the next attach or detach; NULL for none. */
const struct net_port *net_port_get(const struct net *net, const char *label);
/* Its namespace's name, and the address in it where the machines' name server answers. */
void net_inside(const struct net *net, char netns[33], char dns[16]);
size_t net_n_ports(const struct net *net);

/* Bytes that the machine behind an attached port's tap has received and sent since the tap was
 * made. At once, without a callback. Returns 0, or < 0: not known. */
TR_MUST_CHECK int net_traffic(struct net *net, const char *tap, uint64_t *received, uint64_t *sent);

/* Remove everything: taps, veth, namespace, tables, dnsmasq, and the host's forwarding switch as it
 * was found. Also right after net_open(), for what an earlier manager left. */
void net_down(struct net *net, net_cb cb, void *arg);

/* Close handles; the network itself stays as it is (machines go on running; dnsmasq too). Pending
 * calls end with UV_ECANCELED. cb runs last, then net is freed. */
void net_close(struct net *net, void (*cb)(void *arg), void *arg);

#endif
