/* SPDX-License-Identifier: MIT */
#include "vmm/image.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "vmm/file.h"

#define ABOUT_MAX_BYTES (256 * 1024)
#define HOW_TO          "run vmm/image/build, or name one with image.path"

/* The newest folder that has an image.json. Others are unfinished builds. */
static int find_newest(const char *images, char out[512], struct err *err)
{
    struct timespec best = {.tv_sec = -1};
    DIR *d = opendir(images);
    struct dirent *entry;

    while (d != NULL && (entry = readdir(d)) != NULL) {
        char path[VMM_PATH_SIZE];
        struct stat st;

        if (entry->d_name[0] == '.' ||
            snprintf(path, sizeof(path), "%s/%s/image.json", images, entry->d_name) >=
                (int)sizeof(path) ||
            stat(path, &st) != 0 || !S_ISREG(st.st_mode))
            continue;
        if (st.st_mtim.tv_sec > best.tv_sec ||
            (st.st_mtim.tv_sec == best.tv_sec && st.st_mtim.tv_nsec > best.tv_nsec)) {
            best = st.st_mtim;
            snprintf(out, 512, "%s/%s", images, entry->d_name);
        }
    }
    if (d != NULL)
        closedir(d);
    return best.tv_sec >= 0
               ? 0
               : tr_err_set(err, -ENOENT, "there is no guest image in %s: " HOW_TO, images);
}

/* Path of the file that image.json names for a role. */
static int find_file(const struct vmm_image *image, const char *role, char out[640],
                     struct err *err)
{
    const json_t *files = json_object_get(image->about, "files");
    const char *name = json_string_value(json_object_get(files, role));

    if (name == NULL || !*name || strchr(name, '/') != NULL || strcmp(name, "..") == 0)
        return tr_err_set(err, -EBADMSG, "%s/image.json: files.%s is missing; " HOW_TO, image->dir,
                          role);
    snprintf(out, 640, "%s/%s", image->dir, name);
    if (access(out, R_OK) != 0)
        return tr_err_set(err, -errno, "the image's %s cannot be read: %s: %s; " HOW_TO, role, out,
                          strerror(errno));
    return 0;
}

int vmm_image_find(const struct vmm_options *options, struct vmm_image *out, struct err *err)
{
    char path[VMM_PATH_SIZE];
    int r = 0;

    memset(out, 0, sizeof(*out));
    if (*options->image_path) {
        if (strlen(options->image_path) >= sizeof(out->dir))
            return tr_err_set(err, -ENAMETOOLONG, "image.path is too long");
        snprintf(out->dir, sizeof(out->dir), "%s", options->image_path);
    } else {
        snprintf(path, sizeof(path), "%s/images", options->cache_dir);
        r = find_newest(path, out->dir, err);
    }
    if (r != 0)
        return r;
    snprintf(path, sizeof(path), "%s/image.json", out->dir);
    r = vmm_file_read_json(path, ABOUT_MAX_BYTES, &out->about, err);
    if (r == -ENOENT)
        return tr_err_set(err, r, "there is no complete guest image in %s: " HOW_TO, out->dir);
    if (r == 0)
        r = find_file(out, "kernel", out->kernel, err);
    if (r == 0)
        r = find_file(out, "initrd", out->initrd, err);
    if (r == 0)
        r = find_file(out, "root", out->root, err);
    if (r != 0)
        vmm_image_fini(out);
    return r;
}

void vmm_image_fini(struct vmm_image *image)
{
    json_decref(image->about);
    image->about = NULL;
}
