/* SPDX-License-Identifier: MIT */
/* Path: start -> head -> messages (each checked, then told) -> the end of all answers -> finish.
 * Faults enter at finish(), too; the first one wins. When stream and timer are both closed, on_done
 * runs and the call is freed. */
#include "sync/remote.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SEND_AT     65536 /* raw bytes at which requests leave without being asked */
#define REFUSAL_MAX 1024
#define CHECK_MS    1000
#define H2_CANCEL   8
#define TURN_MAX                                                                                   \
    (1 << 20) /* bytes told in one turn of the loop: little on the wire can be much                \
               */

struct sync_remote {
    uv_loop_t *loop;
    struct tr_h2_stream *st; /* NULL once it is closed */
    enum sync_remote_kind kind;
    const struct sync_remote_cbs *cbs;
    void *arg;
    uv_timer_t timer;
    struct sync_pack *pack;
    struct sync_unpack *unpack;
    uint8_t *in; /* received, not dealt with: at most a stream's window */
    size_t in_at, in_len, in_cap;
    char refusal[REFUSAL_MAX + 1]; /* body of an answer that is no 200 */
    size_t refusal_len;
    int http_status;
    uint64_t moved; /* loop time in ms of the last progress */
    uint32_t n_asked, n_answered;
    bool ended;      /* sync_remote_end() */
    bool in_content; /* apply: of a FILE, left bytes may follow */
    int64_t left;
    bool in_answer; /* list: entries are due; read: pieces are due */
    size_t n_entries;
    struct sync_sig sig; /* read: what is being read */
    struct sync_hash hash;
    int64_t n_read;
    bool peer_ended, held, processing;
    bool finishing;
    int status; /* once finishing */
    struct err err;
    int n_open; /* stream and timer */
};

static void process(struct sync_remote *c);

/* ---- the end ---- */

static void maybe_done(struct sync_remote *c)
{
    if (--c->n_open > 0)
        return;
    if (c->cbs->on_done != NULL)
        c->cbs->on_done(c, c->status, &c->err, c->arg);
    sync_pack_free(c->pack);
    sync_unpack_free(c->unpack);
    free(c->in);
    free(c);
}

static void on_timer_close(uv_handle_t *handle)
{
    maybe_done(handle->data);
}

static void finish(struct sync_remote *c, int status, const char *why)
{
    if (c->finishing)
        return;
    c->finishing = true;
    c->status = status;
    if (status != 0)
        tr_err_set(&c->err, status, "%s", why != NULL ? why : uv_strerror(status));
    if (c->st != NULL && status != 0)
        tr_h2_reset(c->st, H2_CANCEL); /* else both sides ended it */
    uv_close((uv_handle_t *)&c->timer, on_timer_close);
}

static void on_timer(uv_timer_t *timer)
{
    struct sync_remote *c = timer->data;
    bool waits = c->n_answered < c->n_asked || c->ended;

    if (c->held || !waits)
        c->moved = uv_now(c->loop);
    else if (uv_now(c->loop) - c->moved >= SYNC_REMOTE_IDLE_MS)
        finish(c, UV_ETIMEDOUT, "the agent does not go on");
}

/* A watch may be silent for days: no clock ticks for it. */
static void start_timer(struct sync_remote *c)
{
    if (c->kind != SYNC_REMOTE_WATCH)
        (void)uv_timer_start(&c->timer, on_timer, CHECK_MS, CHECK_MS);
}

static void on_let_go(uv_timer_t *timer)
{
    struct sync_remote *c = timer->data;

    start_timer(c);
    process(c);
}

/* What is there is told from the loop, in another turn. With 0 ms a timer can come again in the
 * same one. */
static void go_on_later(struct sync_remote *c)
{
    (void)uv_timer_start(&c->timer, on_let_go, 1, 0);
}

/* ---- answers ---- */

#define TELL(c, cb, ...)                                                                           \
    do {                                                                                           \
        if ((c)->cbs->cb != NULL)                                                                  \
            (c)->cbs->cb(__VA_ARGS__, (c)->arg);                                                   \
    } while (0)

/* Is this the answer that is due? */
static bool is_next(const struct sync_remote *c, const struct sync_msg *msg)
{
    return msg->index == c->n_answered && c->n_answered < c->n_asked;
}

static int take_list(struct sync_remote *c, const struct sync_msg *msg)
{
    if (msg->type == SYNC_MSG_ENTRY) {
        if (!c->in_answer || c->n_entries++ >= SYNC_DIR_MAX)
            return UV_EPROTO;
        TELL(c, on_entry, c->n_answered, &msg->entry);
        return 0;
    }
    if (!is_next(c, msg))
        return UV_EPROTO;
    if (msg->type == SYNC_MSG_LISTING && !c->in_answer) {
        c->in_answer = msg->status == 0;
        c->n_entries = 0;
        c->n_answered += !c->in_answer;
        TELL(c, on_listing, msg->index, msg->status, &msg->sig);
    } else if (msg->type == SYNC_MSG_LISTED && c->in_answer) {
        c->in_answer = false;
        c->n_answered++;
        TELL(c, on_listed, msg->index, msg->status, msg->flag);
    } else {
        return UV_EPROTO;
    }
    return 0;
}

static int take_hash(struct sync_remote *c, const struct sync_msg *msg)
{
    struct sync_tree_read read = {.sig = msg->sig, .id = msg->id, .writer = msg->flag};

    if (msg->type != SYNC_MSG_HASHED || !is_next(c, msg) || (int64_t)msg->len > msg->sig.size)
        return UV_EPROTO;
    c->n_answered++;
    TELL(c, on_hashed, msg->index, msg->status, &read, msg->bytes, msg->len);
    return 0;
}

static int take_piece(struct sync_remote *c, const struct sync_msg *msg)
{
    if (!c->in_answer || (int64_t)msg->len > c->sig.size - c->n_read)
        return UV_EPROTO;
    c->n_read += (int64_t)msg->len;
    sync_hash_feed(&c->hash, msg->bytes, msg->len);
    TELL(c, on_piece, c->n_answered, msg->bytes, msg->len);
    return 0;
}

static int take_read_end(struct sync_remote *c, const struct sync_msg *msg)
{
    struct sync_tree_read read = {.sig = msg->sig, .id = msg->id, .writer = msg->flag};
    struct sync_id id;

    if (msg->status == 0) {
        sync_hash_end(&c->hash, &id);
        if (c->n_read != c->sig.size || msg->sig.size != c->sig.size ||
            !sync_id_equal(&id, &msg->id))
            return UV_EPROTO;
    }
    c->in_answer = false;
    c->n_answered++;
    TELL(c, on_read, msg->index, msg->status, &read);
    return 0;
}

static int take_read(struct sync_remote *c, const struct sync_msg *msg)
{
    if (msg->type == SYNC_MSG_PIECE)
        return take_piece(c, msg);
    if (!is_next(c, msg))
        return UV_EPROTO;
    if (msg->type == SYNC_MSG_READ && c->in_answer)
        return take_read_end(c, msg);
    if (msg->type != SYNC_MSG_READING || c->in_answer)
        return UV_EPROTO;
    c->in_answer = msg->status == 0;
    c->n_answered += !c->in_answer;
    c->sig = msg->sig;
    c->n_read = 0;
    sync_hash_start(&c->hash, msg->sig.size);
    TELL(c, on_reading, msg->index, msg->status, &msg->sig);
    return 0;
}

static int take_watch(struct sync_remote *c, const struct sync_msg *msg)
{
    if (msg->type == SYNC_MSG_DIRTY)
        TELL(c, on_dirty, msg->path, msg->path_len);
    else if (msg->type == SYNC_MSG_LOST && msg->status < 0)
        TELL(c, on_lost, msg->path, msg->path_len, msg->status);
    else if (msg->type != SYNC_MSG_OVERFLOW)
        return UV_EPROTO;
    else if (c->cbs->on_overflow != NULL)
        c->cbs->on_overflow(c->arg);
    return 0;
}

static int take(struct sync_remote *c, const struct sync_msg *msg)
{
    if (msg->type == SYNC_MSG_ALIVE)
        return 0; /* that it came is all it says */
    switch (c->kind) {
    case SYNC_REMOTE_LIST:
        return take_list(c, msg);
    case SYNC_REMOTE_HASH:
        return take_hash(c, msg);
    case SYNC_REMOTE_READ:
        return take_read(c, msg);
    case SYNC_REMOTE_APPLY:
        if (msg->type != SYNC_MSG_APPLIED || !is_next(c, msg))
            return UV_EPROTO;
        c->n_answered++;
        TELL(c, on_applied, msg->index, msg->status, &msg->sig);
        return 0;
    default:
        return take_watch(c, msg);
    }
}

/* The answer is over, and all of it was told. */
static void on_all_told(struct sync_remote *c)
{
    if (!sync_unpack_at_end(c->unpack))
        finish(c, UV_EPROTO, "the agent's answer ends in the middle of a message");
    else if (!c->ended || c->n_answered < c->n_asked || c->kind == SYNC_REMOTE_WATCH)
        finish(c, UV_ECONNRESET, "the agent ended the conversation");
    else
        finish(c, 0, NULL);
}

/* Tell what there is. A listener may hold, cancel or ask more from inside. */
static void process(struct sync_remote *c)
{
    struct sync_msg msg;
    size_t told = 0;
    int r = 0;

    if (c->processing)
        return;
    c->processing = true;
    while (!c->held && !c->finishing && told < TURN_MAX) {
        size_t n;

        r = sync_unpack_next(c->unpack, &msg);
        if (r == 1) {
            told += sizeof(msg) + msg.len;
            r = take(c, &msg);
        } else if (r == 0 && c->in_at == c->in_len) {
            break;
        } else if (r == 0) {
            n = sync_unpack_feed(c->unpack, c->in + c->in_at, c->in_len - c->in_at);
            c->in_at += n;
            if (c->st != NULL)
                tr_h2_stream_consume(c->st, n);
        }
        if (r < 0)
            finish(c, r, r == UV_EPROTO ? "the agent breaks the protocol" : NULL);
    }
    c->processing = false;
    if (c->held || c->finishing)
        return;
    if (told >= TURN_MAX)
        go_on_later(c);
    else if (c->peer_ended)
        on_all_told(c);
}

/* ---- the stream ---- */

static void on_head(struct tr_h2_stream *st, const struct tr_h2_head *head, bool end, void *arg)
{
    struct sync_remote *c = arg;

    (void)st;
    (void)end;
    if (head->status >= 200)
        c->http_status = head->status;
}

static int keep(struct sync_remote *c, const uint8_t *data, size_t len)
{
    memmove(c->in, c->in + c->in_at, c->in_len - c->in_at);
    c->in_len -= c->in_at;
    c->in_at = 0;
    if (c->in_cap - c->in_len < len) {
        uint8_t *grown = realloc(c->in, c->in_len + len);

        if (grown == NULL)
            return UV_ENOMEM;
        c->in = grown;
        c->in_cap = c->in_len + len;
    }
    memcpy(c->in + c->in_len, data, len);
    c->in_len += len;
    return 0;
}

static void on_data(struct tr_h2_stream *st, const uint8_t *data, size_t len, void *arg)
{
    struct sync_remote *c = arg;
    int r;

    c->moved = uv_now(c->loop);
    if (c->finishing) {
        tr_h2_stream_consume(st, len);
    } else if (c->http_status != 200) {
        size_t n = REFUSAL_MAX - c->refusal_len < len ? REFUSAL_MAX - c->refusal_len : len;

        memcpy(c->refusal + c->refusal_len, data, n);
        c->refusal_len += n;
        tr_h2_stream_consume(st, len);
    } else {
        r = keep(c, data, len);
        if (r != 0)
            finish(c, r, NULL);
        else
            process(c);
    }
}

static void refused(struct sync_remote *c)
{
    char why[REFUSAL_MAX + 64];

    for (size_t i = 0; i < c->refusal_len; i++) {
        if (c->refusal[i] < 0x20 || c->refusal[i] > 0x7e)
            c->refusal[i] = '?';
    }
    snprintf(why, sizeof(why), "the agent answered %d: %s", c->http_status, c->refusal);
    finish(c, -EREMOTEIO, why);
}

static void on_end(struct tr_h2_stream *st, const struct tr_h2_head *trailers, void *arg)
{
    struct sync_remote *c = arg;

    (void)st;
    (void)trailers;
    c->peer_ended = true;
    if (c->http_status != 200)
        refused(c);
    else
        process(c);
}

static void on_drain(struct tr_h2_stream *st, void *arg)
{
    struct sync_remote *c = arg;

    (void)st;
    c->moved = uv_now(c->loop);
    if (!c->finishing && c->cbs->on_drain != NULL)
        c->cbs->on_drain(c->arg);
}

static void on_close(struct tr_h2_stream *st, uint32_t code, void *arg)
{
    struct sync_remote *c = arg;

    (void)st;
    (void)code;
    c->st = NULL;
    if (!c->peer_ended) /* else what is held may still be told */
        finish(c, UV_ECONNRESET, "the conversation with the agent ended");
    maybe_done(c);
}

static const struct tr_h2_stream_cbs stream_cbs = {.on_head = on_head,
                                                   .on_data = on_data,
                                                   .on_end = on_end,
                                                   .on_drain = on_drain,
                                                   .on_close = on_close};

/* ---- requests ---- */

/* Returns 1, 0 (stop), or < 0. */
static int send_ready(struct sync_remote *c)
{
    const uint8_t *bytes;
    size_t len;
    int r = 1;

    bytes = sync_pack_bytes(c->pack, &len);
    if (len > 0) {
        r = tr_h2_write(c->st, bytes, len);
        sync_pack_taken(c->pack, len);
    }
    return r < 0 ? UV_EPIPE : r;
}

static int add(struct sync_remote *c, const struct sync_msg *msg)
{
    int r;

    if (c->finishing || c->st == NULL || c->ended)
        return UV_EPIPE;
    r = sync_pack_add(c->pack, msg);
    if (r == 0 && sync_pack_waiting(c->pack) >= SEND_AT)
        r = sync_pack_flush(c->pack);
    return r != 0 ? r : send_ready(c);
}

/* One that is answered. */
static int ask(struct sync_remote *c, const struct sync_msg *msg)
{
    int r;

    if (c->n_answered == c->n_asked)
        c->moved = uv_now(c->loop);
    r = add(c, msg);
    if (r >= 0)
        c->n_asked++;
    return r;
}

int sync_remote_dir(struct sync_remote *c, const char *dir, size_t len)
{
    struct sync_msg msg = {.type = SYNC_MSG_DIR, .path = dir, .path_len = len};

    return c->kind == SYNC_REMOTE_LIST ? ask(c, &msg) : UV_EINVAL;
}

int sync_remote_want(struct sync_remote *c, const char *path, size_t len,
                     const struct sync_sig *sig)
{
    struct sync_msg msg = {.type = SYNC_MSG_WANT, .path = path, .path_len = len};

    if (c->kind != SYNC_REMOTE_HASH && c->kind != SYNC_REMOTE_READ)
        return UV_EINVAL;
    if (sig != NULL) {
        msg.has_sig = true;
        msg.sig = *sig;
    }
    return ask(c, &msg);
}

int sync_remote_op(struct sync_remote *c, const struct sync_op *op, int64_t size)
{
    struct sync_msg msg = {.type = SYNC_MSG_OP, .op = *op, .size = size};
    int r;

    if (c->kind != SYNC_REMOTE_APPLY || c->in_content)
        return UV_EINVAL;
    if (op->kind != SYNC_OP_FILE)
        msg.size = 0;
    if (op->kind != SYNC_OP_LINK)
        msg.op.target_len = 0;
    r = ask(c, &msg);
    if (r >= 0 && op->kind == SYNC_OP_FILE) {
        c->in_content = true;
        c->left = size;
    }
    return r;
}

int sync_remote_content(struct sync_remote *c, const void *bytes, size_t len)
{
    struct sync_msg msg = {.type = SYNC_MSG_PIECE, .bytes = bytes};
    int r = 1, go_on = 1;

    if (!c->in_content || (int64_t)len > c->left)
        return UV_EINVAL;
    for (; len > 0; len -= msg.len, msg.bytes += msg.len) {
        msg.len = len < SYNC_PIECE_MAX ? len : SYNC_PIECE_MAX;
        r = add(c, &msg);
        if (r < 0)
            return r;
        c->left -= (int64_t)msg.len;
        if (r == 0)
            go_on = 0;
    }
    return go_on;
}

int sync_remote_content_end(struct sync_remote *c, const struct sync_id *id)
{
    struct sync_msg msg = {.type = id != NULL ? SYNC_MSG_COMMIT : SYNC_MSG_DROP};
    int r;

    if (!c->in_content || (id != NULL && c->left > 0))
        return UV_EINVAL;
    if (id != NULL)
        msg.id = *id;
    r = add(c, &msg);
    if (r >= 0)
        c->in_content = false;
    return r;
}

int sync_remote_watch(struct sync_remote *c, const char *dir, size_t len)
{
    struct sync_msg msg = {.type = SYNC_MSG_WATCH, .path = dir, .path_len = len};

    return c->kind == SYNC_REMOTE_WATCH ? add(c, &msg) : UV_EINVAL;
}

int sync_remote_unwatch(struct sync_remote *c, const char *dir, size_t len)
{
    struct sync_msg msg = {.type = SYNC_MSG_UNWATCH, .path = dir, .path_len = len};

    return c->kind == SYNC_REMOTE_WATCH ? add(c, &msg) : UV_EINVAL;
}

void sync_remote_flush(struct sync_remote *c)
{
    int r;

    if (c->finishing || c->st == NULL || c->ended)
        return;
    r = sync_pack_flush(c->pack);
    if (r == 0)
        r = send_ready(c);
    if (r < 0)
        finish(c, r, NULL);
}

void sync_remote_end(struct sync_remote *c)
{
    if (c->ended || c->kind == SYNC_REMOTE_WATCH) {
        sync_remote_flush(c);
        return;
    }
    if (c->in_content && sync_remote_content_end(c, NULL) < 0)
        sync_remote_cancel(c);
    sync_remote_flush(c);
    c->ended = true;
    c->moved = uv_now(c->loop);
    if (!c->finishing && c->st != NULL)
        tr_h2_end(c->st, NULL, 0);
}

void sync_remote_cancel(struct sync_remote *c)
{
    finish(c, UV_ECANCELED, "given up");
}

void sync_remote_hold(struct sync_remote *c, bool hold)
{
    bool was = c->held;

    c->held = hold;
    if (was && !hold && !c->finishing && !c->processing)
        go_on_later(c);
}

/* ---- begin ---- */

static const char *path_of(enum sync_remote_kind kind)
{
    static const char *const paths[] = {
        [SYNC_REMOTE_LIST] = "/v1/sync/list",   [SYNC_REMOTE_HASH] = "/v1/sync/hash",
        [SYNC_REMOTE_READ] = "/v1/sync/read",   [SYNC_REMOTE_APPLY] = "/v1/sync/apply",
        [SYNC_REMOTE_WATCH] = "/v1/sync/watch",
    };

    return paths[kind];
}

static int open_stream(struct sync_remote *c, struct tr_h2 *h2)
{
    const struct tr_h2_field fields[] = {
        TR_H2_FIELD(":method", "POST"),
        TR_H2_FIELD(":scheme", "http"),
        TR_H2_FIELD(":authority", "agent"),
        TR_H2_FIELD(":path", path_of(c->kind)),
        TR_H2_FIELD("content-type", "application/octet-stream"),
    };

    return tr_h2_request(h2, fields, sizeof(fields) / sizeof(fields[0]), false, &stream_cbs, c,
                         &c->st);
}

int sync_remote_start(uv_loop_t *loop, struct tr_h2 *h2, enum sync_remote_kind kind,
                      const struct sync_remote_cbs *cbs, void *arg, struct sync_remote **out)
{
    struct sync_remote *c = calloc(1, sizeof(*c));
    int r = c == NULL ? UV_ENOMEM : 0;

    if (r == 0) {
        c->loop = loop;
        c->kind = kind;
        c->cbs = cbs;
        c->arg = arg;
        c->in_cap = 4096;
        c->in = malloc(c->in_cap);
        r = c->in == NULL ? UV_ENOMEM : sync_pack_new(true, &c->pack);
    }
    if (r == 0)
        r = sync_unpack_new(&c->unpack);
    if (r == 0)
        r = open_stream(c, h2);
    if (r != 0) {
        if (c != NULL) {
            sync_pack_free(c->pack);
            sync_unpack_free(c->unpack);
            free(c->in);
        }
        free(c);
        return r;
    }
    if (uv_timer_init(loop, &c->timer) != 0)
        abort(); /* cannot fail on Unix */
    c->timer.data = c;
    c->n_open = 2;
    c->moved = uv_now(loop);
    start_timer(c);
    *out = c;
    return 0;
}
