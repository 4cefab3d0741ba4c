/* SPDX-License-Identifier: MIT */
/* What a terminal would make of a window's bytes, as far as a late viewer needs it: the modes that
 * are on (ECMA-48, DEC and xterm's private ones), and the bytes without the questions to which the
 * viewer's terminal would answer. Not a terminal: it knows of no cell. */
#ifndef VMM_AGENT_SCREEN_H
#define VMM_AGENT_SCREEN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define AGENT_SCREEN_HELD  256 /* of a sequence, until it is known what it is */
#define AGENT_SCREEN_MODES 256 /* bytes that agent_screen_modes() may need */

enum agent_screen_state {
    AGENT_SCREEN_GROUND,
    AGENT_SCREEN_ESC, /* behind ESC and intermediate bytes; held is valid from here on */
    AGENT_SCREEN_CSI,
    AGENT_SCREEN_OSC,
    AGENT_SCREEN_DCS,    /* its head */
    AGENT_SCREEN_STRING, /* a string whose fate is known: see drop; nothing is held */
};

/* In the caller's memory; can be copied. */
struct agent_screen {
    enum agent_screen_state state;
    bool drop;                           /* STRING: to be left out */
    bool esc;                            /* OSC, STRING: the last byte was ESC, held back */
    uint32_t modes;                      /* bits by their place in the table of modes */
    bool keypad, insert, shifted;        /* ESC =, CSI 4 h, SO */
    uint8_t charsets[2];                 /* final bytes of ESC ( and ESC ) */
    uint16_t top, bottom;                /* scroll region; 0: whole */
    uint8_t held[AGENT_SCREEN_HELD + 1]; /* one more for the end of a string */
    size_t n_held;
};

typedef void (*agent_screen_cb)(const uint8_t *data, size_t len, void *arg);

void agent_screen_init(struct agent_screen *s);
/* cb (may be NULL) gets the bytes that are no questions, in pieces, before this returns. */
void agent_screen_feed(struct agent_screen *s, const uint8_t *data, size_t len, agent_screen_cb cb,
                       void *arg);
/* The beginning of a sequence that is not complete yet goes to cb, and is forgotten. */
void agent_screen_flush(struct agent_screen *s, agent_screen_cb cb, void *arg);
/* What puts a fresh terminal into these modes; returns its length. out is AGENT_SCREEN_MODES. */
size_t agent_screen_modes(const struct agent_screen *s, char *out);
bool agent_screen_is_alternate(const struct agent_screen *s);

#endif
