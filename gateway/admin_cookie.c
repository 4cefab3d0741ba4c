/* SPDX-License-Identifier: MIT */
#include "gateway/admin_cookie.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <openssl/evp.h>
#include <openssl/rand.h>

#include "gateway/http1.h"
#include "transom/hex.h"

#define MAGIC       UINT64_C(0x7472616e736f6164)
#define SECURE_NAME "__Host-transom-admin"
#define PLAIN_NAME  "transom-admin"
#define NONCE_LEN   12
#define TIME_LEN    8
#define TAG_LEN     16
#define PLAIN_MAX   (TIME_LEN + GW_ADMIN_KEY_MAX)

/* As it stands in the memory file; the same machine writes and reads it. */
struct secret {
    uint64_t magic;
    unsigned char key[32];
};

static struct secret secret;

int gw_admin_secret_open(int fd)
{
    struct secret s;
    int r = -EPROTO;

    if (pread(fd, &s, sizeof(s), 0) == (ssize_t)sizeof(s) && s.magic == MAGIC) {
        secret = s;
        r = 0;
    }
    explicit_bzero(&s, sizeof(s));
    return r;
}

int gw_admin_secret_create(void)
{
    int fd = memfd_create("transom-admin-secret", MFD_CLOEXEC), r = 0;
    struct secret s = {.magic = MAGIC};

    if (fd < 0)
        return -errno;
    if (RAND_priv_bytes(s.key, sizeof(s.key)) != 1 ||
        pwrite(fd, &s, sizeof(s), 0) != (ssize_t)sizeof(s))
        r = -EIO;
    explicit_bzero(&s, sizeof(s));
    if (r == 0)
        return fd;
    close(fd);
    return r;
}

/* ---- sealing ---- */

static const char *name_of(bool secure)
{
    return secure ? SECURE_NAME : PLAIN_NAME;
}

/* The name of the cookie is sealed in: one of the other scheme does not open. */
static bool begin(EVP_CIPHER_CTX *ctx, const unsigned char *nonce, bool secure, int sealing)
{
    const char *name = name_of(secure);
    int n;

    return EVP_CipherInit_ex(ctx, EVP_aes_256_gcm(), NULL, secret.key, nonce, sealing) == 1 &&
           EVP_CipherUpdate(ctx, NULL, &n, (const unsigned char *)name, (int)strlen(name)) == 1;
}

/* Returns how many bytes, 0 on a fault. */
static size_t seal(const unsigned char *plain, size_t len, bool secure, unsigned char *out)
{
    EVP_CIPHER_CTX *ctx = EVP_CIPHER_CTX_new();
    int n = 0, rest = 0;
    bool ok;

    ok = ctx != NULL && RAND_bytes(out, NONCE_LEN) == 1 && begin(ctx, out, secure, 1) &&
         EVP_EncryptUpdate(ctx, out + NONCE_LEN, &n, plain, (int)len) == 1 &&
         EVP_EncryptFinal_ex(ctx, out + NONCE_LEN + n, &rest) == 1 &&
         EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_AEAD_GET_TAG, TAG_LEN, out + NONCE_LEN + len) == 1;
    EVP_CIPHER_CTX_free(ctx);
    return ok ? NONCE_LEN + len + TAG_LEN : 0;
}

/* len: more than nonce and tag. Nothing of out counts unless this returns true. */
static bool unseal(unsigned char *sealed, size_t len, bool secure, unsigned char *out)
{
    EVP_CIPHER_CTX *ctx = EVP_CIPHER_CTX_new();
    size_t body = len - NONCE_LEN - TAG_LEN;
    int n = 0, rest = 0;
    bool ok;

    ok = ctx != NULL && begin(ctx, sealed, secure, 0) &&
         EVP_DecryptUpdate(ctx, out, &n, sealed + NONCE_LEN, (int)body) == 1 &&
         EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_AEAD_SET_TAG, TAG_LEN, sealed + len - TAG_LEN) == 1 &&
         EVP_DecryptFinal_ex(ctx, out + n, &rest) == 1;
    EVP_CIPHER_CTX_free(ctx);
    return ok;
}

/* ---- the cookie ---- */

bool gw_admin_key_valid(struct gw_str key)
{
    if (key.len == 0 || key.len > GW_ADMIN_KEY_MAX)
        return false;
    for (size_t i = 0; i < key.len; i++) {
        char c = key.p[i];

        if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
              (c != '\0' && strchr("-._~+/=", c) != NULL)))
            return false;
    }
    return true;
}

static size_t to_hex(const unsigned char *from, size_t len, char *out)
{
    static const char digits[] = "0123456789abcdef";

    for (size_t i = 0; i < len; i++) {
        out[2 * i] = digits[from[i] >> 4];
        out[2 * i + 1] = digits[from[i] & 15];
    }
    return 2 * len;
}

int gw_admin_cookie(struct gw_str key, bool secure, uint64_t now, char out[GW_ADMIN_COOKIE_MAX])
{
    unsigned char plain[PLAIN_MAX], sealed[NONCE_LEN + PLAIN_MAX + TAG_LEN];
    uint64_t expires = now + GW_ADMIN_LIFE_S;
    char text[GW_ADMIN_SEALED_MAX];
    size_t n = 0;

    if (key.len > GW_ADMIN_KEY_MAX)
        return -EINVAL;
    if (key.len > 0) {
        for (int i = 0; i < TIME_LEN; i++)
            plain[i] = (unsigned char)(expires >> (56 - 8 * i));
        memcpy(plain + TIME_LEN, key.p, key.len);
        n = seal(plain, TIME_LEN + key.len, secure, sealed);
        explicit_bzero(plain, sizeof(plain));
        if (n == 0)
            return -EIO;
        n = to_hex(sealed, n, text);
    }
    snprintf(out, GW_ADMIN_COOKIE_MAX, "%s=%.*s; Path=/; HttpOnly; SameSite=Strict%s; Max-Age=%d",
             name_of(secure), (int)n, text, secure ? "; Secure" : "",
             key.len > 0 ? GW_ADMIN_LIFE_S : 0);
    return 0;
}

static bool open_value(struct gw_str value, bool secure, uint64_t now,
                       char key[GW_ADMIN_KEY_MAX + 1])
{
    unsigned char sealed[GW_ADMIN_SEALED_MAX / 2], plain[PLAIN_MAX];
    size_t len = value.len / 2, key_len;
    uint64_t expires = 0;
    bool ok;

    if (value.len % 2 != 0 || len > sizeof(sealed) || len <= NONCE_LEN + TIME_LEN + TAG_LEN)
        return false;
    for (size_t i = 0; i < len; i++) {
        int high = tr_hex_digit(value.p[2 * i]), low = tr_hex_digit(value.p[2 * i + 1]);

        if (high < 0 || low < 0)
            return false;
        sealed[i] = (unsigned char)(high * 16 + low);
    }
    key_len = len - NONCE_LEN - TIME_LEN - TAG_LEN;
    ok = unseal(sealed, len, secure, plain);
    for (int i = 0; i < TIME_LEN; i++)
        expires = expires << 8 | plain[i];
    ok = ok && expires > now;
    if (ok) {
        memcpy(key, plain + TIME_LEN, key_len);
        key[key_len] = '\0';
    }
    explicit_bzero(plain, sizeof(plain));
    return ok;
}

/* The value of the pair p..end when it has this name. */
static bool is_pair(const char *p, const char *end, const char *name, struct gw_str *value)
{
    size_t n = strlen(name);

    while (p < end && (*p == ' ' || *p == '\t'))
        p++;
    while (end > p && (end[-1] == ' ' || end[-1] == '\t'))
        end--;
    if ((size_t)(end - p) <= n || memcmp(p, name, n) != 0 || p[n] != '=')
        return false;
    *value = (struct gw_str){p + n + 1, (size_t)(end - p) - n - 1};
    return true;
}

enum gw_admin_sign gw_admin_signed_in(const struct gw_request *req, bool secure, uint64_t now,
                                      char key[GW_ADMIN_KEY_MAX + 1])
{
    const char *name = name_of(secure);
    struct gw_str found = {NULL, 0};
    size_t n_found = 0;

    for (size_t i = 0; i < req->n_fields; i++) {
        const struct gw_field *f = &req->fields[i];
        const char *p = f->value, *end = p + f->value_len;

        if (f->id != GW_FIELD_COOKIE)
            continue;
        while (p < end) {
            const char *stop = memchr(p, ';', (size_t)(end - p));

            if (stop == NULL)
                stop = end;
            n_found += is_pair(p, stop, name, &found);
            p = stop < end ? stop + 1 : end;
        }
    }
    if (n_found > 1)
        return GW_ADMIN_DOUBLED;
    if (n_found == 1 && open_value(found, secure, now, key))
        return GW_ADMIN_SIGNED_IN;
    return GW_ADMIN_SIGNED_OUT;
}
