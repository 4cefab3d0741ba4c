/* SPDX-License-Identifier: MIT */
/* HTTP/2 connections of clients (RFC 9113): each stream is an exchange's front half. */
#ifndef GATEWAY_H2_H
#define GATEWAY_H2_H

#include "gateway/buf.h"
#include "gateway/client.h"
#include "gateway/worker.h"

struct gw_h2_client;

/* What a client with prior knowledge sends first (RFC 9113 section 3.4). */
#define GW_H2_PREFACE     "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
#define GW_H2_PREFACE_LEN ((size_t)24)

/* Begin. Takes the socket (closed on a fault). The caller has counted the connection in the
 * gateway's n_connections and as its client's; it is uncounted at its end. received: bytes that
 * were read already, dealt with before this returns. */
void gw_h2_start(struct gw_worker *w, struct gw_sock *sock, const union gw_peer *peer,
                 uint16_t client_slot, const char *received, size_t len);
/* End at once, saying so (GOAWAY); what is under way is reset. */
void gw_h2_close(struct gw_h2_client *c);
/* The worker's next one. */
struct gw_h2_client *gw_h2_next(struct gw_h2_client *c);
/* Announce the end; streams that run may finish. */
void gw_h2_drain(struct gw_h2_client *c);
/* Room for n fields being sent (the worker's h2_nv), or NULL. */
void *gw_h2_new_fields(size_t n);
/* At the worker's end: pooled memory. */
void gw_h2_fini(struct gw_worker *w);

#endif
