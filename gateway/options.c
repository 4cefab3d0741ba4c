/* SPDX-License-Identifier: MIT */
#include "gateway/options.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "transom/state.h"

static const unsigned char mapped_prefix[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

static int parse_cidr(const char *text, struct gw_cidr *out)
{
    char host[64];
    const char *slash = strchr(text, '/');
    size_t n = slash != NULL ? (size_t)(slash - text) : strlen(text);
    unsigned max = 128, bits;

    if (n >= sizeof(host))
        return -EINVAL;
    memcpy(host, text, n);
    host[n] = '\0';
    if (inet_pton(AF_INET, host, out->address + 12) == 1) {
        memcpy(out->address, mapped_prefix, 12);
        max = 32;
    } else if (inet_pton(AF_INET6, host, out->address) != 1) {
        return -EINVAL;
    }
    bits = slash != NULL ? (unsigned)strtoul(slash + 1, NULL, 10) : max;
    if (bits > max)
        return -EINVAL;
    out->bits = bits + (128 - max);
    return 0;
}

static bool in_cidr(const struct gw_cidr *c, const unsigned char *address)
{
    unsigned whole = c->bits / 8, rest = c->bits % 8;

    if (memcmp(c->address, address, whole) != 0)
        return false;
    return rest == 0 || ((c->address[whole] ^ address[whole]) >> (8 - rest)) == 0;
}

static bool in_cidrs(const struct gw_cidr *cidrs, size_t n, const struct sockaddr *peer)
{
    unsigned char address[16];

    if (n == 0)
        return false;
    if (peer->sa_family == AF_INET) {
        memcpy(address, mapped_prefix, 12);
        memcpy(address + 12, &((const struct sockaddr_in *)peer)->sin_addr, 4);
    } else if (peer->sa_family == AF_INET6) {
        memcpy(address, &((const struct sockaddr_in6 *)peer)->sin6_addr, 16);
    } else {
        return false;
    }
    for (size_t i = 0; i < n; i++)
        if (in_cidr(&cidrs[i], address))
            return true;
    return false;
}

bool gw_options_trusts(const struct gw_options *o, const struct sockaddr *peer)
{
    return in_cidrs(o->trusted, o->n_trusted, peer);
}

bool gw_options_expects_proxy(const struct gw_options *o, const struct sockaddr *peer)
{
    return in_cidrs(o->proxies, o->n_proxies, peer);
}

static int take_list(const struct tr_config *config, const char *name, char ***out, size_t *n_out)
{
    size_t n = tr_config_list_len(config, name);

    *out = calloc(n + 1, sizeof(char *));
    if (*out == NULL)
        return -ENOMEM;
    for (size_t i = 0; i < n; i++)
        (*out)[i] = (char *)tr_config_list_get(config, name, i);
    *n_out = n;
    return 0;
}

static int take_cidrs(const struct tr_config *config, const char *name, struct gw_cidr **out,
                      size_t *n_out, struct err *err)
{
    size_t n = tr_config_list_len(config, name);

    *out = calloc(n + 1, sizeof(**out));
    if (*out == NULL)
        return tr_err_set(err, -ENOMEM, "out of memory");
    for (size_t i = 0; i < n; i++) {
        const char *text = tr_config_list_get(config, name, i);

        if (parse_cidr(text, &(*out)[i]) != 0)
            return tr_err_set(err, -EINVAL, "%s: \"%s\" is not ADDRESS or ADDRESS/BITS", name,
                              text);
    }
    *n_out = n;
    return 0;
}

static int port_of(const char *endpoint)
{
    const char *colon = strrchr(endpoint, ':');

    return colon != NULL ? atoi(colon + 1) : 0;
}

bool gw_options_bind_low_port(const struct gw_options *o)
{
    FILE *f = fopen("/proc/sys/net/ipv4/ip_unprivileged_port_start", "re");
    char line[16] = "";
    int first = 1024, port = port_of(o->metrics);
    bool low;

    if (f != NULL) {
        if (fgets(line, sizeof(line), f) != NULL)
            first = atoi(line);
        fclose(f);
    }
    low = port > 0 && port < first;
    for (size_t i = 0; i < o->n_http; i++)
        low |= port_of(o->http[i]) > 0 && port_of(o->http[i]) < first;
    for (size_t i = 0; i < o->n_https; i++)
        low |= port_of(o->https[i]) > 0 && port_of(o->https[i]) < first;
    return low;
}

static void lower(char *s)
{
    for (; *s != '\0'; s++)
        if (*s >= 'A' && *s <= 'Z')
            *s = (char)(*s + ('a' - 'A'));
}

static void take_names(struct gw_options *o, const struct tr_config *config)
{
    const char *node = tr_config_str(config, "node.name");
    const char *preview = tr_config_str(config, "preview_domain");
    const char *run_dir = tr_config_str(config, "run_dir");
    const char *redis = tr_config_str(config, "redis.gateway_url");

    if (node[0] != '\0')
        snprintf(o->node, sizeof(o->node), "%s", node);
    else if (gethostname(o->node, sizeof(o->node) - 1) != 0) /* as the manager calls it */
        snprintf(o->node, sizeof(o->node), "node");
    snprintf(o->domain, sizeof(o->domain), "%s", tr_config_str(config, "domain"));
    lower(o->domain);
    if (preview[0] != '\0')
        snprintf(o->preview_domain, sizeof(o->preview_domain), "%s", preview);
    else
        snprintf(o->preview_domain, sizeof(o->preview_domain), "preview.%s", o->domain);
    lower(o->preview_domain);
    if (redis[0] == '\0')
        redis = tr_config_str(config, "redis.url");
    if (redis[0] != '\0')
        snprintf(o->redis_url, sizeof(o->redis_url), "%s", redis);
    else if (tr_redis_embedded_url(run_dir, TR_REDIS_GATEWAY, o->redis_url, sizeof(o->redis_url)) !=
             0)
        o->redis_url[0] = '\0'; /* run_dir is too long: opening it says so */
    snprintf(o->edge_socket, sizeof(o->edge_socket), "%s/edge.sock", run_dir);
    snprintf(o->access_log, sizeof(o->access_log), "%s",
             tr_config_str(config, "gateway.access_log"));
}

int gw_options_init(struct gw_options *o, const struct tr_config *config, struct err *err)
{
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    int r;

    memset(o, 0, sizeof(*o));
    take_names(o, config);
    o->user = tr_config_str(config, "gateway.user");
    o->certificate = tr_config_str(config, "gateway.tls_certificate");
    o->key = tr_config_str(config, "gateway.tls_key");
    o->metrics = tr_config_str(config, "gateway.metrics");
    o->n_workers = (unsigned)tr_config_int(config, "gateway.workers");
    if (o->n_workers == 0)
        o->n_workers = cores > 0 ? (unsigned)cores : 1;
    o->max_connections = (unsigned)tr_config_int(config, "gateway.max_connections");
    o->max_connections_per_client =
        (uint32_t)tr_config_int(config, "gateway.max_connections_per_client");
    o->max_requests_per_sandbox =
        (uint32_t)tr_config_int(config, "gateway.max_requests_per_sandbox");
    o->max_tunnels_per_sandbox = (uint32_t)tr_config_int(config, "gateway.max_tunnels_per_sandbox");
    o->limits.head_bytes = (size_t)tr_config_int(config, "gateway.max_head_bytes");
    o->limits.n_fields = (size_t)tr_config_int(config, "gateway.max_header_count");
    o->http2 = tr_config_bool(config, "gateway.http2");
    o->http2_streams = (unsigned)tr_config_int(config, "gateway.http2_max_streams");
    o->head_timeout_ms = (uint64_t)tr_config_int(config, "gateway.head_timeout_ms");
    o->idle_timeout_ms = (uint64_t)tr_config_int(config, "gateway.idle_timeout_ms");
    o->connect_timeout_ms = (uint64_t)tr_config_int(config, "gateway.connect_timeout_ms");
    o->answer_timeout_ms = (uint64_t)tr_config_int(config, "gateway.answer_timeout_ms");
    o->body_idle_timeout_ms = (uint64_t)tr_config_int(config, "gateway.body_idle_timeout_ms");
    o->min_body_rate = (uint64_t)tr_config_int(config, "gateway.min_body_rate");
    o->tunnel_idle_ms = (uint64_t)tr_config_int(config, "gateway.tunnel_idle_ms");
    o->drain_ms = (uint64_t)tr_config_int(config, "gateway.drain_ms");
    o->upgrade_drain_ms = (uint64_t)tr_config_int(config, "gateway.upgrade_drain_ms");
    o->ticket_rotate_ms = (uint64_t)tr_config_int(config, "gateway.tls_ticket_rotate_s") * 1000;
    if (take_list(config, "gateway.http", &o->http, &o->n_http) != 0 ||
        take_list(config, "gateway.https", &o->https, &o->n_https) != 0 ||
        take_list(config, "gateway.certificates", &o->certificates, &o->n_certificates) != 0)
        return tr_err_set(err, -ENOMEM, "out of memory");
    if (o->n_http + o->n_https == 0)
        return tr_err_set(err, -EINVAL,
                          "gateway.http and gateway.https are both empty: nothing to listen on");
    if ((o->certificate[0] == '\0') != (o->key[0] == '\0'))
        return tr_err_set(err, -EINVAL,
                          "gateway.tls_certificate and gateway.tls_key need each other");
    if (o->n_https > 0 && o->certificate[0] == '\0' && o->n_certificates == 0)
        return tr_err_set(err, -EINVAL,
                          "gateway.https needs gateway.tls_certificate and gateway.tls_key, or "
                          "gateway.certificates");
    o->allow_framing = strcmp(tr_config_str(config, "gateway.framing"), "allow") == 0;
    o->https_redirect = tr_config_bool(config, "gateway.https_redirect");
    o->https_redirect_port = (unsigned)tr_config_int(config, "gateway.https_redirect_port");
    if (o->https_redirect && o->https_redirect_port == 0 && o->n_https > 0)
        o->https_redirect_port = (unsigned)port_of(o->https[0]);
    if (o->https_redirect && o->https_redirect_port == 0)
        return tr_err_set(err, -EINVAL,
                          "gateway.https_redirect needs gateway.https with a fixed port, or "
                          "gateway.https_redirect_port");
    r = take_cidrs(config, "gateway.trusted_proxies", &o->trusted, &o->n_trusted, err);
    if (r == 0)
        r = take_cidrs(config, "gateway.proxy_protocol", &o->proxies, &o->n_proxies, err);
    return r;
}

void gw_options_fini(struct gw_options *o)
{
    free(o->http);
    free(o->https);
    free(o->certificates);
    free(o->trusted);
    free(o->proxies);
    memset(o, 0, sizeof(*o));
}
