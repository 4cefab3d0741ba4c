/* SPDX-License-Identifier: MIT */
#include "vmm/agent/net.h"

#include <errno.h>
#include <linux/if.h>
#include <linux/rtnetlink.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
#include <uv.h>

#define CARD          "eth0"
#define CARD_WAIT_MS  5000
#define MAX_ADDRESSES 16

struct request {
    struct nlmsghdr head;
    char body[256];
};

struct session {
    int fd;
    uint32_t seq;
};

static void begin(struct request *req, uint16_t type, uint16_t flags, const void *body, size_t len)
{
    memset(req, 0, sizeof(*req));
    req->head.nlmsg_type = type;
    req->head.nlmsg_flags = (uint16_t)(NLM_F_REQUEST | flags);
    req->head.nlmsg_len = (uint32_t)NLMSG_LENGTH(len);
    memcpy(req->body, body, len);
}

static void attribute(struct request *req, uint16_t type, const void *data, size_t len)
{
    struct rtattr *rta = (struct rtattr *)((char *)req + NLMSG_ALIGN(req->head.nlmsg_len));

    rta->rta_type = type;
    rta->rta_len = (uint16_t)RTA_LENGTH(len);
    memcpy(RTA_DATA(rta), data, len);
    req->head.nlmsg_len = (uint32_t)(NLMSG_ALIGN(req->head.nlmsg_len) + RTA_ALIGN(rta->rta_len));
}

static int send_request(struct session *s, struct request *req)
{
    req->head.nlmsg_seq = ++s->seq;
    return send(s->fd, req, req->head.nlmsg_len, 0) < 0 ? -errno : 0;
}

/* Send and wait for the kernel's verdict. */
static int run(struct session *s, struct request *req)
{
    char buf[4096] __attribute__((aligned(NLMSG_ALIGNTO)));
    int r;

    req->head.nlmsg_flags |= NLM_F_ACK;
    r = send_request(s, req);
    while (r == 0) {
        ssize_t n = recv(s->fd, buf, sizeof(buf), 0);
        struct nlmsghdr *h = (struct nlmsghdr *)buf;

        if (n < 0)
            return -errno;
        for (unsigned left = (unsigned)n; NLMSG_OK(h, left); h = NLMSG_NEXT(h, left)) {
            if (h->nlmsg_seq == s->seq && h->nlmsg_type == NLMSG_ERROR)
                return ((struct nlmsgerr *)NLMSG_DATA(h))->error;
        }
    }
    return r;
}

bool agent_mac_parse(const char *text, uint8_t mac[6])
{
    static const char digits[] = "0123456789abcdef";

    for (size_t i = 0; i < 6; i++, text += 3) {
        const char *high = text[0] != '\0' ? strchr(digits, text[0]) : NULL;
        const char *low = high != NULL && text[1] != '\0' ? strchr(digits, text[1]) : NULL;

        if (low == NULL || text[2] != (i < 5 ? ':' : '\0'))
            return false;
        mac[i] = (uint8_t)((high - digits) << 4 | (low - digits));
    }
    return (mac[0] & 1) == 0;
}

/* The peer knows the machine by this address alone. A card in use takes it, too. */
static int set_mac(struct session *s, unsigned index, const uint8_t mac[6])
{
    static const uint8_t none[6];
    struct ifinfomsg info = {.ifi_index = (int)index};
    struct request req;

    if (memcmp(mac, none, sizeof(none)) == 0)
        return 0;
    begin(&req, RTM_NEWLINK, 0, &info, sizeof(info));
    attribute(&req, IFLA_ADDRESS, mac, 6);
    return run(s, &req);
}

static int link_up(struct session *s, unsigned index, uint32_t mtu)
{
    struct ifinfomsg info = {.ifi_index = (int)index, .ifi_flags = IFF_UP, .ifi_change = IFF_UP};
    struct request req;

    begin(&req, RTM_NEWLINK, 0, &info, sizeof(info));
    if (mtu > 0)
        attribute(&req, IFLA_MTU, &mtu, sizeof(mtu));
    return run(s, &req);
}

/* 0 when there is no such card. */
static unsigned find_link(struct session *s, const char *name)
{
    char buf[8192] __attribute__((aligned(NLMSG_ALIGNTO)));
    struct ifinfomsg info = {0};
    struct nlmsghdr *h = (struct nlmsghdr *)buf;
    struct request req;
    ssize_t n;

    begin(&req, RTM_GETLINK, 0, &info, sizeof(info));
    attribute(&req, IFLA_IFNAME, name, strlen(name) + 1);
    if (send_request(s, &req) != 0)
        return 0;
    n = recv(s->fd, buf, sizeof(buf), 0);
    if (n < 0 || !NLMSG_OK(h, (unsigned)n) || h->nlmsg_type != RTM_NEWLINK)
        return 0;
    return (unsigned)((struct ifinfomsg *)NLMSG_DATA(h))->ifi_index;
}

static int change_address(struct session *s, uint16_t type, unsigned index, uint8_t prefix,
                          struct in_addr address)
{
    struct ifaddrmsg msg = {
        .ifa_family = AF_INET, .ifa_prefixlen = prefix, .ifa_index = (unsigned)index};
    struct request req;

    begin(&req, type, type == RTM_NEWADDR ? NLM_F_CREATE | NLM_F_REPLACE : 0, &msg, sizeof(msg));
    attribute(&req, IFA_LOCAL, &address, sizeof(address));
    attribute(&req, IFA_ADDRESS, &address, sizeof(address));
    return run(s, &req);
}

struct found {
    struct in_addr address;
    uint8_t prefix;
};

static size_t list_addresses(struct session *s, unsigned index, struct found *out)
{
    char buf[16384] __attribute__((aligned(NLMSG_ALIGNTO)));
    struct ifaddrmsg msg = {.ifa_family = AF_INET};
    struct request req;
    size_t n_found = 0;

    begin(&req, RTM_GETADDR, NLM_F_DUMP, &msg, sizeof(msg));
    if (send_request(s, &req) != 0)
        return 0;
    for (;;) {
        ssize_t n = recv(s->fd, buf, sizeof(buf), 0);
        struct nlmsghdr *h = (struct nlmsghdr *)buf;

        if (n <= 0)
            return n_found;
        for (unsigned left = (unsigned)n; NLMSG_OK(h, left); h = NLMSG_NEXT(h, left)) {
            struct ifaddrmsg *a = NLMSG_DATA(h);
            int rest = (int)IFA_PAYLOAD(h);

            if (h->nlmsg_type == NLMSG_DONE || h->nlmsg_type == NLMSG_ERROR)
                return n_found;
            if (h->nlmsg_type != RTM_NEWADDR || a->ifa_index != index)
                continue;
            for (struct rtattr *t = IFA_RTA(a); RTA_OK(t, rest); t = RTA_NEXT(t, rest)) {
                if (t->rta_type == IFA_LOCAL && n_found < MAX_ADDRESSES) {
                    memcpy(&out[n_found].address, RTA_DATA(t), 4);
                    out[n_found++].prefix = a->ifa_prefixlen;
                }
            }
        }
    }
}

/* to NULL: the default route, through gateway. */
static int set_route(struct session *s, unsigned index, const struct in_addr *to,
                     const struct in_addr *gateway)
{
    struct rtmsg msg = {.rtm_family = AF_INET,
                        .rtm_dst_len = to != NULL ? 32 : 0,
                        .rtm_table = RT_TABLE_MAIN,
                        .rtm_protocol = RTPROT_STATIC,
                        .rtm_scope = gateway != NULL ? RT_SCOPE_UNIVERSE : RT_SCOPE_LINK,
                        .rtm_type = RTN_UNICAST};
    struct request req;

    begin(&req, RTM_NEWROUTE, NLM_F_CREATE | NLM_F_REPLACE, &msg, sizeof(msg));
    if (to != NULL)
        attribute(&req, RTA_DST, to, sizeof(*to));
    if (gateway != NULL)
        attribute(&req, RTA_GATEWAY, gateway, sizeof(*gateway));
    attribute(&req, RTA_OIF, &index, sizeof(index));
    return run(s, &req);
}

static int open_session(struct session *s, struct err *err)
{
    struct timeval limit = {.tv_sec = 5};

    s->seq = 0;
    s->fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
    if (s->fd < 0)
        return tr_err_set(err, -errno, "rtnetlink socket: %s", strerror(errno));
    setsockopt(s->fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    return 0;
}

int agent_net_loopback(struct err *err)
{
    struct session s;
    int r = open_session(&s, err);

    if (r != 0)
        return r;
    r = link_up(&s, find_link(&s, "lo"), 0);
    close(s.fd);
    return r == 0 ? 0 : tr_err_set(err, r, "bringing lo up: %s", uv_strerror(r));
}

static int setup(struct session *s, const struct agent_net *net, struct err *err)
{
    struct found found[MAX_ADDRESSES];
    const struct timespec pause = {.tv_nsec = 20000000};
    unsigned index = 0;
    size_t n;
    int r;

    for (int waited = 0; waited < CARD_WAIT_MS; waited += 20) {
        index = find_link(s, CARD);
        if (index != 0)
            break;
        nanosleep(&pause, NULL);
    }
    if (index == 0)
        return tr_err_set(err, UV_ENODEV, "there is no network card " CARD);
    r = set_mac(s, index, net->mac);
    if (r != 0)
        return tr_err_set(err, r, "link address of " CARD ": %s", uv_strerror(r));
    r = link_up(s, index, net->mtu);
    if (r != 0)
        return tr_err_set(err, r, "bringing " CARD " up: %s", uv_strerror(r));
    n = list_addresses(s, index, found);
    for (size_t i = 0; i < n; i++) {
        if (found[i].address.s_addr != net->address.s_addr || found[i].prefix != 32)
            r = change_address(s, RTM_DELADDR, index, found[i].prefix, found[i].address);
        if (r != 0)
            return tr_err_set(err, r, "old address of " CARD ": %s", uv_strerror(r));
    }
    r = change_address(s, RTM_NEWADDR, index, 32, net->address);
    if (r != 0)
        return tr_err_set(err, r, "address of " CARD ": %s", uv_strerror(r));
    r = set_route(s, index, &net->gateway, NULL);
    if (r == 0)
        r = set_route(s, index, NULL, &net->gateway);
    if (r != 0)
        return tr_err_set(err, r, "routes of " CARD ": %s", uv_strerror(r));
    return 0;
}

int agent_net_setup(const struct agent_net *net, struct err *err)
{
    struct session s;
    int r = open_session(&s, err);

    if (r != 0)
        return r;
    r = setup(&s, net, err);
    close(s.fd);
    return r;
}
