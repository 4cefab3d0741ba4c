/* SPDX-License-Identifier: MIT */
/* What the parts of the HTTP/2 session share: h2.c (life cycle), h2_head.c (received heads),
 * h2_recv.c (events from nghttp2), h2_send.c (streams' own calls and the bytes they send). */
#ifndef VMM_LINK_H2_INTERNAL_H
#define VMM_LINK_H2_INTERNAL_H

#include <errno.h>
#include <nghttp2/nghttp2.h>
#include <sys/types.h>
#include "transom/h2.h"

/* A head while it is received and as long as it is kept. Its strings live in nghttp2's counted
 * buffers, which are held here. */
struct h2_head {
    struct tr_h2_head pub;
    struct tr_h2_field *fields;
    nghttp2_rcbuf **bufs;
    size_t n_fields, fields_cap, n_bufs, bufs_cap;
    size_t bytes; /* RFC 9113 section 6.5.2: name, value and 32 per field */
};

struct h2_chunk {
    struct h2_chunk *next;
    size_t off, len, cap;
    uint8_t data[];
};

struct h2_trailers {
    size_t n;
    nghttp2_nv nv[]; /* the text follows */
};

/* A stream is on exactly one list of its session: live, closing (ended by us, on_close due) or
 * dead (reported, memory kept until no call of ours is on the stack). nghttp2 knows the first kind
 * only: the others' stream user data is NULL. */
struct tr_h2_stream {
    struct tr_h2_stream *prev, *next;
    struct tr_h2_stream *drain_next;
    struct tr_h2 *h2;
    struct tr_h2_stream_cbs cbs;
    void *arg;
    int32_t id;
    uint32_t code;         /* closing: what on_close will say */
    struct h2_head req;    /* server: the request head */
    struct h2_head cur;    /* response head or trailers being received */
    size_t unconsumed;     /* body bytes handed out and not given back */
    struct h2_chunk *head; /* queue of body bytes to send */
    struct h2_chunk *tail;
    size_t queued;
    struct h2_trailers *trailers;
    bool announced; /* the program knows it, and is owed on_close */
    bool responded; /* final response head given to nghttp2 */
    bool ended;     /* tr_h2_end(): nothing more is queued */
    bool deferred;  /* nghttp2 waits for tr_h2_write() or tr_h2_end() */
    bool out_done;  /* our END_STREAM has left */
    bool in_done;   /* the peer's END_STREAM has come */
    bool gone;      /* closing or dead */
    bool want_drain, drain_due;
    bool discard;
};

struct h2_ping {
    struct h2_ping *next;
    uint64_t id;
    void (*cb)(int status, void *arg);
    void *arg;
};

struct h2_list {
    struct tr_h2_stream *first, *last;
};

struct tr_h2 {
    nghttp2_session *ng;
    struct tr_h2_cbs cbs;
    void *arg;
    struct tr_h2_options options;
    bool server;
    int depth;  /* entries of ours on the stack: callbacks may be running */
    bool dirty; /* something changed since the last pump */
    bool woken; /* wake was called, tr_h2_run() is due */
    bool full;  /* the transport takes no more until tr_h2_writable() */
    bool shutting;
    bool goaway_seen;
    bool over;  /* on_over ran or may no more run */
    bool freed; /* tr_h2_free() was called; memory goes when depth is 0 */
    bool aborting;
    int status; /* first fault, 0 when none */
    char reason[160];
    size_t n_announced;
    size_t n_wire; /* client: streams that nghttp2 has not closed yet */
    struct h2_list live, closing, dead;
    struct tr_h2_stream *drains;
    struct h2_ping *pings, **pings_tail;
    uint64_t ping_id;
};

/* True while the program may get events of this session. */
static inline bool h2_alive(const struct tr_h2 *h2)
{
    return !h2->freed && !h2->over && !h2->aborting;
}

/* h2.c */
void h2_touch(struct tr_h2 *h2);
/* Keep a reason (the first one stays). */
void h2_note(struct tr_h2 *h2, int status, const char *reason, size_t len);
/* The session is lost: no event but the ends from now on; on_over when the next entry leaves. */
void h2_fail(struct tr_h2 *h2, int status, const char *reason);
struct tr_h2_stream *h2_stream_new(struct tr_h2 *h2, int32_t id);
void h2_stream_free(struct tr_h2_stream *st);
void h2_list_add(struct h2_list *list, struct tr_h2_stream *st);
void h2_list_del(struct h2_list *list, struct tr_h2_stream *st);
/* Take a live stream away from nghttp2 and out of the list; its queue is dropped. */
void h2_stream_detach(struct tr_h2_stream *st);
/* Report the end of a detached stream and free it. */
void h2_stream_report(struct tr_h2_stream *st, uint32_t code);
int h2_errno(int ng_error);

/* h2_head.c */
void h2_head_clear(struct h2_head *head);
/* 0, -ENOMEM, -EMSGSIZE when the head grows beyond max bytes, -EPROTO when it is malformed. */
TR_MUST_CHECK int h2_head_add(struct h2_head *head, nghttp2_rcbuf *name, nghttp2_rcbuf *value,
                              size_t max);
const struct tr_h2_head *h2_head_finish(struct h2_head *head);

/* h2_recv.c */
void h2_recv_callbacks(nghttp2_session_callbacks *cbs);

/* h2_send.c */
ssize_t h2_read_body(nghttp2_session *ng, int32_t stream_id, uint8_t *buf, size_t length,
                     uint32_t *data_flags, nghttp2_data_source *source, void *user_data);
void h2_queue_clear(struct tr_h2_stream *st);
void h2_drain_forget(struct tr_h2_stream *st);

#endif
