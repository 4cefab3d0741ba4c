/* SPDX-License-Identifier: MIT */
/* Folders, the room in them, and the machine image. */
#include <errno.h>
#include <linux/magic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>
#include "vmm/doctor/doctor.h"
#include "vmm/image.h"

#define GIB      (1024LL * 1024 * 1024)
#define ROOM_BAD (1 * GIB)
#define ROOM_LOW (10 * GIB)

/* The folder, or the nearest one above that exists. */
static void existing(const char *path, char *out, size_t size)
{
    struct stat st;

    snprintf(out, size, "%s", path);
    while (stat(out, &st) != 0 && strrchr(out, '/') != NULL && strcmp(out, "/") != 0) {
        char *slash = strrchr(out, '/');

        slash[slash == out] = '\0';
    }
}

static void check_room(struct doctor *d, const char *option, const char *path)
{
    char mend[256];
    struct statvfs fs;
    long long room;

    if (statvfs(path, &fs) != 0)
        return;
    room = (long long)fs.f_bavail * (long long)fs.f_frsize;
    snprintf(mend, sizeof(mend), "make room, or set %s to a folder on a larger disk", option);
    if (fs.f_files > 0 && fs.f_favail * 50 < fs.f_files)
        doctor_report(d, "disk", DOCTOR_BAD, mend, "%s: %s has only %llu inodes left", option, path,
                      (unsigned long long)fs.f_favail);
    else
        doctor_report(d, "disk",
                      room < ROOM_BAD   ? DOCTOR_BAD
                      : room < ROOM_LOW ? DOCTOR_WARN
                                        : DOCTOR_OK,
                      room < ROOM_LOW ? mend : "", "%s: %.1f GiB are free in %s", option,
                      (double)room / GIB, path);
}

/* lasting: what is in it must outlive a restart of the host. */
static void check_folder(struct doctor *d, const char *option, const char *dir, bool lasting)
{
    char path[4096], mend[512];
    struct statfs fs;
    struct stat st;

    existing(dir, path, sizeof(path));
    snprintf(mend, sizeof(mend), "run as the folder's owner, or: chown root %s && chmod u+rwx %s",
             path, path);
    if (stat(path, &st) == 0 && !S_ISDIR(st.st_mode)) {
        doctor_report(d, "folders", DOCTOR_BAD, "remove what is there, or set another folder",
                      "%s: %s is no folder", option, path);
        return;
    }
    if (access(path, W_OK | X_OK) != 0) {
        doctor_report(d, "folders", DOCTOR_BAD, mend, "%s: %s is not writable: %s", option, path,
                      strerror(errno));
        return;
    }
    if (lasting && statfs(path, &fs) == 0 && fs.f_type == TMPFS_MAGIC)
        doctor_report(d, "folders", DOCTOR_WARN, "set it to a folder on a disk",
                      "%s: %s is in memory: sessions and keys are lost when the host restarts",
                      option, path);
    else
        doctor_report(d, "folders", DOCTOR_OK, "", "%s: %s is writable", option, path);
    if (lasting)
        check_room(d, option, path);
}

void doctor_check_folders(struct doctor *d)
{
    check_folder(d, "state_dir", d->options.state_dir, true);
    check_folder(d, "run_dir", d->options.run_dir, false);
}

void doctor_check_image(struct doctor *d)
{
    struct vmm_image image;
    struct err err = {0};
    const json_t *bytes;

    if (vmm_image_find(&d->options, &image, &err) != 0) {
        doctor_report(d, "image", DOCTOR_BAD,
                      "build one: vmm/image/build (of the sources; minutes), or set image.path",
                      "%s", err.msg);
        return;
    }
    bytes = json_object_get(json_object_get(image.about, "bytes"), "root");
    {
        struct stat st;

        if (json_is_integer(bytes) &&
            (stat(image.root, &st) != 0 || st.st_size != json_integer_value(bytes)))
            doctor_report(d, "image", DOCTOR_BAD, "build it anew: vmm/image/build",
                          "%s is not as long as image.json says", image.root);
        else
            doctor_report(d, "image", DOCTOR_OK, "", "%s", image.dir);
    }
    vmm_image_fini(&image);
}
