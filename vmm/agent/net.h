/* SPDX-License-Identifier: MIT */
/* The guest's network by rtnetlink: loopback and one card with a /32 address, a host route to the
 * gateway and the default route through it. */
#ifndef VMM_AGENT_NET_H
#define VMM_AGENT_NET_H

#include <netinet/in.h>
#include <stdint.h>

#include "transom/err.h"

struct agent_net {
    struct in_addr address, gateway;
    uint32_t mtu;
};

/* Bring loopback up. */
TR_MUST_CHECK int agent_net_loopback(struct err *err);
/* Set up eth0 (waits up to 5 s for the card to appear): other IPv4 addresses are removed, routes
 * are replaced. Doing it again changes nothing. */
TR_MUST_CHECK int agent_net_setup(const struct agent_net *net, struct err *err);

#endif
