/* SPDX-License-Identifier: MIT */
/* Stages. Keeper: descriptor limit -> bounding set -> user -> all capabilities but at most one.
 * Serving process: the last capability -> no new privileges -> files (see landlock.c) -> system
 * call filter. */
#include "gateway/privileges.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <seccomp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "gateway/landlock.h"
#include "transom/daemon.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#endif
#ifndef SANITIZED
#define SANITIZED 0
#endif

void gw_raise_descriptor_limit(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return;
    limit.rlim_cur = limit.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &limit);
}

static int change_user(const char *user, struct err *err)
{
    const char *name;
    uid_t uid;
    gid_t gid;
    int r = tr_daemon_gateway_user(user, &uid, &gid, &name, err);

    if (r != 0)
        return r;
    if (geteuid() != 0) {
        if (*user == '\0' || geteuid() == uid)
            return 0;
        return tr_err_set(err, -EPERM, "gateway.user: only root can become \"%s\"", user);
    }
    if (name != NULL ? initgroups(name, gid) != 0 : setgroups(1, &gid) != 0)
        return tr_err_set(err, -errno, "gateway.user: groups of uid %u: %s", (unsigned)uid,
                          strerror(errno));
    if (setresgid(gid, gid, gid) != 0 || setresuid(uid, uid, uid) != 0)
        return tr_err_set(err, -errno, "gateway.user: uid %u: %s (in a user namespace set root)",
                          (unsigned)uid, strerror(errno));
    return 0;
}

static gid_t borrowed_from[256]; /* groups to go back to */
static int n_borrowed_from = -1;

bool gw_borrow_user(const char *user)
{
    struct err err;
    const char *name;
    uid_t uid;
    gid_t gid;

    if (geteuid() != 0 || tr_daemon_gateway_user(user, &uid, &gid, &name, &err) != 0 || uid == 0)
        return false;
    n_borrowed_from = getgroups(sizeof(borrowed_from) / sizeof(borrowed_from[0]), borrowed_from);
    if (n_borrowed_from < 0)
        return false;
    if ((name != NULL ? initgroups(name, gid) : setgroups(1, &gid)) == 0 && setegid(gid) == 0 &&
        seteuid(uid) == 0)
        return true;
    gw_return_user(); /* such as in a user namespace; the start itself will tell */
    return false;
}

void gw_return_user(void)
{
    /* Going on with a mixture of two users' rights would be worse than not going on. */
    if (seteuid(0) != 0 || setegid(0) != 0 ||
        setgroups((size_t)n_borrowed_from, borrowed_from) != 0)
        abort();
}

/* Leave this one capability (-1: none) of those that are there. */
static int keep_capability(int cap, struct err *err)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct have[2], left[2];

    memset(left, 0, sizeof(left));
    (void)prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
    if (cap >= 0 && syscall(SYS_capget, &header, have) == 0) {
        unsigned bit = 1u << (cap % 32);

        left[cap / 32].permitted = have[cap / 32].permitted & bit;
        left[cap / 32].effective = left[cap / 32].inheritable = left[cap / 32].permitted;
    }
    if (syscall(SYS_capset, &header, left) != 0)
        return tr_err_set(err, -errno, "dropping capabilities: %s", strerror(errno));
    if (cap >= 0 && left[cap / 32].permitted != 0)
        (void)prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, cap, 0, 0); /* over exec */
    return 0;
}

int gw_become(const char *user, bool keep_bind, struct err *err)
{
    int r;

    /* First, while CAP_SETPCAP is there; who has not got it does not need this either. */
    for (int cap = 0; cap <= CAP_LAST_CAP; cap++)
        if (!keep_bind || cap != CAP_NET_BIND_SERVICE)
            (void)prctl(PR_CAPBSET_DROP, cap, 0, 0, 0);
    (void)prctl(PR_SET_KEEPCAPS, keep_bind, 0, 0, 0);
    r = change_user(user, err);
    if (r == 0)
        r = keep_capability(keep_bind ? CAP_NET_BIND_SERVICE : -1, err);
    (void)prctl(PR_SET_KEEPCAPS, 0, 0, 0, 0);
    if (r != 0)
        return r;
    /* The serving process has the same user and must not be able to reach in here. */
    if (!SANITIZED)
        (void)prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
        return tr_err_set(err, -errno, "no_new_privs: %s", strerror(errno));
    return 0;
}

/* The system calls that remain. Anything else ends the call with EPERM, which shows in a log; what
 * could start another program or look at another process is not among them. */
static const int allowed[] = {
    /* the loops: libh2o's and libuv's */
    SCMP_SYS(epoll_create1),
    SCMP_SYS(epoll_create),
    SCMP_SYS(epoll_ctl),
    SCMP_SYS(epoll_wait),
    SCMP_SYS(epoll_pwait),
    SCMP_SYS(eventfd2),
    SCMP_SYS(poll),
    SCMP_SYS(ppoll),
    SCMP_SYS(pipe2),
    SCMP_SYS(io_uring_setup), /* libuv asks whether there is one; it may be told no by the kernel */
    /* connections */
    SCMP_SYS(accept4),
    SCMP_SYS(bind),
    SCMP_SYS(connect),
    SCMP_SYS(getpeername),
    SCMP_SYS(getsockname),
    SCMP_SYS(getsockopt),
    SCMP_SYS(setsockopt),
    SCMP_SYS(listen),
    SCMP_SYS(shutdown),
    SCMP_SYS(sendto),
    SCMP_SYS(sendmsg),
    SCMP_SYS(sendmmsg),
    SCMP_SYS(recvfrom),
    SCMP_SYS(recvmsg),
    SCMP_SYS(read),
    SCMP_SYS(readv),
    SCMP_SYS(write),
    SCMP_SYS(writev),
    SCMP_SYS(close),
    SCMP_SYS(fcntl),
    SCMP_SYS(ioctl),
    SCMP_SYS(dup),
    SCMP_SYS(dup3),
    SCMP_SYS(lseek),
    /* files read by the resolver for Redis by name (opening is restricted below) */
    SCMP_SYS(newfstatat),
    SCMP_SYS(fstat),
    SCMP_SYS(stat),
    SCMP_SYS(statx),
    SCMP_SYS(access),
    SCMP_SYS(faccessat),
    SCMP_SYS(faccessat2),
    SCMP_SYS(pread64),
    SCMP_SYS(pwrite64),   /* ticket keys, into their memory file */
    SCMP_SYS(getdents64), /* folders of certificates */
    /* memory */
    SCMP_SYS(brk),
    SCMP_SYS(mmap),
    SCMP_SYS(munmap),
    SCMP_SYS(mremap),
    SCMP_SYS(mprotect),
    SCMP_SYS(madvise),
    /* threads, not processes: clone is restricted below, clone3 says ENOSYS */
    SCMP_SYS(futex),
    SCMP_SYS(set_robust_list),
    SCMP_SYS(get_robust_list),
    SCMP_SYS(rseq),
    SCMP_SYS(sched_yield),
    SCMP_SYS(sched_getaffinity),
    SCMP_SYS(gettid),
    SCMP_SYS(getpid),
    SCMP_SYS(set_tid_address),
    SCMP_SYS(prctl),
    SCMP_SYS(exit),
    SCMP_SYS(exit_group),
    SCMP_SYS(membarrier),
    /* signals to ourselves: tgkill is restricted below */
    SCMP_SYS(rt_sigaction),
    SCMP_SYS(rt_sigprocmask),
    SCMP_SYS(rt_sigreturn),
    SCMP_SYS(sigaltstack),
    SCMP_SYS(restart_syscall),
    /* time, randomness, who we are */
    SCMP_SYS(clock_gettime),
    SCMP_SYS(clock_getres),
    SCMP_SYS(clock_nanosleep),
    SCMP_SYS(nanosleep),
    SCMP_SYS(gettimeofday),
    SCMP_SYS(time),
    SCMP_SYS(getrandom),
    SCMP_SYS(getuid),
    SCMP_SYS(geteuid),
    SCMP_SYS(getgid),
    SCMP_SYS(getegid),
    SCMP_SYS(uname),
    SCMP_SYS(getrusage),
    SCMP_SYS(prlimit64),
    SCMP_SYS(sysinfo),
};

static int add_restricted(scmp_filter_ctx filter)
{
    int r;

    /* reading, and appending to a log that is opened again */
    r = seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(openat), 1,
                         SCMP_A2(SCMP_CMP_MASKED_EQ, O_ACCMODE | O_CREAT | O_TRUNC, O_RDONLY));
    if (r == 0)
        r = seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(openat), 1,
                             SCMP_A2(SCMP_CMP_MASKED_EQ, O_ACCMODE | O_CREAT | O_TRUNC | O_APPEND,
                                     O_WRONLY | O_CREAT | O_APPEND));
    /* threads share memory; a fork would not */
    if (r == 0)
        r = seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(clone), 1,
                             SCMP_A0(SCMP_CMP_MASKED_EQ, 0x00010100, 0x00010100));
    /* its flags lie in memory, where a filter cannot look: glibc then uses clone */
    if (r == 0)
        r = seccomp_rule_add(filter, SCMP_ACT_ERRNO(ENOSYS), SCMP_SYS(clone3), 0);
    /* abort() */
    if (r == 0)
        r = seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(tgkill), 1,
                             SCMP_A0(SCMP_CMP_EQ, (scmp_datum_t)getpid(), 0));
    /* sockets of the kinds that are used; netlink is the resolver's */
    for (int i = 0; i < 4; i++) {
        static const int families[4] = {AF_INET, AF_INET6, AF_UNIX, AF_NETLINK};

        if (r == 0)
            r = seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(socket), 1,
                                 SCMP_A0(SCMP_CMP_EQ, (scmp_datum_t)families[i], 0));
    }
    return r;
}

static int filter_calls(struct err *err)
{
    scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ERRNO(EPERM));
    int r = filter != NULL ? 0 : -ENOMEM;

    for (size_t i = 0; r == 0 && i < sizeof(allowed) / sizeof(allowed[0]); i++)
        r = seccomp_rule_add(filter, SCMP_ACT_ALLOW, allowed[i], 0);
    if (r == 0)
        r = add_restricted(filter);
    if (r == 0)
        r = seccomp_load(filter);
    if (filter != NULL)
        seccomp_release(filter);
    return r == 0 ? 0 : tr_err_set(err, r, "system call filter: %s", strerror(-r));
}

int gw_restrict(const struct gw_view *view, char *what, size_t what_len, struct err *err)
{
    char files[128] = "";
    int r = keep_capability(-1, err);

    if (r != 0)
        return r;
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
        return tr_err_set(err, -errno, "no_new_privs: %s", strerror(errno));
    if (SANITIZED) /* a sanitizer's run-time reads /proc, forks and traces at will */
        snprintf(files, sizeof(files), "NOT restricted (sanitizer build)");
    else
        r = gw_landlock(view, files, sizeof(files), err);
    if (r == 0 && !SANITIZED)
        r = filter_calls(err);
    snprintf(what, what_len, "uid %u, no capabilities, system calls %s, files %s%s",
             (unsigned)geteuid(), SANITIZED ? "NOT filtered (sanitizer build)" : "filtered", files,
             geteuid() == 0 ? "; still root's files: set gateway.user" : "");
    return r;
}
