/* SPDX-License-Identifier: MIT */
#include "vmm/driver/jail.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <linux/capability.h>
#include <linux/securebits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define DESCRIPTORS_MAX 512

static void warn_errno(void (*warn)(const char *text), const char *what)
{
    char text[256];

    (void)snprintf(text, sizeof(text), "%s: %s", what, strerror(errno));
    warn(text);
}

void jail_namespaces(void (*warn)(const char *text))
{
    if (unshare(CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS) != 0)
        warn_errno(warn, "machine process shares the host's network and IPC");
}

static int make_parents(char *path)
{
    char *p;

    for (p = strchr(path + 1, '/'); p != NULL; p = strchr(p + 1, '/')) {
        *p = '\0';
        if (mkdir(path, 0755) != 0 && errno != EEXIST)
            return -errno;
        *p = '/';
    }
    return 0;
}

/* Show a host path inside, read-only. Devices keep working: a bind mount has flags of its own. */
static int show(const char *root, const char *host, const char *inside, bool writable)
{
    unsigned long flags = MS_BIND | MS_REMOUNT | MS_NOSUID | (writable ? 0 : MS_RDONLY);
    char to[PATH_MAX];
    struct stat st;
    int fd;

    if (snprintf(to, sizeof(to), "%s%s", root, inside) >= (int)sizeof(to))
        return -ENAMETOOLONG;
    if (stat(host, &st) != 0 || make_parents(to) != 0)
        return -errno;
    if (S_ISDIR(st.st_mode)) {
        if (mkdir(to, 0755) != 0 && errno != EEXIST)
            return -errno;
    } else {
        fd = open(to, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
        if (fd < 0)
            return -errno;
        (void)close(fd);
    }
    if (mount(host, to, NULL, MS_BIND, NULL) != 0)
        return -errno;
    /* Refused in a user namespace when the source mount has locked flags; the bind alone then
     * keeps those. The process has no right to write there anyway. */
    (void)mount(NULL, to, NULL, flags, NULL);
    return 0;
}

/* /lib and friends are links into /usr on merged systems, folders on others. */
static int show_system(const char *root)
{
    static const char *const names[] = {"/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"};
    char to[PATH_MAX], target[PATH_MAX];
    struct stat st;
    size_t i;
    int r = show(root, "/usr", "/usr", false);

    for (i = 0; r == 0 && i < sizeof(names) / sizeof(names[0]); i++) {
        ssize_t n;

        if (lstat(names[i], &st) != 0)
            continue;
        if (!S_ISLNK(st.st_mode)) {
            r = show(root, names[i], names[i], false);
            continue;
        }
        n = readlink(names[i], target, sizeof(target) - 1);
        if (n <= 0)
            return -EIO;
        target[n] = '\0';
        (void)snprintf(to, sizeof(to), "%s%s", root, names[i]);
        if (symlink(target, to) != 0 && errno != EEXIST)
            return -errno;
    }
    if (r == 0 && access("/etc/ld.so.cache", R_OK) == 0)
        r = show(root, "/etc/ld.so.cache", "/etc/ld.so.cache", false);
    return r;
}

/* A program outside of /usr needs its folder. */
static int show_program(const char *root, const char *program)
{
    char dir[PATH_MAX];
    char *slash;

    if (strncmp(program, "/usr/", 5) == 0 || strncmp(program, "/bin/", 5) == 0)
        return 0;
    (void)snprintf(dir, sizeof(dir), "%s", program);
    slash = strrchr(dir, '/');
    if (slash == NULL || slash == dir)
        return -EINVAL;
    *slash = '\0';
    return show(root, dir, dir, false);
}

static int build_view(const struct jail_view *v)
{
    int i, r = show_system(v->root);

    if (r == 0)
        r = show_program(v->root, v->program);
    if (r == 0)
        r = show(v->root, "/dev/null", "/dev/null", true);
    if (r == 0)
        r = show(v->root, "/dev/urandom", "/dev/urandom", true);
    if (r == 0 && v->kvm)
        r = show(v->root, "/dev/kvm", "/dev/kvm", true);
    if (r == 0 && v->own_descriptors) /* of this process, which stays the same over the exec */
        r = show(v->root, "/proc/self/fd", "/proc/self/fd", true);
    for (i = 0; r == 0 && i < v->n_files; i++)
        r = show(v->root, v->files[i].host, v->files[i].inside, false);
    return r;
}

bool jail_enter_view(const struct jail_view *v, void (*warn)(const char *text))
{
    static const char what[] = "machine process keeps the host's mount view";
    int r;

    if (unshare(CLONE_NEWNS) != 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount("none", v->root, "tmpfs", MS_NOSUID | MS_NODEV, "mode=755,size=256k") != 0) {
        warn_errno(warn, what);
        return false;
    }
    r = build_view(v);
    if (r != 0) {
        errno = -r;
        warn_errno(warn, what);
        (void)umount2(v->root, MNT_DETACH);
        return false;
    }
    /* pivot_root onto itself: the old root ends up on top of the new one and is taken off. */
    if (chdir(v->root) != 0 || syscall(SYS_pivot_root, ".", ".") != 0 ||
        umount2(".", MNT_DETACH) != 0 || chdir("/") != 0) {
        warn_errno(warn, what);
        return false;
    }
    (void)mount(NULL, "/", NULL, MS_REMOUNT | MS_RDONLY | MS_NOSUID | MS_NODEV, NULL);
    return true;
}

static void set_limit(int which, rlim_t value)
{
    struct rlimit limit = {.rlim_cur = value, .rlim_max = value};

    (void)setrlimit(which, &limit); /* lowering cannot fail */
}

void jail_limits(unsigned largest_mb)
{
    set_limit(RLIMIT_CORE, 0);
    set_limit(RLIMIT_NOFILE, DESCRIPTORS_MAX);
    set_limit(RLIMIT_FSIZE, (rlim_t)largest_mb << 20);
    set_limit(RLIMIT_RTPRIO, 0);
    set_limit(RLIMIT_MSGQUEUE, 0);
}

/* Root without capabilities: exec must not give them back. */
static void drop_capabilities(void (*warn)(const char *text))
{
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct none[2] = {{0}};

    if (prctl(PR_SET_SECUREBITS, SECBIT_NOROOT | SECBIT_NOROOT_LOCKED |
                                     SECBIT_NO_SETUID_FIXUP_LOCKED | SECBIT_KEEP_CAPS_LOCKED) !=
            0 &&
        geteuid() == 0)
        warn_errno(warn, "machine process keeps capabilities");
    (void)syscall(SYS_capset, &head, none);
}

int jail_drop_rights(uid_t uid, gid_t gid, gid_t extra_gid, void (*warn)(const char *text),
                     struct err *err)
{
    int cap;

    for (cap = 0; prctl(PR_CAPBSET_DROP, cap) == 0; cap++) /* ends at the first unknown one */
        ;
    if (uid != 0 && geteuid() == 0) {
        if (setgroups(extra_gid != 0 ? 1 : 0, &extra_gid) != 0)
            warn_errno(warn, "machine process keeps the manager's groups");
        if (setresgid(gid, gid, gid) != 0 || setresuid(uid, uid, uid) != 0) {
            if (errno != EINVAL)
                return tr_err_set(err, -errno, "cannot become user %u: %s", (unsigned)uid,
                                  strerror(errno));
            /* EINVAL: not mapped in this user namespace. */
            warn_errno(warn, "machine process runs as the manager's user");
        }
    }
    drop_capabilities(warn);
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
        return tr_err_set(err, -errno, "cannot give up new privileges: %s", strerror(errno));
    return 0;
}
