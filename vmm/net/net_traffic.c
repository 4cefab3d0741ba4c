/* SPDX-License-Identifier: MIT */
/* What went through a tap. Taps are in the machines' namespace: a netlink socket that was made
 * there is kept, and answers for it from anywhere. The kernel answers within the request, so that
 * nothing waits here. */
#include <errno.h>
#include <fcntl.h>
#include <linux/if_link.h>
#include <linux/rtnetlink.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include "vmm/net/net_int.h"

#define ANSWER_MAX 16384

/* A socket in the namespace; the calling thread is back where it was when this returns. */
static int open_inside(const char *name)
{
    char path[64];
    int here, there, fd = -1, r = 0;

    snprintf(path, sizeof(path), "/run/netns/%s", name);
    here = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
    there = open(path, O_RDONLY | O_CLOEXEC);
    if (here < 0 || there < 0 || setns(there, CLONE_NEWNET) != 0) {
        r = -errno;
    } else {
        fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_ROUTE);
        r = fd < 0 ? -errno : 0;
        if (setns(here, CLONE_NEWNET) != 0)
            abort(); /* to go on in the machines' network would be worse than to end */
    }
    if (here >= 0)
        close(here);
    if (there >= 0)
        close(there);
    return r == 0 ? fd : r;
}

static int ask(int fd, const char *tap)
{
    struct {
        struct nlmsghdr head;
        struct ifinfomsg info;
        struct rtattr attr;
        char name[16];
    } request;

    memset(&request, 0, sizeof(request));
    request.head.nlmsg_len = sizeof(request);
    request.head.nlmsg_type = RTM_GETLINK;
    request.head.nlmsg_flags = NLM_F_REQUEST;
    request.info.ifi_family = AF_UNSPEC;
    request.attr.rta_type = IFLA_IFNAME;
    request.attr.rta_len = RTA_LENGTH(sizeof(request.name));
    snprintf(request.name, sizeof(request.name), "%s", tap);
    return send(fd, &request, sizeof(request), 0) < 0 ? -errno : 0;
}

static int read_answer(const struct nlmsghdr *head, size_t len, uint64_t *received, uint64_t *sent)
{
    const struct rtattr *a;
    int left;

    if (!NLMSG_OK(head, len))
        return -EBADMSG;
    if (head->nlmsg_type == NLMSG_ERROR)
        return -ENODEV;
    if (head->nlmsg_type != RTM_NEWLINK)
        return -EBADMSG;
    left = (int)IFLA_PAYLOAD(head);
    for (a = IFLA_RTA((struct ifinfomsg *)NLMSG_DATA(head)); RTA_OK(a, left);
         a = RTA_NEXT(a, left)) {
        struct rtnl_link_stats64 stats;

        if (a->rta_type != IFLA_STATS64 || RTA_PAYLOAD(a) < sizeof(stats.rx_packets) * 4)
            continue;
        memset(&stats, 0, sizeof(stats));
        memcpy(&stats, RTA_DATA(a),
               RTA_PAYLOAD(a) < sizeof(stats) ? RTA_PAYLOAD(a) : sizeof(stats));
        *received = stats.tx_bytes; /* the tap's other end is the machine's */
        *sent = stats.rx_bytes;
        return 0;
    }
    return -EBADMSG;
}

int net_traffic(struct net *net, const char *tap, uint64_t *received, uint64_t *sent)
{
    union {
        struct nlmsghdr head;
        char bytes[ANSWER_MAX];
    } answer;
    ssize_t n;
    int r;

    if (net->traffic_fd < 0) {
        r = open_inside(net->name);
        if (r < 0)
            return r;
        net->traffic_fd = r;
    }
    r = ask(net->traffic_fd, tap);
    if (r != 0)
        return r;
    n = recv(net->traffic_fd, &answer, sizeof(answer), MSG_DONTWAIT);
    return n < 0 ? -errno : read_answer(&answer.head, (size_t)n, received, sent);
}
