/* SPDX-License-Identifier: MIT */
/* The PROXY protocol, versions 1 and 2: what a load balancer says about its client before the first
 * byte of the connection. https://www.haproxy.org/download/2.9/doc/proxy-protocol.txt */
#ifndef GATEWAY_PROXY_PROTOCOL_H
#define GATEWAY_PROXY_PROTOCOL_H

#include <stdbool.h>
#include <stddef.h>
#include "gateway/client.h"

/* Longest header taken. Version 1 ends after 107 bytes; in version 2, fields after the addresses
 * (TLVs) may fill this and are skipped. */
#define GW_PROXY_HEADER_MAX ((size_t)2048)

/* Look for a header at the beginning of p[0..n), which may be the beginning of one. Returns its
 * length (> 0), 0 when more bytes are needed, or -EPROTO with *why. *source is the client's
 * address; its family is AF_UNSPEC where the header tells none that is to be used (UNKNOWN, LOCAL,
 * UNSPEC, a unix socket): then the connection's own counts. */
TR_MUST_CHECK int gw_proxy_parse(const unsigned char *p, size_t n, union gw_peer *source,
                                 const char **why);

#endif
