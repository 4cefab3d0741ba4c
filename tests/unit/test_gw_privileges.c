/* SPDX-License-Identifier: MIT */
/* What is left of a process' rights, tried from inside. Each test is a process of its own. */
#include "gateway/privileges.h"

#include <arpa/inet.h>
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/landlock.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gateway/landlock.h"

static char dir[] = "/tmp/transom-rights-XXXXXX";
static char inside[64], outside[64], log_dir[64];
static char what[256];
static long version;

static void make(const char *path)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(write(fd, "x", 1), 1);
    close(fd);
}

/* A folder to see, one not to see, both open to everybody, and one to write in. */
static void setup(void)
{
    char path[80];

    ck_assert_ptr_nonnull(mkdtemp(dir));
    snprintf(inside, sizeof(inside), "%s/in", dir);
    snprintf(outside, sizeof(outside), "%s/out", dir);
    snprintf(log_dir, sizeof(log_dir), "%s/log", dir);
    for (int i = 0; i < 3; i++) {
        const char *folder = (const char *[]){inside, outside, log_dir}[i];

        ck_assert_int_eq(mkdir(folder, 0777), 0);
        ck_assert_int_eq(chmod(folder, 0777), 0);
        snprintf(path, sizeof(path), "%s/file", folder);
        make(path);
        ck_assert_int_eq(chmod(path, 0666), 0);
    }
    ck_assert_int_eq(chmod(dir, 0755), 0);
    version = syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);
}

static void teardown(void)
{
    char command[128];

    snprintf(command, sizeof(command), "rm -rf %s", dir);
    ck_assert_int_eq(system(command), 0); // NOLINT(cert-env33-c): a test's own folder
}

static bool restricted(void)
{
    return strstr(what, "sanitizer") == NULL;
}

static void restrict_now(void)
{
    struct gw_view view = {.read = {inside}, .n_read = 1, .append = log_dir};
    struct err err = {0};

    ck_assert_msg(gw_become("", false, &err) == 0, "%s", err.msg);
    ck_assert_msg(gw_restrict(&view, what, sizeof(what), &err) == 0, "%s", err.msg);
}

static int try_open(const char *folder, const char *name, int flags)
{
    char path[80];
    int fd;

    snprintf(path, sizeof(path), "%s/%s", folder, name);
    fd = open(path, flags | O_CLOEXEC, 0600);
    if (fd < 0)
        return -errno;
    close(fd);
    return 0;
}

/* The failures of a child come home as its exit status. */
#define IN_CHILD(attempts)                                                                         \
    do {                                                                                           \
        int status;                                                                                \
        pid_t pid = fork();                                                                        \
        if (pid == 0) {                                                                            \
            restrict_now();                                                                        \
            if (restricted())                                                                      \
                (attempts)();                                                                      \
            _exit(0);                                                                              \
        }                                                                                          \
        ck_assert_int_eq(waitpid(pid, &status, 0), pid);                                           \
        ck_assert_int_eq(status, 0);                                                               \
    } while (0)

static void expect(int line, long got, long wanted)
{
    if (got == wanted)
        return;
    dprintf(2, "line %d: %ld instead of %ld\n", line, got, wanted);
    _exit(1);
}
#define EXPECT(got, wanted) expect(__LINE__, got, wanted)
#define ERRNO_OF(call)      ((call) < 0 ? -errno : 0)

static void try_files(void)
{
    EXPECT(try_open(inside, "file", O_RDONLY), 0);
    EXPECT(try_open(inside, "file", O_RDWR), -EPERM); /* the filter of system calls */
    EXPECT(try_open(inside, "new", O_WRONLY | O_CREAT), -EPERM);
    EXPECT(try_open(log_dir, "file", O_WRONLY | O_CREAT | O_APPEND), 0);
    EXPECT(try_open(log_dir, "new", O_WRONLY | O_CREAT | O_APPEND), 0);
    EXPECT(try_open(log_dir, "file", O_WRONLY | O_CREAT | O_TRUNC), -EPERM);
    if (version < 1)
        return;
    EXPECT(try_open(outside, "file", O_RDONLY), -EACCES);
    EXPECT(try_open("/etc", "passwd", O_RDONLY), -EACCES);
    EXPECT(try_open("/proc/self", "environ", O_RDONLY), -EACCES);
    EXPECT(try_open(log_dir, "file", O_RDONLY), -EACCES);
    EXPECT(try_open(inside, "file", O_WRONLY | O_CREAT | O_APPEND), -EACCES);
    EXPECT(try_open(outside, "new", O_WRONLY | O_CREAT | O_APPEND), -EACCES);
}

static void try_processes(void)
{
    char *const argv[] = {(char *)"/bin/true", NULL};

    EXPECT(ERRNO_OF(execv("/bin/true", argv)), -EPERM);
    EXPECT(ERRNO_OF(syscall(SYS_fork)), -EPERM);
    EXPECT(ERRNO_OF(syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0)), -EPERM);
    EXPECT(ERRNO_OF(kill(getppid(), 0)), -EPERM);
    EXPECT(ERRNO_OF(ptrace(PTRACE_ATTACH, getppid(), 0, 0)), -EPERM);
    EXPECT(ERRNO_OF(syscall(SYS_process_vm_writev, getppid(), NULL, 0, NULL, 0, 0)), -EPERM);
    EXPECT(ERRNO_OF(syscall(SYS_unshare, 0x10000000)), -EPERM);
    EXPECT(ERRNO_OF(syscall(SYS_mount, "a", "/", "b", 0, NULL)), -EPERM);
    EXPECT(ERRNO_OF(syscall(SYS_bpf, 0, NULL, 0)), -EPERM);
    EXPECT(ERRNO_OF(unlink(inside)), -EPERM);
    EXPECT(ERRNO_OF(chmod(inside, 0)), -EPERM);
    EXPECT(ERRNO_OF(setuid(0)), -EPERM);
}

static void try_sockets(void)
{
    struct sockaddr_in sa = {.sin_family = AF_INET};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    EXPECT(fd >= 0, 1);
    EXPECT(ERRNO_OF(socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0)), -EPERM);
    EXPECT(ERRNO_OF(socket(AF_VSOCK, SOCK_STREAM | SOCK_CLOEXEC, 0)), -EPERM);
    if (version >= 4)
        EXPECT(ERRNO_OF(bind(fd, (struct sockaddr *)&sa, sizeof(sa))), -EACCES);
    sa.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    sa.sin_port = htons(1);
    EXPECT(ERRNO_OF(connect(fd, (struct sockaddr *)&sa, sizeof(sa))), -ECONNREFUSED);
}

static void try_capabilities(void)
{
    char line[128];
    int n = 0, fd = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
    FILE *f;

    if (fd < 0) /* Landlock: the integration test looks from outside */
        _exit(version >= 1 ? 0 : 1);
    f = fdopen(fd, "r");
    while (f != NULL && fgets(line, sizeof(line), f) != NULL)
        if (strncmp(line, "Cap", 3) == 0 && strncmp(line, "CapBnd", 6) != 0)
            n += strstr(line, "0000000000000000") == NULL;
    EXPECT(n, 0);
}

START_TEST(files_are_those_of_the_view)
{
    IN_CHILD(try_files);
}
END_TEST

START_TEST(no_other_process_can_be_reached)
{
    IN_CHILD(try_processes);
}
END_TEST

START_TEST(no_new_listener_and_no_odd_socket)
{
    IN_CHILD(try_sockets);
}
END_TEST

START_TEST(no_capability_is_left)
{
    IN_CHILD(try_capabilities);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("gateway/privileges");
    TCase *tc = tcase_create("from inside");
    SRunner *sr = srunner_create(s);
    int n_failed;

    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_add_test(tc, files_are_those_of_the_view);
    tcase_add_test(tc, no_other_process_can_be_reached);
    tcase_add_test(tc, no_new_listener_and_no_odd_socket);
    tcase_add_test(tc, no_capability_is_left);
    suite_add_tcase(s, tc);
    srunner_run_all(sr, CK_ENV);
    n_failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return n_failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
