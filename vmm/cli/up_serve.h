/* SPDX-License-Identifier: MIT */
/* The folder's end of a binding (vmm/bind.h): a server on a byte stream that lists, hashes, reads,
 * changes and watches one folder as it is told, and carries the lines of what is to be shown.
 *
 * Whoever is at the other end gets no further than the folder: paths lead nowhere else
 * (sync/tree.h), .git is neither shown nor touched, and no link is made that leads out of it. */
#ifndef VMM_CLI_UP_SERVE_H
#define VMM_CLI_UP_SERVE_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>
#include "transom/err.h"

struct up_serve;

struct up_serve_options {
    uv_loop_t *loop; /* for watches; outlives it until a run finds nothing left to do */
    int root;        /* the folder; borrowed */
    /* A line came (borrowed). From inside up_serve_input(). */
    void (*on_line)(const json_t *line, void *arg);
    void *arg;
};

/* Aborts without memory, as a short-lived command may. */
struct up_serve *up_serve_new(const struct up_serve_options *options);
void up_serve_free(struct up_serve *s); /* NULL is fine */

/* Bytes that came. */
void up_serve_input(struct up_serve *s, const uint8_t *bytes, size_t len);
/* Bytes to be sent, at most size; 0: none now. */
size_t up_serve_output(struct up_serve *s, uint8_t *buf, size_t size);
bool up_serve_has_output(const struct up_serve *s);
/* Work for a moment. Returns true when there is more to do at once. */
bool up_serve_step(struct up_serve *s);
/* "Once more, then end". */
void up_serve_finish(struct up_serve *s);
/* The other end broke the rules, or said goodbye. */
bool up_serve_is_over(const struct up_serve *s);

struct up_serve_counters {
    uint64_t sent, received; /* bytes of contents, as they travel */
    uint64_t n_calls;        /* that were answered */
    bool is_busy;            /* one is under way */
};
void up_serve_count(const struct up_serve *s, struct up_serve_counters *out);

#endif
