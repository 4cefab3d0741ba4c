/* SPDX-License-Identifier: MIT */
#include "gateway/tickets.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <openssl/core_names.h>
#include <openssl/evp.h>
#include <openssl/params.h>
#include <openssl/rand.h>
#include <openssl/ssl.h>

#define N_KEYS 3
#define MAGIC  UINT64_C(0x7472616e736f6d31)

struct key {
    unsigned char name[16], aes[32], hmac[32];
};

/* As it stands in the memory file; the same machine writes and reads it. */
struct keys {
    uint64_t magic, n, made_ms; /* when the newest was, by the monotonic clock */
    struct key key[N_KEYS];     /* newest first */
};

static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;
static struct keys keys;
static int keys_fd = -1;

static uint64_t now_ms(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

static int make(struct key *key)
{
    return RAND_bytes(key->name, sizeof(key->name)) == 1 &&
                   RAND_priv_bytes(key->aes, sizeof(key->aes)) == 1 &&
                   RAND_priv_bytes(key->hmac, sizeof(key->hmac)) == 1
               ? 0
               : -EIO;
}

static int write_keys(int fd, const struct keys *k)
{
    ssize_t n = pwrite(fd, k, sizeof(*k), 0);

    return n == (ssize_t)sizeof(*k) ? 0 : n < 0 ? -errno : -EIO;
}

int gw_tickets_open(int fd)
{
    struct keys k;
    int r = 0;

    if (pread(fd, &k, sizeof(k), 0) != (ssize_t)sizeof(k) || k.magic != MAGIC || k.n < 1 ||
        k.n > N_KEYS || k.made_ms > now_ms()) {
        r = -EPROTO;
    } else {
        keys = k;
        keys_fd = fd;
    }
    explicit_bzero(&k, sizeof(k));
    return r;
}

int gw_tickets_create(void)
{
    int fd = memfd_create("transom-ticket-keys", MFD_CLOEXEC), r;
    struct keys k;

    if (fd < 0)
        return -errno;
    memset(&k, 0, sizeof(k));
    k.magic = MAGIC;
    k.n = 1;
    k.made_ms = now_ms();
    r = make(&k.key[0]);
    if (r == 0)
        r = write_keys(fd, &k);
    explicit_bzero(&k, sizeof(k));
    if (r == 0)
        return fd;
    close(fd);
    return r;
}

int64_t gw_tickets_rotate(uint64_t max_age_ms)
{
    uint64_t now = now_ms(), age = now - keys.made_ms;
    struct keys k;
    int r;

    if (age < max_age_ms)
        return (int64_t)(max_age_ms - age);
    memset(&k, 0, sizeof(k));
    k.magic = MAGIC;
    k.made_ms = now;
    k.n = keys.n < N_KEYS ? keys.n + 1 : N_KEYS;
    memcpy(&k.key[1], &keys.key[0], (size_t)(k.n - 1) * sizeof(struct key));
    r = make(&k.key[0]);
    if (r == 0)
        r = write_keys(keys_fd, &k);
    if (r == 0) {
        pthread_rwlock_wrlock(&lock);
        keys = k;
        pthread_rwlock_unlock(&lock);
    }
    explicit_bzero(&k, sizeof(k));
    return r == 0 ? (int64_t)max_age_ms : r;
}

/* Which of the keys is called this? -1: none of them, any more. */
static int find(const unsigned char *name)
{
    for (size_t i = 0; i < keys.n; i++)
        if (memcmp(keys.key[i].name, name, sizeof(keys.key[i].name)) == 0)
            return (int)i;
    return -1;
}

static bool use(const struct key *key, unsigned char *iv, EVP_CIPHER_CTX *cipher, EVP_MAC_CTX *mac,
                int sealing)
{
    OSSL_PARAM params[] = {
        OSSL_PARAM_construct_octet_string(OSSL_MAC_PARAM_KEY, (void *)key->hmac, sizeof(key->hmac)),
        OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, (char *)"sha256", 0),
        OSSL_PARAM_construct_end(),
    };

    return EVP_CipherInit_ex(cipher, EVP_aes_256_cbc(), NULL, key->aes, iv, sealing) == 1 &&
           EVP_MAC_CTX_set_params(mac, params) == 1;
}

/* SSL_CTX_set_tlsext_ticket_key_evp_cb(3): 1 used, 2 used and a newer ticket wanted, 0 unknown (a
 * full handshake follows), -1 fault. */
static int on_ticket(SSL *ssl, unsigned char *name, unsigned char *iv, EVP_CIPHER_CTX *cipher,
                     EVP_MAC_CTX *mac, int sealing)
{
    int i = 0, r;

    (void)ssl;
    if (sealing && RAND_bytes(iv, EVP_CIPHER_get_iv_length(EVP_aes_256_cbc())) != 1)
        return -1;
    pthread_rwlock_rdlock(&lock);
    if (sealing)
        memcpy(name, keys.key[0].name, sizeof(keys.key[0].name));
    else
        i = find(name);
    r = i < 0 ? 0 : !use(&keys.key[i], iv, cipher, mac, sealing) ? -1 : i == 0 ? 1 : 2;
    pthread_rwlock_unlock(&lock);
    return r;
}

void gw_tickets_use(SSL_CTX *ctx)
{
    SSL_CTX_set_tlsext_ticket_key_evp_cb(ctx, on_ticket);
}
