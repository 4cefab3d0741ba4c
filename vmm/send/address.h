/* SPDX-License-Identifier: MIT */
/* Where a process of ours may connect to on a user's wish: public addresses that are not this
 * host's own, and what the administrator allows. */
#ifndef VMM_SEND_ADDRESS_H
#define VMM_SEND_ADDRESS_H

#include <jansson.h>
#include <stdbool.h>
#include <sys/socket.h>

/* allow: list of "ADDRESS/BITS" or "ADDRESS"; what is none of these is passed over. */
bool send_address_allowed(const struct sockaddr *address, const json_t *allow);
/* Globally reachable unicast (RFC 6890 and its registries), also inside IPv6. */
bool send_address_public(const struct sockaddr *address);

#endif
