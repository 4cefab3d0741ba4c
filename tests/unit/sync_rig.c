/* SPDX-License-Identifier: MIT */
#include "sync_rig.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include "sync/scan.h"

/* ---- the vault ---- */

struct content {
    struct sync_id id;
    uint8_t *bytes;
    size_t len;
    char path[64]; /* that it was kept for; "" if it was not */
};

static struct content *contents;
static size_t n_contents, size_contents, taken;
static uint8_t *taking;
static size_t taking_size;

/* Whatever the store or its vault was given. */
static uint8_t *written;
static size_t n_written, size_written;

static void note_written(const uint8_t *bytes, size_t len)
{
    if (n_written + len > size_written) {
        size_written = 2 * (n_written + len);
        written = realloc(written, size_written);
        ck_assert_ptr_nonnull(written);
    }
    memcpy(written + n_written, bytes, len);
    n_written += len;
}

bool rig_was_written(const char *bytes, size_t len)
{
    return n_written > 0 && memmem(written, n_written, bytes, len) != NULL;
}

static struct content *find_content(const struct sync_id *id)
{
    for (size_t i = 0; i < n_contents; i++)
        if (sync_id_equal(&contents[i].id, id))
            return &contents[i];
    return NULL;
}

static bool vault_has(void *vault, const struct sync_id *id)
{
    (void)vault;
    return find_content(id) != NULL;
}

static int vault_open(void *vault, const struct sync_id *id, struct err *err)
{
    const struct content *c = find_content(id);
    int fd = memfd_create("content", MFD_CLOEXEC);

    (void)vault;
    (void)err;
    ck_assert_ptr_nonnull(c);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(write(fd, c->bytes, c->len), (ssize_t)c->len);
    ck_assert_int_eq(lseek(fd, 0, SEEK_SET), 0);
    return fd;
}

static int put_start(void *vault, int64_t size, struct err *err)
{
    struct rig *rig = vault;

    (void)err;
    if (rig->vault_fault != 0)
        return rig->vault_fault;
    ck_assert_ptr_null(taking);
    taking_size = (size_t)size;
    taken = 0;
    taking = malloc(taking_size + 1);
    ck_assert_ptr_nonnull(taking);
    return 0;
}

static int put_piece(void *vault, const uint8_t *bytes, size_t len, struct err *err)
{
    (void)vault;
    (void)err;
    ck_assert_uint_le(taken + len, taking_size);
    note_written(bytes, len);
    memcpy(taking + taken, bytes, len);
    taken += len;
    return 0;
}

static int put_end(void *vault, const struct sync_id *id, struct err *err)
{
    struct sync_id got;

    (void)vault;
    (void)err;
    ck_assert_ptr_nonnull(taking);
    if (id == NULL) {
        free(taking);
        taking = NULL;
        return 0;
    }
    sync_id_of(taking, taken, &got);
    ck_assert(sync_id_equal(&got, id));
    if (n_contents == size_contents) {
        size_contents = size_contents > 0 ? size_contents * 2 : 64;
        contents = realloc(contents, size_contents * sizeof(*contents));
        ck_assert_ptr_nonnull(contents);
    }
    contents[n_contents++] = (struct content){.id = *id, .bytes = taking, .len = taken};
    taking = NULL;
    return 0;
}

static int keep(void *vault, const struct sync_kept *kept, struct err *err)
{
    struct content *c = find_content(&kept->value.id);

    (void)vault;
    (void)err;
    ck_assert_ptr_nonnull(c);
    snprintf(c->path, sizeof(c->path), "%s", kept->path);
    return 0;
}

static int settle(void *vault, struct err *err)
{
    (void)vault;
    (void)err;
    return 0;
}

static int room(void *vault, int64_t more, struct err *err)
{
    const struct rig *rig = vault;

    (void)more;
    (void)err;
    return rig->room;
}

static const struct sync_vault_ops vault_ops = {vault_has, vault_open, put_start, put_piece,
                                                put_end,   keep,       settle,    room};

bool rig_has_kept(struct rig *rig, const char *path, const char *text)
{
    struct sync_id id;
    const struct content *c;

    (void)rig;
    sync_id_of(text, strlen(text), &id);
    c = find_content(&id);
    return c != NULL && c->path[0] != '\0' && (path == NULL || strcmp(c->path, path) == 0);
}

/* ---- sides with faults ---- */

static struct rig *the_rig;

static void moment(void)
{
    if (the_rig->on_moment != NULL)
        the_rig->on_moment(the_rig);
}

static int list(void *ctx, const struct sync_name *dirs, size_t n, const struct sync_side_cbs *cbs,
                void *arg, struct err *err)
{
    struct rig_side *side = ctx;
    int r = side->fail_call;

    side->n_calls++;
    if (r == 0)
        r = sync_side_tree_ops.list(ctx, dirs, n, cbs, arg, err);
    moment();
    return r;
}

static const struct sync_side_cbs *hash_cbs;
static const struct rig_side *hash_side;

static void on_hashed(uint32_t index, int status, const struct sync_tree_read *read,
                      const uint8_t *head, size_t head_len, void *arg)
{
    struct sync_tree_read with = *read;

    with.writer |= hash_side->is_writer;
    with.sig.fresh |= hash_side->is_fresh;
    hash_cbs->on_hashed(index, status, &with, head, head_len, arg);
}

static int hash(void *ctx, const struct sync_want *wants, size_t n, const struct sync_side_cbs *cbs,
                void *arg, struct err *err)
{
    static const struct sync_side_cbs with_more = {.on_hashed = on_hashed};
    struct rig_side *side = ctx;
    int r = side->fail_call;

    side->n_calls++;
    moment();
    hash_cbs = cbs;
    hash_side = side;
    if (r == 0)
        r = sync_side_tree_ops.hash(ctx, wants, n, &with_more, arg, err);
    moment();
    return r;
}

static int read_files(void *ctx, const struct sync_want *wants, size_t n,
                      const struct sync_side_cbs *cbs, void *arg, struct err *err)
{
    struct rig_side *side = ctx;
    int r = side->fail_call;

    side->n_calls++;
    moment();
    if (r == 0)
        r = sync_side_tree_ops.read(ctx, wants, n, cbs, arg, err);
    return r;
}

static int apply_start(void *ctx, const struct sync_side_cbs *cbs, void *arg, struct err *err)
{
    struct rig_side *side = ctx;

    side->n_calls++;
    moment();
    return side->fail_call != 0 ? side->fail_call
                                : sync_side_tree_ops.apply_start(ctx, cbs, arg, err);
}

static int apply_op(void *ctx, const struct sync_op *op, int64_t size, struct err *err)
{
    struct rig_side *side = ctx;

    moment();
    if (op->kind != SYNC_OP_FILE && side->fail_path[0] != '\0' &&
        strcmp(op->path, side->fail_path) == 0) {
        static const struct sync_sig none;

        side->n_failed++;
        side->tree.cbs->on_applied(side->tree.n_ops++, side->fail_status, &none, side->tree.arg);
        return 0;
    }
    return sync_side_tree_ops.apply_op(ctx, op, size, err);
}

static int apply_commit(void *ctx, const struct sync_id *id, struct err *err)
{
    struct rig_side *side = ctx;

    moment();
    if (side->fail_path[0] != '\0' && strcmp(side->tree.op.path, side->fail_path) == 0 &&
        side->tree.status == 0) {
        side->tree.status = side->fail_status;
        side->n_failed++;
    }
    return sync_side_tree_ops.apply_commit(ctx, id, err);
}

static int apply_content(void *ctx, const uint8_t *bytes, size_t len, struct err *err)
{
    if (ctx == &the_rig->sides[SYNC_STORE])
        note_written(bytes, len);
    return sync_side_tree_ops.apply_content(ctx, bytes, len, err);
}

static int apply_end(void *ctx, struct err *err)
{
    return sync_side_tree_ops.apply_end(ctx, err);
}

static void watch(void *ctx, const char *dir, size_t len, bool on)
{
    struct rig_side *side = ctx;

    (void)dir;
    (void)len;
    side->n_watched += on ? 1 : -1;
}

static const struct sync_side_ops side_ops = {
    list, hash, read_files, apply_start, apply_op, apply_content, apply_commit, apply_end, watch};

/* ---- the rig ---- */

static void on_conflict(const struct sync_conflict *c, void *arg)
{
    struct rig *rig = arg;
    struct rig_conflict *mine = &rig->conflicts[rig->n_conflicts % 4096];

    snprintf(mine->path, sizeof(mine->path), "%s", c->path);
    mine->kind = c->kind;
    mine->winner = c->winner;
    rig->n_conflicts++;
}

static void start(struct rig *rig)
{
    static const struct sync_engine_cbs cbs = {.on_conflict = on_conflict};
    struct sync_engine_options options = {.vault_ops = &vault_ops,
                                          .vault = rig,
                                          .instance = rig->instance,
                                          .secrets = &rig->secrets,
                                          .cbs = &cbs,
                                          .arg = rig};
    char path[128];
    struct err why;

    snprintf(path, sizeof(path), "%s/ancestor", rig->dir);
    options.ancestor = path;
    for (int side = 0; side < SYNC_N_SIDES; side++) {
        options.ops[side] = &side_ops;
        options.sides[side] = &rig->sides[side];
    }
    ck_assert_int_eq(sync_engine_new(&options, &rig->engine, &why), 0);
}

void rig_init(struct rig *rig)
{
    memset(rig, 0, sizeof(*rig));
    the_rig = rig;
    strcpy(rig->dir, "/tmp/test-engine-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(rig->dir));
    for (int side = 0; side < SYNC_N_SIDES; side++) {
        struct rig_side *s = &rig->sides[side];
        char stage[128], base[64];

        snprintf(base, sizeof(base), "%s", rig->dir);
        snprintf(s->dir, sizeof(s->dir), "%s/%s", base, side == SYNC_GUEST ? "guest" : "store");
        snprintf(stage, sizeof(stage), "%s/stage-%d", base, side);
        ck_assert_int_eq(mkdir(s->dir, 0700), 0);
        ck_assert_int_eq(mkdir(stage, 0700), 0);
        ck_assert_int_eq(sync_tree_open(&s->tree.tree, s->dir), 0);
        s->tree.tree.stage = open(stage, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        ck_assert_int_ge(s->tree.tree.stage, 0);
    }
    rig->instance = 1;
    rig->now_ms = 1000000;
    sync_secrets_init(&rig->secrets);
    start(rig);
}

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st;
    (void)type;
    (void)ftw;
    return remove(path);
}

void rig_fini(struct rig *rig)
{
    sync_engine_free(rig->engine);
    sync_secrets_fini(&rig->secrets);
    free(written);
    written = NULL;
    n_written = size_written = 0;
    for (int side = 0; side < SYNC_N_SIDES; side++)
        sync_tree_close(&rig->sides[side].tree.tree);
    ck_assert_int_eq(nftw(rig->dir, remove_entry, 16, FTW_DEPTH | FTW_PHYS), 0);
    for (size_t i = 0; i < n_contents; i++)
        free(contents[i].bytes);
    free(contents);
    contents = NULL;
    n_contents = size_contents = 0;
}

void rig_restart(struct rig *rig, bool save)
{
    struct err err;

    if (save)
        ck_assert_int_eq(sync_engine_save(rig->engine, &err), 0);
    sync_engine_free(rig->engine);
    start(rig);
}

int rig_try(struct rig *rig)
{
    struct err err = {0};
    int r;

    rig->now_ms += 2000;
    for (int side = 0; side < SYNC_N_SIDES; side++)
        sync_engine_dirty_all(rig->engine, (enum sync_side)side, false);
    r = sync_engine_round(rig->engine, rig->now_ms, &err);
    return r;
}

void rig_sync(struct rig *rig)
{
    struct sync_engine_status before, after;

    /* Twice without a change: what has just vanished or changed counts only some time later. */
    for (int i = 0, n_quiet = 0; n_quiet < 3; i++) {
        ck_assert_msg(i < 50, "there is no end to it");
        sync_engine_status(rig->engine, &before);
        ck_assert_int_eq(rig_try(rig), 0);
        sync_engine_status(rig->engine, &after);
        n_quiet =
            before.n_changes[0] == after.n_changes[0] && before.n_changes[1] == after.n_changes[1]
                ? n_quiet + 1
                : 0;
        if (n_quiet < 3)
            usleep(25000); /* what is older than SYNC_FRESH_NS needs no second look */
    }
}

/* ---- comparing ---- */

static bool is_but(const char *name, const char *const *but)
{
    for (; but != NULL && but[0][0] != '\0'; but++)
        if (strncmp(name, *but, strlen(*but)) == 0)
            return true;
    return false;
}

static struct rig *walk_rig;
static enum sync_side walk_side;
static const char *const *walk_but;
static const char *walk_what;

static int compare(const char *full, const struct stat *st, int type, struct FTW *ftw)
{
    const char *path = full + strlen(walk_rig->sides[walk_side].dir);
    enum sync_side other = walk_side == SYNC_GUEST ? SYNC_STORE : SYNC_GUEST;
    char mine[4096];

    (void)type;
    (void)ftw;
    if (path[0] == '\0' || is_but(path + 1, walk_but))
        return 0;
    path++;
    snprintf(mine, sizeof(mine), "%s", rig_read(walk_rig, walk_side, path));
    ck_assert_msg(strcmp(mine, rig_read(walk_rig, other, path)) == 0,
                  "%s: %s is not the same: side %d has %.40s, the other %.40s", walk_what, path,
                  walk_side, mine, rig_read(walk_rig, other, path));
    ck_assert_msg(!S_ISREG(st->st_mode) ||
                      rig_is_exec(walk_rig, walk_side, path) == rig_is_exec(walk_rig, other, path),
                  "%s: %s: the bit is not the same", walk_what, path);
    return 0;
}

void rig_check_same(struct rig *rig, const char *const *but, const char *what)
{
    walk_rig = rig;
    walk_but = but;
    walk_what = what;
    for (int side = 0; side < SYNC_N_SIDES; side++) {
        walk_side = (enum sync_side)side;
        ck_assert_int_eq(nftw(rig->sides[side].dir, compare, 16, FTW_PHYS), 0);
    }
}

/* ---- editing ---- */

void rig_path(struct rig *rig, enum sync_side side, const char *path, char out[512])
{
    snprintf(out, 512, "%s/%s", rig->sides[side].dir, path);
}

void rig_write(struct rig *rig, enum sync_side side, const char *path, const char *text)
{
    char full[512];
    FILE *f;

    rig_path(rig, side, path, full);
    f = fopen(full, "w");
    ck_assert_msg(f != NULL, "%s: %s", full, strerror(errno));
    fputs(text, f);
    ck_assert_int_eq(fclose(f), 0);
}

void rig_mkdir(struct rig *rig, enum sync_side side, const char *path)
{
    char full[512];

    rig_path(rig, side, path, full);
    ck_assert_int_eq(mkdir(full, 0755), 0);
}

void rig_link(struct rig *rig, enum sync_side side, const char *path, const char *target)
{
    char full[512];

    rig_path(rig, side, path, full);
    ck_assert_int_eq(symlink(target, full), 0);
}

void rig_chmod(struct rig *rig, enum sync_side side, const char *path, unsigned mode)
{
    char full[512];

    rig_path(rig, side, path, full);
    ck_assert_int_eq(chmod(full, mode), 0);
}

void rig_move(struct rig *rig, enum sync_side side, const char *from, const char *to)
{
    char a[512], b[512];

    rig_path(rig, side, from, a);
    rig_path(rig, side, to, b);
    ck_assert_int_eq(rename(a, b), 0);
}

void rig_remove(struct rig *rig, enum sync_side side, const char *path)
{
    char full[512];

    rig_path(rig, side, path, full);
    ck_assert_int_eq(nftw(full, remove_entry, 16, FTW_DEPTH | FTW_PHYS), 0);
}

const char *rig_read(struct rig *rig, enum sync_side side, const char *path)
{
    static char text[4096];
    char full[512];
    struct stat st;
    ssize_t n;
    int fd;

    rig_path(rig, side, path, full);
    if (lstat(full, &st) != 0)
        return "";
    if (S_ISDIR(st.st_mode))
        return "/";
    if (S_ISLNK(st.st_mode)) {
        memcpy(text, "->", 2);
        n = readlink(full, text + 2, sizeof(text) - 3);
        text[2 + (n > 0 ? n : 0)] = '\0';
        return text;
    }
    if (!S_ISREG(st.st_mode))
        return "special";
    fd = open(full, O_RDONLY | O_CLOEXEC);
    ck_assert_int_ge(fd, 0);
    n = read(fd, text, sizeof(text) - 1);
    close(fd);
    text[n > 0 ? n : 0] = '\0';
    return text;
}

bool rig_is_exec(struct rig *rig, enum sync_side side, const char *path)
{
    char full[512];
    struct stat st;

    rig_path(rig, side, path, full);
    return lstat(full, &st) == 0 && (st.st_mode & S_IXUSR) != 0;
}

/* ---- what the engine says ---- */

struct looking {
    const char *path;
    const char *why;
    int status;
    enum sync_side side;
};

static bool on_left_out(const char *path, size_t len, unsigned why, void *arg)
{
    struct looking *l = arg;

    (void)len;
    if (strcmp(path, l->path) == 0)
        l->why = sync_scan_why_name(why);
    return true;
}

const char *rig_left_out(struct rig *rig, const char *path)
{
    struct looking l = {.path = path, .why = ""};

    sync_engine_left_out(rig->engine, on_left_out, &l);
    return l.why;
}

static bool on_fault(enum sync_side side, const char *path, size_t len, int status, void *arg)
{
    struct looking *l = arg;

    (void)len;
    if (strcmp(path, l->path) == 0) {
        l->status = status;
        l->side = side;
    }
    return true;
}

int rig_fault(struct rig *rig, const char *path, enum sync_side *side)
{
    struct looking l = {.path = path};

    sync_engine_faults(rig->engine, on_fault, &l);
    *side = l.side;
    return l.status;
}

bool rig_has_conflict(struct rig *rig, const char *path, enum sync_conflict_kind kind)
{
    for (size_t i = 0; i < rig->n_conflicts && i < 4096; i++)
        if (strcmp(rig->conflicts[i].path, path) == 0 && rig->conflicts[i].kind == kind)
            return true;
    return false;
}
