/* SPDX-License-Identifier: MIT */
/* Going back: what is there now is kept first, then the differences are made, removals before
 * additions so that a folder can take the place of a file and the other way round. Cut off at any
 * moment, the tree is a mixture, and both states are checkpoints. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "sync/store_internal.h"

struct restore {
    struct sync_store *store;
    const char *path; /* the part that goes back; "" : all */
    size_t len;
    struct err *err;
};

static bool concerns(const struct restore *x, const char *path)
{
    return x->len == 0 ||
           (strncmp(path, x->path, x->len) == 0 && (path[x->len] == '/' || path[x->len] == '\0'));
}

/* Remove a file, and the folders above that are empty then. */
static int take_away(struct restore *x, const char *path)
{
    size_t len = strlen(path);
    int r = sync_store_remove(x->store, path, len, false, NULL, x->err);

    while (r == 0) {
        struct err why = {0};
        size_t base = sync_path_base(path, len);

        if (base == 0)
            break;
        len = base - 1;
        if (sync_store_remove(x->store, path, len, false, NULL, &why) != 0) {
            if (why.code != -ENOTEMPTY)
                r = tr_err_set(x->err, why.code, "%s", why.msg);
            break;
        }
    }
    return r;
}

/* Folders without any file may stand where a file belongs. */
static int clear_way(struct restore *x, const char *path, size_t len)
{
    struct sync_at *at = calloc(1, sizeof(*at));
    struct sync_tally tally = {0};
    int fd = -1, r;

    if (at == NULL)
        return tr_err_set(x->err, -ENOMEM, "out of memory");
    r = sync_at_init(at, path, len, x->err);
    if (r == 0 && (fd = sync_at_open_folder(x->store, at, true, x->err)) < 0)
        r = fd;
    if (r == 0) {
        r = sync_dir_remove_empty(fd, at->base, &tally);
        x->store->usage.n_files -= tally.n;
        if (r != 0)
            (void)sync_fail_path(x->err, r, path, len);
    }
    if (fd >= 0)
        close(fd);
    free(at);
    return r;
}

static int bring_back(struct restore *x, const git_diff_file *file)
{
    struct sync_staged staged;
    size_t len = strlen(file->path);
    struct sync_stat st;
    git_object_t type;
    size_t size = 0;
    bool created;
    char *target;
    int r = git_odb_read_header(&size, &type, x->store->odb, &file->id);

    if (r != 0)
        return sync_fail_git(x->err, r, "a kept content");
    r = clear_way(x, file->path, len);
    if (r == 0)
        r = sync_store_room(x->store, (int64_t)size, x->err);
    if (r == 0)
        r = sync_store_stage(x->store, &staged, x->err);
    if (r != 0)
        return r;
    r = sync_odb_write_to(x->store->odb, &file->id, staged.fd, x->err);
    if (r == 0 && file->mode == GIT_FILEMODE_LINK) {
        target = calloc(1, SYNC_PATH_MAX + 1);
        if (target == NULL || pread(staged.fd, target, SYNC_PATH_MAX, 0) < 0)
            r = tr_err_set(x->err, -ENOMEM, "out of memory");
        else
            r = sync_store_link(x->store, file->path, len, target, NULL, &created, x->err);
        free(target);
    } else if (r == 0) {
        r = sync_store_put(x->store, file->path, len, &staged,
                           file->mode == GIT_FILEMODE_BLOB_EXECUTABLE ? SYNC_EXEC_ON
                                                                      : SYNC_EXEC_OFF,
                           NULL, &st, &created, x->err);
    }
    sync_store_unstage(x->store, &staged);
    return r;
}

static int apply(struct restore *x, git_diff *diff)
{
    size_t n = git_diff_num_deltas(diff), n_concerned = 0;
    int r = 0;

    for (int pass = 0; pass < 2; pass++) {
        for (size_t i = 0; i < n && r == 0; i++) {
            const git_diff_delta *d = git_diff_get_delta(diff, i);
            bool is_removal = d->status == GIT_DELTA_DELETED;
            const char *path = is_removal ? d->old_file.path : d->new_file.path;

            if (!concerns(x, path) || is_removal != (pass == 0))
                continue;
            n_concerned++;
            r = is_removal ? take_away(x, path) : bring_back(x, &d->new_file);
        }
    }
    return r != 0 ? r : n_concerned > 0;
}

static bool has(const git_tree *tree, const char *path)
{
    git_tree_entry *entry = NULL;
    bool found = git_tree_entry_bypath(&entry, tree, path) == 0;

    git_tree_entry_free(entry);
    return found;
}

/* Returns 1 when something was done. */
static int go_back(struct restore *x, const git_oid *now_id, const git_oid *then_id)
{
    git_diff_options options = {.version = GIT_DIFF_OPTIONS_VERSION,
                                .ignore_submodules = GIT_SUBMODULE_IGNORE_ALL,
                                .context_lines = 3};
    git_tree *now = NULL, *then = NULL;
    char shown[SYNC_SHOWN_SIZE];
    git_diff *diff = NULL;
    int r;

    if (git_tree_lookup(&now, x->store->repo, now_id) != 0 ||
        git_tree_lookup(&then, x->store->repo, then_id) != 0 ||
        git_diff_tree_to_tree(&diff, x->store->repo, now, then, &options) != 0)
        r = sync_fail_git(x->err, -EIO, "the checkpoint cannot be read");
    else if (x->len > 0 && !has(now, x->path) && !has(then, x->path))
        r = tr_err_set(x->err, -ENOENT, "%s: neither the checkpoint nor the session has it",
                       sync_show(x->path, x->len, shown));
    else
        r = apply(x, diff);
    git_diff_free(diff);
    git_tree_free(now);
    git_tree_free(then);
    return r;
}

static int tree_of_commit(struct sync_store *store, const char *id, git_oid *out, git_oid *gits,
                          struct err *err)
{
    git_commit *commit;
    int r = sync_find_commit(store, id, &commit, err);

    if (r != 0)
        return r;
    *out = *git_commit_tree_id(commit);
    sync_commit_gits(commit, gits);
    git_commit_free(commit);
    return 0;
}

int sync_store_restore(struct sync_store *store, const char *name, const char *path, size_t len,
                       const char *author, struct sync_checkpoint *out, struct err *err)
{
    struct restore x = {.store = store, .path = path, .len = len, .err = err};
    char message[SYNC_SHOWN_SIZE + 128], shown[SYNC_SHOWN_SIZE], id[SYNC_ID_SIZE];
    git_oid now, then, gits;
    int r = len > 0 ? sync_store_check_path(path, len, err) : 0;

    if (r == 0)
        r = sync_store_find(store, name, out, err);
    if (r != 0)
        return r;
    memcpy(id, out->id, sizeof(id));
    snprintf(message, sizeof(message), "Before %s went back to %.12s",
             len > 0 ? sync_show(path, len, shown) : "all files", id);
    r = sync_store_checkpoint(store, message, SYNC_CAUSE_RESTORE, author, out, NULL, err);
    if (r >= 0)
        r = tree_of_commit(store, out->id, &now, &gits, err);
    if (r == 0)
        r = tree_of_commit(store, id, &then, &gits, err);
    if (r != 0)
        return r;
    r = go_back(&x, &now, &then);
    if (r >= 0) {
        int changed = sync_gits_restore(store, &gits, path, len, err);

        r = changed < 0 ? changed : r | changed;
    }
    if (r <= 0)
        return r == 0 ? 1 : r;
    snprintf(message, sizeof(message), "Restored %s from %.12s",
             len > 0 ? sync_show(path, len, shown) : "all files", id);
    return sync_store_checkpoint(store, message, SYNC_CAUSE_RESTORE, author, out, NULL, err);
}
