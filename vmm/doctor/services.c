/* SPDX-License-Identifier: MIT */
/* Does what should run answer: Redis, the manager's sockets, the gateway? */
#include <arpa/inet.h>
#include <errno.h>
#include <hiredis/hiredis.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>
#include <uv.h>
#include "transom/state.h"
#include "vmm/doctor/doctor.h"

#define PATIENCE_MS   3000
#define START_MANAGER "systemctl start transom-vmm; why it did not: journalctl -u transom-vmm"
#define START_GATEWAY                                                                              \
    "systemctl start transom-gateway; why it did not: journalctl -u transom-gateway"

/* ---- Redis ---- */

struct asking {
    struct tr_redis *redis;
    uv_timer_t deadline;
    bool up, answered, closing;
    char why[256];
};

static void wind_up(struct asking *a)
{
    if (a->closing)
        return;
    a->closing = true;
    uv_close((uv_handle_t *)&a->deadline, NULL);
    tr_redis_close(a->redis);
}

static void on_pong(struct redisReply *reply, void *arg)
{
    struct asking *a = arg;

    if (reply != NULL && reply->type == REDIS_REPLY_ERROR)
        snprintf(a->why, sizeof(a->why), "%s", reply->str);
    a->answered = reply != NULL && reply->type != REDIS_REPLY_ERROR;
    wind_up(a);
}

static void on_up(struct tr_redis *r, void *arg)
{
    const char *argv[] = {"HLEN", TR_KEY_ROUTES};
    const size_t len[] = {4, sizeof(TR_KEY_ROUTES) - 1};
    struct asking *a = arg;

    a->up = true;
    if (tr_redis_command(r, on_pong, a, 2, argv, len) != 0)
        wind_up(a);
}

static void on_down(struct tr_redis *r, const char *why, void *arg)
{
    struct asking *a = arg;

    (void)r;
    if (!a->answered && a->why[0] == '\0')
        snprintf(a->why, sizeof(a->why), "%s", why);
    wind_up(a);
}

static void on_close(struct tr_redis *r, void *arg)
{
    (void)r;
    (void)arg;
}

static void on_deadline(uv_timer_t *timer)
{
    struct asking *a = timer->data;

    snprintf(a->why, sizeof(a->why), "it did not answer within %d s", PATIENCE_MS / 1000);
    wind_up(a);
}

static void ask_redis(const char *url, struct asking *a)
{
    static const struct tr_redis_cbs cbs = {
        .on_up = on_up, .on_down = on_down, .on_close = on_close};
    struct err err = {0};
    uv_loop_t loop;

    memset(a, 0, sizeof(*a));
    if (uv_loop_init(&loop) != 0 || uv_timer_init(&loop, &a->deadline) != 0)
        abort();
    a->deadline.data = a;
    if (tr_redis_open(&loop, url, &cbs, a, &a->redis, &err) != 0) {
        snprintf(a->why, sizeof(a->why), "%s", err.msg);
        uv_close((uv_handle_t *)&a->deadline, NULL);
    } else if (uv_timer_start(&a->deadline, on_deadline, PATIENCE_MS, 0) != 0) {
        abort();
    }
    uv_run(&loop, UV_RUN_DEFAULT);
    (void)uv_loop_close(&loop);
}

void doctor_check_redis(struct doctor *d)
{
    bool embedded = *d->options.redis_url == '\0';
    char url[4096];
    struct asking a;

    if (!embedded)
        snprintf(url, sizeof(url), "%s", d->options.redis_url);
    else if (tr_redis_embedded_url(d->options.run_dir, TR_REDIS_MANAGER, url, sizeof(url)) != 0)
        return; /* run_dir is too long, which its own check says */
    ask_redis(url, &a);
    if (a.answered)
        doctor_report(d, "redis", DOCTOR_OK, "", "it answers%s",
                      embedded ? " (the manager's own)" : "");
    else
        doctor_report(d, "redis", DOCTOR_BAD,
                      embedded ? "it is started by transom-vmm: " START_MANAGER
                               : "start it, or correct redis.url (address, user, password, "
                                 "firewall); its user needs the rights in README: Redis",
                      "%s: %s", embedded ? "the manager's own" : "redis.url", a.why);
}

/* ---- sockets ---- */

static int connect_unix(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), r = 0;

    if (fd < 0 || strlen(path) >= sizeof(address.sun_path))
        r = fd < 0 ? -errno : -ENAMETOOLONG;
    if (r == 0) {
        memcpy(address.sun_path, path, strlen(path));
        if (connect(fd, (struct sockaddr *)&address, sizeof(address)) != 0)
            r = -errno;
    }
    if (fd >= 0)
        close(fd);
    return r;
}

static bool check_socket(struct doctor *d, const char *name, mode_t mode)
{
    char path[4096];
    struct stat st;
    int r;

    snprintf(path, sizeof(path), "%s/%s", d->options.run_dir, name);
    r = connect_unix(path);
    if (r == -EACCES && geteuid() != 0) {
        doctor_report(d, "sockets", DOCTOR_WARN, "run transom doctor as root", "%s: %s", path,
                      strerror(-r));
        return false;
    }
    if (r != 0) {
        doctor_report(d, "sockets", DOCTOR_BAD, START_MANAGER, "nothing answers at %s: %s", path,
                      strerror(-r));
        return false;
    }
    if (stat(path, &st) == 0 && (st.st_mode & 0777) != mode) {
        doctor_report(d, "sockets", DOCTOR_BAD, "restart transom-vmm, and find who changes it",
                      "%s has mode %03o, not %03o", path, (unsigned)st.st_mode & 0777,
                      (unsigned)mode);
        return false;
    }
    return true;
}

void doctor_check_manager(struct doctor *d)
{
    bool admin = check_socket(d, "admin.sock", 0600), edge = check_socket(d, "edge.sock", 0666);

    if (admin && edge)
        doctor_report(d, "sockets", DOCTOR_OK, "", "the manager listens in %s", d->options.run_dir);
}

/* ---- the gateway ---- */

/* Ask a plain listener for the API's version, as the API's host. Returns 0 or -errno; -EPROTO: what
 * answers is no Transom. */
static int ask_gateway(const char *listener, const char *domain)
{
    const struct timeval patience = {.tv_sec = PATIENCE_MS / 1000};
    const char *colon = strrchr(listener, ':');
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST}, *to = NULL;
    char host[64], text[2048];
    size_t len = 0;
    ssize_t n = 0;
    int fd, r = 0;

    if (colon == NULL || strcmp(colon, ":0") == 0)
        return 0; /* a port of chance is not to be found */
    snprintf(host, sizeof(host), "%.*s", (int)(colon - listener - 2 * (*listener == '[')),
             listener + (*listener == '['));
    if (strcmp(host, "0.0.0.0") == 0)
        snprintf(host, sizeof(host), "127.0.0.1");
    if (strcmp(host, "::") == 0)
        snprintf(host, sizeof(host), "::1");
    if (getaddrinfo(host, colon + 1, &hints, &to) != 0)
        return -EINVAL;
    fd = socket(to->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)) != 0 ||
        setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience)) != 0 ||
        connect(fd, to->ai_addr, to->ai_addrlen) != 0)
        r = -errno;
    freeaddrinfo(to);
    if (r == 0) {
        n = snprintf(text, sizeof(text),
                     "GET /v1/version HTTP/1.1\r\nHost: api.%s\r\nConnection: close\r\n\r\n",
                     domain);
        if (send(fd, text, (size_t)n, MSG_NOSIGNAL) != n)
            r = -errno;
    }
    while (r == 0 && len < sizeof(text) - 1 &&
           (n = recv(fd, text + len, sizeof(text) - 1 - len, 0)) > 0)
        len += (size_t)n;
    text[len] = '\0';
    if (fd >= 0)
        close(fd);
    if (r == 0 && n < 0 && len == 0)
        r = -errno;
    if (r == 0 && strstr(text, "\"api\":\"v1\"") == NULL &&
        strncmp(text, "HTTP/1.1 308", 12) != 0) /* it redirects to https */
        r = -EPROTO;
    return r;
}

void doctor_check_gateway(struct doctor *d)
{
    const char *domain = tr_config_str(d->config, "domain");
    size_t n = tr_config_list_len(d->config, "gateway.http"), n_good = 0;

    for (size_t i = 0; i < n; i++) {
        const char *listener = tr_config_list_get(d->config, "gateway.http", i);
        int r = ask_gateway(listener, domain);

        if (r == -EPROTO)
            doctor_report(d, "gateway", DOCTOR_BAD,
                          "if another program listens there (ss -ltnp), stop it or change "
                          "gateway.http; else see whether transom-vmm runs",
                          "%s is answered, but not with the API", listener);
        else if (r != 0)
            doctor_report(d, "gateway", DOCTOR_BAD, START_GATEWAY, "nothing answers at %s: %s",
                          listener, strerror(-r));
        else
            n_good++;
    }
    if (n_good == n && n > 0)
        doctor_report(d, "gateway", DOCTOR_OK, "", "the API answers at all %zu plain listeners", n);
}
