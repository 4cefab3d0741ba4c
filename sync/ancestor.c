/* SPDX-License-Identifier: MIT */
#include "sync/ancestor.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <openssl/sha.h>
#include "sync/path.h"

static const char magic[8] = "TRSYNCA1";

enum {
    HEAD = sizeof(magic) + 8 + 4,
    NODE = 2 + 2 + 1 + 1, /* and the path's bytes, and an id */
    SUM = SHA256_DIGEST_LENGTH,
    TMP_SIZE = 4096,
};

/* ---- bytes ---- */

static uint8_t *put(uint8_t *at, uint64_t value, int n)
{
    for (int i = 0; i < n; i++)
        *at++ = (uint8_t)(value >> (8 * i));
    return at;
}

static uint64_t get(const uint8_t *at, int n)
{
    uint64_t value = 0;

    for (int i = n - 1; i >= 0; i--)
        value = value << 8 | at[i];
    return value;
}

static bool has_id(unsigned what)
{
    return what == SYNC_IS_FILE || what == SYNC_IS_LINK;
}

static bool is_kept(const struct sync_node *node)
{
    return node->len > 0 && (has_id(node->value.what) || node->value.what == SYNC_IS_DIR);
}

int sync_ancestor_encode(const struct sync_state *st, uint64_t instance, uint8_t **out, size_t *len)
{
    const struct sync_node *node, *last = NULL;
    struct sync_cursor c;
    size_t size = HEAD + SUM, n = 0;
    uint8_t *bytes, *at;

    for (sync_cursor_start(&c, st, "", 0); (node = sync_cursor_get(&c)) != NULL;
         sync_cursor_next(&c))
        size += NODE + node->len + SYNC_ID_LEN;
    bytes = malloc(size);
    if (bytes == NULL)
        return -ENOMEM;
    at = bytes + HEAD;
    for (sync_cursor_start(&c, st, "", 0); (node = sync_cursor_get(&c)) != NULL;
         sync_cursor_next(&c)) {
        size_t same = 0;

        if (!is_kept(node))
            continue;
        while (last != NULL && same < last->len && same < node->len &&
               last->path[same] == node->path[same])
            same++;
        at = put(at, same, 2);
        at = put(at, node->len - same, 2);
        memcpy(at, node->path + same, node->len - same);
        at += node->len - same;
        *at++ = node->value.what;
        *at++ = node->value.is_exec;
        if (has_id(node->value.what)) {
            memcpy(at, node->value.id.bytes, SYNC_ID_LEN);
            at += SYNC_ID_LEN;
        }
        last = node;
        n++;
    }
    memcpy(bytes, magic, sizeof(magic));
    put(put(bytes + sizeof(magic), instance, 8), n, 4);
    SHA256(bytes, (size_t)(at - bytes), at);
    *out = bytes;
    *len = (size_t)(at + SUM - bytes);
    return 0;
}

/* One node at `at`, of at most n bytes; path holds the one before and becomes this one's. Returns
 * the bytes it took, or a negative errno. */
static long decode_node(const uint8_t *at, size_t n, char *path, size_t *path_len,
                        struct sync_state *st)
{
    struct sync_node *node;
    size_t same, more, len, used;
    int r;

    if (n < NODE)
        return -EBADMSG;
    same = get(at, 2);
    more = get(at + 2, 2);
    len = same + more;
    if (same > *path_len || len > SYNC_PATH_MAX || n < NODE + more)
        return -EBADMSG;
    used = NODE + more + (has_id(at[4 + more]) ? SYNC_ID_LEN : 0);
    if (n < used || at[4 + more] > SYNC_IS_DIR || at[4 + more] == SYNC_IS_ABSENT ||
        at[5 + more] > (at[4 + more] == SYNC_IS_FILE))
        return -EBADMSG;
    memcpy(path + same, at + 4, more);
    *path_len = len;
    if (sync_path_check(path, len) != SYNC_PATH_OK)
        return -EBADMSG;
    r = sync_state_put(st, path, len, &node);
    if (r != 0)
        return r;
    if (node->value.what != SYNC_IS_ABSENT)
        return -EBADMSG; /* the same path twice */
    node->value.what = at[4 + more];
    node->value.is_exec = at[5 + more];
    if (used > NODE + more)
        memcpy(node->value.id.bytes, at + NODE + more, SYNC_ID_LEN);
    return (long)used;
}

int sync_ancestor_decode(const void *bytes, size_t len, uint64_t instance, struct sync_state *st)
{
    const uint8_t *at = bytes;
    char path[SYNC_PATH_MAX + 1];
    uint8_t sum[SUM];
    size_t left, n, path_len = 0;
    long r = 0;

    sync_state_clear(st);
    if (len < HEAD + SUM || memcmp(at, magic, sizeof(magic)) != 0)
        return -EBADMSG;
    SHA256(at, len - SUM, sum);
    if (memcmp(sum, at + len - SUM, SUM) != 0)
        return -EBADMSG;
    if (get(at + sizeof(magic), 8) != instance)
        return -ESTALE;
    n = get(at + sizeof(magic) + 8, 4);
    at += HEAD;
    left = len - HEAD - SUM;
    for (; n > 0; n--) {
        r = decode_node(at, left, path, &path_len, st);
        if (r < 0)
            break;
        at += r;
        left -= (size_t)r;
    }
    if (r >= 0 && left > 0)
        r = -EBADMSG;
    if (r < 0)
        sync_state_clear(st);
    return r < 0 ? (int)r : 0;
}

/* ---- the file ---- */

static int sync_folder_of(const char *path)
{
    char dir[TMP_SIZE];
    const char *slash = strrchr(path, '/');
    int fd, r = 0;

    if (slash == NULL)
        snprintf(dir, sizeof(dir), ".");
    else
        snprintf(dir, sizeof(dir), "%.*s", slash == path ? 1 : (int)(slash - path), path);
    fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    if (fsync(fd) != 0)
        r = -errno;
    close(fd);
    return r;
}

static int write_all(int fd, const uint8_t *bytes, size_t len)
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
    return fsync(fd) != 0 ? -errno : 0;
}

int sync_ancestor_write(const char *path, const void *bytes, size_t len, struct err *err)
{
    char tmp[TMP_SIZE];
    int fd, r;

    if (snprintf(tmp, sizeof(tmp), "%s.tmp", path) >= (int)sizeof(tmp))
        return tr_err_set(err, -ENAMETOOLONG, "%s: path too long", path);
    fd = open(tmp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return tr_err_set(err, -errno, "cannot write %s: %s", tmp, strerror(errno));
    r = write_all(fd, bytes, len);
    if (close(fd) != 0 && r == 0)
        r = -errno;
    if (r == 0 && rename(tmp, path) != 0)
        r = -errno;
    if (r == 0)
        r = sync_folder_of(path);
    else
        (void)unlink(tmp);
    return r == 0 ? 0 : tr_err_set(err, r, "cannot write %s: %s", path, strerror(-r));
}

/* All of a regular file; *out is yours. */
static int read_all(int fd, uint8_t **out, size_t *len)
{
    struct stat st;
    uint8_t *bytes;
    size_t n = 0;

    if (fstat(fd, &st) != 0)
        return -errno;
    if (!S_ISREG(st.st_mode) || st.st_size > SYNC_ANCESTOR_FILE_MAX)
        return -EFBIG;
    bytes = malloc((size_t)st.st_size + 1);
    if (bytes == NULL)
        return -ENOMEM;
    while (n < (size_t)st.st_size) {
        ssize_t got = read(fd, bytes + n, (size_t)st.st_size - n);

        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0) {
            int r = -errno;

            free(bytes);
            return r;
        }
        if (got == 0)
            break;
        n += (size_t)got;
    }
    *out = bytes;
    *len = n;
    return 0;
}

int sync_ancestor_read(const char *path, uint64_t instance, struct sync_state *st, bool *is_fresh,
                       struct err *why)
{
    uint8_t *bytes = NULL;
    size_t len = 0;
    int fd, r;

    *is_fresh = true;
    tr_err_clear(why);
    sync_state_clear(st);
    fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0) {
        if (errno != ENOENT)
            tr_err_set(why, -errno, "%s: %s", path, strerror(errno));
        return 0;
    }
    r = read_all(fd, &bytes, &len);
    close(fd);
    if (r == 0)
        r = sync_ancestor_decode(bytes, len, instance, st);
    free(bytes);
    *is_fresh = r != 0;
    if (r == -ENOMEM)
        return r;
    if (r != 0)
        tr_err_set(why, r, "%s: %s", path,
                   r == -ESTALE    ? "of another instance"
                   : r == -EBADMSG ? "damaged"
                                   : strerror(-r));
    return 0;
}
