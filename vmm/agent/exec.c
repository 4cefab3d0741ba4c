/* SPDX-License-Identifier: MIT */
/* Path: start -> output frames -> on_exit -> what is left in the pipes -> exit frame -> stream end.
 * Then the pipes are read to nowhere until the last process that holds them is gone, so that what
 * was left in the background does not die of a broken pipe. Faults (reader gone, deadline) kill the
 * group and enter at on_exit.
 *
 * A finished process has written all it ever will into the pipes: reading until they are empty is
 * enough, end-of-file may never come. Descendants get LINGER_MS of silence to say their last. */
#include "vmm/agent/exec.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "transom/log.h"
#include "vmm/agent/child.h"
#include "vmm/agent/event.h"
#include "vmm/agent/group.h"
#include "vmm/agent/reaper.h"
#include "vmm/agent/secrets.h"
#include "vmm/agent/signame.h"
#include "vmm/agent/spawn.h"

#define MAX_EXECS     256
#define READ_BYTES    32768
#define READS_AT_ONCE 8
#define LINGER_MS     100

struct exec;

struct output {
    struct exec *exec;
    uv_poll_t poll;
    int fd; /* -1: ended */
    enum agent_exec_frame type;
    bool empty;               /* nothing to read at the last try */
    struct tr_masker *masker; /* of the secrets that are active */
};

struct input {
    uv_poll_t poll;
    int fd;                    /* -1: closed, or never open */
    struct agent_request *req; /* whose body is being written, or NULL */
    uint8_t *queue;            /* its bytes that the pipe did not take */
    size_t queue_len;
};

struct exec {
    struct exec *next;
    struct agent_execs *execs;
    char id[24];
    char user[16];
    int64_t started_at; /* wall ms */
    pid_t pid;
    struct agent_group *group;
    struct agent_watch *watch; /* NULL once exited */
    struct agent_request *req; /* NULL once the reader is gone or served */
    struct output outs[2];
    struct input in;
    uv_timer_t deadline, linger, hold;
    int n_open;   /* handles not yet closed */
    bool full;    /* the reader's stream said stop */
    bool exited;  /* the process is gone, how says: */
    bool by_exit; /* code is an exit status, else a signal */
    int code;
    bool timed_out;
    bool finished; /* the exit was reported */
};

struct agent_execs {
    struct agent *agent;
    struct exec *list;
    size_t n;
    unsigned long last_id;
    uint8_t buf[AGENT_FRAME_HEAD + READ_BYTES];
};

static void step(struct exec *x);

void agent_exec_frame_head(uint8_t *out, enum agent_exec_frame type, uint32_t len)
{
    out[0] = (uint8_t)type;
    out[1] = (uint8_t)(len >> 24);
    out[2] = (uint8_t)(len >> 16);
    out[3] = (uint8_t)(len >> 8);
    out[4] = (uint8_t)len;
}

/* ---- end of life ---- */

static void free_maskers(struct exec *x)
{
    tr_masker_free(x->outs[0].masker);
    tr_masker_free(x->outs[1].masker);
}

static void on_handle_close(uv_handle_t *handle)
{
    struct exec *x = handle->data, **p = &x->execs->list;

    if (--x->n_open > 0)
        return;
    while (*p != x)
        p = &(*p)->next;
    *p = x->next;
    x->execs->n--;
    free_maskers(x);
    free(x);
}

static void close_handle(uv_handle_t *handle)
{
    if (!uv_is_closing(handle))
        uv_close(handle, on_handle_close);
}

static void close_output(struct output *o)
{
    if (o->fd < 0)
        return;
    uv_poll_stop(&o->poll);
    close(o->fd);
    o->fd = -1;
    close_handle((uv_handle_t *)&o->poll);
}

static void close_input(struct exec *x)
{
    struct agent_request *req = x->in.req;

    if (x->in.fd >= 0) {
        uv_poll_stop(&x->in.poll);
        close(x->in.fd);
        x->in.fd = -1;
        close_handle((uv_handle_t *)&x->in.poll);
    }
    if (req != NULL && x->in.queue_len > 0)
        agent_request_consume(req, x->in.queue_len);
    free(x->in.queue);
    x->in.queue = NULL;
    x->in.queue_len = 0;
    if (req != NULL && req->body_ended) {
        x->in.req = NULL;
        req->cbs = NULL;
        agent_request_empty(req, 204);
    }
}

/* The reader is served or gone, and nothing will be reported any more. */
static void let_go(struct exec *x)
{
    if (x->finished)
        return;
    x->finished = true;
    agent_event(x->execs->agent, "exec_end",
                agent_exit_json(json_pack("{s:s,s:b}", "id", x->id, "timed_out", x->timed_out),
                                x->by_exit, x->code));
    close_input(x);
    close_handle((uv_handle_t *)&x->deadline);
    close_handle((uv_handle_t *)&x->linger);
    close_handle((uv_handle_t *)&x->hold);
    agent_group_free(x->group);
    x->group = NULL;
}

/* ---- output ---- */

static void send_frame(struct exec *x, enum agent_exec_frame type, json_t *obj)
{
    char *text = obj != NULL ? json_dumps(obj, JSON_COMPACT) : NULL;
    uint8_t head[AGENT_FRAME_HEAD];

    json_decref(obj);
    if (text == NULL) {
        tr_h2_reset(x->req->stream, 2);
        return;
    }
    agent_exec_frame_head(head, type, (uint32_t)strlen(text));
    if (agent_request_write(x->req, head, sizeof(head)) < 0 ||
        agent_request_write(x->req, text, strlen(text)) < 0)
        log_debug("exec %s: reader is gone", x->id);
    free(text);
}

/* A piece of output, its secrets hidden. */
static void on_shown(const uint8_t *data, size_t len, void *arg)
{
    struct output *o = arg;
    struct exec *x = o->exec;
    uint8_t head[AGENT_FRAME_HEAD];

    if (x->req == NULL || len == 0)
        return;
    agent_exec_frame_head(head, o->type, (uint32_t)len);
    if (agent_request_write(x->req, head, sizeof(head)) < 0)
        return;
    x->full = agent_request_write(x->req, data, len) == 0;
}

/* What was held back because a secret might begin there. */
static void show_held(struct exec *x)
{
    for (int i = 0; i < 2; i++)
        tr_masker_flush(x->outs[i].masker);
}

static void on_held(uv_timer_t *timer)
{
    show_held(timer->data);
}

static int make_maskers(struct exec *x, struct tr_mask *mask)
{
    int r = 0;

    for (int i = 0; i < 2 && r == 0; i++) {
        x->outs[i].exec = x;
        r = tr_masker_new(mask, on_shown, &x->outs[i], &x->outs[i].masker);
    }
    return r;
}

void agent_execs_secrets_changed(struct agent_execs *execs)
{
    for (struct exec *x = execs->list; x != NULL; x = x->next) {
        for (int i = 0; i < 2; i++)
            tr_masker_set(x->outs[i].masker, execs->agent->secrets->mask);
    }
}

static void pass_on(struct output *o, size_t n)
{
    struct exec *x = o->exec;
    uint8_t *buf = x->execs->buf;

    uv_timer_stop(&x->linger);
    if (x->execs->agent->secrets->mask == NULL) {
        agent_exec_frame_head(buf, o->type, (uint32_t)n);
        x->full = agent_request_write(x->req, buf, AGENT_FRAME_HEAD + n) == 0;
        return;
    }
    if (tr_masker_write(o->masker, buf + AGENT_FRAME_HEAD, n) != 0)
        log_error("exec %s: output is lost: out of memory", x->id);
    if (tr_masker_held(o->masker) > 0 && !uv_is_active((uv_handle_t *)&x->hold) &&
        uv_timer_start(&x->hold, on_held, TR_MASK_HOLD_MS, 0) != 0)
        show_held(x);
}

/* Read what is there, up to a share, and pass it on. */
static void pump(struct output *o)
{
    struct exec *x = o->exec;
    uint8_t *buf = x->execs->buf;

    for (int i = 0; i < READS_AT_ONCE && o->fd >= 0 && !x->full; i++) {
        ssize_t n = read(o->fd, buf + AGENT_FRAME_HEAD, READ_BYTES);

        if (n < 0 && errno == EINTR)
            continue;
        o->empty = n < 0 && errno == EAGAIN;
        if (o->empty)
            return;
        if (n <= 0) {
            close_output(o);
            return;
        }
        if (x->req == NULL)
            continue; /* to nowhere */
        pass_on(o, (size_t)n);
    }
}

static void on_readable(uv_poll_t *poll, int status, int events);

static void watch_outputs(struct exec *x)
{
    for (int i = 0; i < 2; i++) {
        struct output *o = &x->outs[i];

        if (o->fd < 0)
            continue;
        if (x->full)
            uv_poll_stop(&o->poll);
        else if (!uv_is_active((uv_handle_t *)&o->poll) &&
                 uv_poll_start(&o->poll, UV_READABLE, on_readable) != 0)
            close_output(o);
    }
}

static void on_readable(uv_poll_t *poll, int status, int events)
{
    struct exec *x = poll->data;
    struct output *o = poll == &x->outs[0].poll ? &x->outs[0] : &x->outs[1];

    (void)status;
    (void)events;
    o->empty = false;
    pump(o);
    step(x);
}

static void report_exit(struct exec *x)
{
    struct agent_request *req = x->req;

    show_held(x);
    if (req != NULL) {
        json_t *obj = agent_exit_json(json_object(), x->by_exit, x->code);

        if (x->timed_out)
            json_object_set_new(obj, "timed_out", json_true());
        send_frame(x, AGENT_FRAME_EXIT, obj);
        agent_request_finish(req);
        req->cbs = NULL;
        x->req = NULL;
        x->full = false;
    }
    let_go(x);
    watch_outputs(x);
}

static void on_linger(uv_timer_t *timer)
{
    struct exec *x = timer->data;

    if (!x->finished && !x->full)
        report_exit(x);
}

static bool is_empty(struct output *o)
{
    int n = 1;

    if (!o->empty) /* the last share may have been all there was */
        o->empty = ioctl(o->fd, FIONREAD, &n) == 0 && n == 0;
    return o->empty;
}

/* Look at where we are and do what is due. */
static void step(struct exec *x)
{
    watch_outputs(x);
    if (!x->exited || x->finished || x->full)
        return;
    if ((x->outs[0].fd < 0 && x->outs[1].fd < 0) || x->req == NULL) {
        report_exit(x);
        return;
    }
    /* The timer runs only from an empty pipe: pump() stops it at each byte. */
    for (int i = 0; i < 2; i++) {
        if (x->outs[i].fd >= 0 && !is_empty(&x->outs[i]))
            return;
    }
    if (!uv_is_active((uv_handle_t *)&x->linger) &&
        uv_timer_start(&x->linger, on_linger, LINGER_MS, 0) != 0)
        report_exit(x);
}

static void on_exit_status(bool exited, int code, void *arg)
{
    struct exec *x = arg;

    x->watch = NULL;
    x->exited = true;
    x->by_exit = exited;
    x->code = code;
    uv_timer_stop(&x->deadline);
    for (int i = 0; i < 2; i++) {
        x->outs[i].empty = false;
        pump(&x->outs[i]);
    }
    step(x);
}

static void on_deadline(uv_timer_t *timer)
{
    struct exec *x = timer->data;

    x->timed_out = true;
    agent_group_signal(x->group, SIGKILL);
}

static void on_start_drain(struct agent_request *req)
{
    struct exec *x = req->ctx;

    x->full = false;
    for (int i = 0; i < 2 && !x->full; i++)
        pump(&x->outs[i]);
    step(x);
}

static void on_start_close(struct agent_request *req, uint32_t code)
{
    struct exec *x = req->ctx;

    (void)code;
    x->req = NULL;
    x->full = false;
    agent_group_signal(x->group, SIGKILL);
    close_input(x);
    step(x);
}

static const struct agent_request_cbs start_cbs = {.on_drain = on_start_drain,
                                                   .on_close = on_start_close};

/* ---- standard input ---- */

static void on_writable(uv_poll_t *poll, int status, int events);

static void write_input(struct exec *x)
{
    struct input *in = &x->in;
    size_t done = 0;

    while (done < in->queue_len) {
        ssize_t n = write(in->fd, in->queue + done, in->queue_len - done);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            break;
        if (n < 0) { /* EPIPE: nobody reads any more, which is no fault */
            close_input(x);
            return;
        }
        done += (size_t)n;
    }
    if (done > 0 && in->req != NULL)
        agent_request_consume(in->req, done);
    memmove(in->queue, in->queue + done, in->queue_len - done);
    in->queue_len -= done;
    if (in->queue_len > 0) {
        if (!uv_is_active((uv_handle_t *)&in->poll) &&
            uv_poll_start(&in->poll, UV_WRITABLE, on_writable) != 0)
            close_input(x);
        return;
    }
    uv_poll_stop(&in->poll);
    if (in->req != NULL && in->req->body_ended)
        close_input(x);
}

static void on_writable(uv_poll_t *poll, int status, int events)
{
    (void)status;
    (void)events;
    write_input(poll->data);
}

static void on_stdin_data(struct agent_request *req, const uint8_t *data, size_t len)
{
    struct exec *x = req->ctx;
    uint8_t *grown;

    if (x->in.fd < 0) {
        agent_request_consume(req, len);
        return;
    }
    grown = realloc(x->in.queue, x->in.queue_len + len);
    if (grown == NULL) {
        agent_request_consume(req, len);
        close_input(x);
        return;
    }
    memcpy(grown + x->in.queue_len, data, len);
    x->in.queue = grown;
    x->in.queue_len += len;
    write_input(x);
}

static void on_stdin_end(struct agent_request *req)
{
    struct exec *x = req->ctx;

    if (x->in.fd < 0)
        close_input(x);
    else
        write_input(x);
}

static void on_stdin_close(struct agent_request *req, uint32_t code)
{
    struct exec *x = req->ctx;

    (void)code;
    x->in.req = NULL;
    close_input(x); /* cut short: the command must not take it for more to come */
}

static const struct agent_request_cbs stdin_cbs = {
    .on_data = on_stdin_data, .on_end = on_stdin_end, .on_close = on_stdin_close};

/* ---- requests ---- */

static struct exec *find(struct agent_request *req)
{
    const struct agent_text *id = &req->target.params[0];

    for (struct exec *x = req->agent->execs->list; x != NULL; x = x->next) {
        if (!x->finished && strcmp(x->id, id->at) == 0 && strlen(x->id) == id->len)
            return x;
    }
    agent_request_error(req, 404, NULL, "no such exec is running");
    return NULL;
}

void agent_exec_handle_stdin(struct agent_request *req)
{
    struct exec *x = find(req);

    if (x == NULL)
        return;
    if (x->in.fd < 0 || x->in.req != NULL) {
        agent_request_error(req, 409, NULL, "standard input is closed or in use");
        return;
    }
    x->in.req = req;
    req->ctx = x;
    req->cbs = &stdin_cbs;
    if (req->body_ended)
        close_input(x);
}

void agent_exec_handle_signal(struct agent_request *req)
{
    const char *name = NULL;
    struct exec *x = find(req);
    json_t *body = x != NULL ? agent_request_json(req) : NULL;
    int signum;

    if (body == NULL)
        return;
    if (agent_json_string(req, body, "signal", &name)) {
        signum = name != NULL ? agent_signal_number(name) : -1;
        if (signum < 0) {
            agent_request_error(req, 400, NULL, "signal must be a name such as TERM");
        } else {
            agent_group_signal(x->group, signum);
            agent_request_empty(req, 204);
        }
    }
    json_decref(body);
}

void agent_exec_handle_list(struct agent_request *req)
{
    json_t *list = json_array();

    for (struct exec *x = req->agent->execs->list; x != NULL; x = x->next) {
        if (!x->finished)
            json_array_append_new(list, json_pack("{s:s,s:i,s:s,s:o}", "id", x->id, "pid",
                                                  (int)x->pid, "user", x->user, "started_at",
                                                  agent_time_json(x->started_at)));
    }
    agent_request_answer(req, 200, json_pack("{s:o}", "execs", list));
}

/* The command line, as an array that ends in NULL (strings borrowed), or NULL: answered. */
static char **make_argv(struct agent_request *req, json_t *body)
{
    json_t *words = json_object_get(body, "argv");
    const char *command = NULL;
    char **argv;
    size_t n;

    if (!agent_json_string(req, body, "command", &command))
        return NULL;
    n = json_array_size(words); /* 0 for what is no array */
    if ((n == 0) == (command == NULL)) {
        agent_request_error(req, 400, NULL,
                            "either argv (an array of strings, not empty) or command is needed");
        return NULL;
    }
    argv = calloc(n + 4, sizeof(*argv));
    if (argv == NULL) {
        agent_request_error(req, 500, NULL, "out of memory");
        return NULL;
    }
    if (command != NULL) {
        argv[0] = "/bin/bash";
        argv[1] = "-lc";
        argv[2] = (char *)command;
        return argv;
    }
    for (size_t i = 0; i < n; i++) {
        argv[i] = (char *)json_string_value(json_array_get(words, i));
        if (argv[i] == NULL || argv[0][0] == '\0') {
            free(argv);
            agent_request_error(req, 400, NULL, "argv must hold strings, the first not empty");
            return NULL;
        }
    }
    return argv;
}

static void close_pair(int *fds)
{
    for (int i = 0; i < 2; i++) {
        if (fds[i] >= 0)
            close(fds[i]);
        fds[i] = -1;
    }
}

/* Make the pipes and the process. ours: our ends. */
static int launch(struct exec *x, struct agent_spawn *sp, bool want_stdin, int ours[3],
                  struct err *err)
{
    int pipes[3][2] = {{-1, -1}, {-1, -1}, {-1, -1}};
    int r = 0;

    for (int i = want_stdin ? 0 : 1; i < 3 && r == 0; i++) {
        if (pipe2(pipes[i], O_CLOEXEC) != 0)
            r = tr_err_set(err, -errno, "pipe: %s", strerror(errno));
        else
            fcntl(pipes[i][i == 0 ? 1 : 0], F_SETFL, O_NONBLOCK);
    }
    sp->fds[0] = pipes[0][0];
    sp->fds[1] = pipes[1][1];
    sp->fds[2] = pipes[2][1];
    if (r == 0)
        r = agent_spawn(sp, &x->pid, err);
    if (r != 0) {
        for (int i = 0; i < 3; i++)
            close_pair(pipes[i]);
        return r;
    }
    for (int i = 0; i < 3; i++) {
        ours[i] = pipes[i][i == 0 ? 1 : 0];
        if (pipes[i][i == 0 ? 0 : 1] >= 0)
            close(pipes[i][i == 0 ? 0 : 1]);
    }
    return 0;
}

/* From here on faults come out as the end of the exec. */
static void go(struct exec *x, const int ours[3], int64_t timeout_ms)
{
    uv_loop_t *loop = x->execs->agent->loop;
    int r = uv_timer_init(loop, &x->deadline);

    r = r != 0 ? r : uv_timer_init(loop, &x->linger);
    r = r != 0 ? r : uv_timer_init(loop, &x->hold);
    x->deadline.data = x->linger.data = x->hold.data = x;
    x->n_open = 3;
    for (int i = 0; i < 2; i++) {
        struct output *o = &x->outs[i];

        o->fd = ours[i + 1];
        o->type = i == 0 ? AGENT_FRAME_STDOUT : AGENT_FRAME_STDERR;
        r = r != 0 ? r : uv_poll_init(loop, &o->poll, o->fd);
        o->poll.data = x;
        x->n_open++;
    }
    x->in.fd = ours[0];
    if (x->in.fd >= 0) {
        r = r != 0 ? r : uv_poll_init(loop, &x->in.poll, x->in.fd);
        x->in.poll.data = x;
        x->n_open++;
    }
    if (r == 0 && timeout_ms > 0)
        r = uv_timer_start(&x->deadline, on_deadline, (uint64_t)timeout_ms, 0);
    if (r != 0)
        abort(); /* a pipe and a timer cannot be refused by a loop that works */
    x->next = x->execs->list;
    x->execs->list = x;
    x->execs->n++;
}

static void start(struct agent_request *req, json_t *body, char **argv)
{
    struct agent_execs *execs = req->agent->execs;
    const char *cwd = NULL, *user = AGENT_SANDBOX_USER;
    bool want_stdin = false;
    int64_t timeout_ms = 0;
    struct agent_child child;
    struct err err = {0};
    json_t *env = NULL;
    struct exec *x;
    int ours[3], r;

    if (!agent_json_string(req, body, "cwd", &cwd) ||
        !agent_json_string(req, body, "user", &user) ||
        !agent_json_bool(req, body, "stdin", &want_stdin) ||
        !agent_json_int(req, body, "timeout_ms", 0, INT64_C(86400000) * 30, &timeout_ms) ||
        !agent_json_env(req, body, "env", &env))
        return;
    if (strcmp(user, AGENT_SANDBOX_USER) != 0 && strcmp(user, "root") != 0) {
        agent_request_error(req, 400, NULL, "user must be sandbox or root");
        return;
    }
    if (execs->n >= MAX_EXECS) {
        agent_request_error(req, 429, "too_many", "%d execs are running", MAX_EXECS);
        return;
    }
    if (!agent_request_may_act(req))
        return;
    r = agent_child_init(&child, req->agent, user, env, &err);
    if (r != 0) {
        agent_request_fail(req, UV_EIO, &err);
        return;
    }
    x = calloc(1, sizeof(*x));
    r = x == NULL ? UV_ENOMEM : make_maskers(x, req->agent->secrets->mask);
    if (r == 0)
        r = agent_group_new(req->agent->groups, NULL, "x", &x->group);
    if (r == 0) {
        struct agent_spawn sp = {.path = argv[0],
                                 .argv = argv,
                                 .envp = child.envp,
                                 .cwd = cwd != NULL ? cwd : child.user.home,
                                 .user = child.change_user ? &child.user : NULL,
                                 .procs_fd = agent_group_procs_fd(x->group)};

        r = launch(x, &sp, want_stdin, ours, &err);
        if (r != 0)
            agent_group_free(x->group);
    }
    agent_child_fini(&child);
    if (r != 0) {
        /* A command that cannot be started is the caller's fault, whatever the errno. */
        agent_request_error(req, 400, r == UV_ENOENT ? "not_found" : "cannot_start", "%s",
                            err.msg[0] != '\0' ? err.msg : uv_strerror(r));
        if (x != NULL)
            free_maskers(x);
        free(x);
        return;
    }
    agent_group_set_leader(x->group, x->pid, true);
    x->execs = execs;
    snprintf(x->id, sizeof(x->id), "x%lu", ++execs->last_id);
    snprintf(x->user, sizeof(x->user), "%s", user);
    x->started_at = agent_wall_ms();
    x->req = req;
    req->ctx = x;
    req->cbs = &start_cbs;
    go(x, ours, timeout_ms);
    if (agent_reaper_watch(req->agent->reaper, x->pid, on_exit_status, x, &x->watch) != 0) {
        /* Without a watch there is no end to report: the reader must see a broken stream. */
        log_error("exec %s: out of memory", x->id);
        tr_h2_reset(req->stream, 2);
    }
    agent_event(req->agent, "exec_start", json_pack("{s:s,s:i}", "id", x->id, "pid", (int)x->pid));
    agent_request_head(req, 200, "application/vnd.transom.exec", NULL, NULL);
    send_frame(x, AGENT_FRAME_STARTED, json_pack("{s:s,s:i}", "id", x->id, "pid", (int)x->pid));
    step(x);
}

void agent_exec_handle_start(struct agent_request *req)
{
    json_t *body = agent_request_json(req);
    char **argv = body != NULL ? make_argv(req, body) : NULL;

    if (argv != NULL)
        start(req, body, argv);
    free(argv);
    json_decref(body);
}

int agent_execs_new(struct agent *a, struct agent_execs **out)
{
    struct agent_execs *x = calloc(1, sizeof(*x));

    if (x == NULL)
        return UV_ENOMEM;
    x->agent = a;
    *out = x;
    return 0;
}

const char *agent_execs_owner(const struct agent_execs *execs, pid_t pid)
{
    for (const struct exec *x = execs->list; x != NULL; x = x->next) {
        if (x->group != NULL && agent_group_has(x->group, pid, NULL, 0))
            return x->id;
    }
    return NULL;
}

void agent_execs_stop(struct agent_execs *execs)
{
    for (struct exec *x = execs->list; x != NULL; x = x->next) {
        if (x->watch != NULL)
            agent_watch_forget(x->watch);
        x->watch = NULL;
        if (x->group != NULL)
            agent_group_signal(x->group, SIGKILL);
        x->req = NULL;
        x->in.req = NULL;
        x->full = false;
        let_go(x);
        close_output(&x->outs[0]);
        close_output(&x->outs[1]);
    }
}

void agent_execs_free(struct agent_execs *execs)
{
    free(execs);
}
