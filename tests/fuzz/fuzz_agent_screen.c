/* SPDX-License-Identifier: MIT */
/* A window's bytes through the scanner of escape sequences, whole and in pieces that byte 0 sizes:
 * the same is left and the same modes are on; what is left holds no question, and the modes put a
 * fresh terminal where this one is. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "vmm/agent/screen.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct left {
    uint8_t *bytes;
    size_t len;
};

static void on_shown(const uint8_t *data, size_t len, void *arg)
{
    struct left *l = arg;

    memcpy(l->bytes + l->len, data, len);
    l->len += len;
}

static struct left feed(const uint8_t *data, size_t size, size_t step, char *modes, size_t *n)
{
    struct left l = {.bytes = malloc(size + 1)};
    struct agent_screen s;

    if (l.bytes == NULL)
        abort();
    agent_screen_init(&s);
    for (size_t at = 0; at < size; at += step)
        agent_screen_feed(&s, data + at, size - at < step ? size - at : step, on_shown, &l);
    *n = agent_screen_modes(&s, modes);
    assert(*n < AGENT_SCREEN_MODES && s.n_held <= sizeof(s.held));
    agent_screen_flush(&s, on_shown, &l);
    assert(l.len <= size);
    return l;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char modes[AGENT_SCREEN_MODES], others[AGENT_SCREEN_MODES];
    struct left whole, pieces;
    size_t n, m;

    if (size < 1)
        return 0;
    whole = feed(data + 1, size - 1, size, modes, &n);
    pieces = feed(data + 1, size - 1, data[0] + 1u, others, &m);
    assert(whole.len == pieces.len && memcmp(whole.bytes, pieces.bytes, whole.len) == 0);
    assert(n == m && memcmp(modes, others, n) == 0);
    free(pieces.bytes);
    free(whole.bytes);
    whole = feed((const uint8_t *)modes, n, n + 1, others, &m);
    assert(n == m && memcmp(modes, others, n) == 0);
    free(whole.bytes);
    return 0;
}
