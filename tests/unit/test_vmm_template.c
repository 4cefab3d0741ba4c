/* SPDX-License-Identifier: MIT */
/* A template on disk: what is read is what was written, and nothing else is ever used. */
#include "vmm/template_file.h"

#include <check.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "vmm/file.h"

#define MB (1 << 20)

static char dir[64], root[80], program[80];
static struct vm_spec spec;
static struct vmm_image image;
static struct template_file file;
static struct err err;

static void write_file(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");

    ck_assert_ptr_nonnull(f);
    fputs(text, f);
    fclose(f);
    ck_assert_int_eq(chmod(path, 0755), 0);
}

static void setup(void)
{
    tr_err_clear(&err);
    snprintf(dir, sizeof(dir), "/tmp/test-template-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(dir));
    snprintf(root, sizeof(root), "%s/templates", dir);
    snprintf(program, sizeof(program), "%s/qemu", dir);
    snprintf(image.dir, sizeof(image.dir), "%s", dir);
    snprintf(image.kernel, sizeof(image.kernel), "%s/kernel", dir);
    snprintf(image.initrd, sizeof(image.initrd), "%s/initrd", dir);
    snprintf(image.root, sizeof(image.root), "%s/root", dir);
    write_file(program, "one");
    write_file(image.kernel, "kernel");
    write_file(image.initrd, "initrd");
    write_file(image.root, "root");
    image.about = json_pack("{ss}", "id", "abc");
    spec = (struct vm_spec){.label = "abcdefgh01234567",
                            .vcpus = 2,
                            .memory_mb = 2,
                            .disk_mb = 1,
                            .tsc_khz = 2300000,
                            .qemu = program,
                            .qemu_version = 702,
                            .kernel = image.kernel,
                            .initrd = image.initrd,
                            .root_image = image.root,
                            .run_dir = "/r",
                            .cmdline = ""};
    file.memory_fd = -1;
}

static void teardown(void)
{
    template_close(&file);
    vmm_image_fini(&image);
    ck_assert_int_eq(vmm_file_remove_tree(dir, &err), 0);
}

static json_t *bound(void)
{
    json_t *binding = NULL;

    ck_assert_msg(template_binding(&spec, &image, &binding, &err) == 0, "%s", err.msg);
    return binding;
}

/* A file of the folder that is being built, of one page here and there. */
static void write_pages(const char *name, off_t size)
{
    char path[200];
    int fd;

    snprintf(path, sizeof(path), "%s/" TEMPLATE_NEW "/%s", root, name);
    fd = open(path, O_RDWR | O_CREAT | O_EXCL, 0600);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(ftruncate(fd, size), 0);
    ck_assert_int_eq(pwrite(fd, name, strlen(name), 4096 * 3), (ssize_t)strlen(name));
    close(fd);
}

/* Build one, as a machine would. */
static void build(json_t *binding)
{
    int fd;

    ck_assert_msg(template_prepare(root, &err) == 0, "%s", err.msg);
    fd = template_memory(spec.memory_mb, &err);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(pwrite(fd, "first", 5, 4096 * 7 + 100), 5);
    ck_assert_int_eq(pwrite(fd, "last", 4, 2 * MB - 4), 4);
    ck_assert_int_eq(pwrite(fd, "\0\0\0", 3, 4096 * 9), 3); /* touched, but zeros */
    write_pages(TEMPLATE_DISK, MB);
    write_pages(TEMPLATE_STATE, MB);
    ck_assert_msg(template_save(root, binding, spec.label, "boot", fd, &file, &err) == 0, "%s",
                  err.msg);
}

static int load(json_t *binding)
{
    template_close(&file);
    return template_load(root, binding, &file, &err);
}

START_TEST(what_is_loaded_is_what_was_saved)
{
    json_t *binding = bound();
    char text[6] = "", path[720];
    struct stat st;
    int flags;

    ck_assert_int_eq(load(binding), -ENOENT);
    build(binding);
    ck_assert_uint_eq(file.memory_bytes, 2 * 4096);
    for (int i = 0; i < 2; i++) { /* as it was built, then as it was read */
        ck_assert_int_eq(pread(file.memory_fd, text, 5, 4096 * 7 + 100), 5);
        ck_assert_str_eq(text, "first");
        ck_assert_int_eq(pread(file.memory_fd, text, 4, 2 * MB - 4), 4);
        ck_assert_int_eq(memcmp(text, "last", 4), 0);
        ck_assert_str_eq(file.boot_id, "boot");
        flags = fcntl(file.memory_fd, F_GET_SEALS);
        ck_assert_int_eq(flags, F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL);
        ck_assert_int_eq(fstat(file.memory_fd, &st), 0);
        ck_assert_int_eq(st.st_size, 2 * MB);
        ck_assert_msg(load(binding) == 0, "%s", err.msg);
    }
    /* Nobody else may read what is in a machine's memory. */
    snprintf(path, sizeof(path), "%s/" TEMPLATE_MEMORY, file.dir);
    ck_assert_int_eq(stat(path, &st), 0);
    ck_assert_int_eq(st.st_mode & 0777, 0600);
    ck_assert_int_lt(st.st_blocks * 512, MB);
    ck_assert_int_eq(stat(file.dir, &st), 0);
    ck_assert_int_eq(st.st_mode & 0777, 0700);
    json_decref(binding);
}
END_TEST

static void other_image(void)
{
    json_object_set_new(image.about, "id", json_string("other"));
}
static void other_kernel(void)
{
    write_file(image.kernel, "kernel of the same name");
}
static void other_initrd(void)
{
    write_file(image.initrd, "with another agent");
}
static void other_qemu(void)
{
    write_file(program, "two");
}
static void other_version(void)
{
    spec.qemu_version = 703;
}
static void other_memory(void)
{
    spec.memory_mb = 4;
}
static void other_vcpus(void)
{
    spec.vcpus = 1;
}
static void other_disk(void)
{
    spec.disk_mb = 2;
}
static void other_devices(void)
{
    spec.tap = "tap";
}
static void other_command_line(void)
{
    spec.cmdline = "debug";
}
static void other_accelerator(void)
{
    spec.accel = VM_ACCEL_KVM;
}
static void other_clock(void)
{
    spec.tsc_khz = 2400000;
}

static void (*const changes[])(void) = {
    other_image, other_kernel, other_initrd,  other_qemu,         other_version,     other_memory,
    other_vcpus, other_disk,   other_devices, other_command_line, other_accelerator, other_clock,
};

/* What is in a folder. */
static int count(const char *path)
{
    DIR *d = opendir(path);
    int n = -2; /* "." and ".." */

    ck_assert_ptr_nonnull(d);
    while (readdir(d) != NULL)
        n++;
    closedir(d);
    return n;
}

START_TEST(anything_else_makes_it_useless_and_removes_it)
{
    json_t *binding = bound();

    build(binding);
    json_decref(binding);
    changes[_i]();
    binding = bound();
    ck_assert_int_eq(load(binding), -ENOENT);
    ck_assert_int_eq(file.memory_fd, -1);
    json_decref(binding);
    ck_assert_int_eq(count(root), 0);
}
END_TEST

START_TEST(a_clock_that_was_measured_anew_is_the_same)
{
    json_t *binding = bound();

    build(binding);
    json_decref(binding);
    spec.tsc_khz += 900;
    binding = bound();
    ck_assert_msg(load(binding) == 0, "%s", err.msg);
    json_decref(binding);
}
END_TEST

static const char *const names[] = {TEMPLATE_MEMORY, TEMPLATE_DISK, TEMPLATE_STATE,
                                    "manifest.json"};

START_TEST(what_is_broken_is_not_used)
{
    json_t *binding = bound();
    char path[720];
    int fd;

    build(binding);
    snprintf(path, sizeof(path), "%s/%s", file.dir, names[_i]);
    fd = open(path, O_WRONLY);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(pwrite(fd, "x", 1, _i < 3 ? 4096 * 5 : 0), 1);
    close(fd);
    ck_assert_int_eq(load(binding), -ENOENT);
    ck_assert_int_ne(access(file.dir, F_OK), 0);
    json_decref(binding);
}
END_TEST

START_TEST(what_is_missing_is_not_used)
{
    json_t *binding = bound();
    char path[720];

    build(binding);
    snprintf(path, sizeof(path), "%s/%s", file.dir, names[_i]);
    ck_assert_int_eq(unlink(path), 0);
    ck_assert_int_eq(load(binding), -ENOENT);
    ck_assert_int_ne(access(file.dir, F_OK), 0);
    json_decref(binding);
}
END_TEST

/* Killed before the end of its build: all is there but the manifest, in a folder of another name.
 */
START_TEST(what_is_unfinished_is_removed)
{
    json_t *binding = bound();
    char path[200];

    ck_assert_int_eq(template_prepare(root, &err), 0);
    write_pages(TEMPLATE_DISK, MB);
    write_pages(TEMPLATE_STATE, MB);
    write_pages(TEMPLATE_MEMORY, 2 * MB);
    ck_assert_int_eq(load(binding), -ENOENT);
    snprintf(path, sizeof(path), "%s/" TEMPLATE_NEW, root);
    ck_assert_int_ne(access(path, F_OK), 0);
    json_decref(binding);
}
END_TEST

/* A machine that still runs could go on writing into what its clones share. */
START_TEST(memory_in_use_is_no_template)
{
    json_t *binding = bound();
    void *map;
    int fd;

    ck_assert_int_eq(template_prepare(root, &err), 0);
    fd = template_memory(spec.memory_mb, &err);
    ck_assert_int_ge(fd, 0);
    map = mmap(NULL, 2 * MB, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    ck_assert_ptr_ne(map, MAP_FAILED);
    write_pages(TEMPLATE_DISK, MB);
    write_pages(TEMPLATE_STATE, MB);
    ck_assert_int_lt(template_save(root, binding, spec.label, "boot", fd, &file, &err), 0);
    ck_assert_int_eq(load(binding), -ENOENT);
    munmap(map, 2 * MB);
    close(fd);
    json_decref(binding);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("vmm/template");
    TCase *tc = tcase_create("file");
    SRunner *sr = srunner_create(s);
    int n_failed;

    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_set_timeout(tc, 60);
    tcase_add_test(tc, what_is_loaded_is_what_was_saved);
    tcase_add_loop_test(tc, anything_else_makes_it_useless_and_removes_it, 0,
                        sizeof(changes) / sizeof(changes[0]));
    tcase_add_test(tc, a_clock_that_was_measured_anew_is_the_same);
    tcase_add_loop_test(tc, what_is_broken_is_not_used, 0, 4);
    tcase_add_loop_test(tc, what_is_missing_is_not_used, 0, 4);
    tcase_add_test(tc, what_is_unfinished_is_removed);
    tcase_add_test(tc, memory_in_use_is_no_template);
    suite_add_tcase(s, tc);
    srunner_run_all(sr, CK_ENV);
    n_failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return n_failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
