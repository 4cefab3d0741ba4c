/* SPDX-License-Identifier: MIT */
/* For tests: an HTTP/2 client and server session joined in memory, no loop, every byte in order. */
#ifndef TESTS_UNIT_H2_PAIR_H
#define TESTS_UNIT_H2_PAIR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "transom/h2.h"

/* One direction of the wire. */
struct wire {
    uint8_t *bytes;
    size_t len, cap;
    size_t limit; /* send() says full at this much; 0: never */
    bool full;
};

struct side {
    struct tr_h2 *h2; /* NULL once over */
    struct wire out;
    bool woken;
    int n_over, over_status;
    char over_reason[160];
    void (*on_request)(struct tr_h2 *h2, struct tr_h2_stream *st, const struct tr_h2_head *head,
                       bool end, void *arg);
};

struct h2_pair {
    struct side client, server;
};

/* options may be NULL. Returns 0 or what tr_h2_new() returned. */
int pair_open(struct h2_pair *pair, const struct tr_h2_options *client,
              const struct tr_h2_options *server);
/* Move bytes both ways until nothing moves. */
void pair_run(struct h2_pair *pair);
/* One step of one side: what it has to say goes to the other, in pieces of at most piece bytes. */
bool pair_deliver(struct side *from, struct side *to, size_t piece);
void pair_close(struct h2_pair *pair);
/* The four fields of a GET (static memory). */
const struct tr_h2_field *pair_get_fields(const char *path, size_t *n);
/* Queue len zero bytes on a stream. */
void pair_write(struct tr_h2_stream *st, size_t len);

/* A stream's events, recorded. */
struct record {
    struct tr_h2_stream *st;
    int n_head, status, n_info;
    bool head_end;
    char *body;
    size_t body_len, body_cap;
    bool hold;   /* do not consume */
    size_t held; /* bytes not consumed */
    int n_end, n_drain, n_close;
    char trailer[64]; /* value of "x-sum" */
    uint32_t code;
};
extern const struct tr_h2_stream_cbs record_cbs;
void record_clear(struct record *rec);

#endif
