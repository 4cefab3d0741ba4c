/* SPDX-License-Identifier: MIT */
/* One conversation per side: what is to go, from the last path to the first; folders and bits, from
 * the first to the last; then files and links, as their content comes from the other side. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "sync/engine_internal.h"
#include "sync/path.h"

enum { BATCH = 512 }; /* files read in one call */

struct ref { /* an operation that was sent, in order */
    size_t step;
    bool is_removal; /* and something else comes after it */
};

struct carrying {
    struct sync_engine *e;
    enum sync_side side;
    const struct sync_side_ops *ops;
    struct ref *refs;
    size_t n_refs, size_refs;
    int fault; /* of the side that is written to; nothing more is sent */
    struct err *err;
    /* Contents on their way. */
    struct sync_want wants[BATCH];
    size_t steps[BATCH];
    size_t n;
    bool is_open; /* a FILE was announced */
    bool has_kind;
    struct sync_kind_scan kind;
    struct sync_sieve sieve; /* of the file that is open */
    size_t target_len;       /* of a link */
    char target[SYNC_LINK_MAX + 1];
    uint8_t piece[SYNC_PIECE_MAX]; /* of the vault's */
};

static void on_applied(uint32_t index, int status, const struct sync_sig *sig, void *arg)
{
    struct carrying *c = arg;
    struct sync_engine *e = c->e;
    const struct ref *ref;
    const struct sync_step *step;

    if (index >= c->n_refs)
        return;
    ref = &c->refs[index];
    step = &e->plan.steps[ref->step];
    if (status == -ECANCELED)
        return; /* given up by us, and why is known */
    if (status != 0) {
        sync_engine_fault(e, ref->step, c->side, status);
        return;
    }
    if (ref->is_removal) {
        static const struct sync_value absent;

        sync_scan_applied(e->scans[c->side], step->path, step->len, &absent, sig);
        return;
    }
    sync_scan_applied(e->scans[c->side], step->path, step->len, &step->to, sig);
    e->progress[ref->step].is_done[c->side] = true;
    e->n_changes[c->side]++;
    if (e->o.cbs->on_change != NULL)
        e->o.cbs->on_change(c->side, step->path, step->len, &step->to, e->o.arg);
}

static const struct sync_side_cbs apply_cbs = {.on_applied = on_applied};

static void send_op(struct carrying *c, size_t step, const struct sync_op *op, int64_t size,
                    bool is_removal)
{
    if (c->fault != 0)
        return;
    if (c->n_refs == c->size_refs) {
        size_t more = c->size_refs > 0 ? c->size_refs * 2 : 64;
        struct ref *refs = realloc(c->refs, more * sizeof(*refs));

        if (refs == NULL) {
            c->fault = tr_err_set(c->err, -ENOMEM, "out of memory");
            return;
        }
        c->refs = refs;
        c->size_refs = more;
    }
    c->refs[c->n_refs++] = (struct ref){.step = step, .is_removal = is_removal};
    c->fault = c->ops->apply_op(c->e->o.sides[c->side], op, size, c->err);
}

/* The path, and what is expected there. */
static struct sync_op op_of(const struct carrying *c, size_t i, enum sync_op_kind kind)
{
    const struct sync_step *step = &c->e->plan.steps[i];
    const struct sync_value *from = &step->from[c->side];
    struct sync_op op = {.kind = kind, .path = step->path, .path_len = step->len};

    op.absent = c->e->progress[i].is_removed[c->side] || from->what == SYNC_IS_ABSENT ||
                (from->what == SYNC_IS_LEFT_OUT && !from->is_there);
    if (!op.absent) {
        op.expected = step->sig[c->side];
        op.has_id = from->what == SYNC_IS_FILE;
        op.id = from->id;
    }
    op.exec = step->to.is_exec;
    return op;
}

static void remove_what_goes(struct carrying *c)
{
    struct sync_engine *e = c->e;

    for (size_t i = e->plan.n_steps; i-- > 0;) {
        const struct sync_step *step = &e->plan.steps[i];
        const struct sync_value *from = &step->from[c->side];
        const bool is_dir = from->what == SYNC_IS_DIR;
        struct sync_op op;

        if (!step->change[c->side] || e->progress[i].is_blocked ||
            (!is_dir && !sync_is_content(from)) ||
            (step->to.what != SYNC_IS_ABSENT && is_dir == (step->to.what == SYNC_IS_DIR)))
            continue;
        op = op_of(c, i, is_dir ? SYNC_OP_RMDIR : SYNC_OP_REMOVE);
        e->progress[i].is_removed[c->side] = step->to.what != SYNC_IS_ABSENT;
        send_op(c, i, &op, 0, step->to.what != SYNC_IS_ABSENT);
    }
}

static bool is_only_bit(const struct sync_step *step, enum sync_side side)
{
    const struct sync_value *from = &step->from[side];

    return step->to.what == SYNC_IS_FILE && from->what == SYNC_IS_FILE &&
           sync_id_equal(&from->id, &step->to.id);
}

static void make_folders(struct carrying *c)
{
    struct sync_engine *e = c->e;

    for (size_t i = 0; i < e->plan.n_steps; i++) {
        const struct sync_step *step = &e->plan.steps[i];
        struct sync_op op;

        if (!step->change[c->side] || e->progress[i].is_blocked)
            continue;
        if (step->to.what == SYNC_IS_DIR) {
            op = op_of(c, i, SYNC_OP_DIR);
            send_op(c, i, &op, 0, false);
        } else if (is_only_bit(step, c->side)) {
            op = op_of(c, i, SYNC_OP_CHMOD);
            send_op(c, i, &op, 0, false);
        }
    }
}

/* ---- contents ---- */

/* What may be written, even if it is given up later. */
static void pass_piece(const uint8_t *bytes, size_t len, void *arg)
{
    struct carrying *c = arg;

    if (c->fault != 0)
        return;
    c->e->bytes_sent[c->side] += (int64_t)len;
    c->fault = c->ops->apply_content(c->e->o.sides[c->side], bytes, len, c->err);
}

/* A file begins. Returns false if it cannot be taken. */
static bool begin_file(struct carrying *c, size_t i, int64_t size)
{
    struct sync_engine *e = c->e;
    const struct sync_step *step = &e->plan.steps[i];
    const size_t base = sync_path_base(step->path, step->len);
    struct sync_op op;

    if (c->side == SYNC_STORE) {
        int r = e->o.vault_ops->room(e->o.vault, size, NULL);

        if (r != 0) {
            sync_engine_fault(e, i, SYNC_STORE, r);
            return false;
        }
    }
    c->has_kind = c->side == SYNC_STORE && step->from[SYNC_STORE].what != SYNC_IS_FILE;
    if (c->has_kind)
        sync_kind_start(&c->kind, step->path + base, step->len - base);
    op = op_of(c, i, SYNC_OP_FILE);
    send_op(c, i, &op, size, false);
    c->is_open = c->fault == 0;
    if (c->is_open)
        sync_sieve_start(&c->sieve, c->side == SYNC_STORE ? e->o.secrets : NULL, pass_piece, c);
    return c->is_open;
}

static void give_piece(struct carrying *c, const uint8_t *bytes, size_t len)
{
    if (!c->is_open || c->fault != 0)
        return;
    if (c->has_kind)
        (void)sync_kind_feed(&c->kind, bytes, len);
    sync_sieve_feed(&c->sieve, bytes, len);
}

/* Its last byte was given; is_good: as it should be. */
static void end_file(struct carrying *c, size_t i, bool is_good)
{
    const struct sync_step *step = &c->e->plan.steps[i];
    int sieved;

    if (!c->is_open)
        return;
    c->is_open = false;
    sieved = sync_sieve_end(&c->sieve);
    if (c->fault != 0)
        return;
    if (is_good && sieved != 0) {
        is_good = false;
        if (sieved > 0)
            sync_engine_reject(c->e, i, SYNC_WHY_SECRET);
        else
            sync_engine_fault(c->e, i, SYNC_STORE, sieved);
    } else if (is_good && c->has_kind && !sync_kind_is_wanted(sync_kind_end(&c->kind))) {
        is_good = false;
        sync_engine_reject(c->e, i,
                           sync_kind_end(&c->kind) == SYNC_KIND_MISMATCH ? SYNC_WHY_MISMATCH
                                                                         : SYNC_WHY_BINARY);
    }
    c->fault = c->ops->apply_commit(c->e->o.sides[c->side], is_good ? &step->to.id : NULL, c->err);
}

/* Nothing more comes of the one that is open, if there is one. */
static void drop_file(struct carrying *c)
{
    if (c->is_open)
        sync_sieve_drop(&c->sieve);
    c->is_open = false;
}

static void on_reading(uint32_t index, int status, const struct sync_sig *sig, void *arg)
{
    struct carrying *c = arg;
    const size_t i = c->steps[index];

    drop_file(c);
    c->target_len = 0;
    if (status != 0)
        sync_engine_fault(c->e, i, sync_other(c->side), status);
    else if (c->fault == 0 && c->e->plan.steps[i].to.what == SYNC_IS_FILE)
        (void)begin_file(c, i, sig->size);
}

static void on_piece(uint32_t index, const uint8_t *bytes, size_t len, void *arg)
{
    struct carrying *c = arg;

    if (c->e->plan.steps[c->steps[index]].to.what == SYNC_IS_FILE) {
        give_piece(c, bytes, len);
    } else if (len <= SYNC_LINK_MAX - c->target_len) {
        memcpy(c->target + c->target_len, bytes, len);
        c->target_len += len;
    }
}

static void make_link(struct carrying *c, size_t i)
{
    struct sync_op op = op_of(c, i, SYNC_OP_LINK);

    c->target[c->target_len] = '\0';
    op.target = c->target;
    op.target_len = c->target_len;
    send_op(c, i, &op, 0, false);
}

static void on_read(uint32_t index, int status, const struct sync_tree_read *read, void *arg)
{
    struct carrying *c = arg;
    const size_t i = c->steps[index];
    const struct sync_step *step = &c->e->plan.steps[i];
    const bool is_good = status == 0 && sync_id_equal(&read->id, &step->to.id);

    if (step->to.what == SYNC_IS_FILE)
        end_file(c, i, is_good);
    else if (is_good)
        make_link(c, i);
    if (!is_good)
        sync_engine_fault(c->e, i, sync_other(c->side), status != 0 ? status : SYNC_CHANGED);
}

static int read_batch(struct carrying *c, struct err *err)
{
    static const struct sync_side_cbs cbs = {
        .on_reading = on_reading, .on_piece = on_piece, .on_read = on_read};
    const enum sync_side from = sync_other(c->side);
    int r = 0;

    if (c->n > 0 && c->fault == 0)
        r = c->e->o.ops[from]->read(c->e->o.sides[from], c->wants, c->n, &cbs, c, err);
    c->n = 0;
    return r;
}

/* Pass on what a descriptor gives. Returns 0 or a fault of reading. */
static int give_all(struct carrying *c, int fd)
{
    for (;;) {
        ssize_t n = read(fd, c->piece, sizeof(c->piece));

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? -errno : 0;
        give_piece(c, c->piece, (size_t)n);
    }
}

/* The vault has it: it need not come from the guest again. Returns false if it did not work out. */
static bool take_from_vault(struct carrying *c, size_t i)
{
    struct sync_engine *e = c->e;
    const struct sync_step *step = &e->plan.steps[i];
    struct stat st;
    int fd;

    if (c->side != SYNC_STORE || step->to.what != SYNC_IS_FILE ||
        !e->o.vault_ops->has(e->o.vault, &step->to.id))
        return false;
    fd = e->o.vault_ops->open(e->o.vault, &step->to.id, NULL);
    if (fd < 0)
        return false;
    if (fstat(fd, &st) != 0) {
        close(fd);
        return false;
    }
    if (begin_file(c, i, st.st_size)) {
        bool is_good = give_all(c, fd) == 0;

        end_file(c, i, is_good);
        if (!is_good)
            sync_engine_fault(e, i, SYNC_STORE, -EIO);
    }
    close(fd);
    return true;
}

static int bring_contents(struct carrying *c, struct err *err)
{
    struct sync_engine *e = c->e;
    const enum sync_side from = sync_other(c->side);
    int r = 0;

    for (size_t i = 0; i < e->plan.n_steps && r == 0 && c->fault == 0; i++) {
        const struct sync_step *step = &e->plan.steps[i];

        if (!step->change[c->side] || e->progress[i].is_blocked || !sync_is_content(&step->to) ||
            is_only_bit(step, c->side) || take_from_vault(c, i))
            continue;
        c->wants[c->n] =
            (struct sync_want){.path = step->path, .len = step->len, .sig = step->sig[from]};
        c->steps[c->n++] = i;
        if (c->n == BATCH)
            r = read_batch(c, err);
    }
    return r == 0 ? read_batch(c, err) : r;
}

int sync_engine_apply(struct sync_engine *e, enum sync_side side, struct err *err)
{
    struct carrying *c;
    int r, end;

    if (e->plan.n_changes[side] == 0)
        return 0;
    c = calloc(1, sizeof(*c));
    if (c == NULL)
        return tr_err_set(err, -ENOMEM, "out of memory");
    c->e = e;
    c->side = side;
    c->ops = e->o.ops[side];
    c->err = err;
    r = c->ops->apply_start(e->o.sides[side], &apply_cbs, c, err);
    if (r == 0) {
        remove_what_goes(c);
        make_folders(c);
        r = bring_contents(c, err);
        end = c->ops->apply_end(e->o.sides[side], r == 0 && c->fault == 0 ? err : NULL);
        r = r != 0 ? r : c->fault != 0 ? c->fault : end;
    }
    drop_file(c);
    free(c->refs);
    free(c);
    return r;
}
