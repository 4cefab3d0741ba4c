/* SPDX-License-Identifier: MIT */
#include "vmm/repack.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/landlock.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "sync/store_repack.h"
#include "sync/store.h"
#include "vmm/file.h"

#define MEMORY_MAX (UINT64_C(2) * 1024 * 1024 * 1024) /* bytes of address space */
#define CPU_MAX_S  1800

/* Of later kernels than the headers may be. */
#define FS_FIRST    ((1ULL << 13) - 1)
#define FS_REFER    (1ULL << 13) /* version 2 */
#define FS_TRUNCATE (1ULL << 14) /* version 3 */

/* From here on, files below the repository alone. A kernel without Landlock is no fault: the other
 * bounds remain. */
static int restrict_files(const char *repository, struct err *err)
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
    rule.parent_fd = open(repository, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (rule.parent_fd < 0 ||
        syscall(SYS_landlock_add_rule, ruleset, LANDLOCK_RULE_PATH_BENEATH, &rule, 0) != 0 ||
        syscall(SYS_landlock_restrict_self, ruleset, 0) != 0)
        r = tr_err_set(err, -errno, "%s: %s", repository, strerror(errno));
    if (rule.parent_fd >= 0)
        close(rule.parent_fd);
    close(ruleset);
    return r;
}

static int drop_rights(const char *repository, struct err *err)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct none[2] = {{0}};
    const struct rlimit core = {0, 0}, cpu = {CPU_MAX_S, CPU_MAX_S};
    int r;

    (void)setrlimit(RLIMIT_CORE, &core); /* lowering cannot fail */
    (void)setrlimit(RLIMIT_CPU, &cpu);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    {
        const struct rlimit memory = {MEMORY_MAX, MEMORY_MAX};

        (void)setrlimit(RLIMIT_AS, &memory);
    }
#endif
    (void)setpriority(PRIO_PROCESS, 0, 10);
    (void)unshare(CLONE_NEWNET |
                  CLONE_NEWIPC); /* a manager without rights cannot; nor can we then */
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
        return tr_err_set(err, -errno, "no new privileges: %s", strerror(errno));
    r = restrict_files(repository, err);
    if (r != 0)
        return r;
    if (syscall(SYS_capset, &header, none) != 0)
        return tr_err_set(err, -errno, "capabilities: %s", strerror(errno));
    return 0;
}

static int repack(const char *dir)
{
    char repository[VMM_PATH_SIZE];
    struct err err = {0};
    size_t n = 0;
    int r;

    snprintf(repository, sizeof(repository), "%s/store.git", dir);
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    r = sync_store_init(&err); /* what it reads of the host it has read then */
    if (r == 0)
        r = drop_rights(repository, &err);
    if (r == 0)
        r = sync_store_repack(dir, &n, &err);
    if (r != 0) {
        fprintf(stderr, "%s\n", err.msg);
        return EXIT_FAILURE;
    }
    printf("%zu\n", n);
    return fflush(stdout) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

bool vmm_repack_main(int argc, char **argv, int *status)
{
    if (argc != 3 || strcmp(argv[1], "--repack") != 0)
        return false;
    *status = repack(argv[2]);
#ifdef __SANITIZE_ADDRESS__
    _exit(*status); /* the search for leaks would want rights that are gone */
#endif
    return true;
}
