/* SPDX-License-Identifier: MIT */
/* Where a run's output begins and ends in a terminal's byte stream: the shell's hook writes marks
 * into it, which are taken out here before anyone sees them. A mark is an APC string with a nonce
 * known to hook and agent alone: ESC _ "transom;" nonce ";" letter number ESC \. */
#ifndef VMM_AGENT_MARKER_H
#define VMM_AGENT_MARKER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define AGENT_NONCE_LEN 24 /* characters */
#define AGENT_MARK_MAX  80

struct agent_marker {
    char prefix[48];
    size_t prefix_len;
    uint8_t held[AGENT_MARK_MAX]; /* the beginning of what may be a mark */
    size_t n_held;
};

struct agent_marker_cbs {
    void (*on_bytes)(const uint8_t *data, size_t len, void *arg);
    void (*on_mark)(char kind, uint64_t number, void *arg);
};

void agent_marker_init(struct agent_marker *m, const char *nonce);
void agent_marker_feed(struct agent_marker *m, const uint8_t *data, size_t len,
                       const struct agent_marker_cbs *cbs, void *arg);
/* Is something held back? Then call flush after a moment in which nothing came. */
bool agent_marker_holds(const struct agent_marker *m);
void agent_marker_flush(struct agent_marker *m, const struct agent_marker_cbs *cbs, void *arg);

#endif
