/* SPDX-License-Identifier: MIT */
#include "vmm/agent/group.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "transom/log.h"
#include "vmm/agent/proc.h"

#define SWEEP_MS 1000

struct agent_groups {
    uv_timer_t sweep;
    bool cgroups;
    char path[PATH_MAX - 64];
    unsigned long last;       /* number in the newest name */
    struct agent_group *gone; /* let go, directory not yet removed */
    struct agent_group *all;  /* without cgroups: what agent_groups_kill() goes through */
};

struct agent_group {
    struct agent_groups *groups;
    struct agent_group *next;
    char path[PATH_MAX];
    int procs_fd;
    pid_t leader;
    bool itself;
    pid_t *others; /* of the leader's descendants, those that were there before */
    size_t n_others;
};

static int write_file(const char *dir, const char *name, const char *text)
{
    char path[PATH_MAX + 32];
    int fd, r = 0;

    snprintf(path, sizeof(path), "%s/%s", dir, name);
    fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    if (write(fd, text, strlen(text)) < 0)
        r = -errno;
    close(fd);
    return r;
}

static bool usable(const char *path)
{
    struct statfs fs;
    char file[PATH_MAX];

    if (*path == '\0' || (mkdir(path, 0755) != 0 && errno != EEXIST))
        return false;
    snprintf(file, sizeof(file), "%s/cgroup.kill", path);
    if (statfs(path, &fs) == 0 && fs.f_type == CGROUP2_SUPER_MAGIC && access(file, W_OK) == 0)
        return true;
    rmdir(path); /* empty if we made it on something else */
    return false;
}

static void sweep(struct agent_groups *gs)
{
    struct agent_group **p = &gs->gone;

    while (*p != NULL) {
        struct agent_group *g = *p;

        if (rmdir(g->path) != 0 && errno != ENOENT) {
            p = &g->next;
            continue;
        }
        *p = g->next;
        free(g);
    }
    if (gs->gone == NULL)
        uv_timer_stop(&gs->sweep);
}

static void on_sweep(uv_timer_t *timer)
{
    sweep(timer->data);
}

int agent_groups_new(uv_loop_t *loop, const char *path, struct agent_groups **out)
{
    struct agent_groups *gs = calloc(1, sizeof(*gs));
    int r;

    if (gs == NULL)
        return UV_ENOMEM;
    if (strlen(path) >= sizeof(gs->path)) {
        free(gs);
        return UV_ENAMETOOLONG;
    }
    memcpy(gs->path, path, strlen(path) + 1);
    gs->cgroups = usable(path);
    if (!gs->cgroups && getpid() != 1 && prctl(PR_SET_CHILD_SUBREAPER, 1) != 0)
        log_warn("becoming a subreaper: %s", strerror(errno));
    r = uv_timer_init(loop, &gs->sweep);
    if (r != 0) {
        free(gs);
        return r;
    }
    gs->sweep.data = gs;
    uv_unref((uv_handle_t *)&gs->sweep);
    *out = gs;
    return 0;
}

bool agent_groups_are_cgroups(const struct agent_groups *gs)
{
    return gs->cgroups;
}

void agent_groups_close(struct agent_groups *gs)
{
    if (!uv_is_closing((uv_handle_t *)&gs->sweep))
        uv_close((uv_handle_t *)&gs->sweep, NULL);
}

void agent_groups_free(struct agent_groups *gs)
{
    sweep(gs);
    while (gs->gone != NULL) {
        struct agent_group *g = gs->gone;

        gs->gone = g->next;
        free(g);
    }
    free(gs);
}

int agent_group_new(struct agent_groups *gs, struct agent_group *parent, const char *prefix,
                    struct agent_group **out)
{
    struct agent_group *g = calloc(1, sizeof(*g));
    char file[PATH_MAX + 32];
    int n, r;

    if (g == NULL)
        return UV_ENOMEM;
    g->groups = gs;
    g->procs_fd = -1;
    if (!gs->cgroups) {
        g->next = gs->all;
        gs->all = g;
        *out = g;
        return 0;
    }
    n = snprintf(g->path, sizeof(g->path), "%s/%s%lu", parent != NULL ? parent->path : gs->path,
                 prefix, ++gs->last);
    if (n < 0 || (size_t)n >= sizeof(g->path)) {
        free(g);
        return UV_ENAMETOOLONG;
    }
    if (mkdir(g->path, 0755) != 0 && errno != EEXIST) {
        r = -errno;
        free(g);
        return r;
    }
    snprintf(file, sizeof(file), "%s/cgroup.procs", g->path);
    g->procs_fd = open(file, O_WRONLY | O_CLOEXEC);
    if (g->procs_fd < 0) {
        r = -errno;
        rmdir(g->path);
        free(g);
        return r;
    }
    *out = g;
    return 0;
}

void agent_group_free(struct agent_group *g)
{
    struct agent_groups *gs = g->groups;

    if (!gs->cgroups) {
        struct agent_group **p = &gs->all;

        while (*p != g)
            p = &(*p)->next;
        *p = g->next;
        free(g->others);
        free(g);
        return;
    }
    close(g->procs_fd);
    g->procs_fd = -1;
    if (rmdir(g->path) == 0 || errno == ENOENT) {
        free(g);
        return;
    }
    /* Newest first, so that groups inside come before the one they are in. */
    if (uv_is_closing((uv_handle_t *)&gs->sweep)) {
        free(g);
        return;
    }
    g->next = gs->gone;
    gs->gone = g;
    if (!uv_is_active((uv_handle_t *)&gs->sweep) &&
        uv_timer_start(&gs->sweep, on_sweep, 50, SWEEP_MS) != 0)
        log_error("timer"); /* cannot fail with a callback */
}

int agent_group_procs_fd(const struct agent_group *g)
{
    return g->procs_fd;
}

void agent_group_set_leader(struct agent_group *g, pid_t leader, bool itself)
{
    struct agent_proc_set set;
    size_t n;

    g->leader = leader;
    g->itself = itself;
    if (itself || g->groups->cgroups)
        return;
    free(g->others);
    agent_proc_set_init(&set, leader, false);
    do {
        n = set.n;
        agent_proc_set_grow(&set);
    } while (set.n > n);
    g->others = set.pids;
    g->n_others = set.n;
    set.pids = NULL;
    agent_proc_set_fini(&set);
}

void agent_group_move(struct agent_group *g, pid_t pid)
{
    char text[32];
    int n;

    if (g->procs_fd < 0)
        return;
    n = snprintf(text, sizeof(text), "%d", (int)pid);
    if (write(g->procs_fd, text, (size_t)n) < 0 && errno != ESRCH)
        log_warn("moving process %d to its group: %s", (int)pid, strerror(errno));
}

/* Run fn for every process but one of a cgroup directory and those inside. Returns how many. */
static size_t each_in_cgroup(const char *path, void (*fn)(pid_t pid, int signum), int signum,
                             pid_t but)
{
    char file[PATH_MAX + 300];
    struct dirent *e;
    size_t n = 0;
    FILE *procs;
    DIR *dir;
    int pid;

    snprintf(file, sizeof(file), "%s/cgroup.procs", path);
    procs = fopen(file, "re");
    while (procs != NULL && fscanf(procs, "%d", &pid) == 1) {
        n++;
        if (fn != NULL && pid > 1 && pid != but)
            fn(pid, signum);
    }
    if (procs != NULL)
        fclose(procs);
    dir = opendir(path);
    while (dir != NULL && (e = readdir(dir)) != NULL) {
        if (e->d_type != DT_DIR || e->d_name[0] == '.')
            continue;
        snprintf(file, sizeof(file), "%s/%s", path, e->d_name);
        n += each_in_cgroup(file, fn, signum, but);
    }
    if (dir != NULL)
        closedir(dir);
    return n;
}

static void send_signal(pid_t pid, int signum)
{
    if (kill(pid, signum) != 0 && errno != ESRCH)
        log_warn("signal %d to process %d: %s", signum, (int)pid, strerror(errno));
}

/* Without cgroups: find members, stopping each as it is found so that it cannot fork away. */
static size_t walk(struct agent_group *g, int signum)
{
    struct agent_proc_set set;
    size_t n;

    if (g->leader <= 0)
        return 0;
    agent_proc_set_init(&set, g->leader, g->itself);
    set.others = g->others;
    set.n_others = g->n_others;
    do {
        n = set.n;
        agent_proc_set_grow(&set);
        for (size_t i = n; i < set.n && signum == SIGKILL; i++)
            send_signal(set.pids[i], SIGSTOP);
    } while (set.n > n);
    for (size_t i = 0; i < set.n && signum != 0; i++)
        send_signal(set.pids[i], signum);
    n = set.n;
    agent_proc_set_fini(&set);
    return n;
}

void agent_group_signal(struct agent_group *g, int signum)
{
    if (!g->groups->cgroups)
        walk(g, signum);
    else if (signum != SIGKILL || write_file(g->path, "cgroup.kill", "1") != 0)
        each_in_cgroup(g->path, send_signal, signum, 0);
}

void agent_group_signal_others(struct agent_group *g, int signum, pid_t but)
{
    if (!g->groups->cgroups)
        walk(g, signum); /* a leader that is not to be ended is no member */
    else
        each_in_cgroup(g->path, send_signal, signum, but);
}

size_t agent_group_parse(const char *text, const char **path)
{
    while (text != NULL && strncmp(text, "0::/", 4) != 0) { /* others are of cgroup v1 */
        text = strchr(text, '\n');
        if (text != NULL)
            text++;
    }
    if (text == NULL)
        return 0;
    *path = text + 3;
    return strcspn(*path, "\n");
}

static bool in_cgroup(const struct agent_group *g, pid_t pid, char *inside, size_t size)
{
    char file[64], text[2 * PATH_MAX];
    const char *path, *at = NULL, *tail;
    size_t len, tail_len;
    ssize_t n;
    int fd;

    snprintf(file, sizeof(file), "/proc/%d/cgroup", (int)pid);
    fd = open(file, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    n = read(fd, text, sizeof(text) - 1);
    close(fd);
    if (n <= 0)
        return false;
    text[n] = '\0';
    len = agent_group_parse(text, &path);
    if (len == 0)
        return false;
    text[(size_t)(path - text) + len] = '\0';
    /* The file tells the path without the mount point: our directory's name and the group's. */
    tail = strrchr(g->groups->path, '/');
    tail = tail == NULL ? g->path : g->path + (tail - g->groups->path);
    tail_len = strlen(tail);
    for (const char *p = path; at == NULL && (p = strstr(p, tail)) != NULL; p += tail_len) {
        if (p[tail_len] == '/' || p[tail_len] == '\0')
            at = p + tail_len;
    }
    if (at != NULL && inside != NULL && *at == '/')
        snprintf(inside, size, "%.*s", (int)strcspn(at + 1, "/"), at + 1);
    return at != NULL;
}

bool agent_group_has(const struct agent_group *g, pid_t pid, char *inside, size_t size)
{
    struct agent_proc_set set;
    bool found = false;
    size_t n;

    if (inside != NULL)
        inside[0] = '\0';
    if (g->groups->cgroups)
        return in_cgroup(g, pid, inside, size);
    if (g->leader <= 0)
        return false;
    agent_proc_set_init(&set, g->leader, g->itself);
    set.others = g->others;
    set.n_others = g->n_others;
    do {
        n = set.n;
        agent_proc_set_grow(&set);
    } while (set.n > n);
    for (size_t i = 0; i < set.n; i++)
        found = found || set.pids[i] == pid;
    agent_proc_set_fini(&set);
    return found;
}

size_t agent_group_count(struct agent_group *g)
{
    return g->groups->cgroups ? each_in_cgroup(g->path, NULL, 0, 0) : walk(g, 0);
}

void agent_groups_kill(struct agent_groups *gs)
{
    struct dirent *e;
    DIR *dir;

    for (struct agent_group *g = gs->all; g != NULL; g = g->next)
        walk(g, SIGKILL);
    if (!gs->cgroups)
        return;
    /* Not the directory itself: we may be in it. */
    dir = opendir(gs->path);
    while (dir != NULL && (e = readdir(dir)) != NULL) {
        char path[PATH_MAX + 300];

        if (e->d_type != DT_DIR || e->d_name[0] == '.')
            continue;
        snprintf(path, sizeof(path), "%s/%s", gs->path, e->d_name);
        if (write_file(path, "cgroup.kill", "1") != 0)
            log_warn("cannot kill what is in %s", path);
    }
    if (dir != NULL)
        closedir(dir);
}
