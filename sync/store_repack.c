/* SPDX-License-Identifier: MIT */
#include "sync/store_repack.h"

#include <errno.h>
#include <fcntl.h>
#include <git2/sys/odb_backend.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "sync/store_internal.h"

#define OBJECT_MAX  (8 * 1024 * 1024) /* bytes; what is larger stays a file, to be streamed */
#define OBJECTS_MAX 200000            /* of one pack */

struct loose {
    git_oid id;
    bool is_in; /* the pack */
};

struct repack {
    git_repository *repo;
    git_odb *odb;
    git_packbuilder *builder;
    int objects;         /* descriptor of store.git/objects */
    struct loose *loose; /* sorted */
    size_t n, size;
};

/* ---- what there is ---- */

static int compare(const void *a, const void *b)
{
    return git_oid_cmp(&((const struct loose *)a)->id, &((const struct loose *)b)->id);
}

static struct loose *find(const struct repack *x, const git_oid *id)
{
    struct loose key = {.id = *id};

    return x->n == 0 ? NULL : bsearch(&key, x->loose, x->n, sizeof(key), compare);
}

static int add_loose(struct repack *x, const char *folder, const char *name)
{
    char hex[SYNC_ID_SIZE + 1];
    git_object_t type;
    git_oid id;
    size_t size;

    snprintf(hex, sizeof(hex), "%s%s", folder, name);
    if (strlen(hex) != GIT_OID_HEXSZ || git_oid_fromstr(&id, hex) != 0)
        return 0;
    if (git_odb_read_header(&size, &type, x->odb, &id) != 0 || size > OBJECT_MAX)
        return 0;
    if (x->n == x->size) {
        size_t more = x->size ? 2 * x->size : 1024;
        struct loose *grown = realloc(x->loose, more * sizeof(*grown));

        if (grown == NULL)
            return -ENOMEM;
        x->loose = grown;
        x->size = more;
    }
    x->loose[x->n++] = (struct loose){.id = id};
    return 0;
}

static int list_loose(struct repack *x)
{
    char **folders = NULL, **names = NULL;
    size_t n_folders, n = 0;
    int r = sync_dir_names(x->objects, &folders, &n_folders);

    if (r != 0)
        return r;
    for (size_t i = 0; i < n_folders && r == 0; i++) {
        int fd;

        if (strlen(folders[i]) != 2)
            continue;
        fd = sync_dir_open(x->objects, folders[i]);
        if (fd < 0)
            continue;
        r = sync_dir_names(fd, &names, &n);
        close(fd);
        if (r != 0)
            break;
        for (size_t k = 0; k < n && r == 0 && x->n < OBJECTS_MAX; k++)
            r = add_loose(x, folders[i], names[k]);
        sync_dir_free_names(names, n);
    }
    sync_dir_free_names(folders, n_folders);
    if (x->n > 1)
        qsort(x->loose, x->n, sizeof(*x->loose), compare);
    return r;
}

/* ---- putting them in, with their names, by which versions of a file find each other ---- */

/* Returns 1: it was loose and is in now; 0: it was not, or is in already. */
static int insert(struct repack *x, const git_oid *id, const char *name)
{
    struct loose *l = find(x, id);

    if (l == NULL || l->is_in)
        return 0;
    l->is_in = true;
    return git_packbuilder_insert(x->builder, id, name) == 0 ? 1 : -EIO;
}

static int insert_tree(struct repack *x, const git_oid *id, const char *name, int depth)
{
    git_tree *tree = NULL;
    int r = insert(x, id, name);

    if (r <= 0 || depth > SYNC_DEPTH_MAX + 1)
        return r < 0 ? r : 0; /* a tree that is packed has packed contents, as a rule */
    if (git_tree_lookup(&tree, x->repo, id) != 0)
        return 0;
    r = 0;
    for (size_t i = 0; i < git_tree_entrycount(tree) && r >= 0; i++) {
        const git_tree_entry *e = git_tree_entry_byindex(tree, i);

        if (git_tree_entry_type(e) == GIT_OBJECT_TREE)
            r = insert_tree(x, git_tree_entry_id(e), git_tree_entry_name(e), depth + 1);
        else
            r = insert(x, git_tree_entry_id(e), git_tree_entry_name(e));
    }
    git_tree_free(tree);
    return r < 0 ? r : 0;
}

static int insert_line(struct repack *x, const char *ref)
{
    git_commit *commit = NULL;
    git_oid id;
    int r = 1;

    if (git_reference_name_to_id(&id, x->repo, ref) != 0)
        return 0;
    while ((r = insert(x, &id, NULL)) == 1) { /* what is behind a packed one is packed */
        if (git_commit_lookup(&commit, x->repo, &id) != 0)
            return 0;
        r = insert_tree(x, git_commit_tree_id(commit), "", 0);
        if (r == 0 && git_commit_parentcount(commit) > 0)
            id = *git_commit_parent_id(commit, 0);
        else
            r = r == 0 ? 1 : r;
        git_commit_free(commit);
        if (r != 0)
            break;
    }
    return r < 0 ? r : 0;
}

static int insert_all(struct repack *x)
{
    int r = insert_line(x, SYNC_BRANCH);

    if (r == 0)
        r = insert_line(x, "refs/transom/kept");
    for (size_t i = 0; i < x->n && r >= 0; i++)
        r = insert(x, &x->loose[i].id, NULL);
    return r < 0 ? r : 0;
}

/* ---- and taking the small files away ---- */

/* An index without its pack, or half a pack: of one that died, since there is one at a time. */
static int remove_leftovers(struct repack *x)
{
    int fd = sync_dir_open(x->objects, "pack"), r;
    char **names = NULL, pack[64];
    size_t n = 0;

    if (fd < 0)
        return fd;
    r = sync_dir_names(fd, &names, &n);
    for (size_t i = 0; i < n && r == 0; i++) {
        size_t len = strlen(names[i]);
        bool is_index = len > 4 && len < sizeof(pack) && strcmp(names[i] + len - 4, ".idx") == 0;

        snprintf(pack, sizeof(pack), "%.*s.pack", is_index ? (int)len - 4 : 0, names[i]);
        if ((is_index && faccessat(fd, pack, F_OK, AT_SYMLINK_NOFOLLOW) != 0 && errno == ENOENT) ||
            strstr(names[i], "_git2_") != NULL)
            r = unlinkat(fd, names[i], 0) != 0 ? -errno : 0;
    }
    if (names != NULL)
        sync_dir_free_names(names, n);
    close(fd);
    return r;
}

/* All packs, and nothing else. */
static int open_packs(struct repack *x, git_odb **out)
{
    int fd = sync_dir_open(x->objects, "pack"), r;
    git_odb_backend *backend;
    char **names = NULL;
    size_t n = 0;

    if (fd < 0)
        return fd;
    r = sync_dir_names(fd, &names, &n);
    close(fd);
    if (r == 0 && git_odb_new(out) != 0)
        r = -ENOMEM;
    for (size_t i = 0; i < n && r == 0; i++) {
        size_t len = strlen(names[i]);
        char *path = NULL;

        if (len < 4 || strcmp(names[i] + len - 4, ".idx") != 0)
            continue;
        if (asprintf(&path, "%sobjects/pack/%s", git_repository_path(x->repo), names[i]) < 0)
            r = -ENOMEM;
        else if (git_odb_backend_one_pack(&backend, path) != 0 ||
                 git_odb_add_backend(*out, backend, 1) != 0)
            r = -EIO;
        free(path);
    }
    if (names != NULL)
        sync_dir_free_names(names, n);
    return r;
}

static int remove_loose(struct repack *x, size_t *n_packed)
{
    git_odb *packs = NULL;
    int r = open_packs(x, &packs);

    for (size_t i = 0; i < x->n && r == 0; i++) {
        git_odb_object *object = NULL;
        char hex[SYNC_ID_SIZE], path[SYNC_ID_SIZE + 2];

        /* Reading checks the content against its id. */
        r = git_odb_read(&object, packs, &x->loose[i].id) != 0 ? -EIO : 0;
        git_odb_object_free(object);
        if (r != 0)
            break;
        git_oid_tostr(hex, sizeof(hex), &x->loose[i].id);
        snprintf(path, sizeof(path), "%.2s/%s", hex, hex + 2);
        if (unlinkat(x->objects, path, 0) != 0 && errno != ENOENT)
            r = -errno;
        else
            ++*n_packed;
    }
    git_odb_free(packs);
    return r;
}

static int run(struct repack *x, size_t *n_packed)
{
    char *path;
    int r = remove_leftovers(x);

    if (r == 0)
        r = list_loose(x);
    if (r != 0 || x->n == 0)
        return r;
    if (git_packbuilder_new(&x->builder, x->repo) != 0)
        return -ENOMEM;
    git_packbuilder_set_threads(x->builder, 1);
    r = insert_all(x);
    if (r != 0)
        return r;
    if (asprintf(&path, "%sobjects/pack", git_repository_path(x->repo)) < 0)
        return -ENOMEM;
    errno = 0;
    if (git_packbuilder_write(x->builder, path, 0444, NULL, NULL) != 0)
        r = errno == ENOSPC ? -ENOSPC : -EIO;
    free(path);
    if (r == 0)
        r = sync_dir_sync(x->objects, "pack");
    return r == 0 ? remove_loose(x, n_packed) : r;
}

int sync_store_repack(const char *dir, size_t *n, struct err *err)
{
    struct repack x = {.objects = -1};
    char *path;
    int r = 0;

    *n = 0;
    if (asprintf(&path, "%s/store.git", dir) < 0)
        return tr_err_set(err, -ENOMEM, "out of memory");
    if (git_repository_open_bare(&x.repo, path) != 0 || git_repository_odb(&x.odb, x.repo) != 0)
        r = sync_fail_git(err, -EIO, path);
    free(path);
    if (r == 0 && asprintf(&path, "%sobjects", git_repository_path(x.repo)) >= 0) {
        x.objects = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (x.objects < 0)
            r = tr_err_set(err, -errno, "%s: %s", path, strerror(errno));
        free(path);
    }
    if (r == 0 && mkdirat(x.objects, "pack", 0755) != 0 && errno != EEXIST)
        r = tr_err_set(err, -errno, "%s/store.git/objects/pack: %s", dir, strerror(errno));
    if (r == 0) {
        r = run(&x, n);
        if (r != 0)
            (void)sync_fail_git(err, r, dir);
    }
    git_packbuilder_free(x.builder);
    git_odb_free(x.odb);
    git_repository_free(x.repo);
    if (x.objects >= 0)
        close(x.objects);
    free(x.loose);
    return r;
}
