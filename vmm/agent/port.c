/* SPDX-License-Identifier: MIT */
#include "vmm/agent/port.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "transom/log.h"
#include "vmm/agent/event.h"
#include "vmm/agent/exec.h"
#include "vmm/agent/splice.h"
#include "vmm/agent/utf8.h"
#include "vmm/agent/window.h"

#define LOOK_EVERY_MS 500
#define MAX_LISTENERS 512
#define MAX_TEXT      (1u << 20)

struct agent_ports {
    struct agent *agent;
    uv_timer_t timer;
    struct agent_listener now[MAX_LISTENERS];
    size_t n;
};

/* The kernel prints an address as host-order words in hex. */
static bool parse_address(const char *hex, bool v6, char *out, size_t size)
{
    uint32_t words[4];
    int n = v6 ? 4 : 1;

    for (int i = 0; i < n; i++) {
        if (sscanf(hex + (size_t)i * 8, "%8" SCNx32, &words[i]) != 1)
            return false;
    }
    return inet_ntop(v6 ? AF_INET6 : AF_INET, words, out, (socklen_t)size) != NULL;
}

size_t agent_port_parse(const char *text, bool v6, struct agent_listener *out, size_t max)
{
    size_t n = 0;

    while (*text != '\0' && n < max) {
        char hex[33];
        unsigned port, state;
        unsigned long long inode;

        if (sscanf(text, " %*u: %32[0-9A-Fa-f]:%4x %*[0-9A-Fa-f:] %2x %*s %*s %*s %*u %*u %llu",
                   hex, &port, &state, &inode) == 4 &&
            state == 0x0a && strlen(hex) == (v6 ? 32 : 8) && port > 0 &&
            parse_address(hex, v6, out[n].address, sizeof(out[n].address))) {
            out[n].port = (uint16_t)port;
            out[n].inode = inode;
            out[n].pid = 0;
            out[n].owner = NULL;
            n++;
        }
        text = strchr(text, '\n');
        if (text == NULL)
            break;
        text++;
    }
    return n;
}

static char *read_text(const char *path)
{
    char *text = NULL;
    size_t len = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC);

    while (fd >= 0 && len < MAX_TEXT) {
        char *grown = realloc(text, len + 8192 + 1);
        ssize_t n;

        if (grown == NULL)
            break;
        text = grown;
        n = read(fd, text + len, 8192);
        if (n <= 0)
            break;
        len += (size_t)n;
    }
    if (fd >= 0)
        close(fd);
    if (text != NULL)
        text[len] = '\0';
    return text;
}

static bool holds(const char *fd_dir, const char *name, struct agent_listener *ls, size_t n,
                  pid_t pid)
{
    char path[128], target[64];
    unsigned long long inode;
    bool found = false;
    ssize_t len;

    snprintf(path, sizeof(path), "%s/%.20s", fd_dir, name);
    len = readlink(path, target, sizeof(target) - 1);
    if (len <= 0)
        return false;
    target[len] = '\0';
    if (sscanf(target, "socket:[%llu]", &inode) != 1)
        return false;
    for (size_t i = 0; i < n; i++) {
        if (ls[i].pid == 0 && ls[i].inode == inode) {
            ls[i].pid = pid;
            found = true;
        }
    }
    return found;
}

/* Find who holds the sockets whose pid is 0. */
static void find_pids(struct agent_listener *ls, size_t n)
{
    DIR *proc = opendir("/proc");
    struct dirent *e, *f;

    while (proc != NULL && (e = readdir(proc)) != NULL) {
        char fd_dir[64];
        DIR *fds;

        if (!isdigit((unsigned char)e->d_name[0]))
            continue;
        snprintf(fd_dir, sizeof(fd_dir), "/proc/%.20s/fd", e->d_name);
        fds = opendir(fd_dir);
        while (fds != NULL && (f = readdir(fds)) != NULL)
            holds(fd_dir, f->d_name, ls, n, (pid_t)atoi(e->d_name));
        if (fds != NULL)
            closedir(fds);
    }
    if (proc != NULL)
        closedir(proc);
}

static const struct agent_listener *find(const struct agent_listener *ls, size_t n,
                                         const struct agent_listener *like)
{
    for (size_t i = 0; i < n; i++) {
        if (ls[i].inode == like->inode && ls[i].port == like->port)
            return &ls[i];
    }
    return NULL;
}

/* The kernel's name for a process, which it may have set to any bytes. */
static json_t *comm_json(pid_t pid)
{
    char path[64], comm[64], *text;
    size_t len = 0;
    ssize_t n;
    json_t *out;
    int fd;

    snprintf(path, sizeof(path), "/proc/%d/comm", (int)pid);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return NULL;
    n = read(fd, comm, sizeof(comm));
    close(fd);
    if (n > 0 && comm[n - 1] == '\n')
        n--;
    text = n <= 0 ? NULL : agent_utf8_repair(comm, (size_t)n, &len);
    out = text == NULL ? NULL : json_stringn(text, len);
    free(text);
    return out;
}

/* Asked once, when the socket is seen first: at its end the process may be gone. */
static json_t *find_owner(const struct agent *a, pid_t pid)
{
    char run_id[AGENT_RUN_ID_SIZE];
    struct agent_window *w = agent_windows_owner(a->windows, pid, run_id);
    const char *exec_id = w == NULL ? agent_execs_owner(a->execs, pid) : NULL;

    return json_pack("{s:o*,s:s*,s:s*,s:s*}", "comm", comm_json(pid), "window",
                     w != NULL ? agent_window_name(w) : NULL, "run_id",
                     w != NULL && run_id[0] != '\0' ? run_id : NULL, "exec_id", exec_id);
}

static void tell_run(struct agent *a, const struct agent_listener *l)
{
    const char *run_id = json_string_value(json_object_get(l->owner, "run_id"));

    if (run_id != NULL)
        agent_windows_listening(a->windows, run_id, l->port);
}

static json_t *to_json(const struct agent_listener *l)
{
    json_t *out =
        json_pack("{s:i,s:s,s:i}", "port", (int)l->port, "address", l->address, "pid", (int)l->pid);

    if (out != NULL && l->owner != NULL)
        (void)json_object_update(out, l->owner); /* out of memory: without it */
    return out;
}

static void forget(struct agent_ports *p)
{
    for (size_t i = 0; i < p->n; i++)
        json_decref(p->now[i].owner);
    p->n = 0;
}

/* The agent's own port is nothing that runs in the machine. */
static size_t leave_out(struct agent_listener *ls, size_t n, uint16_t port)
{
    size_t kept = 0;

    for (size_t i = 0; i < n; i++) {
        if (port == 0 || ls[i].port != port)
            ls[kept++] = ls[i];
    }
    return kept;
}

static void look(struct agent_ports *p)
{
    struct agent_listener *next = calloc(MAX_LISTENERS, sizeof(*next));
    char *v4 = read_text("/proc/net/tcp"), *v6 = read_text("/proc/net/tcp6");
    bool unknown = false;
    size_t n = 0;

    if (next != NULL && v4 != NULL) {
        n = agent_port_parse(v4, false, next, MAX_LISTENERS);
        if (v6 != NULL)
            n += agent_port_parse(v6, true, next + n, MAX_LISTENERS - n);
        n = leave_out(next, n, agent_splices_port(p->agent->splices));
        for (size_t i = 0; i < n; i++) {
            const struct agent_listener *old = find(p->now, p->n, &next[i]);

            if (old != NULL) {
                next[i].pid = old->pid;
                next[i].owner = json_incref(old->owner);
            } else {
                unknown = true;
            }
        }
        if (unknown)
            find_pids(next, n);
        for (size_t i = 0; i < n; i++) {
            if (next[i].pid != 0 && next[i].owner == NULL) {
                next[i].owner = find_owner(p->agent, next[i].pid);
                tell_run(p->agent, &next[i]);
            }
        }
        for (size_t i = 0; i < p->n; i++) {
            if (find(next, n, &p->now[i]) == NULL)
                agent_event(p->agent, "unlisten", to_json(&p->now[i]));
        }
        for (size_t i = 0; i < n; i++) {
            if (find(p->now, p->n, &next[i]) == NULL)
                agent_event(p->agent, "listen", to_json(&next[i]));
        }
        forget(p);
        memcpy(p->now, next, n * sizeof(*next));
        p->n = n;
    }
    free(next);
    free(v4);
    free(v6);
}

static void on_timer(uv_timer_t *timer)
{
    look(timer->data);
}

int agent_ports_new(struct agent *a, struct agent_ports **out)
{
    struct agent_ports *p = calloc(1, sizeof(*p));
    int r;

    if (p == NULL)
        return UV_ENOMEM;
    r = uv_timer_init(a->loop, &p->timer);
    if (r != 0) {
        free(p);
        return r;
    }
    p->timer.data = p;
    p->agent = a;
    *out = p;
    return 0;
}

void agent_ports_start(struct agent_ports *p)
{
    if (uv_timer_start(&p->timer, on_timer, 0, LOOK_EVERY_MS) != 0)
        log_error("timer");
}

void agent_ports_stop(struct agent_ports *p)
{
    if (!uv_is_closing((uv_handle_t *)&p->timer))
        uv_close((uv_handle_t *)&p->timer, NULL);
}

void agent_ports_free(struct agent_ports *p)
{
    forget(p);
    free(p);
}

json_t *agent_ports_json(const struct agent_ports *p)
{
    json_t *list = json_array();

    for (size_t i = 0; i < p->n; i++)
        json_array_append_new(list, to_json(&p->now[i]));
    return list;
}
