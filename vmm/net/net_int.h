/* SPDX-License-Identifier: MIT */
/* Inside of the network library: its state, and operations as lists of steps. */
#ifndef VMM_NET_INT_H
#define VMM_NET_INT_H

#include "vmm/net/dnsmasq.h"
#include "vmm/net/net.h"
#include "vmm/net/range.h"
#include "vmm/net/rules.h"
#include "vmm/proc/child.h"

#define NET_DNS_MAX  8
#define NET_PROTOCOL "184"  /* marks our routes in the manager's namespace */
#define NET_METRIC   "9999" /* of the unreachable routes behind the real ones */

/* A tap in the namespace. */
struct tap {
    struct tap *next;
    struct rules_pair pair; /* address 0: not known (no route to it) */
    bool attached;          /* by this manager: port is valid */
    struct net_port port;
};

struct op;

/* One step of an operation. run returns NET_WAIT when it has started something that calls
 * op_resume() later, 0 when it is done with the step, or a negative status with op->err. then (may
 * be NULL) looks at what a program of the step said; without it a failed program fails the
 * operation. */
#define NET_WAIT 1
struct step {
    int (*run)(struct net *net, struct op *op);
    int (*then)(struct net *net, struct op *op, const struct child_result *result);
};

/* One call of the API. Operations run one after the other. */
struct op {
    struct op *next;
    const struct step *steps; /* ended by run == NULL */
    const struct step *undo;  /* run after a failure, their own failures ignored; may be NULL */
    size_t at;
    bool undoing;
    bool uplink; /* found by net_list */
    struct err err;
    char label[17];
    uint32_t address; /* wanted (0: any), then given */
    struct tap *tap;
    bool had_tap, keep_tap;  /* attach: one is there; it is the right one */
    struct rules_pair stale; /* attach: pin of the one that is replaced */
    net_cb cb;
    net_port_cb port_cb;
    void *arg;
};

struct net {
    uv_loop_t *loop;
    uv_async_t wake; /* runs the queue outside of the caller's stack */
    char name[33], veth[16], table[48];
    unsigned metric; /* of the unreachable route beside the manager: tells it from other nodes' */
    char *dir;       /* run_dir/net */
    char *dns[NET_DNS_MAX];
    size_t n_dns;
    struct range range;
    uint32_t *excluded; /* addresses of the range that the host uses itself */
    size_t n_excluded;
    struct tap *taps;
    struct op *first, **last;
    struct child *child; /* of the operation under way */
    struct dnsmasq *outside, *inside;
    bool was_off; /* forwarding was off before any node came up here */
    bool busy, up, closing, wake_closed;
    bool waits_dns; /* the step under way waits for a name server */
    void (*close_cb)(void *arg);
    void *close_arg;
    size_t n_ports;
    int traffic_fd; /* net_traffic.c; -1: not open */
};

extern const struct step net_up_steps[], net_down_steps[], net_attach_steps[], net_attach_undo[],
    net_detach_steps[], net_sweep_steps[];

/* Run a program for the step under way. Return NET_WAIT or a negative status. */
TR_MUST_CHECK int net_run(struct net *net, struct op *op, const char *const *argv,
                          const char *input);
/* "ip -batch" here or in the namespace; force: go on after a command that fails. */
TR_MUST_CHECK int net_ip(struct net *net, struct op *op, bool inside, bool force,
                         const char *batch);
/* "nft -f"; takes over text (NULL: out of memory). */
TR_MUST_CHECK int net_nft(struct net *net, struct op *op, bool inside, char *text);
/* Something that a step waited for has come about (or failed). */
void op_resume(struct net *net, struct op *op, int status);

/* A `then` that accepts any end of the program. */
int net_any_end(struct net *net, struct op *op, const struct child_result *result);

bool net_has_namespace(const struct net *net);
struct tap *net_tap_find(struct net *net, const char *name);
struct tap *net_tap_by_label(struct net *net, const char *label);
/* Note a tap that exists. Returns NULL when out of memory. */
struct tap *net_tap_note(struct net *net, const char *name, uint32_t address);
void net_tap_forget(struct net *net, struct tap *tap);
/* All taps whose address is known, as pairs (malloc'ed). */
struct rules_pair *net_pairs(struct net *net, bool attached_only, size_t *n);

/* Step that lists the namespace's taps and their addresses into net->taps. */
int net_list_run(struct net *net, struct op *op);
int net_list_then(struct net *net, struct op *op, const struct child_result *result);
/* Step that refuses a range which the host uses otherwise. */
int net_clash_run(struct net *net, struct op *op);
int net_clash_then(struct net *net, struct op *op, const struct child_result *result);
int net_routes_run(struct net *net, struct op *op);
int net_routes_then(struct net *net, struct op *op, const struct child_result *result);

#endif
