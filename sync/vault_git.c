/* SPDX-License-Identifier: MIT */
#include "sync/vault_git.h"

#include <errno.h>
#include <git2.h>
#include <git2/sys/commit.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct item { /* kept, in no commit yet */
    git_oid id;
    unsigned mode;
    enum sync_kept_why why;
    enum sync_side side;
    size_t len;
    char *path;
};

struct sync_vault_git {
    git_repository *repo;
    git_odb *odb;
    git_odb_stream *stream; /* a content on its way in */
    struct item *items;
    size_t n_items, size_items;
    _Atomic int64_t room;
};

static int fail(struct err *err, int code, const char *what)
{
    const git_error *why = git_error_last();
    int r = errno == ENOSPC || errno == EDQUOT || errno == EROFS || errno == EACCES ? -errno : code;

    return tr_err_set(err, r, "%s: %s", what, why != NULL ? why->message : strerror(-r));
}

static git_oid oid_of(const struct sync_id *id)
{
    git_oid oid;

    git_oid_fromraw(&oid, id->bytes);
    return oid;
}

static bool has(void *ctx, const struct sync_id *id)
{
    struct sync_vault_git *v = ctx;
    git_oid oid = oid_of(id);

    return git_odb_exists(v->odb, &oid) == 1;
}

static int write_all(int fd, const char *bytes, size_t len)
{
    while (len > 0) {
        ssize_t n = write(fd, bytes, len);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -errno;
        bytes += n;
        len -= (size_t)n;
    }
    return 0;
}

static int open_content(void *ctx, const struct sync_id *id, struct err *err)
{
    struct sync_vault_git *v = ctx;
    git_odb_object *object = NULL;
    git_oid oid = oid_of(id);
    int fd, r;

    errno = 0;
    if (git_odb_read(&object, v->odb, &oid) != 0)
        return fail(err, -EIO, "a kept content");
    fd = memfd_create("transom-content", MFD_CLOEXEC);
    r = fd < 0 ? -errno : write_all(fd, git_odb_object_data(object), git_odb_object_size(object));
    if (r == 0 && lseek(fd, 0, SEEK_SET) != 0)
        r = -errno;
    git_odb_object_free(object);
    if (r == 0)
        return fd;
    if (fd >= 0)
        close(fd);
    return tr_err_set(err, r, "a kept content: %s", strerror(-r));
}

static int put_start(void *ctx, int64_t size, struct err *err)
{
    struct sync_vault_git *v = ctx;

    errno = 0;
    if (git_odb_open_wstream(&v->stream, v->odb, (git_object_size_t)size, GIT_OBJECT_BLOB) == 0)
        return 0;
    v->stream = NULL;
    return fail(err, -EIO, "a content cannot be kept");
}

static int put_piece(void *ctx, const uint8_t *bytes, size_t len, struct err *err)
{
    struct sync_vault_git *v = ctx;

    errno = 0;
    return git_odb_stream_write(v->stream, (const char *)bytes, len) == 0
               ? 0
               : fail(err, -EIO, "a content cannot be kept");
}

static int put_end(void *ctx, const struct sync_id *id, struct err *err)
{
    struct sync_vault_git *v = ctx;
    git_oid want, got;
    int r = 0;

    if (id != NULL) {
        want = oid_of(id);
        errno = 0;
        if (git_odb_stream_finalize_write(&got, v->stream) != 0)
            r = fail(err, -EIO, "a content cannot be kept");
        else if (!git_oid_equal(&got, &want))
            r = tr_err_set(err, -EBADMSG, "a content is not what it should be");
    }
    git_odb_stream_free(v->stream);
    v->stream = NULL;
    return r;
}

static int keep(void *ctx, const struct sync_kept *kept, struct err *err)
{
    struct sync_vault_git *v = ctx;
    struct item *item;

    if (v->n_items == v->size_items) {
        size_t size = v->size_items > 0 ? 2 * v->size_items : 64;
        struct item *more = realloc(v->items, size * sizeof(*more));

        if (more == NULL)
            return tr_err_set(err, -ENOMEM, "out of memory");
        v->items = more;
        v->size_items = size;
    }
    item = &v->items[v->n_items];
    *item = (struct item){.id = oid_of(&kept->value.id),
                          .mode = kept->value.what == SYNC_IS_LINK ? 0120000
                                  : kept->value.is_exec            ? 0100755
                                                                   : 0100644,
                          .why = kept->why,
                          .side = kept->side,
                          .len = kept->len,
                          .path = malloc(kept->len + 1)};
    if (item->path == NULL)
        return tr_err_set(err, -ENOMEM, "out of memory");
    memcpy(item->path, kept->path, kept->len);
    v->n_items++;
    return 0;
}

/* ---- a batch becomes a commit ---- */

static int make_tree(struct sync_vault_git *v, git_oid *out)
{
    git_treebuilder *builder = NULL;
    int r = git_treebuilder_new(&builder, v->repo, NULL);

    for (size_t i = 0; i < v->n_items && r == 0; i++) {
        char name[GIT_OID_HEXSZ + 1];

        git_oid_tostr(name, sizeof(name), &v->items[i].id);
        r = git_treebuilder_insert(NULL, builder, name, &v->items[i].id, GIT_FILEMODE_BLOB);
    }
    if (r == 0)
        r = git_treebuilder_write(out, builder);
    git_treebuilder_free(builder);
    return r;
}

static void describe(FILE *f, const struct item *item)
{
    static const char *const why[] = {[SYNC_KEPT_OLDER] = "older",
                                      [SYNC_KEPT_REMOVED] = "removed",
                                      [SYNC_KEPT_CONFLICT] = "conflict"};
    char id[GIT_OID_HEXSZ + 1];

    git_oid_tostr(id, sizeof(id), &item->id);
    fprintf(f, "%s %s %o %s ", why[item->why], item->side == SYNC_GUEST ? "guest" : "store",
            item->mode, id);
    for (size_t i = 0; i < item->len; i++) {
        unsigned char c = (unsigned char)item->path[i];

        if (c < 0x20 || c > 0x7e || c == '\\')
            fprintf(f, "\\x%02x", c);
        else
            fputc(c, f);
    }
    fputc('\n', f);
}

static char *make_message(const struct sync_vault_git *v)
{
    char *text = NULL;
    size_t len;
    FILE *f = open_memstream(&text, &len);

    if (f == NULL)
        return NULL;
    fputs("Kept\n\n", f);
    for (size_t i = 0; i < v->n_items; i++)
        describe(f, &v->items[i]);
    if (fclose(f) != 0) {
        free(text);
        return NULL;
    }
    return text;
}

static int commit(struct sync_vault_git *v, struct err *err)
{
    git_oid tree, parent, id;
    const git_oid *parents[1] = {&parent};
    bool has_parent = git_reference_name_to_id(&parent, v->repo, SYNC_KEPT_REF) == 0;
    git_signature *who = NULL;
    git_reference *ref = NULL;
    char *text = make_message(v);
    int r = 0;

    errno = 0;
    if (text == NULL)
        r = tr_err_set(err, -ENOMEM, "out of memory");
    else if (make_tree(v, &tree) != 0 ||
             git_signature_now(&who, "Transom", "session@transom.invalid") != 0 ||
             git_commit_create_from_ids(&id, v->repo, NULL, who, who, NULL, text, &tree,
                                        has_parent ? 1 : 0, parents) != 0 ||
             git_reference_create(&ref, v->repo, SYNC_KEPT_REF, &id, 1, NULL) != 0)
        r = fail(err, -EIO, "contents cannot be kept");
    git_reference_free(ref);
    git_signature_free(who);
    free(text);
    return r;
}

static int settle(void *ctx, struct err *err)
{
    struct sync_vault_git *v = ctx;
    int r = v->n_items > 0 ? commit(v, err) : 0;

    for (size_t i = 0; i < v->n_items; i++)
        free(v->items[i].path);
    v->n_items = 0;
    return r;
}

static int room(void *ctx, int64_t more, struct err *err)
{
    struct sync_vault_git *v = ctx;
    int64_t left = atomic_load(&v->room);

    if (left < 0)
        return 0;
    if (more > left)
        return tr_err_set(err, -EDQUOT, "the session's quota is used up");
    atomic_fetch_sub(&v->room, more);
    return 0;
}

const struct sync_vault_ops sync_vault_git_ops = {.has = has,
                                                  .open = open_content,
                                                  .put_start = put_start,
                                                  .put_piece = put_piece,
                                                  .put_end = put_end,
                                                  .keep = keep,
                                                  .settle = settle,
                                                  .room = room};

void sync_vault_git_set_room(struct sync_vault_git *v, int64_t bytes)
{
    atomic_store(&v->room, bytes);
}

int sync_vault_git_open(const char *dir, struct sync_vault_git **out, struct err *err)
{
    struct sync_vault_git *v = calloc(1, sizeof(*v));
    char *path;
    int r = 0;

    if (v == NULL || asprintf(&path, "%s/store.git", dir) < 0) {
        free(v);
        return tr_err_set(err, -ENOMEM, "out of memory");
    }
    atomic_init(&v->room, -1);
    errno = 0;
    if (git_repository_open_bare(&v->repo, path) != 0 || git_repository_odb(&v->odb, v->repo) != 0)
        r = fail(err, -EIO, "the store cannot be opened");
    free(path);
    if (r != 0)
        sync_vault_git_close(v);
    else
        *out = v;
    return r;
}

void sync_vault_git_close(struct sync_vault_git *v)
{
    if (v == NULL)
        return;
    for (size_t i = 0; i < v->n_items; i++)
        free(v->items[i].path);
    free(v->items);
    git_odb_stream_free(v->stream);
    git_odb_free(v->odb);
    git_repository_free(v->repo);
    free(v);
}
