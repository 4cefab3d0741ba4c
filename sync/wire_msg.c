/* SPDX-License-Identifier: MIT */
/* Payloads, field by field. A signature is u64 ino, i64 mtime, i64 ctime, i64 size, u32 mode, u8
 * fresh; a string is u16 length and its bytes; the last string or bytes of a message go to its end
 * and have no length. */
#include "sync/wire_internal.h"

#include <string.h>
#include <uv.h>

/* ---- reading ---- */

struct reader {
    const uint8_t *at;
    size_t left;
    bool bad;
};

static const uint8_t *take(struct reader *r, size_t n)
{
    const uint8_t *at = r->at;

    if (r->bad || n > r->left) {
        r->bad = true;
        return NULL;
    }
    r->at += n;
    r->left -= n;
    return at;
}

static uint64_t take_number(struct reader *r, size_t n)
{
    const uint8_t *at = take(r, n);
    uint64_t v = 0;

    for (size_t i = n; at != NULL && i-- > 0;)
        v = v << 8 | at[i];
    return v;
}

static bool take_bool(struct reader *r)
{
    uint64_t v = take_number(r, 1);

    if (v > 1)
        r->bad = true;
    return v == 1;
}

static void take_sig(struct reader *r, struct sync_sig *sig)
{
    sig->ino = take_number(r, 8);
    sig->mtime_ns = (int64_t)take_number(r, 8);
    sig->ctime_ns = (int64_t)take_number(r, 8);
    sig->size = (int64_t)take_number(r, 8);
    sig->mode = (uint32_t)take_number(r, 4);
    sig->fresh = take_bool(r);
    if (sig->size < 0)
        r->bad = true;
}

static void take_id(struct reader *r, struct sync_id *id)
{
    const uint8_t *at = take(r, SYNC_ID_LEN);

    if (at != NULL)
        memcpy(id->bytes, at, SYNC_ID_LEN);
}

static int32_t take_status(struct reader *r)
{
    int32_t status = (int32_t)take_number(r, 4);

    if (!sync_status_valid(status))
        r->bad = true;
    return status;
}

static const char *take_rest(struct reader *r, size_t *len)
{
    *len = r->left;
    return (const char *)take(r, r->left);
}

static void take_path(struct reader *r, struct sync_msg *msg)
{
    msg->path = take_rest(r, &msg->path_len);
}

static const char *take_string(struct reader *r, size_t *len)
{
    *len = take_number(r, 2);
    return (const char *)take(r, *len);
}

static void take_op(struct reader *r, struct sync_msg *msg)
{
    struct sync_op *op = &msg->op;
    uint64_t kind = take_number(r, 1);

    if (kind >= SYNC_N_OP) {
        r->bad = true;
        return;
    }
    op->kind = (enum sync_op_kind)kind;
    op->absent = take_bool(r);
    op->has_id = take_bool(r);
    op->exec = take_bool(r);
    take_sig(r, &op->expected);
    take_id(r, &op->id);
    msg->size = (int64_t)take_number(r, 8);
    op->path = take_string(r, &op->path_len);
    op->target = take_rest(r, &op->target_len);
}

static void take_entry(struct reader *r, struct sync_tree_entry *entry)
{
    take_sig(r, &entry->sig);
    entry->name = take_string(r, &entry->name_len);
    entry->target = take_rest(r, &entry->target_len);
    if (entry->target_len == 0)
        entry->target = NULL;
}

static void take_result(struct reader *r, struct sync_msg *msg)
{
    msg->index = (uint32_t)take_number(r, 4);
    msg->status = take_status(r);
}

static void take_fields(struct reader *r, struct sync_msg *msg)
{
    switch (msg->type) {
    case SYNC_MSG_LOST:
        msg->status = take_status(r);
        take_path(r, msg);
        break;
    case SYNC_MSG_DIR:
    case SYNC_MSG_WATCH:
    case SYNC_MSG_UNWATCH:
    case SYNC_MSG_DIRTY:
        take_path(r, msg);
        break;
    case SYNC_MSG_WANT:
        msg->has_sig = take_bool(r);
        take_sig(r, &msg->sig);
        take_path(r, msg);
        break;
    case SYNC_MSG_OP:
        take_op(r, msg);
        break;
    case SYNC_MSG_COMMIT:
        take_id(r, &msg->id);
        break;
    case SYNC_MSG_PIECE:
        msg->bytes = (const uint8_t *)take_rest(r, &msg->len);
        break;
    case SYNC_MSG_LISTING:
    case SYNC_MSG_READING:
    case SYNC_MSG_APPLIED:
        take_result(r, msg);
        take_sig(r, &msg->sig);
        break;
    case SYNC_MSG_ENTRY:
        take_entry(r, &msg->entry);
        break;
    case SYNC_MSG_LISTED:
        take_result(r, msg);
        msg->flag = take_bool(r);
        break;
    case SYNC_MSG_HASHED:
    case SYNC_MSG_READ:
        take_result(r, msg);
        msg->flag = take_bool(r);
        take_sig(r, &msg->sig);
        take_id(r, &msg->id);
        if (msg->type == SYNC_MSG_HASHED)
            msg->bytes = (const uint8_t *)take_rest(r, &msg->len);
        break;
    default:
        break;
    }
}

/* ---- what is right, for both directions ---- */

bool sync_status_valid(int64_t status)
{
    return status == 0 || status == SYNC_CHANGED || status == SYNC_BUSY ||
           (status < 0 && status >= -4095);
}

static bool is_dir_path(const char *path, size_t len)
{
    return len == 0 || sync_path_check(path, len) == SYNC_PATH_OK;
}

static bool is_name(const char *name, size_t len)
{
    return len <= SYNC_NAME_MAX && sync_path_check(name, len) == SYNC_PATH_OK &&
           memchr(name, '/', len) == NULL;
}

static bool is_target(const char *target, size_t len)
{
    return len > 0 && len <= SYNC_LINK_MAX && memchr(target, '\0', len) == NULL;
}

static bool is_op(const struct sync_op *op, int64_t size)
{
    if (op->kind >= SYNC_N_OP || sync_path_check(op->path, op->path_len) != SYNC_PATH_OK ||
        size < 0 || (size > 0 && op->kind != SYNC_OP_FILE))
        return false;
    return op->kind == SYNC_OP_LINK ? is_target(op->target, op->target_len) : op->target_len == 0;
}

static bool is_entry(const struct sync_tree_entry *entry)
{
    return is_name(entry->name, entry->name_len) &&
           (sync_sig_type(&entry->sig) == SYNC_TYPE_LINK
                ? is_target(entry->target, entry->target_len)
                : entry->target_len == 0);
}

static bool is_valid(const struct sync_msg *msg)
{
    if (!sync_status_valid(msg->status))
        return false;
    switch (msg->type) {
    case SYNC_MSG_DIR:
    case SYNC_MSG_WATCH:
    case SYNC_MSG_UNWATCH:
    case SYNC_MSG_DIRTY:
    case SYNC_MSG_LOST:
        return is_dir_path(msg->path, msg->path_len);
    case SYNC_MSG_WANT:
        return sync_path_check(msg->path, msg->path_len) == SYNC_PATH_OK;
    case SYNC_MSG_OP:
        return is_op(&msg->op, msg->size);
    case SYNC_MSG_PIECE:
        return msg->len > 0 && msg->len <= SYNC_PIECE_MAX;
    case SYNC_MSG_ENTRY:
        return is_entry(&msg->entry);
    case SYNC_MSG_HASHED:
        return msg->len <= SYNC_HEAD_MAX && (msg->status == 0 || msg->len == 0);
    default:
        return msg->type >= SYNC_MSG_DIR && msg->type < SYNC_N_MSG;
    }
}

int sync_msg_parse(uint8_t type, const uint8_t *payload, size_t len, struct sync_msg *msg)
{
    struct reader r = {payload, len, false};

    memset(msg, 0, sizeof(*msg));
    if (type < SYNC_MSG_DIR || type >= SYNC_N_MSG)
        return UV_EPROTO;
    msg->type = (enum sync_msg_type)type;
    take_fields(&r, msg);
    return r.bad || r.left > 0 || !is_valid(msg) ? UV_EPROTO : 0;
}

/* ---- writing ---- */

static void put_number(struct sync_buf *b, uint64_t v, size_t n)
{
    for (size_t i = 0; i < n; i++)
        b->bytes[b->len++] = (uint8_t)(v >> (8 * i));
}

static void put_bytes(struct sync_buf *b, const void *bytes, size_t len)
{
    if (len > 0)
        memcpy(b->bytes + b->len, bytes, len);
    b->len += len;
}

static void put_string(struct sync_buf *b, const char *text, size_t len)
{
    put_number(b, len, 2);
    put_bytes(b, text, len);
}

static void put_sig(struct sync_buf *b, const struct sync_sig *sig)
{
    put_number(b, sig->ino, 8);
    put_number(b, (uint64_t)sig->mtime_ns, 8);
    put_number(b, (uint64_t)sig->ctime_ns, 8);
    put_number(b, (uint64_t)sig->size, 8);
    put_number(b, sig->mode, 4);
    put_number(b, sig->fresh, 1);
}

static void put_result(struct sync_buf *b, const struct sync_msg *msg)
{
    put_number(b, msg->index, 4);
    put_number(b, (uint32_t)msg->status, 4);
}

static void put_op(struct sync_buf *b, const struct sync_msg *msg)
{
    const struct sync_op *op = &msg->op;

    put_number(b, op->kind, 1);
    put_number(b, op->absent, 1);
    put_number(b, op->has_id, 1);
    put_number(b, op->exec, 1);
    put_sig(b, &op->expected);
    put_bytes(b, op->id.bytes, SYNC_ID_LEN);
    put_number(b, (uint64_t)msg->size, 8);
    put_string(b, op->path, op->path_len);
    put_bytes(b, op->target, op->target_len);
}

static void put_fields(struct sync_buf *b, const struct sync_msg *msg)
{
    switch (msg->type) {
    case SYNC_MSG_LOST:
        put_number(b, (uint32_t)msg->status, 4);
        put_bytes(b, msg->path, msg->path_len);
        break;
    case SYNC_MSG_DIR:
    case SYNC_MSG_WATCH:
    case SYNC_MSG_UNWATCH:
    case SYNC_MSG_DIRTY:
        put_bytes(b, msg->path, msg->path_len);
        break;
    case SYNC_MSG_WANT:
        put_number(b, msg->has_sig, 1);
        put_sig(b, &msg->sig);
        put_bytes(b, msg->path, msg->path_len);
        break;
    case SYNC_MSG_OP:
        put_op(b, msg);
        break;
    case SYNC_MSG_COMMIT:
        put_bytes(b, msg->id.bytes, SYNC_ID_LEN);
        break;
    case SYNC_MSG_PIECE:
        put_bytes(b, msg->bytes, msg->len);
        break;
    case SYNC_MSG_LISTING:
    case SYNC_MSG_READING:
    case SYNC_MSG_APPLIED:
        put_result(b, msg);
        put_sig(b, &msg->sig);
        break;
    case SYNC_MSG_ENTRY:
        put_sig(b, &msg->entry.sig);
        put_string(b, msg->entry.name, msg->entry.name_len);
        put_bytes(b, msg->entry.target, msg->entry.target_len);
        break;
    case SYNC_MSG_LISTED:
        put_result(b, msg);
        put_number(b, msg->flag, 1);
        break;
    case SYNC_MSG_HASHED:
    case SYNC_MSG_READ:
        put_result(b, msg);
        put_number(b, msg->flag, 1);
        put_sig(b, &msg->sig);
        put_bytes(b, msg->id.bytes, SYNC_ID_LEN);
        if (msg->type == SYNC_MSG_HASHED)
            put_bytes(b, msg->bytes, msg->len);
        break;
    default:
        break;
    }
}

int sync_msg_put(struct sync_buf *b, const struct sync_msg *msg)
{
    size_t start = b->len, len;

    if (!is_valid(msg))
        return UV_EINVAL;
    b->bytes[b->len++] = (uint8_t)msg->type;
    b->len += 4;
    put_fields(b, msg);
    len = b->len - start - 5;
    for (size_t i = 0; i < 4; i++)
        b->bytes[start + 1 + i] = (uint8_t)(len >> (8 * i));
    return 0;
}
