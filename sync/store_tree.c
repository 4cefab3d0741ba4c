/* SPDX-License-Identifier: MIT */
/* The tree as Git objects. Tree objects are written as bytes of ours: libgit2's builder refuses
 * names that git itself takes. Files are read in the order in which Git sorts paths, so that what
 * is known of the last time is found by going along. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "sync/store_internal.h"

#define WHOLE_MAX (1024 * 1024)      /* bytes of a file that is read into memory */
#define FEW       64                 /* objects that are files of their own; more go into a pack */
#define TRIES     3                  /* for a file that changes while it is read */
#define RACY_NS   INT64_C(100000000) /* a time so young may stand for two states of a file */

#define MODE_FILE 0100644
#define MODE_EXEC 0100755
#define MODE_LINK 0120000
#define MODE_TREE 040000

struct entry {
    char *name; /* borrowed */
    struct stat st;
    unsigned mode;
    git_oid id;
};

struct walk {
    struct sync_store *store;
    size_t at; /* in store->known */
    struct sync_known_list fresh;
    struct sync_left_out *left;
    struct err *err;
    char path[SYNC_PATH_MAX + 1 + SYNC_NAME_MAX + 1];
};

/* ---- what is known ---- */

void sync_known_free(struct sync_known_list *list)
{
    for (size_t i = 0; i < list->n; i++)
        free(list->items[i].path);
    free(list->items);
    memset(list, 0, sizeof(*list));
}

static int64_t ns_of(const struct timespec *t)
{
    return (int64_t)t->tv_sec * 1000000000 + t->tv_nsec;
}

static const git_oid *find_known(struct walk *w, const struct stat *st)
{
    const struct sync_known_list *list = &w->store->known;
    const struct sync_known *k;
    int order = -1;

    while (w->at < list->n && (order = strcmp(list->items[w->at].path, w->path)) < 0)
        w->at++;
    if (w->at >= list->n || order != 0)
        return NULL;
    k = &list->items[w->at];
    return k->ino == st->st_ino && k->size == st->st_size && k->mtime_ns == ns_of(&st->st_mtim) &&
                   k->ctime_ns == ns_of(&st->st_ctim)
               ? &k->id
               : NULL;
}

static int add_known(struct walk *w, const struct stat *st, const git_oid *id)
{
    struct sync_known_list *list = &w->fresh;
    struct sync_known *k;

    if (list->n == list->size) {
        size_t size = list->size ? 2 * list->size : 256;
        struct sync_known *grown = realloc(list->items, size * sizeof(*grown));

        if (grown == NULL)
            return -ENOMEM;
        list->items = grown;
        list->size = size;
    }
    k = &list->items[list->n];
    k->path = strdup(w->path);
    if (k->path == NULL)
        return -ENOMEM;
    k->ino = st->st_ino;
    k->size = st->st_size;
    k->mtime_ns = ns_of(&st->st_mtim);
    k->ctime_ns = ns_of(&st->st_ctim);
    k->id = *id;
    list->n++;
    return 0;
}

static void leave_out(struct walk *w, size_t len, const char *why)
{
    char shown[SYNC_SHOWN_SIZE];

    if (w->left == NULL || w->left->n++ > 0)
        return;
    snprintf(w->left->path, sizeof(w->left->path), "%s", sync_show(w->path, len, shown));
    snprintf(w->left->why, sizeof(w->left->why), "%s", why);
}

/* ---- objects ---- */

static void add_weight(struct sync_store *store, const git_oid *id)
{
    char hex[SYNC_ID_SIZE], path[sizeof("store.git/objects/xx/") + SYNC_ID_SIZE];
    struct stat st;

    git_oid_tostr(hex, sizeof(hex), id);
    snprintf(path, sizeof(path), "store.git/objects/%.2s/%s", hex, hex + 2);
    if (fstatat(store->dir_fd, path, &st, AT_SYMLINK_NOFOLLOW) == 0) {
        store->usage.history += (int64_t)st.st_blocks * 512;
        store->n_loose++;
    }
}

static bool has_object(struct sync_store *store, const git_oid *id)
{
    return (store->packing != NULL && sync_packing_has(store->packing, id)) ||
           git_odb_exists_ext(store->odb, id, GIT_ODB_LOOKUP_NO_REFRESH) == 1;
}

static int write_object(struct sync_store *store, const void *data, size_t len, git_object_t type,
                        git_oid *id, struct err *err)
{
    int r = git_odb_hash(id, data, len, type);

    if (r == 0 && has_object(store, id))
        return 0;
    if (r == 0 && store->packing == NULL && store->is_writing && store->n_few >= FEW) {
        r = sync_packing_new(store, &store->packing, err);
        if (r != 0)
            return r;
    }
    if (r == 0 && store->packing != NULL) {
        r = sync_packing_add(store->packing, id, type, data, len);
        return r == 0 ? 0 : tr_err_set(err, r, "cannot write to the checkpoints: %s", strerror(-r));
    }
    errno = 0;
    if (r == 0)
        r = git_odb_write(id, store->odb, data, len, type);
    if (r != 0)
        return sync_fail_git(err, r, "cannot write to the checkpoints");
    store->n_few++;
    add_weight(store, id);
    return 0;
}

/* Returns 0, 1 (the file is not what st says any more) or an error. */
static int write_whole(struct sync_store *store, int fd, int64_t size, git_oid *id, struct err *err)
{
    char *data = malloc((size_t)size + 1);
    size_t n = 0;
    int r = 0;

    if (data == NULL)
        return tr_err_set(err, -ENOMEM, "out of memory");
    while (n <= (size_t)size) {
        ssize_t got = read(fd, data + n, (size_t)size + 1 - n);

        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            r = -errno;
        if (got <= 0)
            break;
        n += (size_t)got;
    }
    if (r == 0)
        r = n == (size_t)size ? write_object(store, data, n, GIT_OBJECT_BLOB, id, err) : 1;
    free(data);
    return r;
}

static int write_stream(struct sync_store *store, int fd, int64_t size, git_oid *id,
                        struct err *err)
{
    git_odb_stream *stream = NULL;
    char *piece = malloc(SYNC_PIECE);
    int64_t n = 0;
    int r = 0;

    errno = 0;
    if (piece == NULL ||
        git_odb_open_wstream(&stream, store->odb, (git_object_size_t)size, GIT_OBJECT_BLOB) != 0) {
        free(piece);
        return sync_fail_git(err, -EIO, "cannot write to the checkpoints");
    }
    while (r == 0) {
        ssize_t got = read(fd, piece, SYNC_PIECE);

        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            r = -errno;
        if (got <= 0)
            break;
        n += got;
        if (n > size)
            r = 1;
        else if (git_odb_stream_write(stream, piece, (size_t)got) != 0)
            r = sync_fail_git(err, -EIO, "cannot write to the checkpoints");
    }
    if (r == 0 && n != size)
        r = 1;
    errno = 0;
    if (r == 0 && git_odb_stream_finalize_write(id, stream) != 0)
        r = sync_fail_git(err, -EIO, "cannot write to the checkpoints");
    git_odb_stream_free(stream);
    free(piece);
    if (r == 0)
        add_weight(store, id);
    return r;
}

/* The same for a file of any size. Known contents are not written again. */
static int write_file(struct sync_store *store, int fd, int64_t size, git_oid *id, struct err *err)
{
    char self[32];

    if (size <= WHOLE_MAX)
        return write_whole(store, fd, size, id, err);
    snprintf(self, sizeof(self), "/proc/self/fd/%d", fd);
    if (git_odb_hashfile(id, self, GIT_OBJECT_BLOB) == 0 && has_object(store, id))
        return 0;
    return write_stream(store, fd, size, id, err);
}

/* ---- the walk ---- */

/* What cannot be read now stays as the last checkpoint has it: it is not deleted. Returns 0, or 1
 * when that does not have it. */
static int take_last(struct walk *w, struct entry *e, size_t len, const char *why)
{
    git_tree_entry *last = NULL;
    git_commit *commit = NULL;
    git_tree *tree = NULL;
    git_oid head;
    int r = 1;

    leave_out(w, len, why);
    if (git_reference_name_to_id(&head, w->store->repo, SYNC_BRANCH) == 0 &&
        git_commit_lookup(&commit, w->store->repo, &head) == 0 &&
        git_commit_tree(&tree, commit) == 0 && git_tree_entry_bypath(&last, tree, w->path) == 0 &&
        (git_tree_entry_type(last) == GIT_OBJECT_TREE) == (e->mode == MODE_TREE)) {
        e->id = *git_tree_entry_id(last);
        e->mode = (unsigned)git_tree_entry_filemode(last);
        r = 0;
    }
    git_tree_entry_free(last);
    git_tree_free(tree);
    git_commit_free(commit);
    return r;
}

/* Returns 0, 1 (left out) or an error. */
static int take_file(struct walk *w, int dir, struct entry *e, size_t len)
{
    struct timespec now;
    struct stat st;
    const git_oid *known = find_known(w, &e->st);
    int r = 1;

    if (known != NULL) {
        e->id = *known;
        return add_known(w, &e->st, known);
    }
    for (int i = 0; i < TRIES && r == 1; i++) {
        int fd = openat(dir, e->name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);

        clock_gettime(CLOCK_REALTIME, &now);
        if (fd < 0 || fstat(fd, &e->st) != 0 || !S_ISREG(e->st.st_mode)) {
            int code = fd < 0 ? errno : 0;

            if (fd >= 0)
                close(fd);
            if (code == EMFILE || code == ENFILE || code == ENOMEM)
                return sync_fail_path(w->err, -code, w->path, len);
            return take_last(w, e, len, code != 0 ? strerror(code) : "it became something else");
        }
        r = write_file(w->store, fd, e->st.st_size, &e->id, w->err);
        if (r == 0 && (fstat(fd, &st) != 0 || st.st_size != e->st.st_size ||
                       ns_of(&st.st_ctim) != ns_of(&e->st.st_ctim) ||
                       ns_of(&st.st_mtim) != ns_of(&e->st.st_mtim)))
            r = 1;
        close(fd);
    }
    if (r == 1)
        return take_last(w, e, len, "it kept changing while it was read");
    if (r == -EIO || r == -EACCES) /* of the read; a fault of the checkpoints is in err */
        return w->err->code != 0 ? r : take_last(w, e, len, strerror(-r));
    if (r != 0)
        return r;
    e->mode = e->st.st_mode & S_IXUSR ? MODE_EXEC : MODE_FILE;
    if (ns_of(&e->st.st_ctim) > ns_of(&now) - RACY_NS)
        return 0;
    return add_known(w, &e->st, &e->id);
}

static int take_link(struct walk *w, int dir, struct entry *e, size_t len)
{
    char target[SYNC_PATH_MAX + 2];
    ssize_t n = readlinkat(dir, e->name, target, sizeof(target));

    if (n < 0 || (size_t)n > SYNC_PATH_MAX) {
        leave_out(w, len, n < 0 ? strerror(errno) : "its target is too long");
        return 1;
    }
    return write_object(w->store, target, (size_t)n, GIT_OBJECT_BLOB, &e->id, w->err);
}

static int write_folder(struct walk *w, int fd, size_t len, git_oid *out, bool *empty);

/* Returns 0 (e has mode and id), 1 (not kept) or an error. */
static int take_entry(struct walk *w, int dir, struct entry *e, size_t len)
{
    bool empty = false;
    int sub, r;

    switch (e->mode) {
    case MODE_TREE:
        sub = sync_dir_open(dir, e->name);
        if (sub == -EMFILE || sub == -ENFILE || sub == -ENOMEM)
            return sync_fail_path(w->err, sub, w->path, len);
        if (sub < 0)
            return take_last(w, e, len, strerror(-sub));
        r = write_folder(w, sub, len, &e->id, &empty);
        close(sub);
        return r == 0 && empty ? 1 : r;
    case MODE_LINK:
        return take_link(w, dir, e, len);
    default:
        return take_file(w, dir, e, len);
    }
}

/* Git's order: a folder stands where its name with a "/" would. */
static int compare_entries(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;
    size_t nx = strlen(x->name), ny = strlen(y->name), n = nx < ny ? nx : ny;
    int order = memcmp(x->name, y->name, n), cx, cy;

    if (order != 0)
        return order;
    cx = nx > n ? (unsigned char)x->name[n] : x->mode == MODE_TREE ? '/' : 0;
    cy = ny > n ? (unsigned char)y->name[n] : y->mode == MODE_TREE ? '/' : 0;
    return cx - cy;
}

static size_t enter(struct walk *w, size_t len, const char *name)
{
    size_t at = len > 0 ? len + 1 : 0, n = strlen(name);

    if (at > 0)
        w->path[len] = '/';
    memcpy(w->path + at, name, n + 1);
    return at + n;
}

/* Look at the entries of a folder; what cannot be kept is left out. Returns their number. */
static size_t look_at(struct walk *w, int fd, size_t len, char **names, size_t n,
                      struct entry *entries)
{
    size_t kept = 0;

    for (size_t i = 0; i < n; i++) {
        struct entry *e = &entries[kept];
        size_t below = enter(w, len, names[i]);

        if (fstatat(fd, names[i], &e->st, AT_SYMLINK_NOFOLLOW) != 0)
            continue;
        e->name = names[i];
        e->mode = S_ISREG(e->st.st_mode)   ? (e->st.st_mode & S_IXUSR ? MODE_EXEC : MODE_FILE)
                  : S_ISDIR(e->st.st_mode) ? MODE_TREE
                  : S_ISLNK(e->st.st_mode) ? MODE_LINK
                                           : 0;
        if (sync_name_is_git(names[i], strlen(names[i])))
            leave_out(w, below, "it is Git's own");
        else if (e->mode == 0)
            leave_out(w, below, "it is neither file, folder nor link");
        else if (sync_path_check(w->path, below) != SYNC_PATH_OK)
            leave_out(w, below, "its path is too long or too deep");
        else
            kept++;
    }
    w->path[len] = '\0';
    return kept;
}

static int append_entry(struct sync_buf *buf, const struct entry *e)
{
    char mode[16];
    int r = sync_buf_add(buf, mode, (size_t)snprintf(mode, sizeof(mode), "%o ", e->mode));

    if (r == 0)
        r = sync_buf_add(buf, e->name, strlen(e->name) + 1);
    return r == 0 ? sync_buf_add(buf, e->id.id, GIT_OID_RAWSZ) : r;
}

static int write_folder(struct walk *w, int fd, size_t len, git_oid *out, bool *empty)
{
    struct sync_buf buf = {0};
    struct entry *entries;
    char **names;
    size_t n, n_entries;
    int r = sync_dir_names(fd, &names, &n);

    if (r != 0)
        return sync_fail_path(w->err, r, w->path, len);
    entries = calloc(n + 1, sizeof(*entries));
    n_entries = entries == NULL ? 0 : look_at(w, fd, len, names, n, entries);
    if (n_entries > 1)
        qsort(entries, n_entries, sizeof(*entries), compare_entries);
    if (entries == NULL)
        r = -ENOMEM;
    for (size_t i = 0; i < n_entries && r >= 0; i++) {
        r = take_entry(w, fd, &entries[i], enter(w, len, entries[i].name));
        if (r == 0)
            r = append_entry(&buf, &entries[i]);
    }
    w->path[len] = '\0';
    *empty = buf.len == 0;
    if (r >= 0 && (!*empty || len == 0))
        r = write_object(w->store, buf.len > 0 ? buf.data : (const uint8_t *)"", buf.len,
                         GIT_OBJECT_TREE, out, w->err);
    sync_buf_free(&buf);
    free(entries);
    sync_dir_free_names(names, n);
    return r > 0 ? 0 : r;
}

int sync_tree_write(struct sync_store *store, git_oid *out, struct sync_left_out *left,
                    struct err *err)
{
    struct walk *w = calloc(1, sizeof(*w));
    struct err why = {0};
    bool empty;
    int r;

    if (left != NULL)
        memset(left, 0, sizeof(*left));
    if (w == NULL)
        return tr_err_set(err, -ENOMEM, "out of memory");
    w->store = store;
    w->left = left;
    w->err = &why;
    store->is_writing = true;
    store->n_few = 0;
    r = write_folder(w, store->files, 0, out, &empty);
    if (r == 0 && store->packing != NULL)
        r = sync_packing_finish(store->packing, store, &why);
    sync_packing_free(store->packing);
    store->packing = NULL;
    store->is_writing = false;
    if (r == 0) {
        sync_known_free(&store->known);
        store->known = w->fresh;
    } else {
        sync_known_free(&w->fresh);
        if (why.code == 0)
            (void)tr_err_set(&why, r, "the files cannot be kept: %s", strerror(-r));
        if (err != NULL)
            *err = why;
    }
    free(w);
    return r;
}

/* ---- blobs ---- */

bool sync_store_has_blob(struct sync_store *store, const uint8_t id[SYNC_ID_BYTES])
{
    git_oid oid;

    git_oid_fromraw(&oid, id);
    return git_odb_exists(store->odb, &oid) == 1;
}

int sync_store_put_blob(struct sync_store *store, int fd, int64_t size, uint8_t id[SYNC_ID_BYTES],
                        struct err *err)
{
    git_oid oid;
    int r = size <= WHOLE_MAX ? write_whole(store, fd, size, &oid, err)
                              : write_stream(store, fd, size, &oid, err);

    if (r == 1)
        return tr_err_set(err, -EAGAIN, "the content is not as long as it was said to be");
    if (r < 0)
        return err != NULL && err->code != 0 ? r : tr_err_set(err, r, "%s", strerror(-r));
    memcpy(id, oid.id, SYNC_ID_BYTES);
    return 0;
}

int sync_odb_write_to(git_odb *odb, const git_oid *id, int fd, struct err *err)
{
    git_odb_stream *stream = NULL;
    git_odb_object *object = NULL;
    git_object_t type;
    char *piece;
    size_t size;
    int r = git_odb_read_header(&size, &type, odb, id), n = 0;

    if (r != 0)
        return sync_fail_git(err, r, "a kept content");
    if (size <= WHOLE_MAX || git_odb_open_rstream(&stream, &size, &type, odb, id) != 0) {
        r = git_odb_read(&object, odb, id);
        if (r != 0)
            return sync_fail_git(err, r, "a kept content");
        r = sync_write_all(fd, git_odb_object_data(object), git_odb_object_size(object));
        git_odb_object_free(object);
        return r == 0 ? 0 : tr_err_set(err, r, "%s", strerror(-r));
    }
    piece = malloc(SYNC_PIECE);
    if (piece == NULL)
        r = tr_err_set(err, -ENOMEM, "out of memory");
    while (r == 0 && (n = git_odb_stream_read(stream, piece, SYNC_PIECE)) > 0) {
        r = sync_write_all(fd, piece, (size_t)n);
        if (r != 0)
            (void)tr_err_set(err, r, "%s", strerror(-r));
    }
    if (r == 0 && n < 0)
        r = sync_fail_git(err, n, "a kept content");
    git_odb_stream_free(stream);
    free(piece);
    return r;
}

int sync_store_get_blob(struct sync_store *store, const uint8_t id[SYNC_ID_BYTES], int fd,
                        struct err *err)
{
    git_oid oid;

    git_oid_fromraw(&oid, id);
    return sync_odb_write_to(store->odb, &oid, fd, err);
}
