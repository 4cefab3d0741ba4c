/* SPDX-License-Identifier: MIT */
/* What the gateway takes from the configuration. */
#ifndef GATEWAY_OPTIONS_H
#define GATEWAY_OPTIONS_H

#include <sys/socket.h>
#include "gateway/http1.h"
#include "transom/config.h"

/* An address block whose X-Forwarded-* are believed. IPv4 is held as ::ffff:0:0/96. */
struct gw_cidr {
    unsigned char address[16];
    unsigned bits;
};

struct gw_options {
    char node[64];
    char domain[256];
    char preview_domain[256];
    char redis_url[512];
    char edge_socket[128]; /* of the manager */
    char access_log[1024]; /* "": none, "-": standard error */
    const char *user;
    const char *certificate, *key;
    char **certificates; /* files and folders; owned */
    size_t n_certificates;
    uint64_t ticket_rotate_ms;
    char **http, **https; /* listeners; owned */
    size_t n_http, n_https;
    const char *metrics;
    struct gw_cidr *trusted, *proxies; /* proxies: those that send a PROXY header */
    size_t n_trusted, n_proxies;
    bool https_redirect;
    bool allow_framing;           /* what forbids frames is taken out of responses */
    unsigned https_redirect_port; /* 0: that of the first https listener */
    unsigned n_workers;
    unsigned max_connections;
    uint32_t max_connections_per_client, max_requests_per_sandbox, max_tunnels_per_sandbox;
    struct gw_http1_limits limits;
    bool http2;
    unsigned http2_streams;
    uint64_t min_body_rate; /* bytes per second */
    uint64_t head_timeout_ms, idle_timeout_ms, connect_timeout_ms, answer_timeout_ms;
    uint64_t body_idle_timeout_ms, tunnel_idle_ms, drain_ms, upgrade_drain_ms;
};

/* Strings are borrowed from the configuration, which must outlive the options. Returns 0 or a
 * fault that names the option. */
TR_MUST_CHECK int gw_options_init(struct gw_options *o, const struct tr_config *config,
                                  struct err *err);
void gw_options_fini(struct gw_options *o);

/* Is a listener on a port that only CAP_NET_BIND_SERVICE may open? */
bool gw_options_bind_low_port(const struct gw_options *o);
/* Is this peer one of the trusted proxies? */
bool gw_options_trusts(const struct gw_options *o, const struct sockaddr *peer);
/* Does this peer begin each connection with a PROXY header? */
bool gw_options_expects_proxy(const struct gw_options *o, const struct sockaddr *peer);

#endif
