/* SPDX-License-Identifier: MIT */
/* One request message at a time: it is taken when the one before is answered. What takes long (a
 * folder, a file's content) is done in slices between which the output can leave. */
#include "sync/serve.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <uv.h>

#define OUTPUT_WANTED   65536
#define SLICE_NS        (INT64_C(50) * 1000 * 1000)
#define ENTRIES_AT_ONCE 64
#define ALIVE_AFTER     20 /* slices without output, a second or more of work */

struct sync_serve {
    enum sync_serve_kind kind;
    const struct sync_tree *tree;
    struct sync_unpack *unpack;
    struct sync_pack *pack;
    uint8_t *in; /* not taken by unpack yet */
    size_t in_at, in_len, in_cap, eaten;
    bool in_end;
    uint32_t index;            /* of the request under way, or the next */
    int n_silent;              /* slices since the last output */
    sync_serve_guard_cb guard; /* NULL: nothing is refused */
    void *guard_arg;

    struct sync_tree_dir *dir;   /* list: being read */
    struct sync_tree_file *file; /* hash, read: being read */
    uint8_t *piece;              /* SYNC_PIECE_MAX */
    uint8_t head[SYNC_HEAD_MAX]; /* hash */
    size_t head_len;

    bool in_content; /* apply: pieces, COMMIT or DROP are due */
    struct sync_op op;
    char path[SYNC_PATH_MAX + 1];
    struct sync_stage *stage; /* NULL when status is not 0 */
    int64_t left;             /* bytes of content that may still come */
    int status;               /* why it will not be applied */
};

int sync_serve_new(enum sync_serve_kind kind, const struct sync_tree *tree, struct sync_serve **out)
{
    struct sync_serve *s = calloc(1, sizeof(*s));
    int r;

    if (s == NULL)
        return UV_ENOMEM;
    s->kind = kind;
    s->tree = tree;
    r = sync_unpack_new(&s->unpack);
    if (r == 0)
        r = sync_pack_new(true, &s->pack);
    if (r == 0 && (kind == SYNC_SERVE_HASH || kind == SYNC_SERVE_READ) &&
        (s->piece = malloc(SYNC_PIECE_MAX)) == NULL)
        r = UV_ENOMEM;
    if (r != 0) {
        sync_serve_free(s);
        return r;
    }
    *out = s;
    return 0;
}

void sync_serve_free(struct sync_serve *s)
{
    if (s == NULL)
        return;
    sync_tree_dir_close(s->dir);
    sync_tree_file_close(s->file);
    sync_stage_close(s->stage);
    sync_unpack_free(s->unpack);
    sync_pack_free(s->pack);
    free(s->piece);
    free(s->in);
    free(s);
}

void sync_serve_guard(struct sync_serve *s, sync_serve_guard_cb guard, void *arg)
{
    s->guard = guard;
    s->guard_arg = arg;
}

static int ask(const struct sync_serve *s, const char *path, size_t len, const struct sync_op *op)
{
    return s->guard == NULL ? 0 : s->guard(path, len, op, s->guard_arg);
}

int sync_serve_input(struct sync_serve *s, const uint8_t *bytes, size_t len)
{
    if (s->in_at > 0) {
        memmove(s->in, s->in + s->in_at, s->in_len - s->in_at);
        s->in_len -= s->in_at;
        s->in_at = 0;
    }
    if (s->in_cap - s->in_len < len) {
        uint8_t *grown = realloc(s->in, s->in_len + len);

        if (grown == NULL)
            return UV_ENOMEM;
        s->in = grown;
        s->in_cap = s->in_len + len;
    }
    if (len > 0)
        memcpy(s->in + s->in_len, bytes, len);
    s->in_len += len;
    return 0;
}

void sync_serve_input_end(struct sync_serve *s)
{
    s->in_end = true;
}

size_t sync_serve_eaten(struct sync_serve *s)
{
    size_t n = s->eaten;

    s->eaten = 0;
    return n;
}

const uint8_t *sync_serve_output(const struct sync_serve *s, size_t *len)
{
    return sync_pack_bytes(s->pack, len);
}

void sync_serve_taken(struct sync_serve *s, size_t len)
{
    sync_pack_taken(s->pack, len);
}

/* ---- list ---- */

static int start_list(struct sync_serve *s, const struct sync_msg *msg)
{
    struct sync_msg out = {.type = SYNC_MSG_LISTING, .index = s->index};

    out.status = ask(s, msg->path, msg->path_len, NULL);
    if (out.status == 0)
        out.status = sync_tree_dir_open(s->tree, msg->path, msg->path_len, &out.sig, &s->dir);
    if (out.status != 0)
        s->index++;
    return sync_pack_add(s->pack, &out);
}

static int go_on_list(struct sync_serve *s)
{
    struct sync_msg out = {.type = SYNC_MSG_ENTRY};
    int r = 0, more = 1;

    for (int i = 0; r == 0 && i < ENTRIES_AT_ONCE; i++) {
        more = sync_tree_dir_next(s->dir, &out.entry);
        if (more != 1)
            break;
        r = sync_pack_add(s->pack, &out);
        if (r == UV_EINVAL) /* a name longer than a name can be here: no path leads to it */
            r = 0;
    }
    if (r != 0 || more == 1)
        return r;
    out = (struct sync_msg){.type = SYNC_MSG_LISTED, .index = s->index++, .status = more};
    out.flag = sync_tree_dir_changed(s->dir);
    sync_tree_dir_close(s->dir);
    s->dir = NULL;
    return sync_pack_add(s->pack, &out);
}

/* ---- hash and read ---- */

static int start_file(struct sync_serve *s, const struct sync_msg *msg)
{
    bool hash = s->kind == SYNC_SERVE_HASH;
    struct sync_msg out = {.type = hash ? SYNC_MSG_HASHED : SYNC_MSG_READING, .index = s->index};

    out.status = ask(s, msg->path, msg->path_len, NULL);
    if (out.status == 0)
        out.status = sync_tree_file_open(s->tree, msg->path, msg->path_len,
                                         msg->has_sig ? &msg->sig : NULL, &out.sig, &s->file);
    s->head_len = 0;
    if (out.status != 0)
        s->index++;
    return hash && out.status == 0 ? 0 : sync_pack_add(s->pack, &out);
}

static int end_file(struct sync_serve *s, int status)
{
    bool hash = s->kind == SYNC_SERVE_HASH;
    struct sync_msg out = {.type = hash ? SYNC_MSG_HASHED : SYNC_MSG_READ, .index = s->index++};
    struct sync_tree_read read;

    out.status = status != 0 ? status : sync_tree_file_end(s->file, &read);
    if (out.status == 0) {
        out.flag = read.writer;
        out.sig = read.sig;
        out.id = read.id;
        out.bytes = s->head;
        out.len = hash ? s->head_len : 0;
    }
    sync_tree_file_close(s->file);
    s->file = NULL;
    return sync_pack_add(s->pack, &out);
}

static int go_on_file(struct sync_serve *s)
{
    int64_t n = sync_tree_file_next(s->file, s->piece, SYNC_PIECE_MAX);
    struct sync_msg out = {.type = SYNC_MSG_PIECE, .bytes = s->piece};

    if (n <= 0)
        return end_file(s, (int)n);
    out.len = (size_t)n;
    if (s->kind == SYNC_SERVE_READ)
        return sync_pack_add(s->pack, &out);
    if (s->head_len < SYNC_HEAD_MAX) {
        if (out.len > SYNC_HEAD_MAX - s->head_len)
            out.len = SYNC_HEAD_MAX - s->head_len;
        memcpy(s->head + s->head_len, s->piece, out.len);
        s->head_len += out.len;
    }
    return 0;
}

/* ---- apply ---- */

static int applied(struct sync_serve *s, int status, const struct sync_sig *sig)
{
    struct sync_msg out = {.type = SYNC_MSG_APPLIED, .index = s->index++, .status = status};

    if (status == 0)
        out.sig = *sig;
    return sync_pack_add(s->pack, &out);
}

static int start_op(struct sync_serve *s, const struct sync_msg *msg)
{
    int status = ask(s, msg->op.path, msg->op.path_len, &msg->op);
    struct sync_sig sig = {0};

    if (msg->op.kind != SYNC_OP_FILE) {
        if (status == 0)
            status = sync_tree_apply(s->tree, &msg->op, NULL, &sig);

        return applied(s, status, &sig);
    }
    s->op = msg->op;
    memcpy(s->path, msg->op.path, msg->op.path_len);
    s->op.path = s->path;
    s->op.target = NULL;
    s->left = msg->size;
    s->status = status != 0 ? status : sync_stage_open(s->tree, msg->size, &s->stage);
    s->in_content = true;
    return 0;
}

static void drop_stage(struct sync_serve *s, int status)
{
    sync_stage_close(s->stage);
    s->stage = NULL;
    s->status = status;
}

static int take_piece(struct sync_serve *s, const struct sync_msg *msg)
{
    int r;

    if ((int64_t)msg->len > s->left)
        return UV_EPROTO;
    s->left -= (int64_t)msg->len;
    if (s->status != 0)
        return 0; /* there is no place for it: the others must go on */
    r = sync_stage_write(s->stage, msg->bytes, msg->len);
    if (r != 0)
        drop_stage(s, r);
    return 0;
}

static int end_content(struct sync_serve *s, const struct sync_msg *msg)
{
    struct sync_sig sig = {0};
    struct sync_id id;

    s->in_content = false;
    if (s->status == 0 && msg->type == SYNC_MSG_DROP)
        s->status = -ECANCELED;
    if (s->status == 0)
        s->status = sync_stage_end(s->stage, &id);
    if (s->status == 0 && !sync_id_equal(&id, &msg->id))
        s->status = -EBADMSG;
    if (s->status == 0)
        s->status = sync_tree_apply(s->tree, &s->op, s->stage, &sig);
    drop_stage(s, s->status);
    return applied(s, s->status, &sig);
}

static int handle_apply(struct sync_serve *s, const struct sync_msg *msg)
{
    if (!s->in_content)
        return msg->type == SYNC_MSG_OP ? start_op(s, msg) : UV_EPROTO;
    if (msg->type == SYNC_MSG_PIECE)
        return take_piece(s, msg);
    return msg->type == SYNC_MSG_COMMIT || msg->type == SYNC_MSG_DROP ? end_content(s, msg)
                                                                      : UV_EPROTO;
}

/* ---- steps ---- */

static int handle(struct sync_serve *s, const struct sync_msg *msg)
{
    switch (s->kind) {
    case SYNC_SERVE_LIST:
        return msg->type == SYNC_MSG_DIR ? start_list(s, msg) : UV_EPROTO;
    case SYNC_SERVE_HASH:
    case SYNC_SERVE_READ:
        return msg->type == SYNC_MSG_WANT ? start_file(s, msg) : UV_EPROTO;
    default:
        return handle_apply(s, msg);
    }
}

/* Returns 1 when a message was dealt with, SYNC_SERVE_HUNGRY or _DONE (above 1), or < 0. */
static int next_message(struct sync_serve *s)
{
    struct sync_msg msg;
    size_t n;
    int r;

    for (;;) {
        r = sync_unpack_next(s->unpack, &msg);
        if (r == 1)
            r = handle(s, &msg);
        else if (r == 0 && s->in_at < s->in_len) {
            n = sync_unpack_feed(s->unpack, s->in + s->in_at, s->in_len - s->in_at);
            s->in_at += n;
            s->eaten += n;
            continue;
        } else if (r == 0) {
            break;
        }
        return r < 0 ? r : 1;
    }
    if (!s->in_end)
        return SYNC_SERVE_HUNGRY + 1;
    return sync_unpack_at_end(s->unpack) && !s->in_content ? SYNC_SERVE_DONE + 1 : UV_EPROTO;
}

static int64_t now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

int sync_serve_step(struct sync_serve *s)
{
    int64_t end = now_ns() + SLICE_NS;
    size_t ready = 0;
    int r = 1, flushed;

    do {
        if (s->dir != NULL)
            r = go_on_list(s);
        else if (s->file != NULL)
            r = go_on_file(s);
        else
            r = next_message(s);
        if (sync_pack_waiting(s->pack) >= OUTPUT_WANTED && sync_pack_flush(s->pack) != 0)
            return UV_ENOMEM;
        (void)sync_pack_bytes(s->pack, &ready);
    } while (r >= 0 && r <= 1 && ready < OUTPUT_WANTED && now_ns() < end);
    /* A whole slice of work, and nothing to show for it. */
    if (r >= 0 && r <= 1 && sync_pack_waiting(s->pack) == 0 && ready == 0)
        s->n_silent++;
    else
        s->n_silent = 0;
    if (s->n_silent >= ALIVE_AFTER) {
        struct sync_msg alive = {.type = SYNC_MSG_ALIVE};

        s->n_silent = 0;
        if (sync_pack_add(s->pack, &alive) != 0)
            return UV_ENOMEM;
    }
    flushed = sync_pack_flush(s->pack);
    if (r < 0)
        return r;
    return flushed != 0 ? flushed : r <= 1 ? SYNC_SERVE_MORE : r - 1;
}
