/* SPDX-License-Identifier: MIT */
/* The guest's network by rtnetlink: loopback and one card with a /32 address, a host route to the
 * gateway and the default route through it. */
#ifndef VMM_AGENT_NET_H
#define VMM_AGENT_NET_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>

#include "transom/err.h"

struct agent_net {
    struct in_addr address, gateway;
    uint32_t mtu;
    uint8_t mac[6]; /* all 0: as it is */
};

/* "02:54:64:40:00:05": six bytes of an address that is one card's own. */
bool agent_mac_parse(const char *text, uint8_t mac[6]);

/* Bring loopback up. */
TR_MUST_CHECK int agent_net_loopback(struct err *err);
/* Set up eth0 (waits up to 5 s for the card to appear): other IPv4 addresses are removed, routes
 * are replaced. Doing it again changes nothing. */
TR_MUST_CHECK int agent_net_setup(const struct agent_net *net, struct err *err);

#endif
