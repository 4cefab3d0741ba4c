/* SPDX-License-Identifier: MIT */
/* The two ends of the control socket between keeper and serving process (see keeper.h). */
#ifndef GATEWAY_CONTROL_H
#define GATEWAY_CONTROL_H

#include <stdbool.h>
#include <stddef.h>
#include "transom/err.h"

/* One message; fd -1: without a descriptor (else it is copied, not taken). Blocks while the peer
 * has much to read. 0 or a negative errno. */
TR_MUST_CHECK int gw_control_send(int sock, const char *text, int fd);
/* One message into text (GW_CONTROL_MAX bytes, terminated) and *fd (-1 or the caller's, CLOEXEC).
 * Returns 1, 0 at the peer's end, or a negative errno; -EAGAIN for none on a socket that does not
 * block; -EPROTO for one that cannot be from a peer of ours. */
TR_MUST_CHECK int gw_control_receive(int sock, char *text, int *fd, bool wait);

/* The serving process' side: what the keeper had, and what it is to keep. */
struct gw_kept;

/* Receive what is kept. sock: from GW_CONTROL_ENV, taken over. */
TR_MUST_CHECK int gw_kept_new(int sock, struct gw_kept **out, struct err *err);
/* Closes the socket and what was not taken. NULL is allowed. */
void gw_kept_free(struct gw_kept *kept);
/* Was nothing kept, but sockets of a service manager: is this the first process? */
bool gw_kept_is_first(const struct gw_kept *kept);
int gw_kept_sock(const struct gw_kept *kept);
/* A descriptor kept under this name, now the caller's, or -1. Each is given once; of several with
 * one name the oldest first. */
int gw_kept_take(struct gw_kept *kept, const char *name);
/* The first one not yet taken whose name begins with prefix; name gets the rest of it. */
int gw_kept_take_any(struct gw_kept *kept, const char *prefix, char *name, size_t len);
/* Have a copy kept for the next serving process. */
TR_MUST_CHECK int gw_kept_store(struct gw_kept *kept, const char *name, int fd, struct err *err);
/* What nobody took is not needed any more: have the copies closed. */
void gw_kept_forget_rest(struct gw_kept *kept);
/* Say a word to the keeper. */
void gw_kept_say(struct gw_kept *kept, const char *word);

#endif
