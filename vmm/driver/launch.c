/* SPDX-License-Identifier: MIT */
/* Path: read_spec -> make_run_dir (pidfile) -> limit_resources -> open_* -> leave (namespaces,
 * view, limits, rights) -> exec. Whatever fails is told, and the manager cleans up behind us. */
#include "vmm/driver/launch.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/if_tun.h>
#include <limits.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "vmm/driver/cgroup.h"
#include "vmm/driver/disk.h"
#include "vmm/driver/jail.h"
#include "vmm/driver/kvm_probe.h"
#include "vmm/driver/qemu_args.h"
#include "vmm/driver/remains.h"
#include "vmm/driver/spec.h"
#include "vmm/proc/child.h"
#include "vmm/proc/procid.h"

#define TEMPLATE_NICE 10
#define THREADS_MAX   512 /* vCPUs, disk workers, and QEMU's own */

static int control = -1;

/* One line to the manager. It may be gone: then nobody wants to know. */
static void tell(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static void tell(const char *fmt, ...)
{
    char line[1024];
    va_list args;
    char *p;

    va_start(args, fmt);
    (void)vsnprintf(line, sizeof(line) - 1, fmt, args);
    va_end(args);
    for (p = line; *p != '\0'; p++)
        if (*p == '\n')
            *p = ' ';
    p[0] = '\n';
    p[1] = '\0';
    (void)send(control, line, strlen(line), MSG_NOSIGNAL);
}

static void warn(const char *text)
{
    tell("W %s", text);
}

static int read_spec(struct vm_spec_copy *copy, struct err *err)
{
    static char text[VM_SPEC_TEXT_MAX];
    size_t len = 0;
    ssize_t n;

    do {
        n = read(control, text + len, sizeof(text) - len);
        if (n > 0)
            len += (size_t)n;
    } while ((n > 0 && (len < 2 || text[len - 1] != '\0' || text[len - 2] != '\0')) ||
             (n < 0 && errno == EINTR));
    if (n < 0) {
        (void)tr_err_set(err, -errno, "launcher: no message: %s", strerror(errno));
        return UV_EIO;
    }
    return vm_spec_decode(text, len, copy, err);
}

static int mkdir_parents(const char *path)
{
    char copy[PATH_MAX];
    char *p;

    (void)snprintf(copy, sizeof(copy), "%s", path);
    for (p = strchr(copy + 1, '/'); p != NULL; p = strchr(p + 1, '/')) {
        *p = '\0';
        if (mkdir(copy, 0755) != 0 && errno != EEXIST)
            return -errno;
        *p = '/';
    }
    return mkdir(path, 0700) == 0 || errno == EEXIST ? 0 : -errno;
}

/* Make the folder and leave our name in it, which exec keeps: pid and start time stay. */
static int make_run_dir(const struct vm_spec *spec, int *dir_fd, struct err *err)
{
    struct procid id;
    int r = mkdir_parents(spec->run_dir);

    *dir_fd = r == 0 ? remains_open(spec) : r;
    if (*dir_fd < 0)
        return tr_err_set(err, *dir_fd, "machine folder %s: %s", spec->run_dir, strerror(-*dir_fd));
    if (procid_load(*dir_fd, MACHINE_PIDFILE, &id) == 0 && procid_alive(&id))
        return tr_err_set(err, UV_EEXIST, "this machine runs already, as process %d", (int)id.pid);
    r = procid_of(getpid(), &id);
    id.instance = spec->instance;
    if (r == 0)
        r = procid_save(*dir_fd, MACHINE_PIDFILE, &id);
    if (r != 0)
        return tr_err_set(err, r, "machine folder %s: cannot write %s: %s", spec->run_dir,
                          MACHINE_PIDFILE, strerror(-r));
    return 0;
}

static int limit_resources(const struct vm_spec *spec, int dir_fd, struct err *err)
{
    struct cgroup_mounts mounts;
    struct cgroup_group group;
    struct cgroup_limits limits = {
        /* The guest, its translated code, and what QEMU itself takes. */
        .memory_bytes = ((uint64_t)spec->memory_mb + qemu_tb_mb(spec) + 256) << 20,
        .cpu_percent = spec->vcpus * 100 + 50,
        .pids = THREADS_MAX,
    };
    char text[2048];
    int fd, r;

    if (spec->cgroup[0] == '\0')
        return 0;
    r = cgroup_find(&mounts);
    if (r != 0)
        return tr_err_set(err, r, "control groups: %s", strerror(-r));
    cgroup_plan(&mounts, spec->cgroup, spec->label, &group);
    r = cgroup_encode(&group, text, sizeof(text));
    if (r != 0)
        return tr_err_set(err, r, "control groups: %s", strerror(-r));
    /* First the note, then the groups: what exists can always be found again. */
    fd = openat(dir_fd, MACHINE_CGROUPS, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC,
                0600);
    if (fd < 0 || write(fd, text, strlen(text)) != (ssize_t)strlen(text))
        r = tr_err_set(err, -errno, "machine folder %s: %s", spec->run_dir, strerror(errno));
    if (fd >= 0)
        (void)close(fd);
    if (r == 0)
        cgroup_enter(&mounts, &group, &limits, warn);
    return r;
}

/* An image file that the machine's user opens by itself must be readable for it. */
static int check_image(const char *path, const struct vm_spec *spec, struct err *err)
{
    struct stat st;

    if (stat(path, &st) != 0)
        return tr_err_set(err, -errno, "image file %s: %s%s", path, strerror(errno),
                          errno == ENOENT ? ": build the image again or set image.path" : "");
    if (!S_ISREG(st.st_mode))
        return tr_err_set(err, -EINVAL, "image file %s: not a regular file", path);
    if (spec->uid != 0 && geteuid() == 0 && (st.st_mode & S_IROTH) == 0 && st.st_uid != spec->uid)
        return tr_err_set(err, -EACCES,
                          "image file %s: user %u cannot read it: chmod a+r it or change vmm.user",
                          path, (unsigned)spec->uid);
    return 0;
}

static int open_disks(const struct vm_spec *spec, struct qemu_places *p, struct err *err)
{
    int r = check_image(spec->kernel, spec, err);

    if (r == 0)
        r = check_image(spec->initrd, spec, err);
    if (r == 0 && spec->root_image[0] != '\0') {
        p->root_fd = open(spec->root_image, O_RDONLY | O_CLOEXEC);
        if (p->root_fd < 0)
            r = tr_err_set(err, -errno, "image file %s: %s%s", spec->root_image, strerror(errno),
                           errno == ENOENT ? ": build the image again or set image.path" : "");
    }
    if (r == 0 && spec->data_disk[0] != '\0') {
        p->data_fd = disk_open(spec->data_disk, spec->disk_mb, spec->disk_from, err);
        r = p->data_fd < 0 ? p->data_fd : 0;
        if (r == 0 && (p->data_read_fd = open(spec->data_disk, O_RDONLY | O_CLOEXEC)) < 0)
            r = tr_err_set(err, -errno, "machine disk %s: %s", spec->data_disk, strerror(errno));
    }
    return r;
}

/* The tap lives in the machines' namespace: go there for good, the machine gets an empty one later.
 */
static int open_tap(const struct vm_spec *spec, struct qemu_places *p, struct err *err)
{
    struct ifreq request = {.ifr_flags = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR};
    char path[64];
    int fd;

    if (spec->tap[0] == '\0')
        return 0;
    (void)snprintf(path, sizeof(path), "/run/netns/%s", spec->netns);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || setns(fd, CLONE_NEWNET) != 0) {
        int r = tr_err_set(err, -errno, "network namespace %s: %s", path, strerror(errno));

        if (fd >= 0)
            (void)close(fd);
        return r;
    }
    (void)close(fd);
    (void)snprintf(request.ifr_name, sizeof(request.ifr_name), "%s", spec->tap);
    if (if_nametoindex(spec->tap) == 0) /* the request would make a new one */
        return tr_err_set(err, -ENODEV, "tap %s is not in network namespace %s", spec->tap,
                          spec->netns);
    p->tap_fd = open("/dev/net/tun", O_RDWR | O_CLOEXEC | O_NONBLOCK);
    if (p->tap_fd < 0)
        return tr_err_set(err, -errno,
                          "/dev/net/tun: %s: load the tun module, or pass the device into this "
                          "container",
                          strerror(errno));
    if (ioctl(p->tap_fd, TUNSETIFF, &request) != 0)
        return tr_err_set(err, -errno, "tap %s: %s", spec->tap,
                          errno == EBUSY ? "another process uses it" : strerror(errno));
    return 0;
}

/* Listening sockets, made here so that the machine needs no writable folder. */
static int listen_at(int dir_fd, const char *name, int *out, struct err *err)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    /* By way of the descriptor, so that a long run_dir does not matter. */
    (void)snprintf(addr.sun_path, sizeof(addr.sun_path), "/proc/self/fd/%d/%s", dir_fd, name);
    (void)unlinkat(dir_fd, name, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&addr, sizeof(addr)) != 0 || listen(fd, 4) != 0) {
        int r = tr_err_set(err, -errno, "socket %s: %s", name, strerror(errno));

        if (fd >= 0)
            (void)close(fd);
        return r;
    }
    *out = fd;
    return 0;
}

/* Find the program as a shell would. */
static int find_program(const char *name, char *out, struct err *err)
{
    const char *path = child_environment[0] + strlen("PATH=");
    char candidate[PATH_MAX];

    if (name[0] == '\0')
        name = VM_QEMU_PROGRAM;
    if (strchr(name, '/') != NULL) {
        if (access(name, X_OK) != 0 || realpath(name, out) == NULL)
            return tr_err_set(err, -errno, "vmm.qemu: %s: %s", name, strerror(errno));
        return 0;
    }
    while (*path != '\0') {
        size_t n = strcspn(path, ":");

        (void)snprintf(candidate, sizeof(candidate), "%.*s/%s", (int)n, path, name);
        if (access(candidate, X_OK) == 0 && realpath(candidate, out) != NULL)
            return 0;
        path += n + (path[n] == ':');
    }
    return tr_err_set(err, -ENOENT,
                      "cannot find %s: install the package qemu-system-x86 or set vmm.qemu", name);
}

/* Group that may open /dev/kvm; an ordinary user gets it as its only extra group. */
static gid_t kvm_group(void)
{
    struct stat st;

    return stat("/dev/kvm", &st) == 0 && (st.st_mode & 0060) == 0060 ? st.st_gid : 0;
}

static void keep(int fd)
{
    if (fd >= 0)
        (void)fcntl(fd, F_SETFD, 0);
}

/* When the host runs out of memory, a machine goes before the manager does. */
static void prefer_as_victim(void)
{
    int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);

    if (fd < 0)
        return;
    if (write(fd, "500", 3) != 3)
        warn("machine process is no more likely than others to be killed for want of memory");
    (void)close(fd);
}

/* The disk may be larger than a new one would be. */
static unsigned largest_file_mb(int data_fd)
{
    struct stat st;

    return data_fd >= 0 && fstat(data_fd, &st) == 0 ? (unsigned)(st.st_size >> 20) + 1 : 1;
}

/* Give everything up. After this there is nothing but the exec. */
static int leave(const struct vm_spec *spec, struct qemu_places *p, const char *root,
                 struct err *err)
{
    struct jail_file files[] = {{spec->kernel, "/image/kernel"}, {spec->initrd, "/image/initrd"}};
    struct jail_view view = {
        .root = root,
        .program = p->program,
        .files = files,
        .n_files = 2,
        .kvm = spec->accel == VM_ACCEL_KVM,
        .own_descriptors = spec->memory != VM_MEMORY_OWN,
    };
    bool inside;

    prefer_as_victim();
    if (spec->memory == VM_MEMORY_TEMPLATE) /* nobody waits for it */
        (void)setpriority(PRIO_PROCESS, 0, TEMPLATE_NICE);
    jail_namespaces(warn);
    inside = jail_enter_view(&view, warn);
    p->kernel = inside ? files[0].inside : spec->kernel;
    p->initrd = inside ? files[1].inside : spec->initrd;
    jail_limits(largest_file_mb(p->data_fd));
    return jail_drop_rights(spec->uid, spec->gid, spec->accel == VM_ACCEL_KVM ? kvm_group() : 0,
                            warn, err);
}

/* All that needs the manager's rights. */
static int prepare(const struct vm_spec *spec, const char *root, struct qemu_places *p,
                   struct err *err)
{
    int dir_fd = -1;
    int r = make_run_dir(spec, &dir_fd, err);

    if (r == 0 && mkdir(root, 0700) != 0 && errno != EEXIST)
        r = tr_err_set(err, -errno, "machine folder %s: %s", root, strerror(errno));
    if (r == 0)
        r = limit_resources(spec, dir_fd, err);
    if (r == 0)
        r = open_disks(spec, p, err);
    if (r == 0)
        r = listen_at(dir_fd, MACHINE_QMP, &p->qmp_fd, err);
    if (r == 0)
        r = listen_at(dir_fd, MACHINE_AGENT, &p->agent_fd, err);
    if (r == 0)
        r = open_tap(spec, p, err);
    return r;
}

static int become_qemu(const struct vm_spec *spec, const struct qemu_places *p, struct err *err)
{
    struct pollfd manager = {.fd = control};
    char **argv = qemu_args(spec, p);

    if (argv == NULL)
        return tr_err_set(err, UV_ENOMEM, "out of memory");
    (void)prctl(PR_SET_PDEATHSIG, 0); /* a machine outlives its manager, a launcher does not */
    if (poll(&manager, 1, 0) == 1) {  /* hung up: nobody waits for this machine any more */
        qemu_args_free(argv);
        return tr_err_set(err, UV_ECANCELED, "the manager has ended");
    }
    keep(p->qmp_fd);
    keep(p->agent_fd);
    keep(p->root_fd);
    keep(p->data_fd);
    keep(p->data_read_fd);
    keep(p->tap_fd);
    if (spec->memory != VM_MEMORY_OWN)
        keep(LAUNCH_MEMORY_FD);
    if (spec->memory == VM_MEMORY_CLONE)
        keep(LAUNCH_STATE_FD);
    (void)execve(p->program, argv, child_environment);
    (void)tr_err_set(err, -errno, "cannot run %s: %s", p->program, strerror(errno));
    qemu_args_free(argv);
    return err->code;
}

static int launch(struct vm_spec *spec, struct err *err)
{
    char program[PATH_MAX] = "", root[PATH_MAX];
    struct qemu_places p = {.program = program,
                            .qmp_fd = -1,
                            .agent_fd = -1,
                            .root_fd = -1,
                            .data_fd = -1,
                            .data_read_fd = -1,
                            .tap_fd = -1,
                            .memory_fd = LAUNCH_MEMORY_FD};
    int r = vm_spec_check(spec, err);

    (void)snprintf(root, sizeof(root), "%s/%s", spec->run_dir, MACHINE_ROOT);
    if (r == 0)
        r = find_program(spec->qemu, program, err);
    if (r == 0)
        r = prepare(spec, root, &p, err);
    if (r == 0 && spec->accel == VM_ACCEL_TCG && spec->tsc_khz == 0)
        spec->tsc_khz = vm_tsc_khz(100);
    if (r == 0)
        r = leave(spec, &p, root, err);
    return r == 0 ? become_qemu(spec, &p, err) : r;
}

int vm_launch_main(void)
{
    struct vm_spec_copy copy;
    struct err err = {0};
    int null_fd, r;

    (void)signal(SIGPIPE, SIG_IGN);
    /* End with the manager: what the next one cleans up must not grow under its hands. */
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    control = fcntl(0, F_DUPFD_CLOEXEC, 10);
    null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (control < 0 || null_fd < 0 || dup2(null_fd, 0) < 0 || dup2(null_fd, 1) < 0)
        return 1;
    /* Nothing else of the manager's goes along, whatever it forgot to mark. */
    (void)close_range(3, (unsigned)control - 1, CLOSE_RANGE_CLOEXEC);
    (void)close_range((unsigned)control + 1, ~0U, CLOSE_RANGE_CLOEXEC);
    (void)setsid(); /* fails when we lead one already */
    r = read_spec(&copy, &err);
    if (r == 0) {
        r = launch(&copy.spec, &err);
        vm_spec_fini(&copy);
    }
    tell("E %d %s", err.code != 0 ? err.code : r, err.msg);
    return 1;
}
