/* SPDX-License-Identifier: MIT */
/* Path: open -> greeting -> qmp_capabilities -> on_ready -> (execute -> reply)* -> finish ->
 * on_handle_closed, twice -> open commands fail -> on_close.
 * Faults (bytes that are no QMP, a late answer, a broken connection) enter at finish(). */
#include "vmm/driver/qmp.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "vmm/driver/qmp_parse.h"

#define ANSWER_MS   10000
#define PENDING_MAX 64

struct command {
    struct command *next;
    json_int_t id;
    uint64_t deadline;
    qmp_reply_cb cb;
    void *arg;
};

struct qmp {
    uv_pipe_t pipe;
    uv_timer_t timer;
    struct qmp_cbs cbs;
    void *arg;
    struct qmp_parser parser;
    struct command *first, **last; /* in the order given, which is the order answered */
    json_int_t next_id;
    struct err err;
    int status;
    int n_open, n_pending;
    bool greeted, ready, finishing;
};

struct message_write {
    uv_write_t req;
    struct qmp *q;
    char *text;
};

static void on_handle_closed(uv_handle_t *handle)
{
    struct qmp *q = handle->data;
    struct command *c;

    if (--q->n_open > 0)
        return;
    while ((c = q->first) != NULL) {
        q->first = c->next;
        if (c->cb != NULL)
            c->cb(q->status != 0 ? q->status : UV_ECANCELED, NULL, &q->err, c->arg);
        free(c);
    }
    q->cbs.on_close(q, q->status, &q->err, q->arg);
    qmp_parser_fini(&q->parser);
    free(q);
}

static void finish(struct qmp *q, int status)
{
    if (q->finishing)
        return;
    q->finishing = true;
    q->status = status;
    if (status == 0)
        (void)tr_err_set(&q->err, UV_ECANCELED, "QMP: connection ended");
    q->err.code = status;
    uv_close((uv_handle_t *)&q->pipe, on_handle_closed);
    uv_close((uv_handle_t *)&q->timer, on_handle_closed);
}

static void arm(struct qmp *q);

static void on_timer(uv_timer_t *timer)
{
    struct qmp *q = timer->data;

    finish(q, tr_err_set(&q->err, UV_ETIMEDOUT, "QMP: no answer within %d s", ANSWER_MS / 1000));
}

/* The oldest command's deadline is the nearest one. */
static void arm(struct qmp *q)
{
    uint64_t now = uv_now(q->timer.loop);

    if (q->finishing)
        return;
    if (q->first == NULL)
        (void)uv_timer_stop(&q->timer);
    else
        (void)uv_timer_start(&q->timer, on_timer,
                             q->first->deadline > now ? q->first->deadline - now : 0, 0);
}

static void on_capabilities(int status, json_t *value, const struct err *err, void *arg)
{
    struct qmp *q = arg;

    (void)value;
    if (status == 0) {
        q->ready = true;
        q->cbs.on_ready(q, q->arg);
    } else if (!q->finishing) {
        finish(q, tr_err_set(&q->err, UV_EPROTO, "%s", err->msg));
    }
}

static int on_reply(struct qmp *q, json_t *message)
{
    struct command *c = q->first;
    json_t *failure = json_object_get(message, "error"); /* borrowed */
    json_t *value = json_object_get(message, "return");  /* borrowed */
    json_t *id = json_object_get(message, "id");         /* borrowed */
    struct err err = {0};

    if (c == NULL || !json_is_integer(id) || json_integer_value(id) != c->id)
        return tr_err_set(&q->err, UV_EPROTO, "QMP: an answer to nothing that was asked");
    q->first = c->next;
    if (q->first == NULL)
        q->last = &q->first;
    q->n_pending--;
    arm(q);
    if (value == NULL) {
        const char *text = json_string_value(json_object_get(failure, "desc"));

        (void)tr_err_set(&err, UV_EREMOTEIO, "QEMU refused: %s", text != NULL ? text : "?");
    }
    if (c->cb != NULL)
        c->cb(err.code, value, &err, c->arg);
    free(c);
    return 0;
}

static int on_message(json_t *message, void *arg)
{
    struct qmp *q = arg;
    json_t *event = json_object_get(message, "event"); /* borrowed */

    if (q->finishing) /* a callback closed us in the middle of a read */
        return 0;
    if (!q->greeted) {
        if (json_object_get(message, "QMP") == NULL)
            return tr_err_set(&q->err, UV_EPROTO, "QMP: no greeting");
        q->greeted = true;
        return qmp_execute(q, "qmp_capabilities", NULL, on_capabilities, q);
    }
    if (json_is_string(event)) {
        if (q->ready)
            q->cbs.on_event(q, json_string_value(event), json_object_get(message, "data"), q->arg);
        return 0;
    }
    return on_reply(q, message);
}

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buf)
{
    static char scratch[16384]; /* consumed before on_read returns; one loop thread at a time */

    (void)handle;
    (void)suggested;
    *buf = uv_buf_init(scratch, sizeof(scratch));
}

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf)
{
    struct qmp *q = stream->data;
    int r;

    if (n < 0) {
        finish(q, n == UV_EOF || n == UV_ECONNRESET
                      ? 0
                      : tr_err_set(&q->err, (int)n, "QMP: %s", uv_strerror((int)n)));
        return;
    }
    r = qmp_parse(&q->parser, buf->base, (size_t)n, on_message, q, &q->err);
    if (r != 0)
        finish(q, r);
}

int qmp_open(uv_loop_t *loop, int fd, const struct qmp_cbs *cbs, void *arg, struct qmp **out)
{
    struct qmp *q = calloc(1, sizeof(*q));
    int r;

    if (q == NULL)
        return UV_ENOMEM;
    q->cbs = *cbs;
    q->arg = arg;
    q->last = &q->first;
    qmp_parser_init(&q->parser);
    if (uv_pipe_init(loop, &q->pipe, 0) != 0 || uv_timer_init(loop, &q->timer) != 0)
        abort(); /* cannot fail on Unix */
    q->pipe.data = q->timer.data = q;
    q->n_open = 2;
    r = uv_pipe_open(&q->pipe, fd);
    if (r == 0) {
        r = uv_read_start((uv_stream_t *)&q->pipe, on_alloc, on_read);
        /* The greeting has a deadline as any answer. */
        if (r == 0)
            r = uv_timer_start(&q->timer, on_timer, ANSWER_MS, 0);
    } else {
        (void)close(fd);
    }
    *out = q;
    if (r != 0)
        finish(q, tr_err_set(&q->err, r, "QMP: %s", uv_strerror(r)));
    return 0;
}

static void on_written(uv_write_t *req, int status)
{
    struct message_write *w = (struct message_write *)req;
    struct qmp *q = w->q;

    free(w->text);
    free(w);
    if (status != 0 && status != UV_ECANCELED)
        finish(q, 0); /* the peer is gone: its end is told by who watches the process */
}

static int send_text(struct qmp *q, char *text)
{
    struct message_write *w = malloc(sizeof(*w));
    uv_buf_t buf = uv_buf_init(text, (unsigned)strlen(text));
    int r;

    if (w == NULL)
        return UV_ENOMEM;
    w->q = q;
    w->text = text;
    r = uv_write(&w->req, (uv_stream_t *)&q->pipe, &buf, 1, on_written);
    if (r != 0)
        free(w);
    return r;
}

/* libuv passes only descriptors of its own kinds of handles: at once, by hand. text is freed. */
static int send_with_fd(struct qmp *q, char *text, int fd)
{
    union {
        struct cmsghdr head;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control = {.head = {.cmsg_len = CMSG_LEN(sizeof(int)),
                          .cmsg_level = SOL_SOCKET,
                          .cmsg_type = SCM_RIGHTS}};
    struct iovec io = {.iov_base = text, .iov_len = strlen(text)};
    struct msghdr msg = {.msg_iov = &io,
                         .msg_iovlen = 1,
                         .msg_control = control.bytes,
                         .msg_controllen = sizeof(control.bytes)};
    uv_os_fd_t to;
    ssize_t n = -1;

    memcpy(CMSG_DATA(&control.head), &fd, sizeof(fd));
    if (uv_stream_get_write_queue_size((uv_stream_t *)&q->pipe) > 0)
        return UV_EAGAIN;
    if (uv_fileno((uv_handle_t *)&q->pipe, &to) == 0)
        n = sendmsg(to, &msg, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n != (ssize_t)io.iov_len)
        return n < 0 ? -errno : UV_EIO;
    free(text);
    return 0;
}

int qmp_execute_fd(struct qmp *q, const char *command, json_t *arguments, int fd, qmp_reply_cb cb,
                   void *arg)
{
    json_t *message; /* new */
    struct command *c;
    char *text;
    int r;

    if (q->finishing || q->n_pending >= PENDING_MAX) {
        json_decref(arguments);
        return q->finishing ? UV_ENOTCONN : UV_EBUSY;
    }
    c = calloc(1, sizeof(*c));
    message =
        json_pack("{s:s, s:o*, s:I}", "execute", command, "arguments", arguments, "id", q->next_id);
    text = message != NULL ? json_dumps(message, JSON_COMPACT) : NULL;
    json_decref(message);
    if (c == NULL || text == NULL) {
        free(c);
        free(text);
        return UV_ENOMEM;
    }
    r = fd >= 0 ? send_with_fd(q, text, fd) : send_text(q, text);
    if (r != 0) {
        free(c);
        free(text);
        return r;
    }
    c->id = q->next_id++;
    c->deadline = uv_now(q->timer.loop) + ANSWER_MS;
    c->cb = cb;
    c->arg = arg;
    *q->last = c;
    q->last = &c->next;
    q->n_pending++;
    arm(q);
    return 0;
}

int qmp_execute(struct qmp *q, const char *command, json_t *arguments, qmp_reply_cb cb, void *arg)
{
    return qmp_execute_fd(q, command, arguments, -1, cb, arg);
}

void qmp_close(struct qmp *q)
{
    finish(q, 0);
}
