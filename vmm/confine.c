/* SPDX-License-Identifier: MIT */
#include "vmm/confine.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/landlock.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Of later kernels than the headers may be. */
#define FS_FIRST    ((1ULL << 13) - 1)
#define FS_REFER    (1ULL << 13) /* version 2 */
#define FS_TRUNCATE (1ULL << 14) /* version 3 */

static int restrict_files(const char *dir, struct err *err)
{
    uint64_t handled = FS_FIRST;
    struct landlock_path_beneath_attr rule = {0};
    long version = syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);
    int ruleset, r = 0;

    if (version < 1)
        return 0;
    if (version >= 2)
        handled |= FS_REFER;
    if (version >= 3)
        handled |= FS_TRUNCATE;
    ruleset = (int)syscall(SYS_landlock_create_ruleset, &handled, sizeof(handled), 0);
    if (ruleset < 0)
        return tr_err_set(err, -errno, "Landlock: %s", strerror(errno));
    rule.allowed_access =
        handled & ~(uint64_t)(LANDLOCK_ACCESS_FS_EXECUTE | LANDLOCK_ACCESS_FS_MAKE_CHAR |
                              LANDLOCK_ACCESS_FS_MAKE_BLOCK | LANDLOCK_ACCESS_FS_MAKE_SOCK);
    rule.parent_fd = open(dir, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (rule.parent_fd < 0 ||
        syscall(SYS_landlock_add_rule, ruleset, LANDLOCK_RULE_PATH_BENEATH, &rule, 0) != 0 ||
        syscall(SYS_landlock_restrict_self, ruleset, 0) != 0)
        r = tr_err_set(err, -errno, "%s: %s", dir, strerror(errno));
    if (rule.parent_fd >= 0)
        close(rule.parent_fd);
    close(ruleset);
    return r;
}

int vmm_confine(const struct vmm_confine *c, struct err *err)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct none[2] = {{0}};
    const struct rlimit core = {0, 0}, cpu = {c->cpu_s, c->cpu_s};
    int r;

    (void)setrlimit(RLIMIT_CORE, &core); /* lowering cannot fail */
    (void)setrlimit(RLIMIT_CPU, &cpu);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    {
        const struct rlimit memory = {c->memory, c->memory};

        (void)setrlimit(RLIMIT_AS, &memory);
    }
#endif
    (void)setpriority(PRIO_PROCESS, 0, 10);
    (void)unshare(CLONE_NEWNET |
                  CLONE_NEWIPC); /* a manager without rights cannot; nor can we then */
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
        return tr_err_set(err, -errno, "no new privileges: %s", strerror(errno));
    r = restrict_files(c->dir, err);
    if (r != 0)
        return r;
    if (syscall(SYS_capset, &header, none) != 0)
        return tr_err_set(err, -errno, "capabilities: %s", strerror(errno));
    return 0;
}
