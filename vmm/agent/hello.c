/* SPDX-License-Identifier: MIT */
/* Everything here may be done again at any time: after a restore the machine is told a new name,
 * address and time while systemd and the user's programs run. */
#include "vmm/agent/hello.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/random.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/reboot.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include "transom/log.h"
#include "vmm/agent/base64.h"
#include "vmm/agent/event.h"
#include "vmm/agent/net.h"
#include "vmm/agent/port.h"
#include "vmm/agent/renew.h"
#include "vmm/agent/secrets.h"
#include "vmm/agent/splice.h"
#include "vmm/agent/ssh.h"
#include "vmm/agent/ssh_keys.h"
#include "vmm/agent/systemd.h"
#include "vmm/agent/window.h"

#define MAX_ENTROPY  512
#define MAX_DNS      4
#define OFF_DELAY_MS 100

struct hello {
    const char *instance, *label, *hostname, *public_hostname, *public_url; /* borrowed, not NULL */
    json_t *env;                                                            /* borrowed or NULL */
    int64_t time_ns;                                                        /* 0: not given */
    int64_t window_idle_ms, shell_back_ms;
    uint8_t *entropy;
    size_t entropy_len;
    bool has_net, has_edge;
    struct in_addr edge; /* who alone may use the port for apps on loopback */
    struct agent_net net;
    char dns[MAX_DNS][INET6_ADDRSTRLEN];
    size_t n_dns;
};

bool agent_hostname_ok(const char *name)
{
    size_t label = 0, len = strlen(name);

    if (len == 0 || len > 253)
        return false;
    for (size_t i = 0; i <= len; i++) {
        char c = name[i];

        if (c == '.' || c == '\0') {
            if (label == 0 || label > 63 || name[i - 1] == '-' || name[i - label] == '-')
                return false;
            label = 0;
        } else if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                   c == '-') {
            label++;
        } else {
            return false;
        }
    }
    return true;
}

/* ---- parsing ---- */

static bool parse_address(struct agent_request *req, const char *what, const char *text,
                          struct in_addr *out)
{
    if (text != NULL && inet_pton(AF_INET, text, out) == 1)
        return true;
    agent_request_error(req, 400, NULL, "%s must be an IPv4 address", what);
    return false;
}

static bool parse_net(struct agent_request *req, json_t *net, struct hello *h)
{
    const char *address = NULL, *gateway = NULL, *edge = NULL, *mac = NULL;
    json_t *dns = json_object_get(net, "dns"), *server;
    struct in6_addr any;
    int64_t mtu = 1500;
    size_t i;

    if (net == NULL || json_is_null(net))
        return true;
    if (!json_is_object(net) || (dns != NULL && !json_is_array(dns))) {
        agent_request_error(req, 400, NULL, "net must be an object, its dns an array");
        return false;
    }
    if (!agent_json_string(req, net, "address", &address) ||
        !agent_json_string(req, net, "gateway", &gateway) ||
        !agent_json_string(req, net, "edge", &edge) || !agent_json_string(req, net, "mac", &mac) ||
        !agent_json_int(req, net, "mtu", 576, 65535, &mtu) ||
        !parse_address(req, "net.address", address, &h->net.address) ||
        !parse_address(req, "net.gateway", gateway, &h->net.gateway) ||
        (edge != NULL && !parse_address(req, "net.edge", edge, &h->edge)))
        return false;
    if (mac != NULL && !agent_mac_parse(mac, h->net.mac)) {
        agent_request_error(req, 400, NULL, "net.mac must be six bytes in hexadecimal");
        return false;
    }
    h->net.mtu = (uint32_t)mtu;
    h->has_edge = edge != NULL;
    json_array_foreach(dns, i, server)
    {
        const char *text = json_string_value(server);

        if (text == NULL || strlen(text) >= INET6_ADDRSTRLEN || i >= MAX_DNS ||
            (inet_pton(AF_INET, text, &any) != 1 && inet_pton(AF_INET6, text, &any) != 1)) {
            agent_request_error(req, 400, NULL, "net.dns must hold at most %d addresses", MAX_DNS);
            return false;
        }
        memcpy(h->dns[h->n_dns++], text, strlen(text) + 1);
    }
    h->has_net = true;
    return true;
}

static bool parse(struct agent_request *req, json_t *body, struct hello *h)
{
    const char *entropy = NULL;
    int64_t api = 0;

    memset(h, 0, sizeof(*h));
    h->instance = h->label = h->public_hostname = h->public_url = "";
    h->hostname = "transom";
    h->window_idle_ms = AGENT_DEFAULT_IDLE_MS;
    h->shell_back_ms = AGENT_DEFAULT_BACK_MS;
    if (!agent_json_int(req, body, "api", 1, INT64_C(1) << 31, &api) ||
        !agent_json_string(req, body, "label", &h->label) ||
        !agent_json_string(req, body, "hostname", &h->hostname) ||
        !agent_json_string(req, body, "public_hostname", &h->public_hostname) ||
        !agent_json_string(req, body, "public_url", &h->public_url) ||
        !agent_json_string(req, body, "entropy_b64", &entropy) ||
        !agent_json_int(req, body, "time_ns", 0, INT64_MAX, &h->time_ns) ||
        !agent_json_int(req, body, "window_idle_ms", 1, INT64_C(1) << 40, &h->window_idle_ms) ||
        !agent_json_int(req, body, "shell_back_ms", 1, 600000, &h->shell_back_ms) ||
        !agent_json_env(req, body, "env", &h->env) ||
        !parse_net(req, json_object_get(body, "net"), h))
        return false;
    if (api != AGENT_API) {
        agent_request_error(req, 409, "api_mismatch", "this agent speaks api %d", AGENT_API);
        return false;
    }
    if (!agent_hostname_ok(h->hostname) ||
        (*h->public_hostname != '\0' && !agent_hostname_ok(h->public_hostname))) {
        agent_request_error(req, 400, NULL, "hostname and public_hostname must be host names");
        return false;
    }
    if (entropy != NULL && (strlen(entropy) > MAX_ENTROPY * 2 ||
                            agent_base64_decode(entropy, &h->entropy, &h->entropy_len) != 0 ||
                            h->entropy_len > MAX_ENTROPY)) {
        agent_request_error(req, 400, NULL, "entropy_b64 must be base 64 of at most %d bytes",
                            MAX_ENTROPY);
        return false;
    }
    return true;
}

/* instance is a number in the manager's records, text elsewhere: both are taken. */
static char *instance_text(json_t *body)
{
    json_t *v = json_object_get(body, "instance");
    char text[32] = "";

    if (json_is_string(v))
        return strdup(json_string_value(v));
    if (json_is_integer(v))
        snprintf(text, sizeof(text), "%lld", (long long)json_integer_value(v));
    return strdup(text);
}

/* ---- carrying out ---- */

static int set_clock(int64_t ns, struct err *err)
{
    struct timespec ts = {.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};

    if (ns > 0 && clock_settime(CLOCK_REALTIME, &ts) != 0)
        return tr_err_set(err, -errno, "setting the clock: %s", strerror(errno));
    return 0;
}

static int add_entropy(const uint8_t *bytes, size_t len, struct err *err)
{
    union {
        struct rand_pool_info info;
        uint8_t bytes[sizeof(struct rand_pool_info) + MAX_ENTROPY];
    } pool;
    int fd, r = 0;

    if (len == 0)
        return 0;
    memset(&pool, 0, sizeof(pool));
    pool.info.entropy_count = (int)len * 8;
    pool.info.buf_size = (int)len;
    memcpy(pool.bytes + sizeof(pool.info), bytes, len);
    fd = open("/dev/urandom", O_RDWR | O_CLOEXEC);
    if (fd < 0 || ioctl(fd, RNDADDENTROPY, &pool) != 0 || ioctl(fd, RNDRESEEDCRNG) != 0)
        r = tr_err_set(err, -errno, "adding entropy: %s", strerror(errno));
    if (fd >= 0)
        close(fd);
    explicit_bzero(&pool, sizeof(pool));
    return r;
}

static int set_names(const struct hello *h, struct err *err)
{
    char text[1500];
    int r;

    if (sethostname(h->hostname, strlen(h->hostname)) != 0)
        return tr_err_set(err, -errno, "setting the host name: %s", strerror(errno));
    snprintf(text, sizeof(text), "%s\n", h->hostname); /* systemd sets it again from here */
    r = agent_replace_file("/etc/hostname", text, err);
    if (r != 0)
        return r;
    snprintf(text, sizeof(text),
             "127.0.0.1 localhost %s\n127.0.1.1 %s\n::1 localhost ip6-localhost ip6-loopback %s\n",
             h->public_hostname, h->hostname, h->public_hostname);
    return agent_replace_file("/etc/hosts", text, err);
}

static int set_resolver(const struct hello *h, struct err *err)
{
    char text[MAX_DNS * (INET6_ADDRSTRLEN + 16) + 64] = "";
    size_t len = 0;

    for (size_t i = 0; i < h->n_dns; i++)
        len += (size_t)snprintf(text + len, sizeof(text) - len, "nameserver %s\n", h->dns[i]);
    return len > 0 ? agent_replace_file("/etc/resolv.conf", text, err) : 0;
}

/* For login shells that we do not start (see /etc/profile.d/transom.sh): NAME='value' lines. */
static int write_environment(const struct hello *h, struct err *err)
{
    char text[2048] = "";
    size_t len = 0;

    if (*h->public_hostname != '\0')
        len += (size_t)snprintf(text, sizeof(text), "PUBLIC_HOSTNAME='%s'\n", h->public_hostname);
    if (*h->public_url != '\0' && strchr(h->public_url, '\'') == NULL &&
        strlen(h->public_url) < 1024)
        snprintf(text + len, sizeof(text) - len, "PUBLIC_URL='%s'\n", h->public_url);
    if (mkdir("/run/transom", 0755) != 0 && errno != EEXIST)
        return tr_err_set(err, -errno, "/run/transom: %s", strerror(errno));
    return agent_replace_file("/run/transom/environment", text, err);
}

/* anew: this machine was another one before. */
static int carry_out(const struct hello *h, bool anew, struct err *err)
{
    int r = set_clock(h->time_ns, err);

    if (r == 0)
        r = add_entropy(h->entropy, h->entropy_len, err);
    if (r == 0)
        r = set_names(h, err);
    if (r == 0)
        r = write_environment(h, err);
    if (r == 0)
        r = agent_renew_machine_id(anew, err);
    if (r == 0 && anew)
        r = agent_renew(err);
    if (r == 0)
        r = agent_net_loopback(err);
    if (r == 0 && h->has_net)
        r = agent_net_setup(&h->net, err);
    if (r == 0)
        r = set_resolver(h, err);
    return r;
}

void agent_identity_fini(struct agent_identity *id)
{
    free(id->instance);
    free(id->label);
    free(id->hostname);
    free(id->public_hostname);
    free(id->public_url);
    json_decref(id->env);
    memset(id, 0, sizeof(*id));
}

static int keep(struct agent *a, const struct hello *h, json_t *body)
{
    struct agent_identity id = {.instance = instance_text(body),
                                .label = strdup(h->label),
                                .hostname = strdup(h->hostname),
                                .public_hostname = strdup(h->public_hostname),
                                .public_url = strdup(h->public_url),
                                .env = json_incref(h->env)};

    if (id.instance == NULL || id.label == NULL || id.hostname == NULL ||
        id.public_hostname == NULL || id.public_url == NULL) {
        agent_identity_fini(&id);
        return UV_ENOMEM;
    }
    agent_identity_fini(&a->id);
    a->id = id;
    return 0;
}

static json_t *describe(const struct agent *a)
{
    char boot_id[64] = "";
    struct utsname uts;
    FILE *f = fopen("/proc/sys/kernel/random/boot_id", "re");

    if (f != NULL) {
        if (fgets(boot_id, sizeof(boot_id), f) == NULL)
            boot_id[0] = '\0';
        fclose(f);
    }
    boot_id[strcspn(boot_id, "\n")] = '\0';
    if (uname(&uts) != 0)
        snprintf(uts.release, sizeof(uts.release), "unknown");
    return json_pack("{s:i,s:s,s:s,s:s,s:I,s:s,s:i}", "api", AGENT_API, "version", TRANSOM_VERSION,
                     "boot_id", boot_id, "kernel", uts.release, "uptime_ms",
                     (json_int_t)agent_uptime_ms(), "init",
                     agent_systemd_is_init() ? "systemd" : "initrd", "loopback_port",
                     (int)agent_splices_port(a->splices));
}

/* Said hello to as another machine: restored from a template, where it had a name already. */
static bool is_another(const struct agent *a, const struct hello *h)
{
    return a->id.label != NULL && strcmp(a->id.label, h->label) != 0;
}

void agent_hello_handle(struct agent_request *req)
{
    json_t *body = agent_request_json(req);
    struct agent *a = req->agent;
    struct err err = {0};
    struct hello h;
    bool ok;
    int r;

    if (body == NULL)
        return;
    ok = parse(req, body, &h);
    if (ok) {
        r = a->options.host_test ? 0 : carry_out(&h, is_another(a, &h), &err);
        if (r == 0 && is_another(a, &h))
            agent_ssh_keys_renew(agent_ssh_get_keys(a->ssh));
        if (r == 0)
            r = keep(a, &h, body);
        if (r == 0) {
            a->greeted = true;
            agent_secrets_greeted(a->secrets);
            agent_ssh_keys_hello(agent_ssh_get_keys(a->ssh), json_object_get(body, "ssh_keys"));
            if (h.has_edge)
                (void)agent_splices_listen(a->splices, h.edge); /* logged; 0 is answered */
            agent_windows_set_limits(a->windows, h.window_idle_ms, h.shell_back_ms);
            agent_systemd_start(a->systemd);
            agent_event(a, "hello",
                        json_pack("{s:s,s:s}", "instance", a->id.instance, "label", a->id.label));
            agent_request_answer(req, 200, describe(a));
        } else {
            agent_request_error(req, 500, NULL, "%s", err.msg[0] ? err.msg : uv_strerror(r));
        }
    }
    if (h.entropy != NULL) {
        explicit_bzero(h.entropy, h.entropy_len);
        free(h.entropy);
    }
    json_decref(body);
}

/* ---- status, shutdown ---- */

static int64_t meminfo(const char *text, const char *name)
{
    const char *at = strstr(text, name);

    return at != NULL ? strtoll(at + strlen(name), NULL, 10) : 0;
}

void agent_status_handle(struct agent_request *req)
{
    char text[4096] = "";
    FILE *f = fopen("/proc/meminfo", "re");

    if (f != NULL) {
        size_t n = fread(text, 1, sizeof(text) - 1, f);

        text[n] = '\0';
        fclose(f);
    }
    agent_request_answer(req, 200,
                         json_pack("{s:s,s:o,s:I,s:I,s:I}", "systemd",
                                   agent_systemd_state(req->agent->systemd), "listening",
                                   agent_ports_json(req->agent->ports), "uptime_ms",
                                   (json_int_t)agent_uptime_ms(), "mem_total_kb",
                                   (json_int_t)meminfo(text, "MemTotal:"), "mem_available_kb",
                                   (json_int_t)meminfo(text, "MemAvailable:")));
}

static void on_off(uv_timer_t *timer)
{
    struct agent *a = timer->data;

    if (a->options.host_test) {
        uv_stop(a->loop);
        return;
    }
    sync();
    if (reboot(RB_POWER_OFF) != 0)
        log_error("powering off: %s", strerror(errno));
}

void agent_shutdown_handle(struct agent_request *req)
{
    static uv_timer_t timer; /* the last thing this process does */

    if (!agent_request_may_act(req))
        return;
    if (timer.data == NULL) {
        timer.data = req->agent;
        if (uv_timer_init(req->agent->loop, &timer) != 0 ||
            uv_timer_start(&timer, on_off, OFF_DELAY_MS, 0) != 0)
            log_error("timer");
    }
    agent_request_empty(req, 204); /* the delay lets the answer reach the wire */
}
