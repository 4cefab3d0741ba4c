/* SPDX-License-Identifier: MIT */
/* One tree object holds all: under the hash of each folder's path a tree of `path` and `size`
 * (blobs) and `data` (a tree of pieces, named by their numbers). The checkpoint's commit names it
 * in a line of its message; a line of commits at SYNC_GITS_REF keeps it reachable. */
#include "sync/store_gits.h"

#include <errno.h>
#include <git2/sys/commit.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "sync/store_internal.h"

/* A piece ends where the last bytes' hash has no bit of MASK: each 64 KiB or so. */
#define MASK      UINT64_C(0xffff000000000000)
#define PIECE_MIN (16 * 1024)
#define PIECE_MAX (256 * 1024)

struct sync_git_writer {
    struct sync_store *store;
    git_treebuilder *data;
    uint64_t gear[256], hash;
    uint8_t *piece;
    size_t len;
    uint64_t n;
    int64_t bytes, max; /* max 0: no limit */
};

struct sync_git_reader {
    struct sync_store *store;
    git_tree *data;
    git_blob *piece;
    size_t at;
};

static void name_of(const char *path, size_t len, char out[SYNC_ID_SIZE])
{
    git_oid id;

    (void)git_odb_hash(&id, path, len, GIT_OBJECT_BLOB); /* cannot fail for bytes in memory */
    git_oid_tostr(out, SYNC_ID_SIZE, &id);
}

/* ---- the tree of all ---- */

/* *out NULL: there are none. */
static int open_all(struct sync_store *store, git_tree **out, struct err *err)
{
    *out = NULL;
    if (git_oid_is_zero(&store->gits))
        return 0;
    return git_tree_lookup(out, store->repo, &store->gits) == 0
               ? 0
               : sync_fail_git(err, -EIO, "the kept .git folders cannot be read");
}

/* Put an entry in, or (id NULL) take it out. */
static int set_entry(struct sync_store *store, const char *name, const git_oid *id, struct err *err)
{
    git_treebuilder *builder = NULL;
    git_tree *all;
    git_oid now;
    int r = open_all(store, &all, err);

    if (r != 0)
        return r;
    errno = 0;
    if (git_treebuilder_new(&builder, store->repo, all) != 0 ||
        (id != NULL && git_treebuilder_insert(NULL, builder, name, id, GIT_FILEMODE_TREE) != 0) ||
        (id == NULL && git_treebuilder_get(builder, name) != NULL &&
         git_treebuilder_remove(builder, name) != 0) ||
        (git_treebuilder_entrycount(builder) > 0 && git_treebuilder_write(&now, builder) != 0))
        r = sync_fail_git(err, -EIO, "a .git folder cannot be kept");
    else if (git_treebuilder_entrycount(builder) > 0)
        store->gits = now;
    else
        memset(&store->gits, 0, sizeof(store->gits));
    git_treebuilder_free(builder);
    git_tree_free(all);
    return r;
}

static git_blob *blob_of(git_tree *tree, const char *name)
{
    const git_tree_entry *entry = git_tree_entry_byname(tree, name);
    git_blob *blob = NULL;

    if (entry != NULL && git_blob_lookup(&blob, git_tree_owner(tree), git_tree_entry_id(entry)))
        blob = NULL;
    return blob;
}

/* One entry to its owner. */
static int tell(struct sync_store *store, const git_oid *id, sync_git_cb cb, void *arg,
                struct err *err)
{
    git_blob *path = NULL, *size = NULL;
    struct sync_git git = {0};
    git_tree *tree = NULL;
    char *text = NULL;
    int r = 0;

    if (git_tree_lookup(&tree, store->repo, id) == 0) {
        path = blob_of(tree, "path");
        size = blob_of(tree, "size");
    }
    if (path == NULL || size == NULL) {
        r = sync_fail_git(err, -EIO, "a kept .git folder cannot be read");
    } else {
        git.len = (size_t)git_blob_rawsize(path);
        text = strndup(git_blob_rawcontent(path), git.len);
        r = text == NULL ? tr_err_set(err, -ENOMEM, "out of memory") : 0;
    }
    if (r == 0) {
        char number[24];

        snprintf(number, sizeof(number), "%.*s", (int)git_blob_rawsize(size),
                 (const char *)git_blob_rawcontent(size));
        git.path = text;
        git.bytes = strtoll(number, NULL, 10);
        git_oid_tostr(git.id, sizeof(git.id), id);
        r = cb(&git, arg);
    }
    free(text);
    git_blob_free(path);
    git_blob_free(size);
    git_tree_free(tree);
    return r;
}

static int tell_all(struct sync_store *store, const git_tree *all, sync_git_cb cb, void *arg,
                    struct err *err)
{
    int r = 0;

    for (size_t i = 0; all != NULL && i < git_tree_entrycount(all) && r == 0; i++)
        r = tell(store, git_tree_entry_id(git_tree_entry_byindex(all, i)), cb, arg, err);
    return r;
}

int sync_store_gits(struct sync_store *store, sync_git_cb cb, void *arg, struct err *err)
{
    git_tree *all;
    int r = open_all(store, &all, err);

    if (r == 0)
        r = tell_all(store, all, cb, arg, err);
    git_tree_free(all);
    return r;
}

int sync_store_git_drop(struct sync_store *store, const char *path, size_t len, struct err *err)
{
    char name[SYNC_ID_SIZE];

    name_of(path, len, name);
    return set_entry(store, name, NULL, err);
}

/* ---- checkpoints ---- */

int sync_gits_keep(struct sync_store *store, struct err *err)
{
    git_signature *who = NULL;
    git_commit *last = NULL;
    git_oid parent, id;
    const git_oid *parents[1] = {&parent};
    git_reference *ref = NULL;
    int n, r = 0;

    if (git_oid_is_zero(&store->gits))
        return 0;
    n = git_reference_name_to_id(&parent, store->repo, SYNC_GITS_REF) == 0;
    if (n > 0 && git_commit_lookup(&last, store->repo, &parent) == 0 &&
        git_oid_equal(git_commit_tree_id(last), &store->gits)) {
        git_commit_free(last);
        return 0;
    }
    git_commit_free(last);
    errno = 0;
    if (git_signature_now(&who, "Transom", "session@transom.invalid") != 0 ||
        git_commit_create_from_ids(&id, store->repo, NULL, who, who, NULL, "Git folders\n",
                                   &store->gits, (size_t)n, parents) != 0 ||
        git_reference_create(&ref, store->repo, SYNC_GITS_REF, &id, 1, NULL) != 0)
        r = sync_fail_git(err, -EIO, "the .git folders cannot be kept");
    git_reference_free(ref);
    git_signature_free(who);
    return r;
}

/* Going back. */
struct back {
    struct sync_store *store;
    const char *path; /* the part that goes back */
    size_t len;
    struct err *err;
    bool is_then; /* these come from the checkpoint */
    bool changed;
};

static bool concerns(const struct back *b, const struct sync_git *git)
{
    return b->len == 0 || (git->len >= b->len && strncmp(git->path, b->path, b->len) == 0 &&
                           (git->path[b->len] == '/' || git->path[b->len] == '\0'));
}

static int go_back(const struct sync_git *git, void *arg)
{
    struct back *b = arg;
    char name[SYNC_ID_SIZE];
    git_oid before = b->store->gits, id;
    int r;

    if (!concerns(b, git))
        return 0;
    name_of(git->path, git->len, name);
    if (git_oid_fromstr(&id, git->id) != 0)
        return -EIO;
    r = set_entry(b->store, name, b->is_then ? &id : NULL, b->err);
    b->changed = b->changed || !git_oid_equal(&before, &b->store->gits);
    return r;
}

int sync_gits_restore(struct sync_store *store, const git_oid *then, const char *path, size_t len,
                      struct err *err)
{
    struct back b = {.store = store, .path = path, .len = len, .err = err};
    git_oid before = store->gits;
    git_tree *all = NULL;
    int r = sync_store_gits(store, go_back, &b, err);

    if (r == 0 && !git_oid_is_zero(then) && git_tree_lookup(&all, store->repo, then) != 0)
        r = sync_fail_git(err, -EIO, "the kept .git folders cannot be read");
    b.is_then = true;
    if (r == 0)
        r = tell_all(store, all, go_back, &b, err);
    git_tree_free(all);
    if (r != 0)
        store->gits = before;
    return r != 0 ? r : !git_oid_equal(&before, &store->gits);
}

/* ---- writing ---- */

int sync_git_writer_new(struct sync_store *store, struct sync_git_writer **out, struct err *err)
{
    struct sync_git_writer *w = calloc(1, sizeof(*w));
    uint64_t x = 0;

    if (w == NULL || (w->piece = malloc(PIECE_MAX)) == NULL) {
        free(w);
        return tr_err_set(err, -ENOMEM, "out of memory");
    }
    for (size_t i = 0; i < 256; i++) { /* splitmix64: any numbers do, if they stay the same */
        uint64_t z = (x += UINT64_C(0x9e3779b97f4a7c15));

        z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
        z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
        w->gear[i] = z ^ (z >> 31);
    }
    w->store = store;
    if (git_treebuilder_new(&w->data, store->repo, NULL) != 0) {
        sync_git_writer_free(w);
        return sync_fail_git(err, -EIO, "a .git folder cannot be kept");
    }
    *out = w;
    return 0;
}

void sync_git_writer_free(struct sync_git_writer *w)
{
    if (w == NULL)
        return;
    git_treebuilder_free(w->data);
    free(w->piece);
    free(w);
}

static int end_piece(struct sync_git_writer *w, struct err *err)
{
    char name[24];
    git_oid id;
    int r = 0;

    errno = 0;
    if (git_odb_hash(&id, w->piece, w->len, GIT_OBJECT_BLOB) != 0)
        return sync_fail_git(err, -EIO, "a .git folder cannot be kept");
    if (git_odb_exists(w->store->odb, &id) != 1) {
        r = sync_store_room(w->store, (int64_t)w->len, err);
        if (r == 0 && git_odb_write(&id, w->store->odb, w->piece, w->len, GIT_OBJECT_BLOB) != 0)
            r = sync_fail_git(err, -EIO, "a .git folder cannot be kept");
        if (r == 0) {
            w->store->usage.history += (int64_t)w->len;
            w->store->n_loose++;
        }
    }
    snprintf(name, sizeof(name), "%010llu", (unsigned long long)w->n++);
    if (r == 0 && git_treebuilder_insert(NULL, w->data, name, &id, GIT_FILEMODE_BLOB) != 0)
        r = sync_fail_git(err, -EIO, "a .git folder cannot be kept");
    w->len = 0;
    w->hash = 0;
    return r;
}

void sync_git_writer_limit(struct sync_git_writer *w, int64_t max)
{
    w->max = max;
}

int sync_git_writer_add(struct sync_git_writer *w, const void *bytes, size_t len, struct err *err)
{
    const uint8_t *at = bytes;
    int r = 0;

    w->bytes += (int64_t)len;
    if (w->max > 0 && w->bytes > w->max)
        return tr_err_set(err, -EFBIG, "a .git folder is larger than the limit");
    for (size_t i = 0; i < len && r == 0; i++) {
        w->piece[w->len++] = at[i];
        w->hash = (w->hash << 1) + w->gear[at[i]];
        if (w->len == PIECE_MAX || (w->len >= PIECE_MIN && (w->hash & MASK) == 0))
            r = end_piece(w, err);
    }
    return r;
}

int sync_git_writer_end(struct sync_git_writer *w, const char *path, size_t len, struct err *err)
{
    git_treebuilder *entry = NULL;
    git_oid data, where, size, id;
    char name[SYNC_ID_SIZE], text[24];
    int n = snprintf(text, sizeof(text), "%lld", (long long)w->bytes);
    int r = w->len > 0 ? end_piece(w, err) : 0;

    if (r != 0)
        return r;
    errno = 0;
    if (git_treebuilder_write(&data, w->data) != 0 ||
        git_blob_create_from_buffer(&where, w->store->repo, path, len) != 0 ||
        git_blob_create_from_buffer(&size, w->store->repo, text, (size_t)n) != 0 ||
        git_treebuilder_new(&entry, w->store->repo, NULL) != 0 ||
        git_treebuilder_insert(NULL, entry, "data", &data, GIT_FILEMODE_TREE) != 0 ||
        git_treebuilder_insert(NULL, entry, "path", &where, GIT_FILEMODE_BLOB) != 0 ||
        git_treebuilder_insert(NULL, entry, "size", &size, GIT_FILEMODE_BLOB) != 0 ||
        git_treebuilder_write(&id, entry) != 0)
        r = sync_fail_git(err, -EIO, "a .git folder cannot be kept");
    git_treebuilder_free(entry);
    name_of(path, len, name);
    return r == 0 ? set_entry(w->store, name, &id, err) : r;
}

/* ---- reading ---- */

int sync_git_reader_open(struct sync_store *store, const char *path, size_t len,
                         struct sync_git_reader **out, struct err *err)
{
    struct sync_git_reader *r;
    git_tree_entry *entry = NULL;
    char name[SYNC_ID_SIZE], data[SYNC_ID_SIZE + 8];
    git_tree *all = NULL;
    int code = open_all(store, &all, err);

    if (code != 0)
        return code;
    r = calloc(1, sizeof(*r));
    if (r == NULL) {
        git_tree_free(all);
        return tr_err_set(err, -ENOMEM, "out of memory");
    }
    r->store = store;
    name_of(path, len, name);
    snprintf(data, sizeof(data), "%s/data", name);
    if (all == NULL || git_tree_entry_bypath(&entry, all, data) != 0)
        code = tr_err_set(err, -ENOENT, "no .git folder is kept of this folder");
    else if (git_tree_lookup(&r->data, store->repo, git_tree_entry_id(entry)) != 0)
        code = sync_fail_git(err, -EIO, "a kept .git folder cannot be read");
    git_tree_entry_free(entry);
    git_tree_free(all);
    if (code != 0)
        sync_git_reader_close(r);
    else
        *out = r;
    return code;
}

int64_t sync_git_reader_next(struct sync_git_reader *r, const void **bytes, struct err *err)
{
    git_blob_free(r->piece);
    r->piece = NULL;
    if (r->at == git_tree_entrycount(r->data))
        return 0;
    if (git_blob_lookup(&r->piece, r->store->repo,
                        git_tree_entry_id(git_tree_entry_byindex(r->data, r->at))) != 0)
        return sync_fail_git(err, -EIO, "a kept .git folder cannot be read");
    r->at++;
    *bytes = git_blob_rawcontent(r->piece);
    return (int64_t)git_blob_rawsize(r->piece);
}

void sync_git_reader_close(struct sync_git_reader *r)
{
    if (r == NULL)
        return;
    git_blob_free(r->piece);
    git_tree_free(r->data);
    free(r);
}
