/* SPDX-License-Identifier: MIT */
/* Path: kernel file systems -> timer -> modules -> devices by serial -> overlay -> new root ->
 * fork: the child returns as the agent, the first process becomes /sbin/init. Every fault ends in
 * die(): a machine without a root is of no use, and its reason must be readable on the console. */
#include "vmm/agent/init.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "transom/err.h"

#define DEVICE_WAIT_MS 10000
#define TIMER_LIST_MAX (256u << 10) /* what matters stands at its beginning */
#define LOWER          "/mnt/lower"
#define WRITABLE       "/mnt/data"
#define NEW_ROOT       "/mnt/root"
#define AGENT_CGROUP   "/sys/fs/cgroup/vmagent"

bool agent_cmdline_word(const char *cmdline, const char *name, char *value, size_t size)
{
    size_t name_len = strlen(name);
    bool found = false;

    value[0] = '\0';
    while (*cmdline != '\0') {
        size_t len;

        cmdline += strspn(cmdline, " \n");
        len = strcspn(cmdline, " \n");
        if (len > name_len && cmdline[name_len] == '=' && strncmp(cmdline, name, name_len) == 0) {
            snprintf(value, size, "%.*s", (int)(len - name_len - 1), cmdline + name_len + 1);
            found = true;
        }
        cmdline += len;
    }
    return found;
}

unsigned agent_lapic_khz(const char *timer_list)
{
    const char *device = strstr(timer_list, "Clock Event Device: lapic\n");
    const char *mult = device != NULL ? strstr(device, " mult:") : NULL;
    const char *shift = mult != NULL ? strstr(mult, " shift:") : NULL;
    unsigned long long m, s;

    if (shift == NULL)
        return 0;
    /* A clock event device counts mult >> shift for each nanosecond. */
    m = strtoull(mult + sizeof(" mult:") - 1, NULL, 10);
    s = strtoull(shift + sizeof(" shift:") - 1, NULL, 10);
    return m <= UINT32_MAX && s <= 32 ? (unsigned)(m * 1000000 >> s) : 0;
}

bool agent_module_line(const char *line, char *file, size_t size, unsigned *device)
{
    size_t len = strcspn(line, " \n");

    *device = 0;
    if (len == 0)
        return false;
    snprintf(file, size, "%.*s", (int)len, line);
    if (line[len] == ' ')
        *device = (unsigned)strtoul(line + len, NULL, 10);
    return true;
}

/* Only the first process gets here, so powering off ends exactly this machine. */
static _Noreturn TR_PRINTF(1, 2) void die(const char *fmt, ...)
{
    va_list args;

    fputs("transom-agent: cannot start the machine: ", stderr);
    va_start(args, fmt);
    vfprintf(stderr, fmt, args);
    va_end(args);
    fputs("\n", stderr);
    sync();
    reboot(RB_POWER_OFF);
    reboot(RB_AUTOBOOT); /* a machine type without power off */
    _exit(1);
}

static void make_folder(const char *path)
{
    if (mkdir(path, 0755) < 0 && errno != EEXIST)
        die("making %s: %s", path, strerror(errno));
}

/* Mount on a folder that is made if it is missing. */
static void mount_at(const char *source, const char *target, const char *type, unsigned long flags,
                     const char *options)
{
    make_folder(target);
    if (mount(source, target, type, flags, options) < 0)
        die("mounting %s (%s) on %s: %s", source, type, target, strerror(errno));
}

/* The content of a small file as a string without its last line end. Returns false if it cannot be
 * read. */
static bool read_file(const char *path, char *text, size_t size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    size_t len = 0;
    ssize_t n = 0;

    text[0] = '\0';
    if (fd < 0)
        return false;
    /* /proc gives a page at a time. */
    while (len < size - 1 && (n = read(fd, text + len, size - 1 - len)) > 0)
        len += (size_t)n;
    close(fd);
    if (n < 0)
        return false;
    text[len] = '\0';
    if (len > 0 && text[len - 1] == '\n')
        text[len - 1] = '\0';
    return true;
}

static bool write_file(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    bool ok;

    if (fd < 0)
        return false;
    ok = write(fd, text, strlen(text)) == (ssize_t)strlen(text);
    close(fd);
    return ok;
}

/* A kernel without a clock of known rate measures its timer against the TSC. A processor that waits
 * for its turn meanwhile measures too little, and its timers fire too early, again and again: up to
 * a machine that is drowned in interrupts, or has no timer. Half of what is right is lived with.
 * transom.lapic_khz says what is right. */
static void check_timer(void)
{
    char cmdline[4096], word[16], *list = malloc(TIMER_LIST_MAX);
    unsigned want, found;

    if (list == NULL || !read_file("/proc/cmdline", cmdline, sizeof(cmdline)))
        die("reading /proc/cmdline: %s", strerror(errno));
    if (agent_cmdline_word(cmdline, "transom.lapic_khz", word, sizeof(word))) {
        want = (unsigned)strtoul(word, NULL, 10);
        if (!read_file("/proc/timer_list", list, TIMER_LIST_MAX))
            die("reading /proc/timer_list: %s", strerror(errno));
        found = agent_lapic_khz(list);
        if (found < want / 2 || found > want * 2) {
            fprintf(stderr, "transom-agent: the timer was measured as %u kHz, it has %u: again\n",
                    found, want);
            reboot(RB_AUTOBOOT);
        }
    }
    free(list);
}

static bool has_virtio_device(unsigned type)
{
    DIR *dir = opendir("/sys/bus/virtio/devices");
    struct dirent *entry;
    bool found = false;

    if (dir == NULL)
        return false;
    while (!found && (entry = readdir(dir)) != NULL) {
        char path[512], text[32];

        snprintf(path, sizeof(path), "/sys/bus/virtio/devices/%s/device", entry->d_name);
        found = read_file(path, text, sizeof(text)) && strtoul(text, NULL, 16) == type;
    }
    closedir(dir);
    return found;
}

static void load_module(const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);

    if (fd < 0)
        die("opening %s: %s", path, strerror(errno));
    if (syscall(SYS_finit_module, fd, "", 0) < 0 && errno != EEXIST)
        die("loading %s: %s", path, strerror(errno));
    close(fd);
    unlink(path); /* the initrd is memory */
}

/* The image builder wrote the list in dependency order. */
static void load_modules(void)
{
    FILE *list = fopen("/modules/load.list", "re");
    char line[256], file[128], path[160];
    unsigned device;

    if (list == NULL)
        die("opening /modules/load.list: %s", strerror(errno));
    while (fgets(line, sizeof(line), list) != NULL) {
        if (!agent_module_line(line, file, sizeof(file), &device))
            continue;
        if (device != 0 && !has_virtio_device(device))
            continue;
        snprintf(path, sizeof(path), "/modules/%s", file);
        load_module(path);
    }
    fclose(list);
}

/* Find the block device whose virtio serial is this one. */
static bool find_disk(const char *serial, char *device, size_t size)
{
    DIR *dir = opendir("/sys/block");
    struct dirent *entry;
    bool found = false;

    if (dir == NULL)
        return false;
    while (!found && (entry = readdir(dir)) != NULL) {
        char path[512], text[64];

        snprintf(path, sizeof(path), "/sys/block/%s/serial", entry->d_name);
        if (!read_file(path, text, sizeof(text)) || strcmp(text, serial) != 0)
            continue;
        snprintf(device, size, "/dev/%s", entry->d_name);
        found = access(device, F_OK) == 0;
    }
    closedir(dir);
    return found;
}

static void wait_for_disk(const char *serial, char *device, size_t size)
{
    const struct timespec pause = {.tv_nsec = 2000000};

    for (int waited_ms = 0; !find_disk(serial, device, size); waited_ms += 2) {
        if (waited_ms >= DEVICE_WAIT_MS)
            die("no disk with the serial \"%s\" within %d s", serial, DEVICE_WAIT_MS / 1000);
        nanosleep(&pause, NULL);
    }
}

/* The image below, read-only; the machine's own layer above, on its disk or else in memory. */
static void mount_root(void)
{
    char cmdline[4096], root[64], data[64], device[512];

    if (!read_file("/proc/cmdline", cmdline, sizeof(cmdline)))
        die("reading /proc/cmdline: %s", strerror(errno));
    if (!agent_cmdline_word(cmdline, "transom.root", root, sizeof(root)))
        snprintf(root, sizeof(root), "root");

    make_folder("/mnt");
    wait_for_disk(root, device, sizeof(device));
    mount_at(device, LOWER, "erofs", MS_RDONLY, NULL);
    if (agent_cmdline_word(cmdline, "transom.data", data, sizeof(data))) {
        wait_for_disk(data, device, sizeof(device));
        mount_at(device, WRITABLE, "ext4", MS_NOATIME, NULL);
    } else {
        mount_at("tmpfs", WRITABLE, "tmpfs", MS_NOATIME, "mode=0755,size=75%");
    }
    make_folder(WRITABLE "/upper");
    make_folder(WRITABLE "/work");
    /* redirect_dir: without it a folder of the image cannot be renamed, which npm does. xino: files
     * and folders show one device number. */
    mount_at("overlay", NEW_ROOT, "overlay", MS_NOATIME,
             "lowerdir=" LOWER ",upperdir=" WRITABLE "/upper,workdir=" WRITABLE
             "/work,redirect_dir=on,xino=auto");
}

/* The initial root can be neither unmounted nor pivoted: the new one is moved over it. */
static void switch_root(void)
{
    static const char *const moved[] = {"/dev", "/proc", "/sys"};

    for (size_t i = 0; i < sizeof(moved) / sizeof(moved[0]); i++) {
        char target[64];

        snprintf(target, sizeof(target), NEW_ROOT "%s", moved[i]);
        if (mount(moved[i], target, NULL, MS_MOVE, NULL) < 0)
            die("moving %s: %s", moved[i], strerror(errno));
    }
    if (chdir(NEW_ROOT) < 0 || mount(".", "/", NULL, MS_MOVE, NULL) < 0 || chroot(".") < 0 ||
        chdir("/") < 0)
        die("switching to the new root: %s", strerror(errno));
}

/* Every run and exec is moved into a cgroup of its own: without favordynmods (Linux 6.0) each move
 * waits for an RCU grace period, 15 ms. */
static void mount_cgroups(void)
{
    const unsigned long flags = MS_NOSUID | MS_NODEV | MS_NOEXEC;

    make_folder("/sys/fs/cgroup");
    if (mount("cgroup2", "/sys/fs/cgroup", "cgroup2", flags,
              "nsdelegate,memory_recursiveprot,favordynmods") < 0)
        mount_at("cgroup2", "/sys/fs/cgroup", "cgroup2", flags, "nsdelegate,memory_recursiveprot");
}

/* What programs expect before systemd is there to make it; systemd keeps what it finds. */
static void mount_run_time(void)
{
    static const char *const links[][2] = {{"/proc/self/fd", "/dev/fd"},
                                           {"/proc/self/fd/0", "/dev/stdin"},
                                           {"/proc/self/fd/1", "/dev/stdout"},
                                           {"/proc/self/fd/2", "/dev/stderr"}};

    mount_at("tmpfs", "/run", "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755,size=20%");
    mount_at("devpts", "/dev/pts", "devpts", MS_NOSUID | MS_NOEXEC, "mode=0620,gid=5,ptmxmode=000");
    mount_at("tmpfs", "/dev/shm", "tmpfs", MS_NOSUID | MS_NODEV, "mode=1777");
    mount_at("mqueue", "/dev/mqueue", "mqueue", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL);
    mount_cgroups();
    for (size_t i = 0; i < sizeof(links) / sizeof(links[0]); i++) {
        if (symlink(links[i][0], links[i][1]) < 0 && errno != EEXIST)
            die("making %s: %s", links[i][1], strerror(errno));
    }
}

/* Commands may run before systemd has brought up the loopback interface. */
static void loopback_up(void)
{
    struct ifreq request = {.ifr_name = "lo", .ifr_flags = IFF_UP};
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

    if (fd < 0 || ioctl(fd, SIOCSIFFLAGS, &request) < 0)
        die("bringing up the loopback interface: %s", strerror(errno));
    close(fd);
}

/* systemd must neither move nor kill the agent: it gets a cgroup that systemd did not make, and the
 * '@' that marks what stays alive until the machine is off. */
static void leave_systemd(void)
{
    setsid();
    /* glibc's name for argv[0] itself, whose first byte systemd looks at. */
    program_invocation_name[0] = '@';
    if (!write_file(AGENT_CGROUP "/cgroup.procs", "0"))
        fprintf(stderr, "transom-agent: joining %s: %s\n", AGENT_CGROUP, strerror(errno));
    if (!write_file("/proc/self/oom_score_adj", "-1000"))
        fprintf(stderr, "transom-agent: oom_score_adj: %s\n", strerror(errno));
}

int agent_init_stage(void)
{
    static char *const argv[] = {"/sbin/init", NULL};
    static char *const env[] = {"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
                                "TERM=linux", NULL};
    pid_t pid;

    umask(022);
    mount_at("devtmpfs", "/dev", "devtmpfs", MS_NOSUID, "mode=0755");
    mount_at("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL);
    mount_at("sysfs", "/sys", "sysfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL);
    check_timer();
    load_modules();
    mount_root();
    switch_root();
    mount_run_time();
    loopback_up();
    make_folder(AGENT_CGROUP);

    pid = fork();
    if (pid < 0)
        die("fork: %s", strerror(errno));
    if (pid == 0) {
        leave_systemd();
        return 0;
    }
    execve(argv[0], argv, env);
    die("starting %s: %s", argv[0], strerror(errno));
}
