/* SPDX-License-Identifier: MIT */
/* Listening sockets. Each worker has one of its own per address (SO_REUSEPORT), so the kernel
 * spreads connections; sockets passed by a service manager (LISTEN_FDS) are shared by all. */
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

/* Open all listeners of the configuration for all workers. urls gets text for the log line (at most
 * len bytes): "http://127.0.0.1:8080 https://..." Done before privileges are given up. */
TR_MUST_CHECK int gw_listeners_open(struct gw_gateway *gw, char *urls, size_t len, struct err *err);
/* Worker's thread: begin to accept; stop and close (what waits in the queue is accepted first). */
void gw_listeners_start(struct gw_worker *w);
void gw_listeners_close(struct gw_worker *w);

#endif
