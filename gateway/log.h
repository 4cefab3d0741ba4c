/* SPDX-License-Identifier: MIT */
/* The access log: one JSON object per line for each exchange at its end, tunnels and refusals
 * included. Lines gather in the worker and are written once per turn. */
#ifndef GATEWAY_LOG_H
#define GATEWAY_LOG_H

#include "gateway/client.h"
#include "gateway/exchange.h"

struct gw_access_log;

/* path "" gives NULL: no log; "-": standard error. Opened before privileges are given up. */
TR_MUST_CHECK int gw_log_open(const char *path, struct gw_access_log **out, struct err *err);
void gw_log_close(struct gw_access_log *log);
/* Open path, which may be another one or a file that was moved away meanwhile, in its place; on a
 * fault nothing changes. Workers that write at the moment write to one of both. To have a log at
 * all, or none, needs a new process. */
TR_MUST_CHECK int gw_log_reopen(struct gw_access_log *const *log, const char *path,
                                struct err *err);

/* Note what is only known at the request's beginning. id: of the request. */
void gw_log_begin(struct gw_exchange *x, const struct gw_request *req, const struct sockaddr *peer,
                  struct gw_str id);
/* end: "done", "client gone", "broken", "tunnel". Gives the note back. */
void gw_log_end(struct gw_exchange *x, const char *end);
/* A tunnel outlives its exchange: the note moves to it (allocated; NULL without a log), and the
 * line is written, and the note freed, at its end. */
char *gw_log_take_note(struct gw_exchange *x);
void gw_log_tunnel(struct gw_worker *w, char *note, uint64_t bytes_in, uint64_t bytes_out,
                   uint64_t start_ms, const char *end);
void gw_log_refusal(struct gw_worker *w, const struct sockaddr *peer, int status, const char *why);
/* Write what has gathered. */
void gw_log_flush(struct gw_worker *w);

#endif
