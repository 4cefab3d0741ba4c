/* SPDX-License-Identifier: MIT */
#include "vmm/seal.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <openssl/rand.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "transom/hex.h"
#include "vmm/file.h"
#include "vmm/text.h"

#define KEY_LEN   32
#define NONCE_LEN 12
#define TAG_LEN   16
#define ID_LEN    8
#define KEYS_MAX  16
#define DATA_MAX  (1u << 20)

struct key {
    char id[ID_LEN + 1];
    uint8_t bytes[KEY_LEN];
};

struct vmm_seal {
    char dir[VMM_PATH_SIZE / 2], name[64];
    struct key keys[KEYS_MAX]; /* the newest last */
    size_t n_keys;
};

/* Exactly len bytes. */
static int from_hex(const char *text, uint8_t *out, size_t len)
{
    if (text == NULL || strlen(text) != 2 * len)
        return -EBADMSG;
    for (size_t i = 0; i < len; i++) {
        int high = tr_hex_digit(text[2 * i]), low = tr_hex_digit(text[2 * i + 1]);

        if (high < 0 || low < 0)
            return -EBADMSG;
        out[i] = (uint8_t)(high << 4 | low);
    }
    return 0;
}

/* The key file: {"v":1,"keys":[{"id","key"}]}, written without jansson, whose memory nobody wipes.
 */
static int save(const struct vmm_seal *seal, struct err *err)
{
    char text[KEYS_MAX * (2 * KEY_LEN + ID_LEN + 32) + 64], hex[2 * KEY_LEN + 1];
    size_t len = (size_t)snprintf(text, sizeof(text), "{\"v\":1,\"keys\":[");
    int r;

    for (size_t i = 0; i < seal->n_keys; i++) {
        vmm_hex(seal->keys[i].bytes, KEY_LEN, hex);
        len += (size_t)snprintf(text + len, sizeof(text) - len, "%s{\"id\":\"%s\",\"key\":\"%s\"}",
                                i == 0 ? "" : ",", seal->keys[i].id, hex);
    }
    len += (size_t)snprintf(text + len, sizeof(text) - len, "]}\n");
    r = vmm_file_write(seal->dir, seal->name, text, len, err);
    explicit_bzero(text, sizeof(text));
    explicit_bzero(hex, sizeof(hex));
    return r;
}

static int add_key(struct vmm_seal *seal, struct err *err)
{
    struct key *key = &seal->keys[seal->n_keys];

    if (seal->n_keys == KEYS_MAX)
        return tr_err_set(err, -ENOSPC, "%s/%s holds %d keys already", seal->dir, seal->name,
                          KEYS_MAX);
    if (RAND_bytes(key->bytes, KEY_LEN) != 1)
        return tr_err_set(err, -EIO, "no random bytes for a key");
    vmm_random_hex(key->id, ID_LEN);
    seal->n_keys++;
    return 0;
}

static int check_file(const char *path, struct err *err)
{
    struct stat st;

    if (lstat(path, &st) != 0)
        return errno == ENOENT
                   ? -ENOENT
                   : tr_err_set(err, -errno, "cannot read %s: %s", path, strerror(errno));
    if (!S_ISREG(st.st_mode))
        return tr_err_set(err, -EINVAL, "%s: not a regular file", path);
    if (st.st_uid != geteuid())
        return tr_err_set(err, -EPERM, "%s belongs to uid %u: chown it to uid %u", path,
                          (unsigned)st.st_uid, (unsigned)geteuid());
    if ((st.st_mode & 077) != 0)
        return tr_err_set(err, -EPERM, "%s can be read by others: chmod 600 it", path);
    return 0;
}

static int parse_keys(struct vmm_seal *seal, const json_t *file)
{
    const json_t *list = json_object_get(file, "keys"), *item;
    size_t i;

    if (json_integer_value(json_object_get(file, "v")) != 1 || !json_is_array(list) ||
        json_array_size(list) == 0 || json_array_size(list) > KEYS_MAX)
        return -EBADMSG;
    json_array_foreach(list, i, item)
    {
        const char *id = json_string_value(json_object_get(item, "id"));

        if (id == NULL || strlen(id) != ID_LEN ||
            from_hex(json_string_value(json_object_get(item, "key")), seal->keys[i].bytes,
                     KEY_LEN) != 0)
            return -EBADMSG;
        memcpy(seal->keys[i].id, id, ID_LEN + 1);
    }
    seal->n_keys = i;
    return 0;
}

static int load(struct vmm_seal *seal, bool may_create, struct err *err)
{
    char path[VMM_PATH_SIZE];
    json_t *file = NULL;
    int r;

    snprintf(path, sizeof(path), "%s/%s", seal->dir, seal->name);
    r = check_file(path, err);
    if (r == -ENOENT && may_create) {
        r = add_key(seal, err);
        return r == 0 ? save(seal, err) : r;
    }
    if (r == -ENOENT)
        return tr_err_set(err, r,
                          "%s is missing: bring it back from a backup, or remove the "
                          "secrets that it opens",
                          path);
    if (r != 0)
        return r;
    r = vmm_file_read_json(path, 8192, &file, err);
    if (r != 0)
        return r;
    r = parse_keys(seal, file);
    json_decref(file);
    return r == 0 ? 0 : tr_err_set(err, r, "%s: not a key file", path);
}

int vmm_seal_open(const char *dir, const char *name, bool may_create, struct vmm_seal **out,
                  struct err *err)
{
    struct vmm_seal *seal;
    int r = vmm_file_mkdirs(dir, 0700, err);

    if (r != 0)
        return r;
    seal = calloc(1, sizeof(*seal));
    if (seal == NULL)
        return tr_err_set(err, -ENOMEM, "out of memory");
    if (snprintf(seal->dir, sizeof(seal->dir), "%s", dir) >= (int)sizeof(seal->dir) ||
        snprintf(seal->name, sizeof(seal->name), "%s", name) >= (int)sizeof(seal->name))
        r = tr_err_set(err, -ENAMETOOLONG, "%s/%s: path too long", dir, name);
    else
        r = load(seal, may_create, err);
    if (r != 0) {
        vmm_seal_free(seal);
        return r;
    }
    *out = seal;
    return 0;
}

void vmm_seal_free(struct vmm_seal *seal)
{
    if (seal == NULL)
        return;
    explicit_bzero(seal, sizeof(*seal));
    free(seal);
}

static const struct key *find(const struct vmm_seal *seal, const char *id)
{
    for (size_t i = 0; id != NULL && i < seal->n_keys; i++) {
        if (strcmp(seal->keys[i].id, id) == 0)
            return &seal->keys[i];
    }
    return NULL;
}

/* box: ciphertext and tag. */
static bool encrypt(const struct key *key, const uint8_t *nonce, const char *context,
                    const void *data, size_t len, uint8_t *box)
{
    EVP_CIPHER_CTX *ctx = EVP_CIPHER_CTX_new();
    int n, end;
    bool ok =
        ctx != NULL && EVP_EncryptInit_ex(ctx, EVP_aes_256_gcm(), NULL, key->bytes, nonce) == 1 &&
        EVP_EncryptUpdate(ctx, NULL, &n, (const uint8_t *)context, (int)strlen(context)) == 1 &&
        EVP_EncryptUpdate(ctx, box, &n, data, (int)len) == 1 &&
        EVP_EncryptFinal_ex(ctx, box + n, &end) == 1 &&
        EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_GCM_GET_TAG, TAG_LEN, box + len) == 1;

    EVP_CIPHER_CTX_free(ctx);
    return ok;
}

static bool decrypt(const struct key *key, const uint8_t *nonce, const char *context, uint8_t *box,
                    size_t len, uint8_t *data)
{
    EVP_CIPHER_CTX *ctx = EVP_CIPHER_CTX_new();
    int n, end;
    bool ok =
        ctx != NULL && EVP_DecryptInit_ex(ctx, EVP_aes_256_gcm(), NULL, key->bytes, nonce) == 1 &&
        EVP_DecryptUpdate(ctx, NULL, &n, (const uint8_t *)context, (int)strlen(context)) == 1 &&
        EVP_DecryptUpdate(ctx, data, &n, box, (int)len) == 1 &&
        EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_GCM_SET_TAG, TAG_LEN, box + len) == 1 &&
        EVP_DecryptFinal_ex(ctx, data + n, &end) == 1;

    EVP_CIPHER_CTX_free(ctx);
    return ok;
}

int vmm_seal(const struct vmm_seal *seal, const char *context, const void *data, size_t len,
             json_t **out, struct err *err)
{
    const struct key *key = &seal->keys[seal->n_keys - 1];
    uint8_t nonce[NONCE_LEN], *box;
    char nonce_hex[2 * NONCE_LEN + 1], *hex;

    if (len > DATA_MAX)
        return tr_err_set(err, -E2BIG, "more than %u bytes", DATA_MAX);
    box = malloc(len + TAG_LEN);
    hex = malloc(2 * (len + TAG_LEN) + 1);
    *out = NULL;
    if (box != NULL && hex != NULL && RAND_bytes(nonce, NONCE_LEN) == 1 &&
        encrypt(key, nonce, context, data, len, box)) {
        vmm_hex(box, len + TAG_LEN, hex);
        vmm_hex(nonce, NONCE_LEN, nonce_hex);
        *out = json_pack("{ss, ss, ss}", "key", key->id, "nonce", nonce_hex, "data", hex);
    }
    free(box);
    free(hex);
    return *out != NULL ? 0 : tr_err_set(err, -ENOMEM, "cannot seal: out of memory");
}

int vmm_unseal(const struct vmm_seal *seal, const char *context, const json_t *record,
               uint8_t **data, size_t *len, struct err *err)
{
    const char *id = json_string_value(json_object_get(record, "key"));
    const char *hex = json_string_value(json_object_get(record, "data"));
    const struct key *key = find(seal, id);
    size_t n = hex == NULL ? 0 : strlen(hex) / 2;
    uint8_t nonce[NONCE_LEN], *box, *text;
    bool ok;

    if (key == NULL)
        return tr_err_set(err, -EBADMSG, "its key is not in %s/%s", seal->dir, seal->name);
    if (n < TAG_LEN || n > DATA_MAX + TAG_LEN ||
        from_hex(json_string_value(json_object_get(record, "nonce")), nonce, NONCE_LEN) != 0)
        return tr_err_set(err, -EBADMSG, "not a sealed record");
    box = malloc(n);
    text = malloc(n - TAG_LEN + 1);
    if (box == NULL || text == NULL) {
        free(box);
        free(text);
        return tr_err_set(err, -ENOMEM, "out of memory");
    }
    ok = from_hex(hex, box, n) == 0 && decrypt(key, nonce, context, box, n - TAG_LEN, text);
    free(box);
    if (!ok) {
        explicit_bzero(text, n - TAG_LEN);
        free(text);
        return tr_err_set(err, -EBADMSG, "it was altered, or is another's");
    }
    text[n - TAG_LEN] = '\0';
    *data = text;
    *len = n - TAG_LEN;
    return 0;
}

bool vmm_seal_is_current(const struct vmm_seal *seal, const json_t *record)
{
    const char *id = json_string_value(json_object_get(record, "key"));

    return id != NULL && strcmp(id, seal->keys[seal->n_keys - 1].id) == 0;
}

int vmm_seal_rotate(struct vmm_seal *seal, struct err *err)
{
    int r;

    if (seal->n_keys > 1)
        return 0;
    r = add_key(seal, err);
    if (r != 0)
        return r;
    r = save(seal, err);
    if (r != 0)
        seal->n_keys--;
    return r;
}

int vmm_seal_forget_old(struct vmm_seal *seal, struct err *err)
{
    struct vmm_seal old = *seal;
    int r;

    seal->keys[0] = old.keys[old.n_keys - 1];
    explicit_bzero(seal->keys + 1, (KEYS_MAX - 1) * sizeof(*seal->keys));
    seal->n_keys = 1;
    r = save(seal, err);
    if (r != 0)
        *seal = old;
    explicit_bzero(&old, sizeof(old));
    return r;
}
