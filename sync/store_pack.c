/* SPDX-License-Identifier: MIT */
/* A pack is its objects, each with a short head and deflated, one after the other (gitformat-pack);
 * how many they are stands before them. So they are collected in a file without a name first, and
 * go through libgit2's indexer once all are known, which checks every one, makes the index, syncs
 * both and gives them their names. */
#include <errno.h>
#include <fcntl.h>
#include <git2/indexer.h>
#include <openssl/evp.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>
#include "sync/store_internal.h"

#define PIECE 65536
#define NAME  "pack" /* in the staging folder, for a moment; it has others' names, of digits */

struct sync_packing {
    int fd;
    uint32_t n;
    git_oid *ids; /* a table of `size` places, at most half of them taken; all 0: free */
    size_t size;
    z_stream z;
    git_indexer_progress progress; /* the indexer counts in it */
    uint8_t out[PIECE];
};

/* ---- which objects ---- */

static size_t place_of(const struct sync_packing *p, const git_oid *id)
{
    size_t at;

    memcpy(&at, id->id, sizeof(at));
    for (at &= p->size - 1; !git_oid_is_zero(&p->ids[at]); at = (at + 1) & (p->size - 1))
        if (git_oid_equal(&p->ids[at], id))
            break;
    return at;
}

bool sync_packing_has(const struct sync_packing *p, const git_oid *id)
{
    return !git_oid_is_zero(&p->ids[place_of(p, id)]);
}

static int grow(struct sync_packing *p)
{
    git_oid *old = p->ids;
    const size_t n = p->size;

    p->ids = calloc(2 * n, sizeof(*p->ids));
    if (p->ids == NULL) {
        p->ids = old;
        return -ENOMEM;
    }
    p->size = 2 * n;
    for (size_t i = 0; i < n; i++)
        if (!git_oid_is_zero(&old[i]))
            p->ids[place_of(p, &old[i])] = old[i];
    free(old);
    return 0;
}

/* ---- collecting ---- */

int sync_packing_new(struct sync_store *store, struct sync_packing **out, struct err *err)
{
    struct sync_packing *p = calloc(1, sizeof(*p));
    int r = 0;

    if (p == NULL)
        return tr_err_set(err, -ENOMEM, "out of memory");
    p->size = 1024;
    p->fd = openat(store->staging, NAME, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (p->fd < 0 || unlinkat(store->staging, NAME, 0) != 0)
        r = tr_err_set(err, -errno, "%s/staging: %s", store->dir, strerror(errno));
    p->ids = calloc(p->size, sizeof(*p->ids));
    if (r == 0 && (p->ids == NULL || deflateInit(&p->z, Z_BEST_SPEED) != Z_OK))
        r = tr_err_set(err, -ENOMEM, "out of memory");
    if (r != 0)
        sync_packing_free(p);
    else
        *out = p;
    return r;
}

void sync_packing_free(struct sync_packing *p)
{
    if (p == NULL)
        return;
    (void)deflateEnd(&p->z);
    if (p->fd >= 0)
        close(p->fd);
    free(p->ids);
    free(p);
}

/* Type and size: four bits of it, then seven at a time, the highest bit if more follow. */
static size_t make_head(git_object_t type, size_t size, uint8_t head[12])
{
    size_t n = 0;

    head[n++] = (uint8_t)((unsigned)type << 4 | (size & 15));
    for (size >>= 4; size > 0; size >>= 7) {
        head[n - 1] |= 0x80;
        head[n++] = size & 0x7f;
    }
    return n;
}

int sync_packing_add(struct sync_packing *p, const git_oid *id, git_object_t type, const void *data,
                     size_t len)
{
    uint8_t head[12];
    int r = 2 * (size_t)p->n >= p->size ? grow(p) : 0;

    if (r == 0)
        r = sync_write_all(p->fd, head, make_head(type, len, head));
    if (r != 0 || deflateReset(&p->z) != Z_OK)
        return r != 0 ? r : -EINVAL;
    p->z.next_in = (Bytef *)data; /* not written to */
    p->z.avail_in = (uInt)len;
    do {
        p->z.next_out = p->out;
        p->z.avail_out = PIECE;
        if (deflate(&p->z, Z_FINISH) == Z_STREAM_ERROR)
            return -EINVAL;
        r = sync_write_all(p->fd, p->out, PIECE - p->z.avail_out);
    } while (r == 0 && p->z.avail_out == 0);
    if (r == 0) {
        p->ids[place_of(p, id)] = *id;
        p->n++;
    }
    return r;
}

/* ---- the pack ---- */

static int give(struct sync_packing *p, git_indexer *indexer, EVP_MD_CTX *sum, const void *data,
                size_t len)
{
    return EVP_DigestUpdate(sum, data, len) == 1 &&
                   git_indexer_append(indexer, data, len, &p->progress) == 0
               ? 0
               : -EIO;
}

static int give_all(struct sync_packing *p, git_indexer *indexer, EVP_MD_CTX *sum)
{
    uint8_t head[12] = {'P', 'A', 'C', 'K', 0, 0, 0, 2};
    uint8_t digest[EVP_MAX_MD_SIZE];
    ssize_t n;
    int r;

    for (int i = 0; i < 4; i++)
        head[8 + i] = (uint8_t)(p->n >> (24 - 8 * i));
    r = give(p, indexer, sum, head, sizeof(head));

    for (off_t at = 0; r == 0; at += n) {
        n = pread(p->fd, p->out, PIECE, at);
        if (n < 0 && errno == EINTR)
            n = 0;
        else if (n <= 0) {
            r = n < 0 ? -errno : 0;
            break;
        } else
            r = give(p, indexer, sum, p->out, (size_t)n);
    }
    if (r == 0 && (EVP_DigestFinal_ex(sum, digest, NULL) != 1 ||
                   git_indexer_append(indexer, digest, GIT_OID_RAWSZ, &p->progress) != 0 ||
                   git_indexer_commit(indexer, &p->progress) != 0))
        r = -EIO;
    return r;
}

/* What the two new files weigh. */
static void add_weight(struct sync_store *store, const git_oid *name)
{
    static const char *const endings[] = {"pack", "idx"};
    char hex[SYNC_ID_SIZE], path[80];
    struct stat st;

    git_oid_tostr(hex, sizeof(hex), name);
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof(path), "store.git/objects/pack/pack-%s.%s", hex, endings[i]);
        if (fstatat(store->dir_fd, path, &st, AT_SYMLINK_NOFOLLOW) == 0)
            store->usage.history += (int64_t)st.st_blocks * 512;
    }
}

int sync_packing_finish(struct sync_packing *p, struct sync_store *store, struct err *err)
{
    EVP_MD_CTX *sum = EVP_MD_CTX_new();
    git_indexer *indexer = NULL;
    char *path = NULL;
    int r = 0;

    if (sum == NULL || EVP_DigestInit_ex(sum, EVP_sha1(), NULL) != 1 ||
        asprintf(&path, "%s/store.git/objects/pack", store->dir) < 0) {
        EVP_MD_CTX_free(sum);
        return tr_err_set(err, -ENOMEM, "out of memory");
    }
    errno = 0;
    if (mkdir(path, 0755) != 0 && errno != EEXIST)
        r = tr_err_set(err, -errno, "%s: %s", path, strerror(errno));
    errno = 0;
    if (r == 0 &&
        (git_indexer_new(&indexer, path, 0444, NULL, NULL) != 0 || give_all(p, indexer, sum) != 0))
        r = sync_fail_git(err, -EIO, "cannot write to the checkpoints");
    if (r == 0) {
        r = sync_sync_folder(path, err);
        add_weight(store, git_indexer_hash(indexer));
    }
    if (r == 0 && git_odb_refresh(store->odb) != 0)
        r = sync_fail_git(err, -EIO, "cannot read the checkpoints");
    git_indexer_free(indexer);
    EVP_MD_CTX_free(sum);
    free(path);
    return r;
}
