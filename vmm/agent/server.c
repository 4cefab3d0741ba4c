/* SPDX-License-Identifier: MIT */
/* Path: find -> open channel -> (on_open -> session -> on_end)* -> on_close -> find again. */
#include "vmm/agent/server.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "transom/channel.h"
#include "transom/h2_uv.h"
#include "transom/log.h"
#include "vmm/agent/request.h"

#define PORTS_DIR "/sys/class/virtio-ports"
#define RETRY_MS  50
#define SAY_EVERY 200 /* tries between log lines */

struct agent_server {
    struct agent *agent;
    uv_timer_t retry;
    uv_poll_t accept;
    int listen_fd; /* -1 without --unix */
    struct tr_channel *channel;
    struct tr_h2_conn *conn; /* of the conversation under way */
    unsigned n_tries;
    bool stopping;
};

static void find_channel(struct agent_server *s);

/* ---- conversations ---- */

static void on_conn_close(struct tr_h2_conn *conn, int status, const char *reason, void *arg)
{
    struct agent_server *s = arg;

    log_info("conversation ended: %s", reason != NULL && *reason != '\0' ? reason
                                       : status == 0                     ? "done"
                                                                         : uv_strerror(status));
    if (s->conn == conn)
        s->conn = NULL;
}

static void on_request(struct tr_h2 *h2, struct tr_h2_stream *st, const struct tr_h2_head *head,
                       bool end, void *arg)
{
    struct agent_server *s = arg;

    agent_request_start(h2, st, head, end, s->agent);
}

static void on_channel_open(struct tr_channel *ch, void *arg)
{
    static const struct tr_h2_conn_cbs cbs = {.on_request = on_request, .on_close = on_conn_close};
    /* The manager is trusted, and passes on the resets of all its clients. */
    static const struct tr_h2_options options = {.reset_rate = 10000};
    struct agent_server *s = arg;
    int r = tr_h2_conn_open_channel(ch, true, &options, 0, &cbs, s, &s->conn);

    if (r != 0) {
        log_error("a conversation cannot begin: %s", uv_strerror(r));
        s->conn = NULL;
    } else {
        log_info("conversation began");
    }
}

static void on_channel_data(struct tr_channel *ch, const uint8_t *data, size_t len, void *arg)
{
    struct agent_server *s = arg;

    (void)ch;
    if (s->conn != NULL)
        tr_h2_conn_channel_data(s->conn, data, len);
}

static void on_channel_drain(struct tr_channel *ch, void *arg)
{
    struct agent_server *s = arg;

    (void)ch;
    if (s->conn != NULL)
        tr_h2_conn_channel_drain(s->conn);
}

static void on_channel_end(struct tr_channel *ch, int status, void *arg)
{
    struct agent_server *s = arg;
    struct tr_h2_conn *conn = s->conn;

    (void)ch;
    s->conn = NULL; /* its on_close still comes */
    if (conn != NULL)
        tr_h2_conn_channel_closed(conn, status != 0 ? status : UV_EOF);
}

static void start_retry(struct agent_server *s);
static void on_acceptable(uv_poll_t *poll, int status, int events);

static void on_channel_close(struct tr_channel *ch, int status, void *arg)
{
    struct agent_server *s = arg;

    (void)ch;
    s->channel = NULL;
    if (s->stopping)
        return;
    if (s->agent->options.stdio) {
        uv_stop(s->agent->loop); /* the host is gone for good, and we with it */
    } else if (s->listen_fd >= 0) {
        if (uv_poll_start(&s->accept, UV_READABLE, on_acceptable) != 0)
            log_error("waiting for a connection failed");
    } else {
        log_warn("channel ended: %s", uv_strerror(status));
        start_retry(s);
    }
}

static int open_channel(struct agent_server *s, int fd_in, int fd_out, bool serial)
{
    static const struct tr_channel_cbs cbs = {.on_open = on_channel_open,
                                              .on_data = on_channel_data,
                                              .on_drain = on_channel_drain,
                                              .on_end = on_channel_end,
                                              .on_close = on_channel_close};

    return tr_channel_open(s->agent->loop, fd_in, fd_out, false, serial, &cbs, s, &s->channel);
}

/* ---- virtio-serial ---- */

/* The device node of the port with our name. */
static bool find_port(const char *name, char *path, size_t size)
{
    DIR *dir = opendir(PORTS_DIR);
    bool found = false;
    struct dirent *e;

    while (!found && dir != NULL && (e = readdir(dir)) != NULL) {
        char file[320], text[128] = "";
        FILE *f;

        if (e->d_name[0] == '.')
            continue;
        snprintf(file, sizeof(file), PORTS_DIR "/%s/name", e->d_name);
        f = fopen(file, "re");
        if (f == NULL)
            continue;
        if (fgets(text, sizeof(text), f) != NULL) {
            text[strcspn(text, "\n")] = '\0';
            found = strcmp(text, name) == 0;
            snprintf(path, size, "/dev/%s", e->d_name);
        }
        fclose(f);
    }
    if (dir != NULL)
        closedir(dir);
    return found;
}

static void on_retry(uv_timer_t *timer)
{
    find_channel(timer->data);
}

static void start_retry(struct agent_server *s)
{
    if (uv_timer_start(&s->retry, on_retry, RETRY_MS, 0) != 0)
        log_error("timer"); /* cannot fail with a callback */
}

static void find_channel(struct agent_server *s)
{
    const char *name = s->agent->options.port_name;
    char path[300];
    int fd = -1, r;

    if (find_port(name, path, sizeof(path)))
        fd = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    r = fd >= 0 ? open_channel(s, fd, fd, true) : -errno;
    if (r == 0) {
        s->n_tries = 0;
        log_info("serving on %s (%s)", name, path);
        return;
    }
    if (fd >= 0)
        close(fd);
    if (s->n_tries++ % SAY_EVERY == 0)
        log_warn("no channel %s yet: %s", name, uv_strerror(r));
    start_retry(s);
}

/* ---- unix socket ---- */

static void on_acceptable(uv_poll_t *poll, int status, int events)
{
    struct agent_server *s = poll->data;
    int fd = accept4(s->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

    (void)status;
    (void)events;
    if (fd < 0)
        return;
    if (open_channel(s, fd, fd, false) != 0) {
        close(fd);
        return;
    }
    uv_poll_stop(&s->accept); /* one host at a time, as on the serial port */
}

static int listen_unix(struct agent_server *s, const char *path, struct err *err)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    struct stat st;
    int r;

    if (strlen(path) >= sizeof(addr.sun_path))
        return tr_err_set(err, UV_ENAMETOOLONG, "%s: longer than a socket's name can be", path);
    memcpy(addr.sun_path, path, strlen(path) + 1);
    if (lstat(path, &st) == 0 && S_ISSOCK(st.st_mode))
        unlink(path); /* of an agent that is gone: tests use fresh folders */
    s->listen_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (s->listen_fd < 0 || bind(s->listen_fd, (struct sockaddr *)&addr, sizeof(addr)) != 0 ||
        chmod(path, 0600) != 0 || listen(s->listen_fd, 8) != 0)
        return tr_err_set(err, -errno, "%s: %s", path, strerror(errno));
    r = uv_poll_init(s->agent->loop, &s->accept, s->listen_fd);
    if (r != 0)
        return tr_err_set(err, r, "%s: %s", path, uv_strerror(r));
    s->accept.data = s;
    r = uv_poll_start(&s->accept, UV_READABLE, on_acceptable);
    return r == 0 ? 0 : tr_err_set(err, r, "%s: %s", path, uv_strerror(r));
}

/* ---- life ---- */

int agent_server_start(struct agent *a, struct agent_server **out, struct err *err)
{
    struct agent_server *s = calloc(1, sizeof(*s));
    int r;

    if (s == NULL || uv_timer_init(a->loop, &s->retry) != 0) {
        free(s);
        return tr_err_set(err, UV_ENOMEM, "out of memory");
    }
    s->agent = a;
    s->listen_fd = -1;
    s->retry.data = s;
    *out = s;
    if (a->options.unix_path != NULL)
        return listen_unix(s, a->options.unix_path, err);
    if (!a->options.stdio) {
        find_channel(s);
        return 0;
    }
    r = open_channel(s, STDIN_FILENO, STDOUT_FILENO, false);
    return r == 0 ? 0 : tr_err_set(err, r, "standard input and output: %s", uv_strerror(r));
}

void agent_server_stop(struct agent_server *s)
{
    s->stopping = true;
    if (s->channel != NULL)
        tr_channel_close(s->channel);
    if (!uv_is_closing((uv_handle_t *)&s->retry))
        uv_close((uv_handle_t *)&s->retry, NULL);
    if (s->accept.data != NULL && !uv_is_closing((uv_handle_t *)&s->accept))
        uv_close((uv_handle_t *)&s->accept, NULL);
    if (s->listen_fd >= 0) {
        close(s->listen_fd);
        unlink(s->agent->options.unix_path);
    }
    s->listen_fd = -1;
}

void agent_server_free(struct agent_server *s)
{
    free(s);
}
