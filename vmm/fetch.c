/* SPDX-License-Identifier: MIT */
/* Path: [enter the network, own namespaces] -> fork: process 1 of its namespace -> [mounts, no
 * rights, bounds] -> git: init, fetch -> bounds of the tree -> checkout -> .git as a stream.
 * The first process waits; when it is killed, its child is, and with that all below. */
#include "vmm/fetch.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <inttypes.h>
#include <limits.h>
#include <linux/capability.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include "sync/gitdir.h"
#include "vmm/file.h"
#include "vmm/net/rules.h"

#define WORK       "/tmp" /* where the folder is seen inside */
#define MEMORY_MAX (UINT64_C(3) * 1024 * 1024 * 1024)
#define CPU_MAX_S  900
#define ERRORS_MAX 4096

struct fetch {
    const char *staging, *name, *netns, *dns, *url, *ref;
    const char *depth; /* "0": all */
    int64_t bytes, files;
    char errors[ERRORS_MAX]; /* of the last git */
    char why[ERRORS_MAX + 128];
};

static int fail(struct fetch *f, int status, const char *why)
{
    snprintf(f->why, sizeof(f->why), "%s", why);
    return status;
}

static int fail_errno(struct fetch *f, const char *what)
{
    snprintf(f->why, sizeof(f->why), "%s: %s", what, strerror(errno));
    return EXIT_FAILURE;
}

/* ---- what may be asked for ---- */

int vmm_fetch_check_url(const char *url, struct err *err)
{
    static const char *const schemes[] = {"https://", "http://", "git://"};
    const char *host = NULL;
    size_t len;

    for (size_t i = 0; i < sizeof(schemes) / sizeof(schemes[0]); i++) {
        if (strncasecmp(url, schemes[i], strlen(schemes[i])) == 0)
            host = url + strlen(schemes[i]);
    }
    if (host == NULL)
        return tr_err_set(err, -EINVAL, "the URL must begin with https://, http:// or git://");
    len = strcspn(host, "/?#");
    if (strlen(url) > 2000 || len == 0 || host[0] == '-' || host[0] == ':')
        return tr_err_set(err, -EINVAL, "the URL has no host, or is longer than 2000 bytes");
    if (memchr(host, '@', len) != NULL)
        return tr_err_set(err, -EINVAL, "the URL must not hold a user or a password");
    if (strpbrk(host, "?#") != NULL) /* the URL is shown, and is in git's argv */
        return tr_err_set(err, -EINVAL, "the URL must have no query, which may hold a token");
    for (const char *c = url; *c != '\0'; c++) {
        if ((unsigned char)*c <= 0x20 || *c == 0x7f)
            return tr_err_set(err, -EINVAL, "the URL holds a blank or a control character");
    }
    return 0;
}

int vmm_fetch_check_ref(const char *ref, struct err *err)
{
    size_t len = strlen(ref);

    if (len == 0 || len > 250 || ref[0] == '-' || ref[0] == '/' || strstr(ref, "..") != NULL ||
        strstr(ref, "@{") != NULL || strpbrk(ref, " ~^:?*[\\\"'") != NULL)
        return tr_err_set(err, -EINVAL, "ref must be a branch, a tag or the id of a commit");
    for (const char *c = ref; *c != '\0'; c++) {
        if ((unsigned char)*c < 0x20 || *c == 0x7f)
            return tr_err_set(err, -EINVAL, "ref must be a branch, a tag or the id of a commit");
    }
    return 0;
}

static bool is_id(const char *ref)
{
    return strlen(ref) == 40 && strspn(ref, "0123456789abcdef") == 40;
}

/* ---- where it runs ---- */

/* As whoever the manager is. */
static int make_folder(struct fetch *f)
{
    char path[VMM_PATH_SIZE], file[VMM_PATH_SIZE + 16];
    FILE *resolv;

    snprintf(path, sizeof(path), "%s/%s", f->staging, f->name);
    snprintf(file, sizeof(file), "%s/resolv", path);
    if (mkdir(path, 0700) != 0)
        return fail_errno(f, "staging");
    resolv = fopen(file, "we");
    if (resolv == NULL || fprintf(resolv, "nameserver %s\n", f->dns) < 0 || fclose(resolv) != 0)
        return fail_errno(f, "staging");
    if (chmod(file, 0644) != 0 || chown(path, RULES_FETCH_UID, RULES_FETCH_UID) != 0)
        return fail_errno(f, "staging: this node cannot act as another user");
    return 0;
}

static int enter(struct fetch *f)
{
    char path[VMM_PATH_SIZE];
    int fd;

    snprintf(path, sizeof(path), "/run/netns/%s", f->netns);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || setns(fd, CLONE_NEWNET) != 0)
        return fail_errno(f, "the machines' network cannot be entered");
    close(fd);
    if (unshare(CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWUTS) != 0)
        return fail_errno(f, "namespaces");
    return 0;
}

/* Nothing else that can be written: the folder is /tmp, and names come from the machines' own name
 * server. */
static int mount_all(struct fetch *f)
{
    static const char *const hidden[] = {"/dev/shm", "/var/tmp", "/run", "/home", "/root", "/mnt"};
    char path[PATH_MAX];

    snprintf(path, sizeof(path), "%s/%s", f->staging, f->name);
    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount(path, WORK, NULL, MS_BIND, NULL) != 0 ||
        mount(WORK "/resolv", "/etc/resolv.conf", NULL, MS_BIND, NULL) != 0)
        return fail_errno(f, "mounts");
    for (size_t i = 0; i < sizeof(hidden) / sizeof(hidden[0]); i++) {
        if (strcmp(hidden[i], "/run") == 0 && realpath("/etc/resolv.conf", path) != NULL &&
            strncmp(path, "/run/", 5) == 0)
            continue; /* it is reached through there */
        (void)mount("none", hidden[i], "tmpfs", MS_RDONLY | MS_NOSUID | MS_NODEV, "size=4k");
    }
    (void)mount("none", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL);
    return 0;
}

static int drop_rights(struct fetch *f)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct none[2] = {{0}};
    const struct rlimit core = {0, 0}, cpu = {CPU_MAX_S, CPU_MAX_S}, processes = {256, 256},
                        size = {(rlim_t)f->bytes, (rlim_t)f->bytes};

    if (setgroups(0, NULL) != 0 ||
        setresgid(RULES_FETCH_UID, RULES_FETCH_UID, RULES_FETCH_UID) != 0 ||
        setresuid(RULES_FETCH_UID, RULES_FETCH_UID, RULES_FETCH_UID) != 0)
        return fail_errno(f, "this node cannot act as another user");
    /* From here on nobody owns us; the end of the first process is still ours. */
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        syscall(SYS_capset, &header, none) != 0 || setrlimit(RLIMIT_CORE, &core) != 0 ||
        setrlimit(RLIMIT_CPU, &cpu) != 0 || setrlimit(RLIMIT_NPROC, &processes) != 0 ||
        setrlimit(RLIMIT_FSIZE, &size) != 0)
        return fail_errno(f, "bounds");
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    {
        const struct rlimit memory = {MEMORY_MAX, MEMORY_MAX};

        if (setrlimit(RLIMIT_AS, &memory) != 0)
            return fail_errno(f, "bounds");
    }
#endif
    umask(022);
    return chdir(WORK) == 0 ? 0 : fail_errno(f, WORK);
}

/* ---- git ---- */

static char *const environment[] = {"PATH=/usr/local/bin:/usr/bin:/bin",
                                    "LC_ALL=C",
                                    "HOME=/nonexistent",
                                    "GIT_CONFIG_NOSYSTEM=1",
                                    "GIT_CONFIG_GLOBAL=/dev/null",
                                    "GIT_TERMINAL_PROMPT=0",
                                    "GIT_ASKPASS=/bin/false",
                                    "GIT_ALLOW_PROTOCOL=https:http:git",
                                    NULL};

static void run_child(const char *const *argv, int out)
{
    int null = open("/dev/null", O_RDWR);

    if (null < 0 || dup2(null, 0) < 0 || dup2(out, 1) < 0 || dup2(out, 2) < 0)
        _exit(127);
    (void)signal(SIGPIPE, SIG_DFL);
    (void)signal(SIGXFSZ, SIG_IGN); /* EFBIG instead, so that git says what is wrong */
    execvpe(argv[0], (char *const *)argv, environment);
    _exit(127);
}

/* Returns the exit status; what it said is in f->errors, cut. each (may be NULL) gets what it says
 * in pieces; when it returns false, git is ended. */
static int run(struct fetch *f, const char *const *argv,
               bool (*each)(const char *bytes, size_t len, void *arg), void *arg)
{
    char buf[4096];
    int fds[2], status = -1;
    size_t used = 0;
    ssize_t n;
    pid_t pid;

    if (pipe2(fds, O_CLOEXEC) != 0)
        return -1;
    pid = fork();
    if (pid == 0)
        run_child(argv, fds[1]);
    close(fds[1]);
    while (pid > 0 && ((n = read(fds[0], buf, sizeof(buf))) > 0 || (n < 0 && errno == EINTR))) {
        if (n < 0)
            continue;
        if (each != NULL && !each(buf, (size_t)n, arg)) {
            (void)kill(pid, SIGKILL);
            break;
        }
        if ((size_t)n > sizeof(f->errors) - 1 - used)
            n = (ssize_t)(sizeof(f->errors) - 1 - used);
        memcpy(f->errors + used, buf, (size_t)n);
        used += (size_t)n;
    }
    f->errors[used] = '\0';
    close(fds[0]);
    if (pid < 0 || waitpid(pid, &status, 0) != pid)
        return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static bool said(const struct fetch *f, const char *words)
{
    return strcasestr(f->errors, words) != NULL;
}

/* Why a fetch failed, by git's own words. */
static int explain(struct fetch *f)
{
    static const struct {
        const char *words;
        int status;
        const char *why;
    } known[] = {
        {"Could not resolve host", VMM_FETCH_UNREACHABLE, "there is no such host"},
        {"unable to look up", VMM_FETCH_UNREACHABLE, "there is no such host"},
        {"Authentication failed", VMM_FETCH_AUTH, "the repository wants a login"},
        {"could not read Username", VMM_FETCH_AUTH, "the repository wants a login"},
        {"could not read Password", VMM_FETCH_AUTH, "the repository wants a login"},
        {"error: 403", VMM_FETCH_AUTH, "the server refuses access (403)"},
        {"couldn't find remote ref", VMM_FETCH_NO_REF, "the repository has no such branch or tag"},
        {"not our ref", VMM_FETCH_NO_REF, "the repository has no such commit"},
        {"no such remote ref", VMM_FETCH_NO_REF, "the repository has no such branch or tag"},
        {"File too large", VMM_FETCH_TOO_BIG, "the repository is larger than what may be kept"},
        {"No space left", EXIT_FAILURE, "the node's disk is full"},
        {"certificate", VMM_FETCH_UNREACHABLE, "the server's certificate is not valid"},
        {"SSL", VMM_FETCH_UNREACHABLE, "no TLS connection comes about"},
        {"Failed to connect", VMM_FETCH_UNREACHABLE, "the host cannot be reached"},
        {"unable to connect", VMM_FETCH_UNREACHABLE, "the host cannot be reached"},
        {"timed out", VMM_FETCH_UNREACHABLE, "the host does not answer"},
        {"Connection reset", VMM_FETCH_UNREACHABLE, "the connection was cut"},
        {"returned error: 4", VMM_FETCH_NOT_FOUND, "there is no repository at this URL"},
        {"Empty reply", VMM_FETCH_NOT_FOUND, "there is no repository at this URL"},
        {"not found", VMM_FETCH_NOT_FOUND, "there is no repository at this URL"},
        {"not valid: is this a git repository", VMM_FETCH_NOT_FOUND,
         "there is no repository at this URL"},
        {"does not appear to be a git repository", VMM_FETCH_NOT_FOUND,
         "there is no repository at this URL"},
        {"access denied or repository not exported", VMM_FETCH_NOT_FOUND,
         "there is no repository at this URL"},
        {"invalid server response", VMM_FETCH_NOT_FOUND, "there is no repository at this URL"},
    };
    char last[200] = "";

    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        if (said(f, known[i].words))
            return fail(f, known[i].status, known[i].why);
    }
    for (const char *line = f->errors; *line != '\0';
         line += strcspn(line, "\n"), line += *line == '\n')
        snprintf(last, sizeof(last), "%.*s", (int)strcspn(line, "\n"), line);
    snprintf(f->why, sizeof(f->why), "git failed: %s", last);
    return EXIT_FAILURE;
}

/* The tree that is about to be written: "MODE TYPE ID SIZE\tPATH" with a NUL behind each. */
struct tally {
    int64_t bytes, n, bytes_max, n_max;
    char head[80];
    size_t len;
    bool in_path;
};

/* A few objects may be the whole of a huge tree, each many times: no more is counted than needed.
 */
static bool count(const char *bytes, size_t len, void *arg)
{
    struct tally *t = arg;

    for (size_t i = 0; i < len; i++) {
        if (bytes[i] == '\0') {
            t->n++;
            t->in_path = false;
            t->len = 0;
        } else if (!t->in_path && bytes[i] == '\t') {
            const char *size = memrchr(t->head, ' ', t->len);

            t->head[t->len] = '\0';
            t->bytes += size != NULL ? strtoll(size, NULL, 10) : 0; /* "-": no file */
            t->in_path = true;
        } else if (!t->in_path && t->len < sizeof(t->head) - 1) {
            t->head[t->len++] = bytes[i];
        }
    }
    return t->bytes <= t->bytes_max && t->n <= t->n_max;
}

static int check_tree(struct fetch *f)
{
    /* -t: folders, too. */
    const char *argv[] = {"git", "-C", "tree", "ls-tree", "-r", "-t", "-l", "-z", "HEAD", NULL};
    struct tally t = {.bytes_max = f->bytes, .n_max = f->files};
    int status = run(f, argv, count, &t);

    if (t.bytes > f->bytes)
        return fail(f, VMM_FETCH_TOO_BIG,
                    "the repository's files are larger than what may be kept");
    if (t.n > f->files)
        return fail(f, VMM_FETCH_TOO_BIG, "the repository has more files than a session may have");
    return status == 0 ? 0 : explain(f);
}

static int git(struct fetch *f, const char *const *argv)
{
    return run(f, argv, NULL, NULL) == 0 ? 0 : explain(f);
}

/* A branch, a tag or what HEAD is: as clone does it. */
static int clone_it(struct fetch *f)
{
    char depth[40];
    const char *argv[24] = {
        "git",   "-c", "fetch.unpackLimit=1", "-c",         "core.hooksPath=/dev/null",
        "clone", "-q", "--no-checkout",       "--template="};
    size_t n = 9;

    if (*f->ref) {
        argv[n++] = "--branch";
        argv[n++] = f->ref;
    }
    if (strcmp(f->depth, "0") != 0) {
        snprintf(depth, sizeof(depth), "--depth=%s", f->depth);
        argv[n++] = depth;
    }
    argv[n++] = "--";
    argv[n++] = f->url;
    argv[n++] = "tree";
    if (run(f, argv, NULL, NULL) == 0)
        return 0;
    if (said(f, "Remote branch") && said(f, "not found"))
        return fail(f, VMM_FETCH_NO_REF, "the repository has no such branch or tag");
    return explain(f);
}

static int fetch_commit(struct fetch *f)
{
    char depth[40];
    const char *const init[] = {"git", "init", "-q", "--template=", "tree", NULL};
    const char *const remote[] = {"git", "-C", "tree", "remote", "add", "origin", f->url, NULL};
    const char *const detach[] = {"git",        "-C",   "tree",       "update-ref",
                                  "--no-deref", "HEAD", "FETCH_HEAD", NULL};
    const char *argv[16] = {"git", "-C", "tree", "-c", "fetch.unpackLimit=1", "fetch", "-q"};
    size_t n = 7;
    int r;

    if (strcmp(f->depth, "0") != 0) {
        snprintf(depth, sizeof(depth), "--depth=%s", f->depth);
        argv[n++] = depth;
    }
    argv[n++] = "origin";
    argv[n++] = f->ref;
    r = git(f, init);
    if (r == 0)
        r = git(f, remote);
    if (r == 0)
        r = git(f, argv);
    return r == 0 ? git(f, detach) : r;
}

static int checkout(struct fetch *f)
{
    const char *const head[] = {"git", "-C", "tree", "rev-parse", "-q", "--verify", "HEAD", NULL};
    const char *const argv[] = {"git",   "-C", "tree",   "-c", "core.hooksPath=/dev/null",
                                "reset", "-q", "--hard", NULL};
    int r;

    if (run(f, head, NULL, NULL) != 0)
        return 0; /* an empty repository */
    r = check_tree(f);
    return r == 0 ? git(f, argv) : r;
}

/* ---- the .git folder ---- */

static int pack(struct fetch *f)
{
    static char buf[131072];
    int dir = open("tree", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    int out = open("git", O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    struct sync_gitdir_pack *p = NULL;
    int64_t n = dir < 0 || out < 0 ? -errno : sync_gitdir_pack_new(dir, &p);

    while (n >= 0 && (n = sync_gitdir_pack_next(p, buf, sizeof(buf))) > 0) {
        for (int64_t at = 0; at < n;) {
            ssize_t done = write(out, buf + at, (size_t)(n - at));

            if (done < 0 && errno == EINTR)
                continue;
            if (done < 0)
                return errno == EFBIG ? fail(f, VMM_FETCH_TOO_BIG,
                                             "the repository is larger than what may be kept")
                                      : fail_errno(f, "staging");
            at += done;
        }
    }
    if (n < 0) {
        errno = (int)-n;
        return fail_errno(f, "staging");
    }
    sync_gitdir_pack_free(p);
    return renameat(dir, ".git", AT_FDCWD, "dot-git") == 0 ? 0 : fail_errno(f, "staging");
}

/* ---- all of it ---- */

static int inside(struct fetch *f)
{
    int r = mount_all(f);

    (void)signal(SIGXFSZ, SIG_IGN);
    if (r == 0)
        r = drop_rights(f);
    if (r == 0)
        r = *f->ref && is_id(f->ref) ? fetch_commit(f) : clone_it(f);
    if (r == 0)
        r = checkout(f);
    return r == 0 ? pack(f) : r;
}

static int fetch(struct fetch *f)
{
    int r = make_folder(f), status;
    pid_t pid;

    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (r == 0)
        r = enter(f);
    if (r != 0)
        return r;
    pid = fork();
    if (pid < 0)
        return fail_errno(f, "fork");
    if (pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        r = inside(f);
        if (r != 0)
            fprintf(stderr, "%s\n", f->why);
        fflush(stderr);
        _exit(r);
    }
    if (waitpid(pid, &status, 0) != pid)
        return fail_errno(f, "wait");
    return WIFEXITED(status) ? WEXITSTATUS(status) : fail(f, EXIT_FAILURE, "it was killed");
}

bool vmm_fetch_main(int argc, char **argv, int *status)
{
    static struct fetch f;

    if ((argc != 9 + 1 && argc != 9 + 2) || strcmp(argv[1], "--fetch") != 0)
        return false;
    f = (struct fetch){.staging = argv[2],
                       .name = argv[3],
                       .netns = argv[4],
                       .dns = argv[5],
                       .bytes = strtoll(argv[6], NULL, 10),
                       .files = strtoll(argv[7], NULL, 10),
                       .depth = argv[8],
                       .url = argv[9],
                       .ref = argc > 10 ? argv[10] : ""};
    *status = fetch(&f);
    if (*status != 0 && f.why[0] != '\0')
        fprintf(stderr, "%s\n", f.why);
#ifdef __SANITIZE_ADDRESS__
    _exit(*status);
#endif
    return true;
}
