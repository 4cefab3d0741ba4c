/* SPDX-License-Identifier: MIT */
/* Socket addresses as text. */
#ifndef GATEWAY_ADDRESS_H
#define GATEWAY_ADDRESS_H

#include <stddef.h>
#include <sys/socket.h>
#include "transom/err.h"

#define GW_ADDRESS_TEXT 46 /* room that any numeric address needs */

/* Write the numeric address without port; IPv4 inside IPv6 as IPv4. Returns its length
 * (a terminator may or may not follow); "unknown" for other families. */
size_t gw_address_text(const struct sockaddr *sa, char *out);
/* "ADDRESS:PORT" or "[IPV6]:PORT", as in the configuration. Returns 0 or -EINVAL. */
TR_MUST_CHECK int gw_address_parse(const char *text, struct sockaddr_storage *out, socklen_t *len);
/* The same back, terminated; out has room for 64 bytes. */
void gw_address_format(const struct sockaddr *sa, char *out);

#endif
