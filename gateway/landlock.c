/* SPDX-License-Identifier: MIT */
#include "gateway/landlock.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/landlock.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Of later kernels than the headers may be. */
#define FS_REFER    (1ULL << 13) /* version 2 */
#define FS_TRUNCATE (1ULL << 14) /* version 3 */
#define FS_IOCTL    (1ULL << 15) /* version 5 */
#define NET_BIND    (1ULL << 0)  /* version 4 */
#define SCOPES      (1ULL << 1)  /* version 6: signals */
#define FS_FIRST    ((1ULL << 13) - 1)

struct ruleset {
    uint64_t fs, net, scoped;
};

static int add(int ruleset, const char *path, uint64_t rights)
{
    struct landlock_path_beneath_attr rule = {.allowed_access = rights};
    struct stat st;
    int r = 0;

    rule.parent_fd = open(path, O_PATH | O_CLOEXEC);
    if (rule.parent_fd < 0)
        return errno == ENOENT ? 0 : -errno;
    if (fstat(rule.parent_fd, &st) == 0 && !S_ISDIR(st.st_mode)) /* of a file, its own only */
        rule.allowed_access &= LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_WRITE_FILE;
    if (syscall(SYS_landlock_add_rule, ruleset, LANDLOCK_RULE_PATH_BENEATH, &rule, 0) != 0)
        r = -errno;
    close(rule.parent_fd);
    return r;
}

static int add_view(int ruleset, const struct gw_view *view, struct err *err)
{
    static const char *const resolver[] = {
        "/etc/hosts",    "/etc/resolv.conf", "/etc/nsswitch.conf",   "/etc/host.conf",
        "/etc/gai.conf", "/etc/services",    "/etc/ld.so.cache",     "/lib",
        "/lib64",        "/usr/lib",         "/run/systemd/resolve",
    };
    const uint64_t read = LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR;

    for (size_t i = 0; i < view->n_read; i++) {
        int r = add(ruleset, view->read[i], read);

        if (r != 0)
            return tr_err_set(err, r, "%s: %s", view->read[i], strerror(-r));
    }
    if (view->append != NULL) {
        int r =
            add(ruleset, view->append, LANDLOCK_ACCESS_FS_WRITE_FILE | LANDLOCK_ACCESS_FS_MAKE_REG);

        if (r != 0)
            return tr_err_set(err, r, "%s: %s", view->append, strerror(-r));
    }
    for (size_t i = 0; view->resolver && i < sizeof(resolver) / sizeof(resolver[0]); i++)
        (void)!add(ruleset, resolver[i], read);
    return 0;
}

int gw_landlock(const struct gw_view *view, char *what, size_t what_len, struct err *err)
{
    struct ruleset attr = {.fs = FS_FIRST};
    long version = syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);
    size_t size = sizeof(attr.fs);
    int ruleset, r;

    if (version < 1) {
        snprintf(what, what_len, "NOT restricted (this kernel has no Landlock: %s)",
                 strerror(errno));
        return 0;
    }
    if (version >= 2)
        attr.fs |= FS_REFER;
    if (version >= 3)
        attr.fs |= FS_TRUNCATE;
    if (version >= 5)
        attr.fs |= FS_IOCTL;
    if (version >= 4) {
        attr.net = NET_BIND;
        size = 2 * sizeof(attr.fs);
    }
    if (version >= 6) {
        attr.scoped = SCOPES;
        size = sizeof(attr);
    }
    ruleset = (int)syscall(SYS_landlock_create_ruleset, &attr, size, 0);
    if (ruleset < 0)
        return tr_err_set(err, -errno, "Landlock: %s", strerror(errno));
    r = add_view(ruleset, view, err);
    if (r == 0 && syscall(SYS_landlock_restrict_self, ruleset, 0) != 0)
        r = tr_err_set(err, -errno, "%s", strerror(errno));
    close(ruleset);
    if (r != 0) {
        tr_err_wrap(err, "Landlock");
        return r;
    }
    snprintf(what, what_len, "restricted (Landlock %ld)", version);
    return 0;
}
