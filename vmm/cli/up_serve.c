/* SPDX-License-Identifier: MIT */
/* Calls are worked on in slices by up_serve_step(), one after the other; what is sent waits in a
 * buffer until it is fetched. Nothing here has a thread of its own but the watches' lookups. */
#include "vmm/cli/up_serve.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>
#include "sync/serve.h"
#include "sync/watch.h"
#include "transom/h2.h"

#define OUT_HIGH  (256 * 1024) /* bytes that wait to be fetched: HTTP/2 makes no more */
#define LINE_SIZE (256 * 1024) /* a longer line is passed over */
#define MAX_CALLS 16

#define CODE_INTERNAL 2
#define CODE_REFUSED  7

struct call {
    struct call *next;
    struct up_serve *up;
    struct tr_h2_stream *st;
    enum sync_serve_kind kind;
    struct sync_serve *serve;
    bool has_work, is_full, is_done;
};

/* Lives until its watch is closed, which may be after the server is gone. */
struct watcher {
    struct tr_h2_stream *st; /* NULL: over */
    struct up_serve *up;     /* valid while st is */
    struct sync_watch *watch;
    struct sync_pack *pack;
    struct sync_unpack *unpack;
    bool is_full;
};

struct up_serve {
    struct up_serve_options o;
    struct sync_tree tree;
    struct tr_h2 *h2; /* NULL: over */
    uint8_t *out;
    size_t out_at, out_len, out_cap;
    struct call *calls;
    size_t n_calls;
    struct watcher *watcher;      /* NULL: none */
    struct tr_h2_stream *control; /* NULL: none */
    char *line;                   /* LINE_SIZE */
    size_t line_len;
    bool is_line_long;
    uint64_t sent, received, n_answered;
};

/* ---- what may be done ---- */

static bool is_git(const char *name, size_t len)
{
    return len == 4 && strncasecmp(name, ".git", 4) == 0; /* whatever the file system folds */
}

/* May a link at this path lead out of the folder? ".." counts from where it is, and not from where
 * a name before it may lead, since that may be a link itself. */
static bool leads_out(const char *path, size_t len, const char *target, size_t target_len)
{
    bool has_name = false;
    long depth = 0;

    for (size_t i = 0; i < len; i++)
        depth += path[i] == '/';
    if (target_len == 0 || target[0] == '/')
        return true;
    for (size_t at = 0; at <= target_len;) {
        const char *slash = memchr(target + at, '/', target_len - at);
        size_t end = slash != NULL ? (size_t)(slash - target) : target_len;

        if (end - at == 2 && target[at] == '.' && target[at + 1] == '.') {
            if (has_name || --depth < 0)
                return true;
        } else if (end > at && !(end - at == 1 && target[at] == '.')) {
            has_name = true;
        }
        at = end + 1;
    }
    return false;
}

/* A removed folder looks like an empty one. */
static bool is_removed(const struct up_serve *s)
{
    struct stat st;

    return fstat(s->tree.root, &st) != 0 || st.st_nlink == 0;
}

static int guard(const char *path, size_t len, const struct sync_op *op, void *arg)
{
    for (size_t at = 0; at < len;) {
        const char *slash = memchr(path + at, '/', len - at);
        size_t end = slash != NULL ? (size_t)(slash - path) : len;

        if (is_git(path + at, end - at))
            return -EPERM;
        at = end + 1;
    }
    if (is_removed(arg))
        return -ESTALE;
    if (op != NULL && op->kind == SYNC_OP_LINK && leads_out(path, len, op->target, op->target_len))
        return -EPERM;
    return 0;
}

/* ---- sending ---- */

static bool on_send(const uint8_t *data, size_t len, void *arg)
{
    struct up_serve *s = arg;

    if (s->out_at > 0) {
        memmove(s->out, s->out + s->out_at, s->out_len - s->out_at);
        s->out_len -= s->out_at;
        s->out_at = 0;
    }
    if (len > s->out_cap - s->out_len) {
        s->out_cap = s->out_len + len + OUT_HIGH / 4;
        s->out = realloc(s->out, s->out_cap);
        if (s->out == NULL)
            abort();
    }
    memcpy(s->out + s->out_len, data, len);
    s->out_len += len;
    return s->out_len < OUT_HIGH;
}

size_t up_serve_output(struct up_serve *s, uint8_t *buf, size_t size)
{
    size_t n = s->out_len - s->out_at;

    if (n > size)
        n = size;
    memcpy(buf, s->out + s->out_at, n);
    s->out_at += n;
    if (s->h2 != NULL && s->out_len - s->out_at < OUT_HIGH / 2)
        tr_h2_writable(s->h2);
    return n;
}

bool up_serve_has_output(const struct up_serve *s)
{
    return s->out_len > s->out_at;
}

static void respond(struct tr_h2_stream *st)
{
    const struct tr_h2_field type = TR_H2_FIELD("content-type", "application/octet-stream");

    if (tr_h2_respond(st, 200, &type, 1, false) != 0)
        tr_h2_reset(st, CODE_INTERNAL);
}

/* ---- calls ---- */

static void call_data(struct tr_h2_stream *st, const uint8_t *data, size_t len, void *arg)
{
    struct call *c = arg;

    if (c->is_done) {
        tr_h2_stream_consume(st, len);
        return;
    }
    if (sync_serve_input(c->serve, data, len) != 0)
        abort();
    if (c->kind == SYNC_SERVE_APPLY)
        c->up->received += len;
    c->has_work = true;
}

static void call_end(struct tr_h2_stream *st, const struct tr_h2_head *trailers, void *arg)
{
    struct call *c = arg;

    (void)st;
    (void)trailers;
    if (!c->is_done)
        sync_serve_input_end(c->serve);
    c->has_work = true;
}

static void call_drain(struct tr_h2_stream *st, void *arg)
{
    struct call *c = arg;

    (void)st;
    c->is_full = false;
}

static void call_close(struct tr_h2_stream *st, uint32_t code, void *arg)
{
    struct call *c = arg, **at = &c->up->calls;

    (void)st;
    (void)code;
    while (*at != c)
        at = &(*at)->next;
    *at = c->next;
    c->up->n_calls--;
    c->up->n_answered++;
    sync_serve_free(c->serve);
    if (c->kind == SYNC_SERVE_APPLY) /* nobody's business; it stays while something is in it */
        (void)unlinkat(c->up->tree.root, SYNC_STAGE_NAME, AT_REMOVEDIR);
    free(c);
}

static const struct tr_h2_stream_cbs call_cbs = {
    .on_data = call_data, .on_end = call_end, .on_drain = call_drain, .on_close = call_close};

static void open_call(struct up_serve *s, struct tr_h2_stream *st, enum sync_serve_kind kind)
{
    struct call *c;

    if (s->n_calls >= MAX_CALLS) {
        tr_h2_reset(st, CODE_REFUSED);
        return;
    }
    c = calloc(1, sizeof(*c));
    if (c == NULL || sync_serve_new(kind, &s->tree, &c->serve) != 0)
        abort();
    sync_serve_guard(c->serve, guard, s);
    c->up = s;
    c->st = st;
    c->kind = kind;
    c->next = s->calls;
    s->calls = c;
    s->n_calls++;
    tr_h2_stream_set(st, &call_cbs, c);
    respond(st);
}

/* One slice. */
static void work(struct call *c)
{
    int r = sync_serve_step(c->serve);
    size_t eaten = sync_serve_eaten(c->serve), len;
    const uint8_t *bytes = sync_serve_output(c->serve, &len);

    c->has_work = r == SYNC_SERVE_MORE;
    if (eaten > 0)
        tr_h2_stream_consume(c->st, eaten);
    if (len > 0) {
        int written = tr_h2_write(c->st, bytes, len);

        sync_serve_taken(c->serve, len);
        c->is_full = written == 0;
        if (c->kind == SYNC_SERVE_READ)
            c->up->sent += len;
    }
    if (r < 0) {
        c->is_done = true;
        tr_h2_reset(c->st, CODE_INTERNAL);
    } else if (r == SYNC_SERVE_DONE) {
        c->is_done = true;
        tr_h2_end(c->st, NULL, 0);
    }
}

/* ---- watching ---- */

static void end_watcher(struct watcher *w)
{
    if (w->st == NULL)
        return;
    if (w->up->watcher == w)
        w->up->watcher = NULL;
    tr_h2_stream_set(w->st, NULL, NULL);
    w->st = NULL;
    sync_watch_close(w->watch);
}

static void drop_watcher(struct watcher *w)
{
    if (w->st == NULL)
        return;
    tr_h2_reset(w->st, CODE_INTERNAL);
    end_watcher(w);
}

static void say(struct watcher *w, const struct sync_msg *msg)
{
    const uint8_t *bytes;
    size_t len;
    int r;

    if (w->st == NULL)
        return;
    if (sync_pack_add(w->pack, msg) != 0 || sync_pack_flush(w->pack) != 0)
        abort();
    bytes = sync_pack_bytes(w->pack, &len);
    r = tr_h2_write(w->st, bytes, len);
    sync_pack_taken(w->pack, len);
    w->is_full = r == 0;
    if (r < 0)
        end_watcher(w);
}

static bool on_dirty(const char *dir, size_t len, void *arg)
{
    struct watcher *w = arg;
    struct sync_msg msg = {.type = SYNC_MSG_DIRTY, .path = dir, .path_len = len};

    if (w->is_full)
        return false;
    say(w, &msg);
    return true;
}

static void on_lost(const char *dir, size_t len, int status, void *arg)
{
    struct sync_msg msg = {.type = SYNC_MSG_LOST, .path = dir, .path_len = len, .status = status};

    say(arg, &msg);
}

static void on_overflow(void *arg)
{
    struct sync_msg msg = {.type = SYNC_MSG_OVERFLOW};

    say(arg, &msg);
}

static void on_watch_close(void *arg)
{
    struct watcher *w = arg;

    sync_pack_free(w->pack);
    sync_unpack_free(w->unpack);
    free(w);
}

static const struct sync_watch_cbs watch_cbs = {.on_dirty = on_dirty,
                                                .on_lost = on_lost,
                                                .on_overflow = on_overflow,
                                                .on_close = on_watch_close};

static void obey(struct watcher *w, const struct sync_msg *msg)
{
    int r = UV_EPROTO;

    if (msg->type == SYNC_MSG_UNWATCH) {
        sync_watch_remove(w->watch, msg->path, msg->path_len);
        return;
    }
    if (msg->type == SYNC_MSG_WATCH)
        r = sync_watch_add(w->watch, msg->path, msg->path_len);
    if (r == UV_ENOSPC)
        on_lost(msg->path, msg->path_len, r, w);
    else if (r != 0)
        drop_watcher(w);
}

static void watch_data(struct tr_h2_stream *st, const uint8_t *data, size_t len, void *arg)
{
    struct watcher *w = arg;
    struct sync_msg msg;
    size_t at = 0;
    int r = 0;

    tr_h2_stream_consume(st, len);
    while (w->st != NULL) { /* w lives on until the loop runs */
        r = sync_unpack_next(w->unpack, &msg);
        if (r == 1)
            obey(w, &msg);
        else if (r == 0 && at < len)
            at += sync_unpack_feed(w->unpack, data + at, len - at);
        else
            break;
    }
    if (r < 0)
        drop_watcher(w);
}

static void watch_drain(struct tr_h2_stream *st, void *arg)
{
    struct watcher *w = arg;

    (void)st;
    w->is_full = false;
    sync_watch_resume(w->watch);
}

static void watch_close(struct tr_h2_stream *st, uint32_t code, void *arg)
{
    (void)st;
    (void)code;
    end_watcher(arg);
}

static const struct tr_h2_stream_cbs watch_stream_cbs = {
    .on_data = watch_data, .on_drain = watch_drain, .on_close = watch_close};

static void open_watcher(struct up_serve *s, struct tr_h2_stream *st)
{
    struct watcher *w = calloc(1, sizeof(*w));

    if (w == NULL || sync_pack_new(false, &w->pack) != 0 || sync_unpack_new(&w->unpack) != 0)
        abort();
    if (sync_watch_open(s->o.loop, s->tree.root, &watch_cbs, w, &w->watch) != 0) {
        on_watch_close(w);
        tr_h2_reset(st, CODE_REFUSED);
        return;
    }
    if (s->watcher != NULL)
        drop_watcher(s->watcher);
    s->watcher = w;
    w->up = s;
    w->st = st;
    tr_h2_stream_set(st, &watch_stream_cbs, w);
    respond(st);
}

/* ---- the control stream ---- */

static void take_line(struct up_serve *s)
{
    json_t *line = s->is_line_long ? NULL : json_loadb(s->line, s->line_len, 0, NULL);

    if (json_is_object(line))
        s->o.on_line(line, s->o.arg);
    json_decref(line);
    s->line_len = 0;
    s->is_line_long = false;
}

static void control_data(struct tr_h2_stream *st, const uint8_t *data, size_t len, void *arg)
{
    struct up_serve *s = arg;

    tr_h2_stream_consume(st, len);
    for (size_t i = 0; i < len; i++) {
        if (data[i] == '\n')
            take_line(s);
        else if (s->line_len < LINE_SIZE)
            s->line[s->line_len++] = (char)data[i];
        else
            s->is_line_long = true;
    }
}

static void control_end(struct tr_h2_stream *st, const struct tr_h2_head *trailers, void *arg)
{
    (void)trailers;
    (void)arg;
    tr_h2_end(st, NULL, 0);
}

static void control_close(struct tr_h2_stream *st, uint32_t code, void *arg)
{
    struct up_serve *s = arg;

    (void)code;
    if (s->control == st)
        s->control = NULL;
}

static const struct tr_h2_stream_cbs control_cbs = {
    .on_data = control_data, .on_end = control_end, .on_close = control_close};

void up_serve_finish(struct up_serve *s)
{
    static const char line[] = "{\"type\":\"finish\"}\n";

    if (s->control != NULL)
        (void)!tr_h2_write(s->control, line, sizeof(line) - 1); /* at its end nothing matters */
}

/* ---- requests ---- */

static void on_request(struct tr_h2 *h2, struct tr_h2_stream *st, const struct tr_h2_head *head,
                       bool end, void *arg)
{
    static const struct {
        const char *path;
        enum sync_serve_kind kind;
    } calls[] = {
        {"/v1/sync/list", SYNC_SERVE_LIST},
        {"/v1/sync/hash", SYNC_SERVE_HASH},
        {"/v1/sync/read", SYNC_SERVE_READ},
        {"/v1/sync/apply", SYNC_SERVE_APPLY},
    };
    struct up_serve *s = arg;
    const char *path = head->path != NULL ? head->path : "";

    (void)h2;
    (void)end; /* on_end follows */
    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
        if (strcmp(path, calls[i].path) == 0) {
            open_call(s, st, calls[i].kind);
            return;
        }
    }
    if (strcmp(path, "/v1/sync/watch") == 0) {
        open_watcher(s, st);
    } else if (strcmp(path, "/v1/up") == 0 && s->control == NULL) {
        s->control = st;
        tr_h2_stream_set(st, &control_cbs, s);
        respond(st);
    } else {
        tr_h2_reset(st, CODE_REFUSED);
    }
}

static void on_over(struct tr_h2 *h2, int status, const char *reason, void *arg)
{
    struct up_serve *s = arg;

    (void)status;
    (void)reason;
    s->h2 = NULL;
    tr_h2_free(h2);
}

struct up_serve *up_serve_new(const struct up_serve_options *options)
{
    static const struct tr_h2_cbs cbs = {
        .on_request = on_request, .send = on_send, .on_over = on_over};
    struct up_serve *s = calloc(1, sizeof(*s));

    if (s == NULL || (s->line = malloc(LINE_SIZE)) == NULL ||
        tr_h2_new(true, NULL, &cbs, s, &s->h2) != 0)
        abort();
    s->o = *options;
    s->tree = (struct sync_tree){.root = options->root, .stage = -1, .sync = true};
    return s;
}

void up_serve_free(struct up_serve *s)
{
    struct tr_h2 *h2;

    if (s == NULL)
        return;
    h2 = s->h2;
    s->h2 = NULL;
    tr_h2_free(h2); /* calls and watches end by way of on_close */
    free(s->line);
    free(s->out);
    free(s);
}

void up_serve_input(struct up_serve *s, const uint8_t *bytes, size_t len)
{
    if (s->h2 != NULL)
        tr_h2_feed(s->h2, bytes, len);
}

bool up_serve_step(struct up_serve *s)
{
    bool has_more = false;
    struct call *next;

    for (struct call *c = s->calls; c != NULL; c = next) {
        next = c->next; /* closing comes from tr_h2_run() only */
        if (!c->has_work || c->is_full || c->is_done)
            continue;
        work(c);
        has_more = has_more || (c->has_work && !c->is_full && !c->is_done);
    }
    if (s->h2 != NULL)
        tr_h2_run(s->h2);
    return has_more;
}

bool up_serve_is_over(const struct up_serve *s)
{
    return s->h2 == NULL;
}

void up_serve_count(const struct up_serve *s, struct up_serve_counters *out)
{
    *out = (struct up_serve_counters){.sent = s->sent,
                                      .received = s->received,
                                      .n_calls = s->n_answered,
                                      .is_busy = s->calls != NULL};
}
