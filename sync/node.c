/* SPDX-License-Identifier: MIT */
/* SHA-1 by OpenSSL's own functions, not by EVP: in a static program EVP brings all algorithms,
 * dlopen() and name look-up with it, these bring 20 KB. */
#define OPENSSL_SUPPRESS_DEPRECATED
#include "sync/node.h"

#include <assert.h>
#include <inttypes.h>
#include <openssl/sha.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <uv.h>

static_assert(sizeof(SHA_CTX) <= sizeof(((struct sync_hash *)0)->state), "room for the state");

bool sync_sig_equal(const struct sync_sig *a, const struct sync_sig *b)
{
    if (a->ino != b->ino || a->mode != b->mode)
        return false;
    return S_ISDIR(a->mode) ||
           (a->mtime_ns == b->mtime_ns && a->ctime_ns == b->ctime_ns && a->size == b->size);
}

enum sync_type sync_sig_type(const struct sync_sig *sig)
{
    return S_ISREG(sig->mode)   ? SYNC_TYPE_FILE
           : S_ISDIR(sig->mode) ? SYNC_TYPE_DIR
           : S_ISLNK(sig->mode) ? SYNC_TYPE_LINK
                                : SYNC_TYPE_SPECIAL;
}

bool sync_sig_exec(const struct sync_sig *sig)
{
    return (sig->mode & S_IXUSR) != 0;
}

bool sync_id_equal(const struct sync_id *a, const struct sync_id *b)
{
    return memcmp(a->bytes, b->bytes, SYNC_ID_LEN) == 0;
}

void sync_id_hex(const struct sync_id *id, char out[2 * SYNC_ID_LEN + 1])
{
    static const char digits[] = "0123456789abcdef";

    for (size_t i = 0; i < SYNC_ID_LEN; i++) {
        out[2 * i] = digits[id->bytes[i] >> 4];
        out[2 * i + 1] = digits[id->bytes[i] & 15];
    }
    out[2 * SYNC_ID_LEN] = '\0';
}

static SHA_CTX *context(struct sync_hash *hash)
{
    return (SHA_CTX *)hash->state;
}

/* These functions of OpenSSL cannot fail. */
void sync_hash_start(struct sync_hash *hash, int64_t size)
{
    char head[32];
    int len = snprintf(head, sizeof(head), "blob %" PRId64, size);

    SHA1_Init(context(hash));
    SHA1_Update(context(hash), head, (size_t)len + 1); /* with its NUL */
}

void sync_hash_feed(struct sync_hash *hash, const void *bytes, size_t len)
{
    SHA1_Update(context(hash), bytes, len);
}

void sync_hash_end(struct sync_hash *hash, struct sync_id *id)
{
    SHA1_Final(id->bytes, context(hash));
}

void sync_id_of(const void *bytes, size_t len, struct sync_id *id)
{
    struct sync_hash hash;

    sync_hash_start(&hash, (int64_t)len);
    sync_hash_feed(&hash, bytes, len);
    sync_hash_end(&hash, id);
}

const char *sync_status_text(int status)
{
    switch (status) {
    case 0:
        return "done";
    case SYNC_CHANGED:
        return "changed";
    case SYNC_BUSY:
        return "busy";
    default:
        return uv_strerror(status);
    }
}
