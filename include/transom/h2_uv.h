/* SPDX-License-Identifier: MIT */
/* HTTP/2 sessions on a libuv loop: over a connected uv_stream_t, or over a machine channel. */
#ifndef TRANSOM_H2_UV_H
#define TRANSOM_H2_UV_H

#include <uv.h>
#include "transom/h2.h"

struct tr_channel;

/* An HTTP/2 session and the transport below it. */
struct tr_h2_conn;

struct tr_h2_conn_cbs {
    /* As in struct tr_h2_cbs (server only). */
    void (*on_request)(struct tr_h2 *h2, struct tr_h2_stream *st, const struct tr_h2_head *head,
                       bool end, void *arg);
    /* Last event, exactly once, never before open returned: transport closed, conn is freed when
     * this returns. */
    void (*on_close)(struct tr_h2_conn *conn, int status, const char *reason, void *arg);
};

/* Take over a connected stream (heap memory from malloc, freed by the connection after uv_close).
 * ping_ms > 0: a PING goes out after that much silence; no answer within as much again ends the
 * connection with UV_ETIMEDOUT. Returns 0 and *out; on error the stream stays the caller's. */
TR_MUST_CHECK int tr_h2_conn_open(uv_stream_t *stream, bool server,
                                  const struct tr_h2_options *options, uint64_t ping_ms,
                                  const struct tr_h2_conn_cbs *cbs, void *arg,
                                  struct tr_h2_conn **out);

/* The session; NULL once it is over. */
struct tr_h2 *tr_h2_conn_session(struct tr_h2_conn *conn);
/* Close at once; streams get on_close, then the connection's on_close; all of it later, and no
 * other event before. Again: nothing. For a graceful end use tr_h2_shutdown() on the session. */
void tr_h2_conn_close(struct tr_h2_conn *conn);

/* An HTTP/2 session over an open channel (see channel.h). The connection does not own the channel:
 * wire it with tr_h2_channel_*() from the channel's own callbacks. */
TR_MUST_CHECK int tr_h2_conn_open_channel(struct tr_channel *channel, bool server,
                                          const struct tr_h2_options *options, uint64_t ping_ms,
                                          const struct tr_h2_conn_cbs *cbs, void *arg,
                                          struct tr_h2_conn **out);
/* To be called from the channel's on_data / on_drain / on_end. After tr_h2_conn_channel_closed()
 * the connection touches the channel no more; its on_close follows later. */
void tr_h2_conn_channel_data(struct tr_h2_conn *conn, const uint8_t *data, size_t len);
void tr_h2_conn_channel_drain(struct tr_h2_conn *conn);
void tr_h2_conn_channel_closed(struct tr_h2_conn *conn, int status);

#endif
