/* SPDX-License-Identifier: MIT */
#include "sync/side_tree.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- looking ---- */

static void list_one(struct sync_side_tree *side, const struct sync_name *dir, uint32_t index,
                     const struct sync_side_cbs *cbs, void *arg)
{
    struct sync_tree_entry entry;
    struct sync_tree_dir *at;
    struct sync_sig sig = {0};
    int r = sync_tree_dir_open(&side->tree, dir->path, dir->len, &sig, &at);

    cbs->on_listing(index, r, &sig, arg);
    if (r != 0)
        return;
    while ((r = sync_tree_dir_next(at, &entry)) == 1)
        cbs->on_entry(index, &entry, arg);
    cbs->on_listed(index, r, r == 0 && sync_tree_dir_changed(at), arg);
    sync_tree_dir_close(at);
}

static int list(void *ctx, const struct sync_name *dirs, size_t n, const struct sync_side_cbs *cbs,
                void *arg, struct err *err)
{
    (void)err;
    for (size_t i = 0; i < n; i++)
        list_one(ctx, &dirs[i], (uint32_t)i, cbs, arg);
    return 0;
}

static int hash(void *ctx, const struct sync_want *wants, size_t n, const struct sync_side_cbs *cbs,
                void *arg, struct err *err)
{
    struct sync_side_tree *side = ctx;
    uint8_t *head = malloc(SYNC_HEAD_MAX);

    if (head == NULL)
        return tr_err_set(err, -ENOMEM, "out of memory");
    for (size_t i = 0; i < n; i++) {
        struct sync_tree_read read = {0};
        size_t head_len = 0;
        int r = sync_tree_read(&side->tree, wants[i].path, wants[i].len, &wants[i].sig, NULL, NULL,
                               head, &head_len, &read);

        cbs->on_hashed((uint32_t)i, r, &read, head, r == 0 ? head_len : 0, arg);
    }
    free(head);
    return 0;
}

static void read_one(struct sync_side_tree *side, const struct sync_want *want, uint32_t index,
                     uint8_t *piece, const struct sync_side_cbs *cbs, void *arg)
{
    struct sync_tree_read out = {0};
    struct sync_tree_file *file;
    struct sync_sig sig = {0};
    int64_t got;
    int r = sync_tree_file_open(&side->tree, want->path, want->len, &want->sig, &sig, &file);

    cbs->on_reading(index, r, &sig, arg);
    if (r != 0)
        return;
    while ((got = sync_tree_file_next(file, piece, SYNC_PIECE_MAX)) > 0)
        cbs->on_piece(index, piece, (size_t)got, arg);
    r = got < 0 ? (int)got : sync_tree_file_end(file, &out);
    cbs->on_read(index, r, &out, arg);
    sync_tree_file_close(file);
}

static int read_files(void *ctx, const struct sync_want *wants, size_t n,
                      const struct sync_side_cbs *cbs, void *arg, struct err *err)
{
    uint8_t *piece = malloc(SYNC_PIECE_MAX);

    if (piece == NULL)
        return tr_err_set(err, -ENOMEM, "out of memory");
    for (size_t i = 0; i < n; i++)
        read_one(ctx, &wants[i], (uint32_t)i, piece, cbs, arg);
    free(piece);
    return 0;
}

/* ---- changing ---- */

static void answer(struct sync_side_tree *side, int status, const struct sync_sig *sig)
{
    static const struct sync_sig none;

    side->cbs->on_applied(side->n_ops++, status, sig != NULL ? sig : &none, side->arg);
}

static int apply_start(void *ctx, const struct sync_side_cbs *cbs, void *arg, struct err *err)
{
    struct sync_side_tree *side = ctx;

    (void)err;
    side->cbs = cbs;
    side->arg = arg;
    side->n_ops = 0;
    side->stage = NULL;
    return 0;
}

static int apply_op(void *ctx, const struct sync_op *op, int64_t size, struct err *err)
{
    struct sync_side_tree *side = ctx;
    struct sync_sig sig = {0};
    int r;

    (void)err;
    if (op->kind == SYNC_OP_FILE) {
        side->op = *op;
        side->status = sync_stage_open(&side->tree, size, &side->stage);
        if (side->status != 0)
            side->stage = NULL;
        return 0;
    }
    r = sync_tree_apply(&side->tree, op, NULL, &sig);
    answer(side, r, &sig);
    return 0;
}

static int apply_content(void *ctx, const uint8_t *bytes, size_t len, struct err *err)
{
    struct sync_side_tree *side = ctx;

    (void)err;
    if (side->status == 0)
        side->status = sync_stage_write(side->stage, bytes, len);
    return 0;
}

static int apply_commit(void *ctx, const struct sync_id *id, struct err *err)
{
    struct sync_side_tree *side = ctx;
    struct sync_sig sig = {0};
    struct sync_id got;

    (void)err;
    if (side->status == 0 && id == NULL)
        side->status = -ECANCELED;
    if (side->status == 0)
        side->status = sync_stage_end(side->stage, &got);
    if (side->status == 0 && !sync_id_equal(&got, id))
        side->status = -EBADMSG;
    if (side->status == 0)
        side->status = sync_tree_apply(&side->tree, &side->op, side->stage, &sig);
    if (side->stage != NULL)
        sync_stage_close(side->stage);
    side->stage = NULL;
    answer(side, side->status, &sig);
    return 0;
}

static int apply_end(void *ctx, struct err *err)
{
    struct sync_side_tree *side = ctx;

    (void)err;
    if (side->stage != NULL) /* the one who gave its content has failed */
        sync_stage_close(side->stage);
    side->stage = NULL;
    return 0;
}

const struct sync_side_ops sync_side_tree_ops = {
    .list = list,
    .hash = hash,
    .read = read_files,
    .apply_start = apply_start,
    .apply_op = apply_op,
    .apply_content = apply_content,
    .apply_commit = apply_commit,
    .apply_end = apply_end,
};
