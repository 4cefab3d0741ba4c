/* SPDX-License-Identifier: MIT */
/* A socket filter lets only deaths of watched parents' children through. */
#include "vmm/agent/deaths.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/cn_proc.h>
#include <linux/connector.h>
#include <linux/filter.h>
#include <linux/netlink.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "transom/log.h"

#define MAX_PARENTS  512 /* more are not watched */
#define BUFFER_BYTES (1 << 20)
/* In a message: the connector's head behind netlink's, then the event. */
#define EVENT_AT     (NLMSG_HDRLEN + sizeof(struct cn_msg))
#define FIELD(name)  (unsigned)(EVENT_AT + offsetof(struct proc_event, name))

struct agent_deaths {
    int fd; /* -1: the kernel does not tell */
    bool open;
    uv_poll_t poll;
    struct agent_parent *parents;
};

/* The numbers of a message are in the host's order, and the filter takes them for the network's. */
static int set_filter(const struct agent_deaths *d)
{
    struct sock_filter code[2 * MAX_PARENTS + 16];
    struct sock_fprog program = {.filter = code};
    unsigned short n = 0;
    size_t n_parents = 0;

    code[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, FIELD(what));
    code[n++] =
        (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, htonl(PROC_EVENT_EXIT), 1, 0);
    code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, 0);
    /* Not the end of a thread. */
    code[n++] =
        (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, FIELD(event_data.exit.process_tgid));
    code[n++] = (struct sock_filter)BPF_STMT(BPF_MISC | BPF_TAX, 0);
    code[n++] =
        (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, FIELD(event_data.exit.process_pid));
    code[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_X, 0, 1, 0);
    code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, 0);
    code[n++] =
        (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, FIELD(event_data.exit.parent_tgid));
    for (struct agent_parent *p = d->parents; p != NULL && n_parents < MAX_PARENTS; p = p->next) {
        code[n++] =
            (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, htonl((uint32_t)p->pid), 0, 1);
        code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, 0xffff);
        n_parents++;
    }
    code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, 0);
    program.len = n;
    return setsockopt(d->fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program)) == 0 ? 0
                                                                                           : -errno;
}

static void take(struct agent_deaths *d, const struct proc_event *event)
{
    struct agent_parent *p = d->parents;

    if (event->what != PROC_EVENT_EXIT)
        return;
    while (p != NULL && p->pid != event->event_data.exit.parent_tgid)
        p = p->next;
    if (p != NULL)
        p->statuses[p->n++ % AGENT_DEATHS_KEPT] = (int)event->event_data.exit.exit_code;
}

static void forget_all(struct agent_deaths *d)
{
    for (struct agent_parent *p = d->parents; p != NULL; p = p->next)
        p->n = 0;
}

static void drain(struct agent_deaths *d)
{
    uint8_t text[1024];

    while (d->fd >= 0) {
        struct sockaddr_nl from = {0};
        socklen_t from_len = sizeof(from);
        struct proc_event event = {0};
        ssize_t n =
            recvfrom(d->fd, text, sizeof(text), MSG_DONTWAIT, (struct sockaddr *)&from, &from_len);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == ENOBUFS) { /* some are lost */
            forget_all(d);
            continue;
        }
        if (n < 0)
            return;
        if (from.nl_pid != 0 || (size_t)n < EVENT_AT + offsetof(struct proc_event, event_data) +
                                                sizeof(event.event_data.exit))
            continue; /* not the kernel's, or none of those asked for */
        memcpy(&event, text + EVENT_AT,
               (size_t)n - EVENT_AT < sizeof(event) ? (size_t)n - EVENT_AT : sizeof(event));
        take(d, &event);
    }
}

static void on_readable(uv_poll_t *poll, int status, int events)
{
    (void)status;
    (void)events;
    drain(poll->data);
}

static int subscribe(struct agent_deaths *d)
{
    const enum proc_cn_mcast_op op = PROC_CN_MCAST_LISTEN;
    const struct cn_msg connector = {.id = {CN_IDX_PROC, CN_VAL_PROC}, .len = sizeof(op)};
    char order[NLMSG_HDRLEN + sizeof(connector) + sizeof(op)] = {0};
    const struct nlmsghdr head = {.nlmsg_len = sizeof(order), .nlmsg_type = NLMSG_DONE};
    struct sockaddr_nl name = {.nl_family = AF_NETLINK, .nl_groups = CN_IDX_PROC};
    int size = BUFFER_BYTES;

    memcpy(order, &head, sizeof(head));
    memcpy(order + NLMSG_HDRLEN, &connector, sizeof(connector));
    memcpy(order + NLMSG_HDRLEN + sizeof(connector), &op, sizeof(op));
    d->fd = socket(AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_CONNECTOR);
    if (d->fd < 0)
        return -errno;
    if (setsockopt(d->fd, SOL_SOCKET, SO_RCVBUFFORCE, &size, sizeof(size)) != 0)
        return -errno; /* no right to it, so none to the events either */
    if (set_filter(d) != 0 || bind(d->fd, (struct sockaddr *)&name, sizeof(name)) != 0 ||
        send(d->fd, order, sizeof(order), 0) != (ssize_t)sizeof(order))
        return -errno;
    return 0;
}

int agent_deaths_new(uv_loop_t *loop, struct agent_deaths **out)
{
    struct agent_deaths *d = calloc(1, sizeof(*d));
    int r;

    if (d == NULL)
        return UV_ENOMEM;
    d->fd = -1;
    r = subscribe(d);
    if (r == 0)
        r = uv_poll_init(loop, &d->poll, d->fd);
    d->open = r == 0;
    d->poll.data = d;
    if (r == 0)
        r = uv_poll_start(&d->poll, UV_READABLE, on_readable);
    if (d->open)
        uv_unref((uv_handle_t *)&d->poll);
    if (r != 0) {
        log_info("how commands in windows die is not known: %s", uv_strerror(r));
        if (d->fd >= 0 && !d->open)
            close(d->fd);
        d->fd = d->open ? d->fd : -1;
    }
    *out = d;
    return 0;
}

void agent_deaths_close(struct agent_deaths *d)
{
    if (d->open && !uv_is_closing((uv_handle_t *)&d->poll))
        uv_close((uv_handle_t *)&d->poll, NULL);
    if (d->fd >= 0)
        close(d->fd);
    d->fd = -1;
}

void agent_deaths_free(struct agent_deaths *d)
{
    free(d);
}

void agent_deaths_watch(struct agent_deaths *d, struct agent_parent *p, pid_t pid)
{
    *p = (struct agent_parent){.next = d->parents, .pid = pid};
    d->parents = p;
    if (d->fd >= 0 && set_filter(d) != 0)
        log_warn("deaths in a window will not be known: %s", strerror(errno));
}

void agent_deaths_forget(struct agent_deaths *d, struct agent_parent *p)
{
    struct agent_parent **at = &d->parents;

    while (*at != NULL && *at != p)
        at = &(*at)->next;
    if (*at == NULL)
        return;
    *at = p->next;
    if (d->fd >= 0)
        (void)set_filter(d); /* what it lets through besides belongs to nobody */
}

void agent_deaths_reset(struct agent_deaths *d, struct agent_parent *p)
{
    drain(d);
    p->n = 0;
}

bool agent_deaths_are_told(const struct agent_deaths *d)
{
    return d->fd >= 0;
}

enum agent_death agent_deaths_ask(struct agent_deaths *d, const struct agent_parent *p, int status)
{
    drain(d);
    for (size_t i = 1; i <= p->n && i <= AGENT_DEATHS_KEPT; i++) {
        int raw = p->statuses[(p->n - i) % AGENT_DEATHS_KEPT];

        if (WIFSIGNALED(raw) && 128 + WTERMSIG(raw) == status)
            return AGENT_DEATH_SIGNALLED;
        if (WIFEXITED(raw) && WEXITSTATUS(raw) == status)
            return AGENT_DEATH_EXITED;
    }
    return AGENT_DEATH_UNKNOWN;
}
