/* SPDX-License-Identifier: MIT */
/* Files below root/<key>/: memory (sparse), disk (sparse), state, manifest.json. Pages of zeros are
 * holes wherever they are, so that a hash over pages and their places does not depend on how a file
 * system keeps them. */
#include "vmm/template_file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include "transom/log.h"
#include "vmm/driver/qemu_args.h"
#include "vmm/file.h"
#include "vmm/text.h"

#define FORMAT             2
#define PAGE               4096
#define MANIFEST           "manifest.json"
#define MANIFEST_MAX_BYTES 65536
#define KEY_LEN            32
#define HASH_SIZE          (EVP_MAX_MD_SIZE * 2 + 1)
#define TSC_TOLERANCE      200 /* a part of the rate: its measurement varies a little */

/* ---- hashes ---- */

static EVP_MD_CTX *hash_begin(void)
{
    EVP_MD_CTX *hash = EVP_MD_CTX_new();

    if (hash == NULL || EVP_DigestInit_ex(hash, EVP_sha256(), NULL) != 1)
        abort(); /* no memory for some hundred bytes */
    return hash;
}

static void hash_add(EVP_MD_CTX *hash, const void *data, size_t len)
{
    if (EVP_DigestUpdate(hash, data, len) != 1)
        abort(); /* cannot fail */
}

static void hash_end(EVP_MD_CTX *hash, char out[HASH_SIZE])
{
    uint8_t sum[EVP_MAX_MD_SIZE];
    unsigned len = 0;

    if (EVP_DigestFinal_ex(hash, sum, &len) != 1)
        abort();
    EVP_MD_CTX_free(hash);
    vmm_hex(sum, len, out);
}

static void hash_text(const char *text, char out[HASH_SIZE])
{
    EVP_MD_CTX *hash = hash_begin();

    hash_add(hash, text, strlen(text));
    hash_end(hash, out);
}

static int hash_file(const char *path, char out[HASH_SIZE], struct err *err)
{
    static const size_t step = 1 << 20;
    int fd = open(path, O_RDONLY | O_CLOEXEC), r = 0;
    char *buf = malloc(step);
    EVP_MD_CTX *hash;
    ssize_t n = -1;

    if (fd < 0 || buf == NULL) {
        r = tr_err_set(err, fd < 0 ? -errno : -ENOMEM, "%s: %s", path, strerror(errno));
    } else {
        hash = hash_begin();
        while ((n = read(fd, buf, step)) > 0)
            hash_add(hash, buf, (size_t)n);
        if (n < 0)
            r = tr_err_set(err, -errno, "%s: %s", path, strerror(errno));
        hash_end(hash, out);
    }
    if (fd >= 0)
        close(fd);
    free(buf);
    return r;
}

/* ---- pages ---- */

static bool is_zero(const uint8_t *page)
{
    return page[0] == 0 && memcmp(page, page + 1, PAGE - 1) == 0;
}

/* Called for each page that is not zeros. */
typedef int (*page_cb)(uint64_t at, const uint8_t *page, void *arg);

static int each_page(int fd, page_cb cb, void *arg)
{
    struct stat st;
    off_t at = 0, end = 0;
    const uint8_t *map;
    int r = 0;

    if (fstat(fd, &st) != 0)
        return -errno;
    if (st.st_size == 0 || st.st_size % PAGE != 0)
        return -EINVAL;
    map = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED)
        return -errno;
    while (r == 0 && at < st.st_size) {
        if (at >= end) { /* the next part that is no hole */
            at = lseek(fd, at, SEEK_DATA);
            if (at < 0) {
                r = errno == ENXIO ? 0 : -errno;
                break;
            }
            at -= at % PAGE;
            end = lseek(fd, at, SEEK_HOLE);
            if (end < 0)
                r = -errno;
            continue;
        }
        if (!is_zero(map + at))
            r = cb((uint64_t)at, map + at, arg);
        at += PAGE;
    }
    (void)munmap((void *)map, (size_t)st.st_size);
    return r;
}

struct copy {
    EVP_MD_CTX *hash;
    int to_fd; /* -1: nowhere */
    uint64_t bytes;
};

static int copy_page(uint64_t at, const uint8_t *page, void *arg)
{
    struct copy *copy = arg;

    hash_add(copy->hash, &at, sizeof(at));
    hash_add(copy->hash, page, PAGE);
    copy->bytes += PAGE;
    if (copy->to_fd < 0)
        return 0;
    return pwrite(copy->to_fd, page, PAGE, (off_t)at) == PAGE ? 0 : errno != 0 ? -errno : -EIO;
}

/* Hash a file, and copy it when to_fd is not -1. *bytes may be NULL. */
static int copy_pages(int fd, int to_fd, char sum[HASH_SIZE], uint64_t *bytes)
{
    struct copy copy = {.hash = hash_begin(), .to_fd = to_fd};
    int r = each_page(fd, copy_page, &copy);

    hash_end(copy.hash, sum);
    if (bytes != NULL)
        *bytes = copy.bytes;
    return r;
}

/* ---- what it is bound to ---- */

/* Content by its name in the image's own record, and what shows that a file was exchanged since. */
static json_t *describe_file(const char *path)
{
    struct stat st;

    if (stat(path, &st) != 0)
        return NULL;
    return json_pack("{sI, sI, sI}", "bytes", (json_int_t)st.st_size, "mtime",
                     (json_int_t)st.st_mtim.tv_sec, "mtime_ns", (json_int_t)st.st_mtim.tv_nsec);
}

/* The command line without what differs from machine to machine. */
static int hash_arguments(const struct vm_spec *spec, char out[HASH_SIZE])
{
    static const struct qemu_places places = {.program = "qemu",
                                              .kernel = "kernel",
                                              .initrd = "initrd",
                                              .qmp_fd = 10,
                                              .agent_fd = 11,
                                              .root_fd = 12,
                                              .data_fd = 13,
                                              .data_read_fd = 14,
                                              .tap_fd = 15,
                                              .memory_fd = 16};
    struct qemu_places there = places;
    struct vm_spec common = *spec;
    EVP_MD_CTX *hash;
    char **argv;

    common.label = "template";
    common.memory = VM_MEMORY_TEMPLATE;
    common.tsc_khz = 0; /* see tsc_fits() */
    memset(common.mac, 0, sizeof(common.mac));
    if (common.tap == NULL || common.tap[0] == '\0')
        there.tap_fd = -1;
    if (common.cmdline == NULL)
        common.cmdline = "";
    argv = qemu_args(&common, &there);
    if (argv == NULL)
        return -ENOMEM;
    hash = hash_begin();
    for (char **word = argv; *word != NULL; word++)
        hash_add(hash, *word, strlen(*word) + 1);
    hash_end(hash, out);
    qemu_args_free(argv);
    return 0;
}

/* The program as the launcher finds it. */
static int hash_program(const char *name, char out[HASH_SIZE], struct err *err)
{
    const char *path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
    char full[VMM_PATH_SIZE];

    if (strchr(name, '/') != NULL)
        return hash_file(name, out, err);
    while (*path != '\0') {
        size_t n = strcspn(path, ":");

        snprintf(full, sizeof(full), "%.*s/%s", (int)n, path, name);
        if (access(full, X_OK) == 0)
            return hash_file(full, out, err);
        path += n + (path[n] == ':');
    }
    return tr_err_set(err, -ENOENT, "%s was not found", name);
}

/* Under KVM the guest has seen the host's processor. */
static void describe_cpu(enum vm_accel accel, char out[HASH_SIZE])
{
    char text[8192] = "", *end;
    FILE *f = accel == VM_ACCEL_KVM ? fopen("/proc/cpuinfo", "re") : NULL;
    size_t n = f != NULL ? fread(text, 1, sizeof(text) - 1, f) : 0;

    text[n] = '\0';
    if ((end = strstr(text, "cpu MHz")) != NULL)
        *end = '\0'; /* of the first processor, what does not change */
    if (f != NULL)
        fclose(f);
    hash_text(text, out);
}

int template_binding(const struct vm_spec *spec, const struct vmm_image *image, json_t **out,
                     struct err *err)
{
    const char *id = json_string_value(json_object_get(image->about, "id"));
    char arguments[HASH_SIZE], program[HASH_SIZE], cpu[HASH_SIZE];
    int r;

    if (id == NULL)
        return tr_err_set(err, -EBADMSG, "%s/image.json has no id", image->dir);
    r = hash_program(spec->qemu[0] != '\0' ? spec->qemu : VM_QEMU_PROGRAM, program, err);
    if (r != 0)
        return r;
    r = hash_arguments(spec, arguments);
    if (r != 0)
        return tr_err_set(err, r, "out of memory");
    describe_cpu(spec->accel, cpu);
    *out = json_pack("{si, ss, so, so, so, ss, ss, si, ss, si, si, si, ss}", "format", FORMAT,
                     "image", id, "kernel", describe_file(image->kernel), "initrd",
                     describe_file(image->initrd), "root", describe_file(image->root), "arguments",
                     arguments, "qemu", program, "qemu_version", (int)spec->qemu_version, "cpu",
                     cpu, "vcpus", (int)spec->vcpus, "memory_mb", (int)spec->memory_mb, "disk_mb",
                     (int)spec->disk_mb, "transom", TRANSOM_VERSION);
    if (*out != NULL && json_object_set_new(*out, "tsc_khz", json_integer(spec->tsc_khz)) == 0)
        return 0;
    json_decref(*out);
    *out = NULL;
    return tr_err_set(err, -EIO, "the image's files cannot be described");
}

/* Measured at each start of the manager. */
static bool tsc_fits(const json_t *a, const json_t *b)
{
    json_int_t x = json_integer_value(json_object_get(a, "tsc_khz"));
    json_int_t y = json_integer_value(json_object_get(b, "tsc_khz"));

    return llabs(x - y) * TSC_TOLERANCE <= x;
}

static bool fits(const json_t *a, const json_t *b)
{
    json_t *x = json_copy((json_t *)a), *y = json_copy((json_t *)b);
    bool good = false;

    if (x != NULL && y != NULL) {
        (void)json_object_del(x, "tsc_khz");
        (void)json_object_del(y, "tsc_khz");
        good = json_equal(x, y) && tsc_fits(a, b);
    }
    json_decref(x);
    json_decref(y);
    return good;
}

/* Name of the folder. */
static int key_of(const json_t *binding, char key[KEY_LEN + 1])
{
    json_t *copy = json_copy((json_t *)binding);
    char sum[HASH_SIZE], *text;

    if (copy == NULL)
        return -ENOMEM;
    (void)json_object_del(copy, "tsc_khz");
    text = json_dumps(copy, JSON_COMPACT | JSON_SORT_KEYS);
    json_decref(copy);
    if (text == NULL)
        return -ENOMEM;
    hash_text(text, sum);
    free(text);
    snprintf(key, KEY_LEN + 1, "%s", sum);
    return 0;
}

/* ---- load ---- */

static int open_in(const char *dir, const char *name, int flags)
{
    char path[VMM_PATH_SIZE];
    int fd;

    snprintf(path, sizeof(path), "%s/%s", dir, name);
    fd = open(path, flags | O_NOFOLLOW | O_CLOEXEC, 0600);
    return fd < 0 ? -errno : fd;
}

int template_memory(unsigned memory_mb, struct err *err)
{
    int fd = memfd_create("transom-template", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    if (fd >= 0 && ftruncate(fd, (off_t)memory_mb << 20) == 0)
        return fd;
    (void)tr_err_set(err, -errno, "memory of a template: %s", strerror(errno));
    if (fd >= 0)
        close(fd);
    return err->code;
}

static int seal(int fd, struct err *err)
{
    if (fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL) == 0)
        return 0;
    return tr_err_set(err, -errno, "memory of a template cannot be sealed: %s", strerror(errno));
}

/* One file, hashed and compared with the manifest, copied when to_fd is not -1. */
static int check_file(const char *dir, const char *name, const json_t *manifest, int to_fd,
                      uint64_t *bytes, struct err *err)
{
    const char *want = json_string_value(json_object_get(json_object_get(manifest, "files"), name));
    char sum[HASH_SIZE];
    int fd = open_in(dir, name, O_RDONLY), r;

    if (fd < 0)
        return tr_err_set(err, fd, "%s/%s: %s", dir, name, strerror(-fd));
    r = copy_pages(fd, to_fd, sum, bytes);
    close(fd);
    if (r != 0)
        return tr_err_set(err, r, "%s/%s: %s", dir, name, strerror(-r));
    if (want == NULL || strcmp(want, sum) != 0)
        return tr_err_set(err, -EBADMSG, "%s/%s is not what was written", dir, name);
    return 0;
}

static int check_state(const char *dir, const json_t *manifest, struct err *err)
{
    const char *want =
        json_string_value(json_object_get(json_object_get(manifest, "files"), TEMPLATE_STATE));
    char sum[HASH_SIZE], path[VMM_PATH_SIZE];
    int r;

    snprintf(path, sizeof(path), "%s/" TEMPLATE_STATE, dir);
    r = hash_file(path, sum, err);
    if (r == 0 && (want == NULL || strcmp(want, sum) != 0))
        r = tr_err_set(err, -EBADMSG, "%s is not what was written", path);
    return r;
}

static int load_files(const json_t *manifest, const json_t *binding, struct template_file *out,
                      struct err *err)
{
    const char *boot_id = json_string_value(json_object_get(manifest, "boot_id"));
    const char *label = json_string_value(json_object_get(manifest, "label"));
    json_int_t memory_mb = json_integer_value(json_object_get(binding, "memory_mb"));
    int r;

    if (boot_id == NULL || !*boot_id || strlen(boot_id) >= sizeof(out->boot_id) || label == NULL ||
        strlen(label) != VMM_ID_LEN)
        return tr_err_set(err, -EBADMSG, "%s/" MANIFEST " has no boot id or label", out->dir);
    memcpy(out->label, label, sizeof(out->label));
    snprintf(out->boot_id, sizeof(out->boot_id), "%s", boot_id);
    out->memory_fd = template_memory((unsigned)memory_mb, err);
    if (out->memory_fd < 0)
        return out->memory_fd;
    r = check_file(out->dir, TEMPLATE_MEMORY, manifest, out->memory_fd, &out->memory_bytes, err);
    if (r == 0)
        r = check_file(out->dir, TEMPLATE_DISK, manifest, -1, NULL, err);
    if (r == 0)
        r = check_state(out->dir, manifest, err);
    if (r == 0)
        r = seal(out->memory_fd, err);
    return r;
}

/* Everything but the one of this name. */
static void remove_others(const char *root, const char *key)
{
    DIR *dir = opendir(root);
    char path[VMM_PATH_SIZE];
    struct dirent *entry;
    struct err err = {0};

    while (dir != NULL && (entry = readdir(dir)) != NULL) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0 ||
            strcmp(entry->d_name, key) == 0)
            continue;
        snprintf(path, sizeof(path), "%s/%s", root, entry->d_name);
        if (vmm_file_remove_tree(path, &err) != 0)
            log_error("template: %s", err.msg);
        else
            log_info("template: %s %s: removed", entry->d_name,
                     strcmp(entry->d_name, TEMPLATE_NEW) == 0
                         ? "was not finished"
                         : "is of another image, program or size");
    }
    if (dir != NULL)
        closedir(dir);
}

int template_load(const char *root, const json_t *binding, struct template_file *out,
                  struct err *err)
{
    char key[KEY_LEN + 1], path[VMM_PATH_SIZE];
    json_t *manifest = NULL;
    struct err fault = {0};
    int r = key_of(binding, key);

    memset(out, 0, sizeof(*out));
    out->memory_fd = -1;
    if (r != 0)
        return tr_err_set(err, r, "out of memory");
    remove_others(root, key);
    snprintf(out->dir, sizeof(out->dir), "%.540s/%s", root, key);
    snprintf(path, sizeof(path), "%s/" MANIFEST, out->dir);
    r = vmm_file_read_json(path, MANIFEST_MAX_BYTES, &manifest, &fault);
    if (r == 0 && !fits(json_object_get(manifest, "binding"), binding))
        r = tr_err_set(&fault, -ESTALE, "%s: the clock's rate has changed", path);
    if (r == 0)
        r = load_files(manifest, binding, out, &fault);
    json_decref(manifest);
    if (r == 0)
        return 0;
    template_close(out);
    if (access(out->dir, F_OK) == 0) {
        log_warn("template: not used, and built again: %s", fault.msg);
        if (vmm_file_remove_tree(out->dir, &fault) != 0)
            return tr_err_set(err, -EIO, "%s", fault.msg);
    }
    return tr_err_set(err, -ENOENT, "there is no template yet");
}

void template_close(struct template_file *file)
{
    if (file->memory_fd >= 0)
        close(file->memory_fd);
    file->memory_fd = -1;
}

/* ---- save ---- */

int template_prepare(const char *root, struct err *err)
{
    char path[VMM_PATH_SIZE];
    int r;

    snprintf(path, sizeof(path), "%s/" TEMPLATE_NEW, root);
    r = vmm_file_remove_tree(path, err);
    return r == 0 ? vmm_file_mkdirs(path, 0700, err) : r;
}

static int sync_file(const char *dir, const char *name, struct err *err)
{
    int fd = open_in(dir, name, O_RDONLY);

    if (fd < 0 || fsync(fd) != 0) {
        (void)tr_err_set(err, -errno, "%s/%s: %s", dir, name, strerror(errno));
        if (fd >= 0)
            close(fd);
        return err->code;
    }
    close(fd);
    return 0;
}

static int save_memory(const char *dir, int memory_fd, char sum[HASH_SIZE], uint64_t *bytes,
                       struct err *err)
{
    int fd = open_in(dir, TEMPLATE_MEMORY, O_WRONLY | O_CREAT | O_EXCL), r = fd < 0 ? fd : 0;
    struct stat st;

    if (r == 0 && (fstat(memory_fd, &st) != 0 || ftruncate(fd, st.st_size) != 0))
        r = -errno;
    if (r == 0)
        r = copy_pages(memory_fd, fd, sum, bytes);
    if (r == 0 && fsync(fd) != 0)
        r = -errno;
    if (fd >= 0)
        close(fd);
    return r == 0 ? 0 : tr_err_set(err, r, "%s/" TEMPLATE_MEMORY ": %s", dir, strerror(-r));
}

static int save_disk(const char *dir, char sum[HASH_SIZE], struct err *err)
{
    int fd = open_in(dir, TEMPLATE_DISK, O_RDONLY), r = fd < 0 ? fd : 0;

    if (r == 0)
        r = copy_pages(fd, -1, sum, NULL);
    if (fd >= 0)
        close(fd);
    if (r != 0)
        return tr_err_set(err, r, "%s/" TEMPLATE_DISK ": %s", dir, strerror(-r));
    return sync_file(dir, TEMPLATE_DISK, err);
}

static int save_files(const char *dir, const json_t *binding, const struct template_file *file,
                      int memory_fd, uint64_t *bytes, struct err *err)
{
    char memory[HASH_SIZE], disk[HASH_SIZE], state[HASH_SIZE], path[VMM_PATH_SIZE];
    json_t *manifest;
    int r = save_memory(dir, memory_fd, memory, bytes, err);

    snprintf(path, sizeof(path), "%s/" TEMPLATE_STATE, dir);
    if (r == 0)
        r = save_disk(dir, disk, err);
    if (r == 0)
        r = hash_file(path, state, err);
    if (r == 0)
        r = sync_file(dir, TEMPLATE_STATE, err);
    if (r != 0)
        return r;
    manifest = json_pack("{sO, ss, ss, s{ss, ss, ss}}", "binding", (json_t *)binding, "label",
                         file->label, "boot_id", file->boot_id, "files", TEMPLATE_MEMORY, memory,
                         TEMPLATE_DISK, disk, TEMPLATE_STATE, state);
    if (manifest == NULL)
        return tr_err_set(err, -ENOMEM, "out of memory");
    r = vmm_file_write_json(dir, MANIFEST, manifest, err);
    json_decref(manifest);
    return r;
}

int template_save(const char *root, const json_t *binding, const char *label, const char *boot_id,
                  int memory_fd, struct template_file *out, struct err *err)
{
    char key[KEY_LEN + 1], new_dir[VMM_PATH_SIZE];
    int r = key_of(binding, key);

    memset(out, 0, sizeof(*out));
    out->memory_fd = -1;
    if (r != 0)
        return tr_err_set(err, r, "out of memory");
    snprintf(new_dir, sizeof(new_dir), "%s/" TEMPLATE_NEW, root);
    snprintf(out->dir, sizeof(out->dir), "%.540s/%s", root, key);
    snprintf(out->boot_id, sizeof(out->boot_id), "%s", boot_id);
    snprintf(out->label, sizeof(out->label), "%s", label);
    r = save_files(new_dir, binding, out, memory_fd, &out->memory_bytes, err);
    if (r == 0)
        r = seal(memory_fd, err);
    if (r == 0)
        r = vmm_file_remove_tree(out->dir, err);
    if (r == 0 && rename(new_dir, out->dir) != 0)
        r = tr_err_set(err, -errno, "%s: %s", out->dir, strerror(errno));
    if (r == 0)
        r = vmm_file_sync_dir(root, err);
    if (r == 0)
        out->memory_fd = memory_fd;
    return r;
}
