/* SPDX-License-Identifier: MIT */
/* Listening sockets. Each worker has one of its own per address (SO_REUSEPORT), so the kernel
 * spreads connections; sockets passed by a service manager (LISTEN_FDS) are shared by all.
 *
 * The kernel gives each connection to one socket, for good, and resets what waits in its queue when
 * the last copy is closed. So an upgrade passes the same sockets on, by the keeper, under
 * "http/ADDRESS:PORT/I" for worker I; with fewer workers than before one takes several. */
#ifndef GATEWAY_LISTENER_H
#define GATEWAY_LISTENER_H

#include "gateway/runtime.h"
#include "gateway/worker.h"

struct gw_listener {
    struct gw_listener *next; /* of the worker */
    struct gw_worker *w;
    struct gw_sock sock;
    struct gw_timer timer;
    bool tls;
    bool shared; /* take one connection at a time, so that other workers get some, too */
};

struct gw_kept;

/* Open all listeners of the configuration for all workers: those that are kept from an earlier
 * process, else new ones, which are kept from now on. With sockets of a service manager only those
 * are used. urls gets text for the log line (at most len bytes): "http://127.0.0.1:8080 ...". Done
 * before rights are given up. */
TR_MUST_CHECK int gw_listeners_open(struct gw_gateway *gw, struct gw_kept *kept, char *urls,
                                    size_t len, struct err *err);
/* Worker's thread: begin to accept; stop and close (what waits in the queue is accepted first). */
void gw_listeners_start(struct gw_worker *w);
void gw_listeners_close(struct gw_worker *w);

#endif
