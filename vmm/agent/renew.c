/* SPDX-License-Identifier: MIT */
#include "vmm/agent/renew.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#define BOOT_ID     "/proc/sys/kernel/random/boot_id"
#define OUR_BOOT_ID "/run/transom/boot_id"
#define JOURNAL     "/run/log/journal"

int agent_replace_file(const char *path, const char *text, struct err *err)
{
    size_t len = strlen(text);
    char temp[256];
    int fd, r = 0;

    snprintf(temp, sizeof(temp), "%s.transom", path);
    fd = open(temp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644);
    if (fd < 0)
        return tr_err_set(err, -errno, "%s: %s", temp, strerror(errno));
    if (write(fd, text, len) != (ssize_t)len || fchmod(fd, 0644) != 0 || rename(temp, path) != 0) {
        r = tr_err_set(err, -errno, "%s: %s", path, strerror(errno));
        unlink(temp);
    }
    close(fd);
    return r;
}

/* A version 4 UUID (RFC 9562 section 5.4) in 32 hexadecimal digits, as systemd makes its ids. */
static int random_id(char text[33], struct err *err)
{
    uint8_t id[16];

    if (getentropy(id, sizeof(id)) != 0)
        return tr_err_set(err, -errno, "random bytes: %s", strerror(errno));
    id[6] = (uint8_t)((id[6] & 0x0f) | 0x40);
    id[8] = (uint8_t)((id[8] & 0x3f) | 0x80);
    for (size_t i = 0; i < sizeof(id); i++)
        snprintf(text + i * 2, 3, "%02x", id[i]);
    return 0;
}

int agent_renew_machine_id(bool again, struct err *err)
{
    char id[33], text[40];
    struct stat st;
    int r;

    if (!again && stat("/etc/machine-id", &st) == 0 && st.st_size >= 32)
        return 0;
    r = random_id(id, err);
    if (r != 0)
        return r;
    snprintf(text, sizeof(text), "%s\n", id);
    return agent_replace_file("/etc/machine-id", text, err);
}

/* The kernel's own is fixed for as long as it runs; a file is laid over it. */
static int renew_boot_id(struct err *err)
{
    char id[33], text[40];
    int r = random_id(id, err);

    if (r != 0)
        return r;
    snprintf(text, sizeof(text), "%.8s-%.4s-%.4s-%.4s-%s\n", id, id + 8, id + 12, id + 16, id + 20);
    if (mkdir("/run/transom", 0755) != 0 && errno != EEXIST)
        return tr_err_set(err, -errno, "/run/transom: %s", strerror(errno));
    /* Of a template that was a clone itself. */
    if (umount2(BOOT_ID, MNT_DETACH) != 0 && errno != EINVAL)
        return tr_err_set(err, -errno, BOOT_ID ": %s", strerror(errno));
    r = agent_replace_file(OUR_BOOT_ID, text, err);
    if (r == 0 &&
        (chmod(OUR_BOOT_ID, 0444) != 0 || mount(OUR_BOOT_ID, BOOT_ID, NULL, MS_BIND, NULL) != 0 ||
         mount(NULL, BOOT_ID, NULL,
               MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) != 0))
        r = tr_err_set(err, -errno, "laying a file over " BOOT_ID ": %s", strerror(errno));
    return r;
}

/* Those of its service; the agent's own server has others. */
static int remove_host_keys(struct err *err)
{
    DIR *dir = opendir("/etc/ssh");
    struct dirent *entry;
    int r = 0;

    while (dir != NULL && (entry = readdir(dir)) != NULL) {
        if (strncmp(entry->d_name, "ssh_host_", 9) == 0 &&
            unlinkat(dirfd(dir), entry->d_name, 0) != 0 && r == 0)
            r = tr_err_set(err, -errno, "/etc/ssh/%s: %s", entry->d_name, strerror(errno));
    }
    if (dir != NULL)
        closedir(dir);
    return r;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *where)
{
    (void)st;
    (void)type;
    if (where->level > 0)
        (void)remove(path);
    return 0;
}

int agent_renew(struct err *err)
{
    int r = renew_boot_id(err);

    if (r == 0)
        r = remove_host_keys(err);
    if (r == 0) /* the template stopped the journal's service, which reads its ids when it starts */
        (void)nftw(JOURNAL, remove_one, 8, FTW_DEPTH | FTW_PHYS);
    return r;
}
