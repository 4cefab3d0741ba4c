/* SPDX-License-Identifier: MIT */
#include "gateway/control.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "gateway/keeper.h"

struct kept_fd {
    char name[GW_CONTROL_MAX];
    unsigned id;
    int fd; /* -1: taken */
};

struct gw_kept {
    int sock;
    struct kept_fd *fds;
    size_t n;
};

union fd_space { /* aligned as CMSG_FIRSTHDR() wants it */
    struct cmsghdr header;
    char bytes[CMSG_SPACE(sizeof(int))];
};

int gw_control_send(int sock, const char *text, int fd)
{
    union fd_space space;
    struct iovec iov = {(char *)text, strlen(text)};
    struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
    ssize_t n;

    if (fd >= 0) {
        struct cmsghdr *c;

        memset(&space, 0, sizeof(space));
        msg.msg_control = space.bytes;
        msg.msg_controllen = sizeof(space.bytes);
        c = CMSG_FIRSTHDR(&msg);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(sizeof(fd));
        memcpy(CMSG_DATA(c), &fd, sizeof(fd));
    }
    do {
        n = sendmsg(sock, &msg, MSG_NOSIGNAL);
    } while (n < 0 && errno == EINTR);
    return n < 0 ? -errno : 0;
}

int gw_control_receive(int sock, char *text, int *fd, bool wait)
{
    union fd_space space;
    struct iovec iov = {text, GW_CONTROL_MAX - 1};
    struct msghdr msg = {.msg_iov = &iov,
                         .msg_iovlen = 1,
                         .msg_control = space.bytes,
                         .msg_controllen = sizeof(space.bytes)};
    struct cmsghdr *c;
    ssize_t n;

    *fd = -1;
    do {
        n = recvmsg(sock, &msg, MSG_CMSG_CLOEXEC | (wait ? 0 : MSG_DONTWAIT));
    } while (n < 0 && errno == EINTR);
    if (n < 0)
        return errno == ECONNRESET ? 0 : -errno;
    c = CMSG_FIRSTHDR(&msg);
    if (c != NULL && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS &&
        c->cmsg_len == CMSG_LEN(sizeof(*fd)))
        memcpy(fd, CMSG_DATA(c), sizeof(*fd));
    if (n == 0)
        return 0;
    text[n] = '\0';
    if ((msg.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) == 0)
        return 1;
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
    return -EPROTO;
}

static int add(struct gw_kept *kept, const char *text, int fd)
{
    struct kept_fd *fds = realloc(kept->fds, (kept->n + 1) * sizeof(*fds)), *f;
    char *end;

    if (fds == NULL)
        return -ENOMEM;
    kept->fds = fds;
    f = &fds[kept->n];
    f->id = (unsigned)strtoul(text, &end, 10);
    if (end == text || *end != ' ' || fd < 0)
        return -EPROTO;
    snprintf(f->name, sizeof(f->name), "%s", end + 1);
    f->fd = fd;
    kept->n++;
    return 0;
}

int gw_kept_new(int sock, struct gw_kept **out, struct err *err)
{
    struct gw_kept *kept = calloc(1, sizeof(*kept));
    char text[GW_CONTROL_MAX];
    int r = kept == NULL ? -ENOMEM : 0, fd;

    if (kept != NULL)
        kept->sock = sock;
    while (r == 0) {
        r = gw_control_receive(sock, text, &fd, true);
        if (r == 0)
            r = -EPIPE;
        else if (r == 1 && strcmp(text, "go") == 0)
            break;
        else if (r == 1)
            r = strncmp(text, "have ", 5) == 0 ? add(kept, text + 5, fd) : -EPROTO;
        if (r != 0 && fd >= 0)
            close(fd);
    }
    if (r < 0) {
        gw_kept_free(kept);
        return tr_err_set(err, r, "control socket: %s", strerror(-r));
    }
    *out = kept;
    return 0;
}

void gw_kept_free(struct gw_kept *kept)
{
    if (kept == NULL)
        return;
    for (size_t i = 0; i < kept->n; i++)
        if (kept->fds[i].fd >= 0)
            close(kept->fds[i].fd);
    close(kept->sock);
    free(kept->fds);
    free(kept);
}

bool gw_kept_is_first(const struct gw_kept *kept)
{
    for (size_t i = 0; i < kept->n; i++)
        if (strncmp(kept->fds[i].name, "systemd/", 8) != 0)
            return false;
    return true;
}

int gw_kept_sock(const struct gw_kept *kept)
{
    return kept->sock;
}

static int take(struct kept_fd *f)
{
    int fd = f->fd;

    f->fd = -1;
    return fd;
}

int gw_kept_take(struct gw_kept *kept, const char *name)
{
    for (size_t i = 0; i < kept->n; i++)
        if (kept->fds[i].fd >= 0 && strcmp(kept->fds[i].name, name) == 0)
            return take(&kept->fds[i]);
    return -1;
}

int gw_kept_take_any(struct gw_kept *kept, const char *prefix, char *name, size_t len)
{
    size_t n = strlen(prefix);

    for (size_t i = 0; i < kept->n; i++) {
        if (kept->fds[i].fd < 0 || strncmp(kept->fds[i].name, prefix, n) != 0)
            continue;
        snprintf(name, len, "%s", kept->fds[i].name + n);
        return take(&kept->fds[i]);
    }
    return -1;
}

int gw_kept_store(struct gw_kept *kept, const char *name, int fd, struct err *err)
{
    char text[GW_CONTROL_MAX];
    int r;

    snprintf(text, sizeof(text), "keep %s", name);
    r = gw_control_send(kept->sock, text, fd);
    return r == 0 ? 0 : tr_err_set(err, r, "control socket: %s", strerror(-r));
}

void gw_kept_forget_rest(struct gw_kept *kept)
{
    char text[GW_CONTROL_MAX];

    for (size_t i = 0; i < kept->n; i++) {
        struct kept_fd *f = &kept->fds[i];

        if (f->fd < 0)
            continue;
        close(take(f));
        snprintf(text, sizeof(text), "forget %u", f->id);
        (void)!gw_control_send(kept->sock, text, -1); /* a keeper that is gone shows elsewhere */
    }
}

void gw_kept_say(struct gw_kept *kept, const char *word)
{
    (void)!gw_control_send(kept->sock, word, -1);
}
