/* SPDX-License-Identifier: MIT */
/* What changed between two states of the tree, as records, as a patch and as a ZIP archive: the
 * last two piece by piece, so that neither is ever whole in memory. Both states are Git trees, so
 * that what is sent is of one moment, whatever happens to the files meanwhile. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "sync/store_internal.h"
#include "sync/zip.h"

#define PIECE_MAX (256 * 1024)
#define WHOLE_MAX (1024 * 1024)     /* bytes of a content that is read into memory */
#define PATCH_MAX (8 * 1024 * 1024) /* bytes of a content that is compared line by line */

struct sync_changes {
    struct sync_store *store;
    git_diff *diff;
    size_t n, at;    /* deltas; at: the next one of the pieces */
    size_t *changes; /* their deltas: of a file that became a link only the second */
    size_t n_changes;
    struct sync_zip *zip;
    bool is_finished;
    /* the content that goes into the archive at the moment */
    git_odb_stream *stream;
    bool is_open;
};

const char *sync_change_name(enum sync_change_kind kind)
{
    return kind == SYNC_ADDED ? "added" : kind == SYNC_DELETED ? "deleted" : "modified";
}

static int tree_of(struct sync_store *store, const char *name, git_tree **out, struct err *err)
{
    git_commit *commit;
    git_oid id;
    int r;

    if (name == NULL) {
        r = sync_tree_write(store, &id, NULL, err);
        if (r == 0 && git_tree_lookup(out, store->repo, &id) != 0)
            r = sync_fail_git(err, -EIO, "the files cannot be compared");
        return r;
    }
    r = sync_find_commit(store, name, &commit, err);
    if (r != 0)
        return r;
    if (git_commit_tree(out, commit) != 0)
        r = sync_fail_git(err, -EIO, "the files cannot be compared");
    git_commit_free(commit);
    return r;
}

/* Is delta i a file's new kind, whose old one delta i - 1 takes away? */
static bool is_second_half(const struct sync_changes *c, size_t i)
{
    const git_diff_delta *now = git_diff_get_delta(c->diff, i);
    const git_diff_delta *old = i > 0 ? git_diff_get_delta(c->diff, i - 1) : NULL;

    return old != NULL && now->status == GIT_DELTA_ADDED && old->status == GIT_DELTA_DELETED &&
           strcmp(now->new_file.path, old->old_file.path) == 0;
}

static int count_changes(struct sync_changes *c)
{
    c->n = git_diff_num_deltas(c->diff);
    c->changes = calloc(c->n + 1, sizeof(*c->changes));
    if (c->changes == NULL)
        return -ENOMEM;
    for (size_t i = 0; i < c->n; i++) {
        if (is_second_half(c, i))
            c->n_changes--;
        c->changes[c->n_changes++] = i;
    }
    return 0;
}

int sync_changes_open(struct sync_store *store, const char *from, const char *to,
                      struct sync_changes **out, struct err *err)
{
    git_diff_options options = {.version = GIT_DIFF_OPTIONS_VERSION,
                                .ignore_submodules = GIT_SUBMODULE_IGNORE_ALL,
                                .context_lines = 3};
    struct sync_changes *c = calloc(1, sizeof(*c));
    git_tree *old = NULL, *now = NULL;
    int r;

    if (c == NULL)
        return tr_err_set(err, -ENOMEM, "out of memory");
    options.flags = GIT_DIFF_SHOW_BINARY;
    options.id_abbrev = GIT_OID_HEXSZ;
    options.max_size = PATCH_MAX;
    options.old_prefix = "a";
    options.new_prefix = "b";
    c->store = store;
    r = tree_of(store, from, &old, err);
    if (r == 0)
        r = tree_of(store, to, &now, err);
    if (r == 0 && git_diff_tree_to_tree(&c->diff, store->repo, old, now, &options) != 0)
        r = sync_fail_git(err, -EIO, "the files cannot be compared");
    git_tree_free(old);
    git_tree_free(now);
    if (r == 0 && count_changes(c) != 0)
        r = tr_err_set(err, -ENOMEM, "out of memory");
    if (r != 0) {
        sync_changes_close(c);
        return r;
    }
    *out = c;
    return 0;
}

void sync_changes_close(struct sync_changes *c)
{
    if (c == NULL)
        return;
    git_odb_stream_free(c->stream);
    sync_zip_free(c->zip);
    git_diff_free(c->diff);
    free(c->changes);
    free(c);
}

size_t sync_changes_count(const struct sync_changes *c)
{
    return c->n_changes;
}

static enum sync_type type_of(unsigned mode)
{
    return mode == GIT_FILEMODE_LINK ? SYNC_TYPE_LINK : SYNC_TYPE_FILE;
}

static int64_t size_of(const struct sync_changes *c, const git_oid *id)
{
    git_object_t type;
    size_t size = 0;

    if (git_oid_is_zero(id) || git_odb_read_header(&size, &type, c->store->odb, id) != 0)
        return 0;
    return (int64_t)size;
}

void sync_changes_get(struct sync_changes *c, size_t i, struct sync_change *out)
{
    size_t at = c->changes[i];
    bool is_new_kind = is_second_half(c, at);
    const git_diff_delta *d = git_diff_get_delta(c->diff, at);
    const git_diff_file *old =
        is_new_kind ? &git_diff_get_delta(c->diff, at - 1)->old_file : &d->old_file;

    out->kind = d->status == GIT_DELTA_ADDED && !is_new_kind ? SYNC_ADDED
                : d->status == GIT_DELTA_DELETED             ? SYNC_DELETED
                                                             : SYNC_MODIFIED;
    out->path = out->kind == SYNC_DELETED ? d->old_file.path : d->new_file.path;
    out->type = type_of(d->new_file.mode);
    out->old_type = type_of(old->mode);
    out->is_exec = d->new_file.mode == GIT_FILEMODE_BLOB_EXECUTABLE;
    out->old_exec = old->mode == GIT_FILEMODE_BLOB_EXECUTABLE;
    out->size = out->kind == SYNC_DELETED ? 0 : size_of(c, &d->new_file.id);
    memcpy(out->id, d->new_file.id.id, SYNC_ID_BYTES);
    memcpy(out->old_id, old->id.id, SYNC_ID_BYTES);
}

/* ---- patch ---- */

static int add_text(struct sync_buf *buf, const char *text, struct err *err)
{
    return sync_buf_add(buf, text, strlen(text)) == 0 ? 0
                                                      : tr_err_set(err, -ENOMEM, "out of memory");
}

/* A content that is too large to be compared: its names alone. */
static int add_large(const git_diff_delta *d, struct sync_buf *buf, struct err *err)
{
    char old_id[SYNC_ID_SIZE], new_id[SYNC_ID_SIZE], old[SYNC_SHOWN_SIZE], now[SYNC_SHOWN_SIZE];
    char *text;
    int r;

    git_oid_tostr(old_id, sizeof(old_id), &d->old_file.id);
    git_oid_tostr(new_id, sizeof(new_id), &d->new_file.id);
    sync_show(d->old_file.path, strlen(d->old_file.path), old);
    sync_show(d->new_file.path, strlen(d->new_file.path), now);
    r = asprintf(&text, "diff --git a/%s b/%s\nindex %s..%s\nBinary files a/%s and b/%s differ\n",
                 old, now, old_id, new_id, old, now);
    if (r < 0)
        return tr_err_set(err, -ENOMEM, "out of memory");
    r = add_text(buf, text, err);
    free(text);
    return r;
}

static int add_patch(struct sync_changes *c, size_t i, struct sync_buf *buf, struct err *err)
{
    const git_diff_delta *d = git_diff_get_delta(c->diff, i);
    git_patch *patch = NULL;
    git_buf text = {0};
    int r = 0;

    if (size_of(c, &d->old_file.id) > PATCH_MAX || size_of(c, &d->new_file.id) > PATCH_MAX)
        return add_large(d, buf, err);
    if (git_patch_from_diff(&patch, c->diff, i) != 0 || git_patch_to_buf(&text, patch) != 0)
        r = sync_fail_git(err, -EIO, "the files cannot be compared");
    else if (sync_buf_add(buf, text.ptr, text.size) != 0)
        r = tr_err_set(err, -ENOMEM, "out of memory");
    git_buf_dispose(&text);
    git_patch_free(patch);
    return r;
}

int sync_changes_patch(struct sync_changes *c, struct sync_buf *buf, struct err *err)
{
    size_t start = buf->len;

    while (c->at < c->n && buf->len - start < PIECE_MAX) {
        int r = add_patch(c, c->at, buf, err);

        if (r != 0)
            return r;
        c->at++;
    }
    return c->at < c->n;
}

/* ---- archive ---- */

static int zip_whole(struct sync_changes *c, const git_oid *id, struct sync_buf *buf,
                     struct err *err)
{
    git_odb_object *object = NULL;
    int r = git_odb_read(&object, c->store->odb, id);

    if (r != 0)
        return sync_fail_git(err, r, "a kept content");
    r = sync_zip_data(c->zip, buf, git_odb_object_data(object), git_odb_object_size(object));
    git_odb_object_free(object);
    return r;
}

/* Begin the entry of a file that was added or modified. */
static int zip_open(struct sync_changes *c, const git_diff_delta *d, struct sync_buf *buf,
                    struct err *err)
{
    int64_t size = size_of(c, &d->new_file.id);
    uint32_t mode = d->new_file.mode;
    git_object_t type;
    size_t len;
    int r;

    if (mode != GIT_FILEMODE_LINK)
        mode = 0100000 | (mode == GIT_FILEMODE_BLOB_EXECUTABLE ? 0755 : 0644);
    else
        mode = 0120777;
    r = sync_zip_begin(c->zip, buf, d->new_file.path, mode, (uint64_t)size);
    if (r != 0)
        return r;
    c->is_open = true;
    if (size > WHOLE_MAX &&
        git_odb_open_rstream(&c->stream, &len, &type, c->store->odb, &d->new_file.id) == 0)
        return 0;
    return zip_whole(c, &d->new_file.id, buf, err);
}

/* A piece of the open entry, or its end. */
static int zip_step(struct sync_changes *c, struct sync_buf *buf, struct err *err)
{
    char *piece;
    int n, r;

    if (c->stream != NULL) {
        piece = malloc(SYNC_PIECE);
        if (piece == NULL)
            return -ENOMEM;
        n = git_odb_stream_read(c->stream, piece, SYNC_PIECE);
        r = n < 0   ? sync_fail_git(err, n, "a kept content")
            : n > 0 ? sync_zip_data(c->zip, buf, piece, (size_t)n)
                    : 0;
        free(piece);
        if (n > 0 || r != 0)
            return r;
        git_odb_stream_free(c->stream);
        c->stream = NULL;
    }
    c->is_open = false;
    c->at++;
    return sync_zip_end(c->zip, buf);
}

int sync_changes_zip(struct sync_changes *c, struct sync_buf *buf, struct err *err)
{
    size_t start = buf->len, n_read = 0;
    int r = 0;

    if (c->zip == NULL)
        r = sync_zip_new(time(NULL), &c->zip);
    /* What deflates to nothing takes time, too: n_read bounds that. */
    while (r == 0 && !c->is_finished && buf->len - start < PIECE_MAX && n_read++ < 256) {
        const git_diff_delta *d = c->at < c->n ? git_diff_get_delta(c->diff, c->at) : NULL;

        if (d == NULL) {
            r = sync_zip_finish(c->zip, buf);
            c->is_finished = true;
        } else if (d->status == GIT_DELTA_DELETED) {
            c->at++;
        } else if (c->is_open) {
            r = zip_step(c, buf, err);
        } else {
            r = zip_open(c, d, buf, err);
        }
    }
    if (r != 0)
        return err != NULL && err->code != 0 ? r : tr_err_set(err, r, "%s", strerror(-r));
    return !c->is_finished;
}
