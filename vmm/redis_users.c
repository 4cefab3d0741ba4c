/* SPDX-License-Identifier: MIT */
#include "vmm/redis_users.h"

#include <errno.h>
#include <openssl/sha.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "transom/hex.h"
#include "transom/state.h"
#include "vmm/file.h"
#include "vmm/text.h"

#define PASSWORD_LEN 64 /* hexadecimal digits */

/* The gateway reads routes and their changes, and writes its own figures. The manager works on our
 * keys, mostly by scripts, whose commands are judged by these rules, too. */
static const struct {
    const char *name, *rights;
} users[] = {
    {TR_REDIS_MANAGER, "~transom:* +@read +@write -@scripting -@dangerous +eval +evalsha +ping"},
    {TR_REDIS_GATEWAY,
     "%R~" TR_KEY_ROUTES " %R~" TR_KEY_ROUTE_CHANGES " +ping +hget +hscan +xread +xrange +xrevrange"
     " (%W~" TR_KEY_GATEWAY_STATS "* +hset +xadd +pexpire)"},
    {TR_REDIS_ADMIN, "~* &* +@all"},
};
#define N_USERS (sizeof(users) / sizeof(users[0]))

static void file_name(const char *user, char out[64])
{
    snprintf(out, 64, TR_REDIS_PASSWORD_FILE, user);
}

/* "password\n" of our own making. */
static bool is_password(const char *text, size_t len)
{
    if (len != PASSWORD_LEN + 1 || text[PASSWORD_LEN] != '\n')
        return false;
    for (size_t i = 0; i < PASSWORD_LEN; i++) {
        if (tr_hex_digit(text[i]) < 0)
            return false;
    }
    return true;
}

/* password: with a new line and NUL. */
static int read_or_make(const char *run_dir, const char *user, char password[PASSWORD_LEN + 2],
                        struct err *err)
{
    char name[64], path[VMM_PATH_SIZE];
    struct err ignored = {0};
    char *text = NULL;
    size_t len = 0;

    file_name(user, name);
    snprintf(path, sizeof(path), "%s/%s", run_dir, name);
    if (vmm_file_read(path, PASSWORD_LEN + 2, &text, &len, &ignored) == 0 &&
        is_password(text, len)) {
        memcpy(password, text, PASSWORD_LEN + 2);
        explicit_bzero(text, len);
        free(text);
        return 0;
    }
    free(text);
    vmm_random_hex(password, PASSWORD_LEN);
    memcpy(password + PASSWORD_LEN, "\n", 2);
    return vmm_file_write(run_dir, name, password, PASSWORD_LEN + 1, err);
}

/* The gateway's user may have changed since the file was made. */
static int give_to(const char *run_dir, const gid_t *group, struct err *err)
{
    char name[64], path[VMM_PATH_SIZE];

    file_name(TR_REDIS_GATEWAY, name);
    snprintf(path, sizeof(path), "%s/%s", run_dir, name);
    if ((group != NULL && chown(path, (uid_t)-1, *group) != 0) ||
        chmod(path, group != NULL ? 0640 : 0600) != 0)
        return tr_err_set(err, -errno, "%s: %s", path, strerror(errno));
    return 0;
}

int vmm_redis_users_init(const char *run_dir, const gid_t *group, char acl[VMM_REDIS_USERS_SIZE],
                         struct err *err)
{
    size_t n = (size_t)snprintf(acl, VMM_REDIS_USERS_SIZE, "user default off resetpass -@all\n");

    for (size_t i = 0; i < N_USERS; i++) {
        uint8_t digest[SHA256_DIGEST_LENGTH];
        char password[PASSWORD_LEN + 2], hash[2 * SHA256_DIGEST_LENGTH + 1];
        int r = read_or_make(run_dir, users[i].name, password, err);

        if (r == 0 && strcmp(users[i].name, TR_REDIS_GATEWAY) == 0)
            r = give_to(run_dir, group, err);
        if (r == 0) {
            SHA256((const unsigned char *)password, PASSWORD_LEN, digest);
            vmm_hex(digest, sizeof(digest), hash);
            n += (size_t)snprintf(acl + n, VMM_REDIS_USERS_SIZE - n,
                                  "user %s on #%s resetchannels -@all %s\n", users[i].name, hash,
                                  users[i].rights);
        }
        explicit_bzero(password, sizeof(password));
        if (r != 0)
            return r;
        if (n >= VMM_REDIS_USERS_SIZE)
            abort(); /* the text above has a known length */
    }
    return 0;
}

void vmm_redis_users_remove(const char *run_dir)
{
    char name[64], path[VMM_PATH_SIZE];

    for (size_t i = 0; i < N_USERS; i++) {
        file_name(users[i].name, name);
        snprintf(path, sizeof(path), "%s/%s", run_dir, name);
        (void)unlink(path);
    }
}
