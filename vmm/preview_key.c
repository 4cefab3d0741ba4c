/* SPDX-License-Identifier: MIT */
#include "vmm/preview_key.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>
#include <uv.h>
#include "transom/log.h"
#include "vmm/file.h"

static int make_master(const char *state_dir, uint8_t master[TR_ROUTE_KEY_SIZE], struct err *err)
{
    if (getrandom(master, TR_ROUTE_KEY_SIZE, 0) != TR_ROUTE_KEY_SIZE)
        return tr_err_set(err, -EIO, "no random bytes: %s", strerror(errno));
    log_info("%s/%s: made", state_dir, VMM_PREVIEW_KEY_FILE);
    return vmm_file_write(state_dir, VMM_PREVIEW_KEY_FILE, master, TR_ROUTE_KEY_SIZE, err);
}

static int check_master(int fd, const char *path, struct err *err)
{
    struct stat st;

    if (fstat(fd, &st) != 0)
        return tr_err_set(err, -errno, "%s: %s", path, strerror(errno));
    if (!S_ISREG(st.st_mode) || st.st_size != TR_ROUTE_KEY_SIZE)
        return tr_err_set(err, -EBADMSG,
                          "%s is not a file of %d bytes; if it is damaged, remove it: a new one is "
                          "made and all links to private previews end",
                          path, TR_ROUTE_KEY_SIZE);
    if (st.st_uid != geteuid())
        return tr_err_set(err, -EPERM, "%s belongs to user %d, not to user %d who runs the manager",
                          path, (int)st.st_uid, (int)geteuid());
    if ((st.st_mode & 077) != 0)
        return tr_err_set(err, -EPERM,
                          "%s may be used by others (mode %04o): chmod 600 it; if somebody has "
                          "read it, remove it instead, which ends all links to private previews",
                          path, (unsigned)st.st_mode & 07777);
    return 0;
}

int vmm_preview_master_open(const char *state_dir, uint8_t master[TR_ROUTE_KEY_SIZE],
                            struct err *err)
{
    char path[VMM_PATH_SIZE];
    ssize_t n;
    int fd, r;

    if (snprintf(path, sizeof(path), "%s/%s", state_dir, VMM_PREVIEW_KEY_FILE) >= (int)sizeof(path))
        return tr_err_set(err, -ENAMETOOLONG, "%s: path too long", state_dir);
    fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0 && errno == ENOENT)
        return make_master(state_dir, master, err);
    if (fd < 0)
        return tr_err_set(err, -errno, "cannot open %s: %s", path, strerror(errno));
    r = check_master(fd, path, err);
    if (r == 0) {
        n = read(fd, master, TR_ROUTE_KEY_SIZE);
        if (n != TR_ROUTE_KEY_SIZE)
            r = tr_err_set(err, -EIO, "cannot read %s: %s", path,
                           n < 0 ? strerror(errno) : "it is cut off");
    }
    close(fd);
    return r;
}

static int hmac(const uint8_t key[TR_ROUTE_KEY_SIZE], const char *text, size_t len,
                uint8_t out[TR_ROUTE_KEY_SIZE])
{
    unsigned n = 0;

    if (HMAC(EVP_sha256(), key, TR_ROUTE_KEY_SIZE, (const unsigned char *)text, len, out, &n) ==
        NULL)
        return UV_ENOMEM;
    assert(n == TR_ROUTE_KEY_SIZE);
    return 0;
}

int vmm_preview_key(const uint8_t master[TR_ROUTE_KEY_SIZE], const char *label, int64_t generation,
                    uint8_t key[TR_ROUTE_KEY_SIZE])
{
    char text[80];
    int n = snprintf(text, sizeof(text), "transom-preview%c%.*s%c%lld", 0, TR_LABEL_LEN, label, 0,
                     (long long)generation);

    return hmac(master, text, (size_t)n, key);
}

int vmm_preview_token(const uint8_t key[TR_ROUTE_KEY_SIZE], const char *label, uint16_t port,
                      int64_t expires_s, char token[VMM_PREVIEW_TOKEN_SIZE])
{
    uint8_t mac[TR_ROUTE_KEY_SIZE];
    char text[80], base64[48];
    size_t len;
    int n = snprintf(text, sizeof(text), "v1%c%.*s%c%u%c%lld", 0, TR_LABEL_LEN, label, 0, port, 0,
                     (long long)expires_s);

    if (hmac(key, text, (size_t)n, mac) != 0)
        return UV_ENOMEM;
    (void)EVP_EncodeBlock((unsigned char *)base64, mac, sizeof(mac));
    for (len = 0; base64[len] != '\0' && base64[len] != '='; len++) {
        if (base64[len] == '+')
            base64[len] = '-';
        else if (base64[len] == '/')
            base64[len] = '_';
    }
    snprintf(token, VMM_PREVIEW_TOKEN_SIZE, "%u.%lld.%.*s", port, (long long)expires_s, (int)len,
             base64);
    explicit_bzero(mac, sizeof(mac));
    explicit_bzero(base64, sizeof(base64));
    return 0;
}
