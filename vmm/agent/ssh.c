/* SPDX-License-Identifier: MIT */
/* Path: sshd starts on one end of a socket pair -> its first bytes -> 200 -> bytes both ways ->
 * both ended -> sshd exits -> ssh_end. Client gone: the socket is closed, which sshd takes for the
 * end; one that does not is told by TERM, then KILL. What a user left behind in the background
 * lives on, as with any other sshd. Faults: sshd ends before it said anything -> 503 with its
 * complaint. */
#include "vmm/agent/ssh.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "transom/log.h"
#include "vmm/agent/child.h"
#include "vmm/agent/event.h"
#include "vmm/agent/group.h"
#include "vmm/agent/reaper.h"
#include "vmm/agent/secrets.h"
#include "vmm/agent/spawn.h"
#include "vmm/agent/ssh_config.h"
#include "vmm/agent/ssh_keys.h"
#include "vmm/agent/ssh_session.h"

#define MAX_CONNECTIONS 64
#define READ_BYTES      65536
#define PATIENCE_MS     5000 /* with an sshd that ought to have ended */
#define COMPLAINT_SIZE  400
#define RUN_SSHD        "/run/sshd" /* sshd wants it; ssh.service makes and removes it */

struct conn {
    struct conn *next;
    struct agent_ssh *ssh;
    struct agent_request *req; /* NULL once the stream is gone */
    char id[24];
    char config[320]; /* path; "": removed */
    char env[320];    /* the same of variables that stand in no configuration */
    pid_t pid;
    struct agent_group *group;
    struct agent_watch *watch; /* NULL once exited */
    uv_pipe_t pipe;
    uv_timer_t patience;
    uv_shutdown_t shutdown;
    int complaints; /* what sshd writes to its standard error; -1: closed */
    int n_open;
    bool spoke;   /* the head was sent */
    bool eof;     /* sshd sends no more */
    bool blocked; /* the stream takes no more at the moment */
    bool closing; /* handles are being closed */
    bool termed;  /* it was told by TERM */
    bool exited, by_exit;
    int code;
    int64_t started_at, last_at; /* wall ms */
    uint64_t in, out;            /* bytes to and from sshd */
    char buf[READ_BYTES];
};

struct write_op {
    uv_write_t req;
    struct conn *conn;
    size_t len;
    uint8_t data[];
};

/* A request that came while the host key was being made, with what its client has sent. */
struct held {
    struct held *next;
    struct agent_request *req;
    uint8_t *data; /* not given back: at most the stream's window */
    size_t len;
};

struct agent_ssh {
    struct agent *agent;
    struct agent_ssh_keys *keys;
    struct conn *list;
    struct held *held;
    size_t n;
    unsigned long last_id;
};

int agent_ssh_new(struct agent *a, struct agent_ssh **out)
{
    struct agent_ssh *ssh = calloc(1, sizeof(*ssh));

    if (ssh == NULL)
        return UV_ENOMEM;
    ssh->agent = a;
    if (agent_ssh_keys_new(a, &ssh->keys) != 0) {
        free(ssh);
        return UV_ENOMEM;
    }
    *out = ssh;
    return 0;
}

struct agent_ssh_keys *agent_ssh_get_keys(struct agent_ssh *ssh)
{
    return ssh->keys;
}

/* ---- end of life ---- */

/* It may hold secrets. sshd has read it when it says its first word. */
static void remove_config(struct conn *c)
{
    if (c->config[0] != '\0')
        unlink(c->config);
    c->config[0] = '\0';
}

static void remove_env(struct conn *c)
{
    if (c->env[0] != '\0')
        unlink(c->env);
    c->env[0] = '\0';
}

static void on_handle_close(uv_handle_t *handle)
{
    struct conn *c = handle->data, **p = &c->ssh->list;

    if (--c->n_open > 0)
        return;
    while (*p != c)
        p = &(*p)->next;
    *p = c->next;
    c->ssh->n--;
    free(c);
}

/* sshd is gone and nobody waits for anything of it. */
static void finish(struct conn *c)
{
    if (c->closing)
        return;
    c->closing = true;
    remove_config(c);
    remove_env(c);
    agent_event(c->ssh->agent, "ssh_end",
                json_pack("{s:s,s:I,s:I,s:I}", "id", c->id, "bytes_in", (json_int_t)c->in,
                          "bytes_out", (json_int_t)c->out, "duration_ms",
                          (json_int_t)(agent_wall_ms() - c->started_at)));
    if (c->complaints >= 0)
        close(c->complaints);
    agent_group_free(c->group);
    uv_close((uv_handle_t *)&c->patience, on_handle_close);
    if (!uv_is_closing((uv_handle_t *)&c->pipe))
        uv_close((uv_handle_t *)&c->pipe, on_handle_close);
}

static void on_patience(uv_timer_t *timer)
{
    struct conn *c = timer->data;

    if (c->exited && c->blocked)
        return;      /* what it said last waits for the reader */
    if (c->exited) { /* another process holds its socket */
        if (c->req != NULL)
            tr_h2_reset(c->req->stream, 2);
        finish(c);
        return;
    }
    kill(c->pid, c->termed ? SIGKILL : SIGTERM); /* not collected yet: the number is its own */
    c->termed = true;
}

/* sshd has to end now. */
static void await_end(struct conn *c)
{
    if (!c->closing && !uv_is_active((uv_handle_t *)&c->patience) &&
        uv_timer_start(&c->patience, on_patience, PATIENCE_MS, PATIENCE_MS) != 0)
        abort(); /* a timer cannot be refused by a loop that works */
}

static void close_pipe(struct conn *c)
{
    if (!uv_is_closing((uv_handle_t *)&c->pipe))
        uv_close((uv_handle_t *)&c->pipe, on_handle_close);
    c->eof = true;
}

/* The last that sshd complained about. */
static void read_complaint(struct conn *c, char *out, size_t size)
{
    ssize_t n = read(c->complaints, out, size - 1);
    char *line;

    out[n > 0 ? n : 0] = '\0';
    while ((line = strchr(out, '\r')) != NULL)
        *line = ' ';
    for (n = (ssize_t)strlen(out); n > 0 && strchr(" \n", out[n - 1]) != NULL; n--)
        out[n - 1] = '\0';
    line = strrchr(out, '\n');
    if (line != NULL)
        memmove(out, line + 1, strlen(line + 1) + 1);
    agent_secrets_hide_text(c->ssh->agent->secrets, out, size);
}

/* After anything that may have been the last. */
static void step(struct conn *c)
{
    struct agent_request *req = c->req;
    char complaint[COMPLAINT_SIZE];

    if (c->closing || !c->eof || !c->exited)
        return;
    if (req != NULL) {
        c->req = NULL;
        req->cbs = NULL;
        if (c->spoke) {
            agent_request_finish(req);
        } else {
            read_complaint(c, complaint, sizeof(complaint));
            agent_request_error(req, 503, NULL, "sshd did not start: %s",
                                *complaint != '\0' ? complaint : "it ended at once");
        }
    }
    finish(c);
}

static void on_exit_status(bool exited, int code, void *arg)
{
    struct conn *c = arg;

    c->watch = NULL;
    c->exited = true;
    c->by_exit = exited;
    c->code = code;
    log_debug("ssh %s: sshd ended: %s %d", c->id, exited ? "status" : "signal", code);
    await_end(c);
    step(c);
}

/* ---- from sshd ---- */

static void on_alloc(uv_handle_t *handle, size_t size, uv_buf_t *buf)
{
    struct conn *c = handle->data;

    (void)size;
    *buf = uv_buf_init(c->buf, sizeof(c->buf));
}

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf)
{
    struct conn *c = stream->data;
    int r;

    if (n == 0)
        return;
    if (n < 0) {
        uv_read_stop(stream);
        c->eof = true;
        await_end(c);
        step(c);
        return;
    }
    c->out += (uint64_t)n;
    c->last_at = agent_wall_ms();
    if (c->req == NULL)
        return;
    if (!c->spoke) {
        c->spoke = true;
        remove_config(c);
        agent_request_head(c->req, 200, "application/octet-stream", NULL, NULL);
    }
    r = agent_request_write(c->req, buf->base, (size_t)n);
    c->blocked = r == 0;
    if (c->blocked)
        uv_read_stop(stream);
}

static void on_drain(struct agent_request *req)
{
    struct conn *c = req->ctx;

    c->blocked = false;
    if (!c->eof && uv_read_start((uv_stream_t *)&c->pipe, on_alloc, on_read) != 0)
        close_pipe(c);
}

/* ---- to sshd ---- */

static void on_written(uv_write_t *req, int status)
{
    struct write_op *op = (struct write_op *)req;
    struct conn *c = op->conn;

    (void)status; /* a broken socket is seen by reading */
    if (c->req != NULL)
        agent_request_consume(c->req, op->len);
    free(op);
}

static void on_data(struct agent_request *req, const uint8_t *data, size_t len)
{
    struct conn *c = req->ctx;
    struct write_op *op;
    uv_buf_t buf;

    c->in += len;
    c->last_at = agent_wall_ms();
    op = c->eof ? NULL : malloc(sizeof(*op) + len);
    if (op == NULL) {
        agent_request_consume(req, len);
        return;
    }
    op->conn = c;
    op->len = len;
    memcpy(op->data, data, len);
    buf = uv_buf_init((char *)op->data, (unsigned)len);
    if (uv_write(&op->req, (uv_stream_t *)&c->pipe, &buf, 1, on_written) != 0) {
        free(op);
        agent_request_consume(req, len);
    }
}

static void on_shutdown(uv_shutdown_t *op, int status)
{
    (void)op;
    (void)status;
}

static void on_end(struct agent_request *req)
{
    struct conn *c = req->ctx;

    if (!c->eof && uv_shutdown(&c->shutdown, (uv_stream_t *)&c->pipe, on_shutdown) != 0)
        close_pipe(c);
    await_end(c);
}

static void on_close(struct agent_request *req, uint32_t code)
{
    struct conn *c = req->ctx;

    (void)code;
    c->req = NULL;
    c->blocked = false;
    close_pipe(c);
    await_end(c);
    step(c);
}

static const struct agent_request_cbs cbs = {
    .on_data = on_data, .on_end = on_end, .on_drain = on_drain, .on_close = on_close};

/* ---- opening ---- */

static int write_config(struct conn *c, const struct agent_child *child, struct err *err)
{
    const char *dir = agent_ssh_keys_dir(c->ssh->keys);
    ssize_t done;
    size_t len;
    char *text;
    int fd, r = 0;

    if (agent_ssh_session_needed(child))
        r = agent_ssh_session_write(dir, c->id, child, c->env, sizeof(c->env), err);
    if (r != 0)
        return r;
    text = agent_ssh_config_text(dir, child, c->env[0] != '\0' ? c->env : NULL);
    len = text != NULL ? strlen(text) : 0;
    if (text == NULL)
        return tr_err_set(err, UV_ENOMEM, "out of memory");
    snprintf(c->config, sizeof(c->config), "%s/%s.conf", dir, c->id);
    unlink(c->config);
    fd = open(c->config, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    done = fd >= 0 ? write(fd, text, len) : -1;
    if (done != (ssize_t)len)
        r = tr_err_set(err, UV_EIO, "%s: %s", c->config, done < 0 ? strerror(errno) : "cut short");
    if (fd >= 0)
        close(fd);
    explicit_bzero(text, len);
    free(text);
    return r;
}

/* Start sshd. *ours: our end of its socket. */
static int launch(struct conn *c, int *ours, struct err *err)
{
    char *argv[] = {AGENT_SSHD, "-i", "-e", "-f", c->config, NULL};
    char *envp[] = {AGENT_SSH_PATH, "LANG=C.UTF-8", NULL};
    int pair[2] = {-1, -1}, complaints[2] = {-1, -1}, r = 0;
    struct agent_spawn sp = {
        .path = AGENT_SSHD, .argv = argv, .envp = envp, .procs_fd = agent_group_procs_fd(c->group)};

    mkdir(RUN_SSHD, 0755);
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0 ||
        pipe2(complaints, O_CLOEXEC | O_NONBLOCK) != 0) /* full: what sshd says more is lost */
        r = tr_err_set(err, -errno, "socket pair: %s", strerror(errno));
    sp.fds[0] = sp.fds[1] = pair[1];
    sp.fds[2] = complaints[1];
    if (r == 0)
        r = agent_spawn(&sp, &c->pid, err);
    if (pair[1] >= 0)
        close(pair[1]);
    if (complaints[1] >= 0)
        close(complaints[1]);
    c->complaints = complaints[0];
    *ours = pair[0];
    return r;
}

/* From here on faults come out as the end of the connection. */
static void go(struct conn *c, int ours)
{
    struct agent_ssh *ssh = c->ssh;
    uv_loop_t *loop = ssh->agent->loop;

    if (uv_pipe_init(loop, &c->pipe, 0) != 0 || uv_timer_init(loop, &c->patience) != 0 ||
        uv_pipe_open(&c->pipe, ours) != 0)
        abort(); /* cannot fail on Unix */
    c->pipe.data = c->patience.data = c;
    c->n_open = 2;
    c->next = ssh->list;
    ssh->list = c;
    ssh->n++;
    c->req->ctx = c;
    c->req->cbs = &cbs;
    agent_group_set_leader(c->group, c->pid, true);
    agent_event(ssh->agent, "ssh_start", json_pack("{s:s,s:i}", "id", c->id, "pid", (int)c->pid));
    if (agent_reaper_watch(ssh->agent->reaper, c->pid, on_exit_status, c, &c->watch) != 0 ||
        uv_read_start((uv_stream_t *)&c->pipe, on_alloc, on_read) != 0) {
        log_error("ssh %s: out of memory", c->id);
        agent_group_signal(c->group, SIGKILL);
        c->exited = c->watch == NULL;
        close_pipe(c);
        await_end(c);
    }
}

/* c: zeroed but for ssh, id and req. On a fault nothing of it is left but its memory. */
static int open_conn(struct conn *c, struct err *err)
{
    struct agent *a = c->ssh->agent;
    struct agent_child child;
    int ours = -1, r;

    r = agent_child_init(&child, a, AGENT_SANDBOX_USER, NULL, err);
    if (r != 0)
        return r;
    r = write_config(c, &child, err);
    agent_child_fini(&child);
    if (r == 0)
        r = agent_group_new(a->groups, NULL, "s", &c->group);
    if (r == 0) {
        r = launch(c, &ours, err);
        if (r == 0) {
            go(c, ours);
            return 0;
        }
        agent_group_free(c->group);
        if (ours >= 0)
            close(ours);
        if (c->complaints >= 0)
            close(c->complaints);
    }
    remove_config(c);
    remove_env(c);
    return r;
}

/* data: what came already, in front of what is to come. */
static void open_stream(struct agent_request *req, const uint8_t *data, size_t len)
{
    struct agent_ssh *ssh = req->agent->ssh;
    struct err err = {0};
    struct conn *c;
    size_t n_keys;
    int r;

    if (ssh->n >= MAX_CONNECTIONS) {
        agent_request_error(req, 429, "too_many", "%d SSH connections are open", MAX_CONNECTIONS);
        return;
    }
    r = agent_ssh_keys_write(ssh->keys, &n_keys, &err);
    if (r == 0 && n_keys == 0) {
        agent_request_error(req, 409, "no_key", "no SSH key is good here: add one first");
        return;
    }
    c = r == 0 ? calloc(1, sizeof(*c)) : NULL;
    if (c != NULL) {
        c->ssh = ssh;
        c->req = req;
        c->complaints = -1;
        c->started_at = c->last_at = agent_wall_ms();
        snprintf(c->id, sizeof(c->id), "s%lu", ++ssh->last_id);
        r = open_conn(c, &err);
        if (r == 0) {
            if (len > 0)
                on_data(req, data, len);
            if (req->body_ended)
                on_end(req);
            return;
        }
        free(c);
    } else if (r == 0) {
        r = tr_err_set(&err, UV_ENOMEM, "out of memory");
    }
    if (err.msg[0] == '\0')
        (void)tr_err_set(&err, r, "%s", uv_strerror(r));
    agent_request_fail(req, UV_EIO, &err);
}

static void free_held(struct held *h)
{
    free(h->data);
    free(h);
}

static void on_held_data(struct agent_request *req, const uint8_t *data, size_t len)
{
    struct held *h = req->ctx;
    uint8_t *grown = realloc(h->data, h->len + len);

    if (grown == NULL) {
        tr_h2_reset(req->stream, 2);
        return;
    }
    memcpy(grown + h->len, data, len);
    h->data = grown;
    h->len += len;
}

static void on_held_close(struct agent_request *req, uint32_t code)
{
    struct held *h = req->ctx, **p = &req->agent->ssh->held;

    (void)code;
    while (*p != h)
        p = &(*p)->next;
    *p = h->next;
    free_held(h);
}

static const struct agent_request_cbs held_cbs = {.on_data = on_held_data,
                                                  .on_close = on_held_close};

void agent_ssh_host_key_made(struct agent_ssh *ssh)
{
    while (ssh->held != NULL) {
        struct held *h = ssh->held;
        struct agent_request *req = h->req;

        ssh->held = h->next;
        req->cbs = NULL;
        open_stream(req, h->data, h->len);
        if (req->cbs == NULL && h->len > 0)
            agent_request_consume(req, h->len); /* refused */
        free_held(h);
    }
}

void agent_ssh_handle_open(struct agent_request *req)
{
    struct agent_ssh *ssh = req->agent->ssh;
    struct held *h;

    if (!agent_request_may_act(req))
        return;
    if (!agent_ssh_keys_are_making(ssh->keys)) {
        open_stream(req, NULL, 0);
        return;
    }
    h = calloc(1, sizeof(*h));
    if (h == NULL) {
        agent_request_error(req, 500, NULL, "out of memory");
        return;
    }
    h->req = req;
    h->next = ssh->held;
    ssh->held = h;
    req->ctx = h;
    req->cbs = &held_cbs;
}

void agent_ssh_handle_list(struct agent_request *req)
{
    json_t *list = json_array();

    for (const struct conn *c = req->agent->ssh->list; c != NULL; c = c->next) {
        if (!c->closing)
            json_array_append_new(list,
                                  json_pack("{s:s,s:o,s:o,s:I,s:I}", "id", c->id, "started_at",
                                            agent_time_json(c->started_at), "last_traffic_at",
                                            agent_time_json(c->last_at), "bytes_in",
                                            (json_int_t)c->in, "bytes_out", (json_int_t)c->out));
    }
    agent_request_answer(req, 200, json_pack("{s:o}", "connections", list));
}

void agent_ssh_stop(struct agent_ssh *ssh)
{
    agent_ssh_keys_stop(ssh->keys);
    while (ssh->held != NULL) {
        struct held *h = ssh->held;

        ssh->held = h->next;
        h->req->cbs = NULL;
        free_held(h);
    }
    for (struct conn *c = ssh->list; c != NULL; c = c->next) {
        if (c->watch != NULL)
            agent_watch_forget(c->watch);
        c->watch = NULL;
        if (c->closing)
            continue;
        agent_group_signal(c->group, SIGKILL);
        c->req = NULL;
        finish(c);
    }
}

void agent_ssh_free(struct agent_ssh *ssh)
{
    agent_ssh_keys_free(ssh->keys);
    free(ssh);
}
