/* SPDX-License-Identifier: MIT */
#include "vmm/agent/users.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uv.h>

/* Split a line at colons, keeping empty fields. Returns how many there were. */
static size_t split(char *line, char **fields, size_t max)
{
    size_t n = 0;

    line[strcspn(line, "\n")] = '\0';
    while (n < max) {
        fields[n++] = line;
        line = strchr(line, ':');
        if (line == NULL)
            break;
        *line++ = '\0';
    }
    return n;
}

static bool parse_id(const char *text, unsigned *out)
{
    char *end;
    unsigned long v;

    if (*text < '0' || *text > '9')
        return false;
    v = strtoul(text, &end, 10);
    if (*end != '\0' || v >= 0xffffffffUL) /* -1 means "unchanged" to the kernel */
        return false;
    *out = (unsigned)v;
    return true;
}

static bool copy(char *to, size_t size, const char *from)
{
    size_t len = strlen(from);

    if (len >= size)
        return false;
    memcpy(to, from, len + 1);
    return true;
}

static int find_account(const char *path, const char *name, uid_t uid, struct agent_user *out)
{
    char line[PATH_MAX + 512], *f[7];
    FILE *file = fopen(path, "re");
    int r = UV_ENOENT;

    if (file == NULL)
        return -errno;
    while (r != 0 && fgets(line, sizeof(line), file) != NULL) {
        unsigned line_uid, line_gid;

        if (split(line, f, 7) != 7 || !parse_id(f[2], &line_uid) || !parse_id(f[3], &line_gid))
            continue;
        if (name != NULL ? strcmp(f[0], name) != 0 : line_uid != uid)
            continue;
        if (!copy(out->name, sizeof(out->name), f[0]) ||
            !copy(out->home, sizeof(out->home), f[5]) ||
            !copy(out->shell, sizeof(out->shell), f[6][0] != '\0' ? f[6] : "/bin/sh"))
            continue;
        out->uid = line_uid;
        out->gid = line_gid;
        r = 0;
    }
    fclose(file);
    return r;
}

static void find_groups(const char *path, struct agent_user *user)
{
    char *line = NULL, *f[4];
    size_t size = 0;
    FILE *file = fopen(path, "re");

    user->groups[0] = user->gid;
    user->n_groups = 1;
    if (file == NULL)
        return;
    while (getline(&line, &size, file) > 0) {
        char *save = NULL;
        unsigned gid;

        if (split(line, f, 4) != 4 || !parse_id(f[2], &gid) || gid == user->gid)
            continue;
        for (char *m = strtok_r(f[3], ",", &save); m != NULL; m = strtok_r(NULL, ",", &save)) {
            if (strcmp(m, user->name) == 0 && user->n_groups < AGENT_MAX_GROUPS) {
                user->groups[user->n_groups++] = gid;
                break;
            }
        }
    }
    free(line);
    fclose(file);
}

static int find(const char *passwd_path, const char *group_path, const char *name, uid_t uid,
                struct agent_user *out)
{
    int r;

    memset(out, 0, sizeof(*out));
    r = find_account(passwd_path, name, uid, out);
    if (r == 0)
        find_groups(group_path, out);
    return r;
}

int agent_user_find(const char *passwd_path, const char *group_path, const char *name,
                    struct agent_user *out)
{
    return find(passwd_path, group_path, name, 0, out);
}

int agent_user_find_uid(const char *passwd_path, const char *group_path, uid_t uid,
                        struct agent_user *out)
{
    return find(passwd_path, group_path, NULL, uid, out);
}
