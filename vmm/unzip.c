/* SPDX-License-Identifier: MIT */
#include "vmm/unzip.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zip.h>
#include "sync/path.h"
#include "sync/store.h"
#include "vmm/confine.h"
#include "vmm/file.h"

#define MEMORY_MAX (UINT64_C(1024) * 1024 * 1024) /* bytes of address space */
#define CPU_MAX_S  600
#define SHOWN      200
#define TOO_MANY   "the archive has too many files"

struct unzip {
    zip_t *zip;
    int root;             /* NAME.d */
    int64_t left, n_left; /* bytes, and files and folders, that may still be made */
    uint64_t n_passed;
    char passed[SHOWN + 1];
    int status;
    char why[512];
};

static int refuse(struct unzip *x, int status, const char *path, const char *why)
{
    char shown[SHOWN + 1];
    size_t n = 0;

    for (; path != NULL && path[n] != '\0' && n < SHOWN; n++)
        shown[n] = (unsigned char)path[n] < 0x20 || path[n] == 0x7f ? '?' : path[n];
    shown[n] = '\0';
    snprintf(x->why, sizeof(x->why), "%s%s%s", shown, n > 0 ? ": " : "", why);
    x->status = status;
    return -1;
}

static bool has_git(const char *path, size_t len)
{
    size_t from = 0;

    for (size_t i = 0; i <= len; i++) {
        if (i < len && path[i] != '/')
            continue;
        if (i - from == 4 && strncasecmp(path + from, ".git", 4) == 0)
            return true;
        from = i + 1;
    }
    return false;
}

/* A path may make a hundred folders, and they are not in the archive's count of entries. */
static bool take_entry(struct unzip *x)
{
    if (x->n_left > 0) {
        x->n_left--;
        return true;
    }
    return false;
}

static int make_dir(struct unzip *x, int dir, const char *name)
{
    if (mkdirat(dir, name, 0755) != 0)
        return errno == EEXIST ? 0 : -1;
    return take_entry(x) ? 0 : -1;
}

/* Why a folder could not be made. */
static int refuse_dir(struct unzip *x, const char *path)
{
    return x->n_left == 0
               ? refuse(x, VMM_UNZIP_REFUSED, NULL, TOO_MANY)
               : refuse(x, VMM_UNZIP_REFUSED, path, "a file of the archive is on its way");
}

/* The folder above, made; "" of path is root itself. Returns a descriptor. */
static int open_above(struct unzip *x, char *path, const char **base)
{
    int dir = openat(x->root, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    char *at = path, *slash;

    while (dir >= 0 && (slash = strchr(at, '/')) != NULL) {
        int sub;

        *slash = '\0';
        if (make_dir(x, dir, at) != 0) {
            close(dir);
            return -1;
        }
        sub = openat(dir, at, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        close(dir);
        dir = sub;
        *slash = '/';
        at = slash + 1;
    }
    *base = at;
    return dir;
}

static int write_all(int fd, const char *bytes, size_t len)
{
    while (len > 0) {
        ssize_t n = write(fd, bytes, len);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -1;
        bytes += n;
        len -= (size_t)n;
    }
    return 0;
}

static int copy(struct unzip *x, zip_file_t *file, int fd, const char *path)
{
    static char buf[65536];
    zip_int64_t n;

    while ((n = zip_fread(file, buf, sizeof(buf))) > 0) {
        if (n > x->left)
            return refuse(x, VMM_UNZIP_TOO_BIG, path,
                          "what is in the archive is larger than what may be kept");
        if (write_all(fd, buf, (size_t)n) != 0)
            return refuse(x, EXIT_FAILURE, path, strerror(errno));
        x->left -= n;
    }
    /* Also when its check sum is wrong. */
    return n == 0 ? 0 : refuse(x, VMM_UNZIP_REFUSED, path, "the archive is damaged there");
}

static int unpack_file(struct unzip *x, zip_uint64_t i, char *path, bool is_exec)
{
    const char *base;
    zip_file_t *file;
    int dir = open_above(x, path, &base), fd, r;

    if (dir < 0)
        return refuse_dir(x, path);
    if (!take_entry(x)) {
        close(dir);
        return refuse(x, VMM_UNZIP_REFUSED, NULL, TOO_MANY);
    }
    fd = openat(dir, base, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
                is_exec ? 0755 : 0644);
    close(dir);
    if (fd < 0)
        return refuse(x, VMM_UNZIP_REFUSED, path,
                      errno == EEXIST ? "the archive has it twice" : strerror(errno));
    file = zip_fopen_index(x->zip, i, 0);
    if (file == NULL) {
        r = refuse(x, VMM_UNZIP_REFUSED, path,
                   zip_error_code_zip(zip_get_error(x->zip)) == ZIP_ER_NOPASSWD
                       ? "it is encrypted"
                       : "it cannot be unpacked");
    } else {
        r = copy(x, file, fd, path);
        (void)zip_fclose(file);
    }
    if (close(fd) != 0 && r == 0)
        r = refuse(x, EXIT_FAILURE, path, strerror(errno));
    return r;
}

static int unpack_dir(struct unzip *x, char *path)
{
    const char *base;
    int dir = open_above(x, path, &base), r = 0;
    struct stat st;

    if (dir < 0 || make_dir(x, dir, base) != 0 ||
        fstatat(dir, base, &st, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISDIR(st.st_mode))
        r = refuse_dir(x, path);
    if (dir >= 0)
        close(dir);
    return r;
}

static const char *wrong_path(const char *path, size_t len)
{
    if (len == 0)
        return "the archive has a file without a name";
    if (path[0] == '/')
        return "a path in an archive must not be absolute";
    if (len > SYNC_PATH_MAX || sync_path_check(path, len) != 0)
        return "a path that cannot be stored: empty, \".\" or \"..\" as a component, or too long";
    return NULL;
}

static int unpack_one(struct unzip *x, zip_uint64_t i)
{
    const char *name = zip_get_name(x->zip, i, ZIP_FL_ENC_GUESS), *why;
    size_t len = name != NULL ? strlen(name) : 0;
    char path[SYNC_PATH_MAX + 1];
    zip_uint32_t attributes = 0;
    zip_uint8_t system = 0;
    mode_t mode = 0;
    bool is_dir;

    if (name == NULL)
        return refuse(x, VMM_UNZIP_REFUSED, NULL, "the archive has a name that cannot be read");
    is_dir = len > 0 && name[len - 1] == '/';
    len -= is_dir;
    why = wrong_path(name, len);
    if (why != NULL)
        return refuse(x, VMM_UNZIP_REFUSED, name, why);
    memcpy(path, name, len);
    path[len] = '\0';
    if (has_git(path, len)) {
        if (x->n_passed++ == 0)
            snprintf(x->passed, sizeof(x->passed), "%.*s", SHOWN, path);
        return 0;
    }
    if (zip_file_get_external_attributes(x->zip, i, 0, &system, &attributes) == 0 &&
        system == ZIP_OPSYS_UNIX)
        mode = (mode_t)(attributes >> 16);
    if (S_ISLNK(mode))
        return refuse(x, VMM_UNZIP_REFUSED, path, "links in an archive are not taken");
    if ((mode & S_IFMT) != 0 && !S_ISREG(mode) && !S_ISDIR(mode))
        return refuse(x, VMM_UNZIP_REFUSED, path, "neither a file nor a folder");
    return is_dir ? unpack_dir(x, path) : unpack_file(x, i, path, (mode & S_IXUSR) != 0);
}

static int unpack(struct unzip *x)
{
    zip_int64_t n = zip_get_num_entries(x->zip, 0);

    if (n > SYNC_STORE_FILES_MAX)
        return refuse(x, VMM_UNZIP_REFUSED, NULL, TOO_MANY);
    for (zip_int64_t i = 0; i < n; i++) {
        if (unpack_one(x, (zip_uint64_t)i) != 0)
            return -1;
    }
    return 0;
}

static int begin(struct unzip *x, const char *staging, const char *name)
{
    const struct vmm_confine confine = {.dir = staging, .memory = MEMORY_MAX, .cpu_s = CPU_MAX_S};
    char archive[VMM_PATH_SIZE], dir[VMM_PATH_SIZE];
    struct err err = {0};
    int fault = 0;

    snprintf(archive, sizeof(archive), "%s/%s", staging, name);
    snprintf(dir, sizeof(dir), "%s/%s.d", staging, name);
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (vmm_confine(&confine, &err) != 0)
        return refuse(x, EXIT_FAILURE, NULL, err.msg);
    x->zip = zip_open(archive, ZIP_RDONLY, &fault);
    if (x->zip == NULL)
        return refuse(x, VMM_UNZIP_REFUSED, NULL,
                      fault == ZIP_ER_OPEN || fault == ZIP_ER_READ ? "the archive was lost"
                                                                   : "this is no ZIP archive");
    if (mkdir(dir, 0700) == 0)
        x->root = open(dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return x->root >= 0 ? 0 : refuse(x, EXIT_FAILURE, NULL, strerror(errno));
}

bool vmm_unzip_main(int argc, char **argv, int *status)
{
    static struct unzip x = {.root = -1};

    if (argc != 6 || strcmp(argv[1], "--unzip") != 0)
        return false;
    x.left = strtoll(argv[4], NULL, 10);
    x.n_left = strtoll(argv[5], NULL, 10);
    if (begin(&x, argv[2], argv[3]) == 0 && unpack(&x) == 0)
        printf("%" PRIu64 " %s\n", x.n_passed, x.passed);
    else
        fprintf(stderr, "%s\n", x.why);
    if (x.zip != NULL)
        zip_discard(x.zip);
    *status = fflush(stdout) != 0 ? EXIT_FAILURE : x.status;
#ifdef __SANITIZE_ADDRESS__
    _exit(*status); /* the search for leaks would want rights that are gone */
#endif
    return true;
}
