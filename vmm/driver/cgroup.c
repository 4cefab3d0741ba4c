/* SPDX-License-Identifier: MIT */
#include "vmm/driver/cgroup.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define PATH_LEN 512

static const char *const controller_names[CGROUP_N] = {"memory", "cpu", "pids"};

/* Is word one of the words in list (separated by the characters in sep)? */
static bool has_word(const char *list, const char *sep, const char *word)
{
    size_t len = strlen(word);

    while (*list != '\0') {
        size_t n = strcspn(list, sep);

        if (n == len && memcmp(list, word, len) == 0)
            return true;
        list += n;
        list += strspn(list, sep);
    }
    return false;
}

/* mountinfo writes blanks and backslashes as three octal digits. */
static void unescape(char *s)
{
    char *to = s;

    while (*s != '\0') {
        if (s[0] == '\\' && s[1] >= '0' && s[1] <= '3' && s[2] >= '0' && s[2] <= '7' &&
            s[3] >= '0' && s[3] <= '7') {
            *to++ = (char)((s[1] - '0') * 64 + (s[2] - '0') * 8 + (s[3] - '0'));
            s += 4;
        } else {
            *to++ = *s++;
        }
    }
    *to = '\0';
}

/* The caller's own path in the hierarchy of one controller ("" for v2's): the third field of its
 * line in /proc/self/cgroup. */
static void own_path(const char *self, const char *controller, char *out, size_t size)
{
    const char *line = self;

    out[0] = '\0';
    while (*line != '\0') {
        size_t n = strcspn(line, "\n");
        const char *list = memchr(line, ':', n);
        const char *path =
            list != NULL ? memchr(list + 1, ':', n - (size_t)(list + 1 - line)) : NULL;
        char names[128];

        if (path != NULL && (size_t)(path - list - 1) < sizeof(names)) {
            memcpy(names, list + 1, (size_t)(path - list - 1));
            names[path - list - 1] = '\0';
            if (has_word(names, ",", controller)) {
                (void)snprintf(out, size, "%.*s", (int)(n - (size_t)(path + 1 - line)), path + 1);
                return;
            }
        }
        line += n + (line[n] == '\n');
    }
}

static void place_v1(const char *self, int i, const char *root, const char *point,
                     struct cgroup_mounts *out)
{
    char own[256];
    const char *below = own;
    size_t root_len = strlen(root);

    own_path(self, controller_names[i], own, sizeof(own));
    if (strcmp(root, "/") != 0) /* only a part of the hierarchy is mounted here */
        below = strncmp(own, root, root_len) == 0 ? own + root_len : "";
    if (strcmp(below, "/") == 0 || strstr(below, "..") != NULL)
        below = "";
    if (strlen(point) + strlen(below) < sizeof(out->v1[i]))
        (void)snprintf(out->v1[i], sizeof(out->v1[i]), "%s%s", point, below);
}

static void parse_line(char *line, const char *self, struct cgroup_mounts *out)
{
    char *tail = strstr(line, " - "), *save, *root = NULL, *point, *type, *options;
    int i;

    if (tail == NULL)
        return;
    *tail = '\0';
    point = strtok_r(line, " ", &save); /* mount id, parent, device, root, mount point */
    for (i = 0; i < 4 && point != NULL; i++) {
        point = strtok_r(NULL, " ", &save);
        if (i == 2)
            root = point;
    }
    type = strtok_r(tail + 3, " ", &save);
    options = strtok_r(NULL, " ", &save); /* source */
    options = options != NULL ? strtok_r(NULL, " ", &save) : NULL;
    if (point == NULL || root == NULL || type == NULL)
        return;
    unescape(point);
    unescape(root);
    if (strcmp(type, "cgroup2") == 0 && out->v2[0] == '\0' && strlen(point) < sizeof(out->v2))
        (void)snprintf(out->v2, sizeof(out->v2), "%s", point);
    if (strcmp(type, "cgroup") != 0 || options == NULL)
        return;
    for (i = 0; i < CGROUP_N; i++)
        if (out->v1[i][0] == '\0' && has_word(options, ",", controller_names[i]))
            place_v1(self, i, root, point, out);
}

void cgroup_parse_mounts(const char *mountinfo, const char *self, struct cgroup_mounts *out)
{
    char line[4096];

    memset(out, 0, sizeof(*out));
    while (*mountinfo != '\0') {
        size_t n = strcspn(mountinfo, "\n");

        if (n < sizeof(line)) { /* a longer one is no cgroup mount */
            memcpy(line, mountinfo, n);
            line[n] = '\0';
            parse_line(line, self, out);
        }
        mountinfo += n + (mountinfo[n] == '\n');
    }
}

void cgroup_parse_controllers(const char *text, struct cgroup_mounts *mounts)
{
    int i;

    for (i = 0; i < CGROUP_N; i++)
        mounts->in_v2[i] = mounts->v1[i][0] == '\0' && has_word(text, " \n", controller_names[i]);
}

static ssize_t read_text(const char *path, char *buf, size_t size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    size_t len = 0;
    ssize_t n;

    if (fd < 0)
        return -errno;
    do {
        n = read(fd, buf + len, size - 1 - len);
        if (n > 0)
            len += (size_t)n;
    } while (n > 0 && len < size - 1);
    buf[len] = '\0';
    (void)close(fd);
    return (ssize_t)len;
}

int cgroup_find(struct cgroup_mounts *out)
{
    static const size_t size = 256 * 1024;
    char *text = malloc(size), path[PATH_LEN], self[4096];
    ssize_t n;

    if (text == NULL)
        return -ENOMEM;
    n = read_text("/proc/self/cgroup", self, sizeof(self));
    if (n >= 0)
        n = read_text("/proc/self/mountinfo", text, size);
    if (n >= 0) {
        cgroup_parse_mounts(text, self, out);
        (void)snprintf(path, sizeof(path), "%s/cgroup.controllers", out->v2);
        if (out->v2[0] != '\0' && read_text(path, text, size) > 0)
            cgroup_parse_controllers(text, out);
    }
    free(text);
    return n < 0 ? (int)n : 0;
}

static int write_text(const char *dir, const char *file, const char *text)
{
    char path[PATH_LEN + 64];
    int fd, r = 0;

    (void)snprintf(path, sizeof(path), "%s/%s", dir, file);
    fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    if (write(fd, text, strlen(text)) < 0)
        r = -errno;
    (void)close(fd);
    return r;
}

static int make_dir(const char *path)
{
    return mkdir(path, 0755) == 0 || errno == EEXIST ? 0 : -errno;
}

/* Write one limit; a refusal becomes a warning. */
static void limit(const char *dir, const char *file, void (*warn)(const char *text),
                  const char *fmt, ...) __attribute__((format(printf, 4, 5)));
static void limit(const char *dir, const char *file, void (*warn)(const char *text),
                  const char *fmt, ...)
{
    char value[64], text[PATH_LEN + 128];
    va_list args;
    int r;

    va_start(args, fmt);
    (void)vsnprintf(value, sizeof(value), fmt, args);
    va_end(args);
    r = write_text(dir, file, value);
    if (r != 0) {
        (void)snprintf(text, sizeof(text), "no limit: cannot write %s to %s/%s: %s", value, dir,
                       file, strerror(-r));
        warn(text);
    }
}

static void set_limits(const char *dir, int i, bool v2, const struct cgroup_limits *limits,
                       void (*warn)(const char *text))
{
    switch (i) {
    case CGROUP_MEMORY:
        limit(dir, v2 ? "memory.max" : "memory.limit_in_bytes", warn, "%" PRIu64,
              limits->memory_bytes);
        break;
    case CGROUP_CPU:
        if (v2)
            limit(dir, "cpu.max", warn, "%u 100000", limits->cpu_percent * 1000);
        else
            limit(dir, "cpu.cfs_quota_us", warn, "%u", limits->cpu_percent * 1000);
        break;
    default:
        limit(dir, "pids.max", warn, "%u", limits->pids);
        break;
    }
}

void cgroup_plan(const struct cgroup_mounts *m, const char *parent, const char *name,
                 struct cgroup_group *out)
{
    int i;

    memset(out, 0, sizeof(*out));
    for (i = 0; i < CGROUP_N; i++) {
        const char *mount = m->v1[i][0] != '\0' ? m->v1[i] : m->v2;

        out->v2[i] = m->v1[i][0] == '\0' && m->in_v2[i];
        if (m->v1[i][0] != '\0' || m->in_v2[i])
            (void)snprintf(out->dir[i], sizeof(out->dir[i]), "%s/%s/%s", mount, parent, name);
    }
}

/* Is controller i's folder already dealt with under an earlier controller? */
static bool seen(const struct cgroup_group *g, int i)
{
    int j;

    for (j = 0; j < i; j++)
        if (strcmp(g->dir[j], g->dir[i]) == 0)
            return true;
    return false;
}

static void parent_of(const char *dir, char *top)
{
    (void)snprintf(top, PATH_LEN, "%.*s", (int)(strrchr(dir, '/') - dir), dir);
}

static void enter_one(const char *dir, void (*warn)(const char *text))
{
    char top[PATH_LEN], text[PATH_LEN + 128], pid[16];
    int r;

    parent_of(dir, top);
    r = make_dir(top);
    if (r == 0)
        r = make_dir(dir);
    (void)snprintf(pid, sizeof(pid), "%d", (int)getpid());
    if (r == 0)
        r = write_text(dir, "cgroup.procs", pid);
    if (r != 0) {
        (void)snprintf(text, sizeof(text), "no limits by %s: %s", dir, strerror(-r));
        warn(text);
    }
}

/* v2: a controller reaches a group only when every group above passes it on. A refusal shows when
 * the limit is set. */
static void pass_on(const struct cgroup_mounts *m, const char *dir, int i)
{
    char top[PATH_LEN], word[16];

    parent_of(dir, top);
    (void)make_dir(top);
    (void)snprintf(word, sizeof(word), "+%s", controller_names[i]);
    (void)write_text(m->v2, "cgroup.subtree_control", word);
    (void)write_text(top, "cgroup.subtree_control", word);
}

void cgroup_enter(const struct cgroup_mounts *m, const struct cgroup_group *g,
                  const struct cgroup_limits *limits, void (*warn)(const char *text))
{
    char text[96];
    int i;

    for (i = 0; i < CGROUP_N; i++)
        if (g->v2[i])
            pass_on(m, g->dir[i], i);
    for (i = 0; i < CGROUP_N; i++) {
        if (g->dir[i][0] == '\0') {
            (void)snprintf(text, sizeof(text), "no limit: this host has no %s controller",
                           controller_names[i]);
            warn(text);
            continue;
        }
        if (!seen(g, i))
            enter_one(g->dir[i], warn);
        set_limits(g->dir[i], i, g->v2[i], limits, warn);
    }
}

int cgroup_encode(const struct cgroup_group *g, char *text, size_t size)
{
    size_t len = 0;
    int i;

    text[0] = '\0';
    for (i = 0; i < CGROUP_N; i++) {
        if (g->dir[i][0] == '\0')
            continue;
        len += (size_t)snprintf(text + len, size - len, "%s %s %s\n", controller_names[i],
                                g->v2[i] ? "v2" : "v1", g->dir[i]);
        if (len >= size)
            return -ENAMETOOLONG;
    }
    return 0;
}

void cgroup_decode(const char *text, const char *parent, const char *name, struct cgroup_group *out)
{
    char tail[PATH_LEN], word[16], version[4], dir[PATH_LEN];
    int i, end;

    memset(out, 0, sizeof(*out));
    (void)snprintf(tail, sizeof(tail), "/%s/%s", parent, name);
    while (sscanf(text, "%15s %3s %511[^\n]%n", word, version, dir, &end) == 3) {
        size_t len = strlen(dir);

        text += end;
        if (dir[0] != '/' || len < strlen(tail) || strcmp(dir + len - strlen(tail), tail) != 0)
            continue;
        for (i = 0; i < CGROUP_N; i++) {
            if (strcmp(word, controller_names[i]) != 0)
                continue;
            (void)snprintf(out->dir[i], sizeof(out->dir[i]), "%s", dir);
            out->v2[i] = strcmp(version, "v2") == 0;
        }
    }
}

uint64_t cgroup_oom_kills(const struct cgroup_group *g)
{
    char path[PATH_LEN + 32], text[1024];
    const char *p;

    if (g->dir[CGROUP_MEMORY][0] == '\0')
        return 0;
    (void)snprintf(path, sizeof(path), "%s/%s", g->dir[CGROUP_MEMORY],
                   g->v2[CGROUP_MEMORY] ? "memory.events" : "memory.oom_control");
    if (read_text(path, text, sizeof(text)) <= 0 || (p = strstr(text, "oom_kill ")) == NULL)
        return 0;
    return strtoull(p + 9, NULL, 10);
}

static int remove_dir(const char *dir)
{
    struct timespec pause = {.tv_nsec = 10 * 1000 * 1000};
    int i;

    for (i = 0; i < 100; i++) { /* an ended process leaves its group a moment later */
        if (rmdir(dir) == 0 || errno == ENOENT)
            return 0;
        if (errno != EBUSY)
            return -errno;
        (void)nanosleep(&pause, NULL);
    }
    return -EBUSY;
}

int cgroup_remove(const struct cgroup_group *g)
{
    char top[PATH_LEN];
    int i, r, first = 0;

    for (i = 0; i < CGROUP_N; i++) {
        if (g->dir[i][0] == '\0' || seen(g, i))
            continue;
        r = remove_dir(g->dir[i]);
        if (first == 0)
            first = r;
        parent_of(g->dir[i], top);
        (void)rmdir(top); /* stays while other machines are in it */
    }
    return first;
}
