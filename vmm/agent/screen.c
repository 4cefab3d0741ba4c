/* SPDX-License-Identifier: MIT */
/* States and transitions follow ECMA-48 and the way xterm reads it: CAN and SUB end a sequence, ESC
 * begins a new one, BEL ends an OSC as ST does. C1 controls of one byte are not looked for: windows
 * are UTF-8. */
#include "vmm/agent/screen.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ENQ 0x05
#define BEL 0x07
#define SO  0x0e
#define SI  0x0f
#define CAN 0x18
#define SUB 0x1a
#define ESC 0x1b

/* Private modes (CSI ? N h). The alternate screen comes first, as it has a cursor of its own. */
static const struct {
    uint16_t number;
    bool usual; /* on in a fresh terminal */
} modes[] = {{1049, false}, {1, false},    {5, false},    {7, true},
             {9, false},    {1000, false}, {1002, false}, {1003, false},
             {1004, false}, {1005, false}, {1006, false}, {1015, false},
             {1016, false}, {2004, false}, {6, false},    {25, true}};
#define N_MODES   (sizeof(modes) / sizeof(modes[0]))
#define ALTERNATE 1u /* bit of 1049, which stands for 47 and 1047, too */

struct sink {
    agent_screen_cb cb;
    void *arg;
};

static void pass(const struct sink *sink, const uint8_t *data, size_t len)
{
    if (sink->cb != NULL && len > 0)
        sink->cb(data, len, sink->arg);
}

static void reset_modes(struct agent_screen *s)
{
    s->modes = 0;
    for (size_t i = 0; i < N_MODES; i++)
        s->modes |= modes[i].usual ? 1u << i : 0;
    s->keypad = s->insert = s->shifted = false;
    s->charsets[0] = s->charsets[1] = 'B';
    s->top = s->bottom = 0;
}

void agent_screen_init(struct agent_screen *s)
{
    memset(s, 0, sizeof(*s));
    reset_modes(s);
}

bool agent_screen_is_alternate(const struct agent_screen *s)
{
    return (s->modes & ALTERNATE) != 0;
}

static void end_sequence(struct agent_screen *s, bool shown, const struct sink *sink)
{
    if (shown)
        pass(sink, s->held, s->n_held);
    s->n_held = 0;
    s->esc = false;
    s->state = AGENT_SCREEN_GROUND;
}

/* ---- CSI ---- */

/* A control sequence taken apart. Parameters beyond 16 do not count. */
struct csi {
    uint8_t prefix, between, final; /* of < = > ?; the last of 0x20 to 0x2f; 0: none */
    unsigned params[16];
    size_t n;
};

static void parse_csi(const struct agent_screen *s, struct csi *c)
{
    *c = (struct csi){.final = s->held[s->n_held - 1], .n = 1};
    for (size_t i = 2; i + 1 < s->n_held; i++) {
        uint8_t b = s->held[i];

        if (b >= '0' && b <= '9' && c->n <= 16 && c->params[c->n - 1] < 60000)
            c->params[c->n - 1] = (c->params[c->n - 1] * 10 + (b - '0')) % 65536;
        else if ((b == ';' || b == ':') && c->n < 16)
            c->n++;
        else if (b >= '<' && b <= '?' && i == 2)
            c->prefix = b;
        else if (b >= 0x20 && b <= 0x2f)
            c->between = b;
    }
}

static void set_modes(struct agent_screen *s, const struct csi *c)
{
    bool on = c->final == 'h';

    for (size_t k = 0; k < c->n; k++) {
        unsigned number = c->params[k] == 47 || c->params[k] == 1047 ? 1049 : c->params[k];

        if (c->prefix == 0 && number == 4)
            s->insert = on;
        if (c->prefix == '?' && number == 66)
            s->keypad = on;
        for (size_t i = 0; c->prefix == '?' && i < N_MODES; i++) {
            if (modes[i].number == number)
                s->modes = on ? s->modes | 1u << i : s->modes & ~(1u << i);
        }
    }
}

static void track_csi(struct agent_screen *s, const struct csi *c)
{
    if ((c->final == 'h' || c->final == 'l') && c->between == 0)
        set_modes(s, c);
    if (c->final == 'r' && c->prefix == 0 && c->between == 0) {
        s->top = (uint16_t)c->params[0];
        s->bottom = (uint16_t)(c->n > 1 ? c->params[1] : 0);
    }
    if (c->final == 'p' &&
        c->between == '!') { /* DECSTR leaves the screen and the mouse as it is */
        uint32_t kept = s->modes;

        reset_modes(s);
        for (size_t i = 0; i < N_MODES; i++) {
            if (modes[i].number >= 1000 || modes[i].number == 9)
                s->modes = (s->modes & ~(1u << i)) | (kept & 1u << i);
        }
    }
}

static bool is_question(const struct csi *c)
{
    switch (c->final) {
    case 'c': /* DA */
        return c->between == 0;
    case 'n': /* DSR; with ">" it sets how keys are reported */
        return c->between == 0 && c->prefix != '>';
    case 'p': /* DECRQM */
        return c->between == '$';
    case 'q': /* XTVERSION */
        return c->prefix == '>' && c->between == 0;
    case 'u': /* keyboard protocol */
        return c->prefix == '?';
    case 'm': /* XTQMODKEYS */
    case 'S': /* XTSMGRAPHICS */
        return c->prefix == '?';
    case 't': /* window reports */
        return c->prefix == 0 && c->between == 0 && c->params[0] >= 11 && c->params[0] <= 21;
    case 'x': /* DECREQTPARM */
        return c->between == 0;
    case 'w': /* DECRQPSR, DECRQUPSS */
        return c->between == '$' || c->between == '&';
    case 'y': /* DECRQCRA */
        return c->between == '*';
    case 'z': /* DECELR and what belongs to it: the locator answers */
    case '|':
        return c->between == '\'';
    default:
        return false;
    }
}

static void end_csi(struct agent_screen *s, const struct sink *sink)
{
    struct csi c;

    parse_csi(s, &c);
    track_csi(s, &c);
    end_sequence(s, !is_question(&c), sink);
}

/* ---- other sequences ---- */

static void end_escape(struct agent_screen *s, uint8_t final, const struct sink *sink)
{
    bool question = false;

    if (s->n_held == 2) {
        if (final == '=' || final == '>')
            s->keypad = final == '=';
        else if (final == 'c')
            reset_modes(s);
        question = final == 'Z'; /* DECID */
    } else if (s->n_held == 3 && (s->held[1] == '(' || s->held[1] == ')')) {
        s->charsets[s->held[1] - '('] = final;
    }
    end_sequence(s, !question, sink);
}

/* "11;?", "4;1;?": a field that is a question mark. 52 is the clipboard, which belongs to who was
 * there. */
static bool osc_is_question(const uint8_t *text, size_t len)
{
    if (len >= 3 && memcmp(text, "52;", 3) == 0)
        return true;
    for (size_t i = 1; i < len; i++) {
        if (text[i] == '?' && text[i - 1] == ';' && (i + 1 == len || text[i + 1] == ';'))
            return true;
    }
    return false;
}

/* How many bytes of the held OSC are its text, the introducer and the end aside. */
static size_t osc_len(const struct agent_screen *s, size_t end_len)
{
    return s->n_held - 2 - end_len;
}

/* What is held is the head of a string whose end will not be waited for. */
static void begin_string(struct agent_screen *s, bool drop, const struct sink *sink)
{
    end_sequence(s, !drop, sink);
    s->state = AGENT_SCREEN_STRING;
    s->drop = drop;
}

static void hold(struct agent_screen *s, uint8_t c)
{
    s->held[s->n_held++] = c;
}

static void begin_escape(struct agent_screen *s)
{
    s->n_held = 0;
    hold(s, ESC);
    s->esc = false;
    s->state = AGENT_SCREEN_ESC;
}

static void on_escape_byte(struct agent_screen *s, uint8_t c, const struct sink *sink)
{
    hold(s, c);
    if (c >= 0x20 && c <= 0x2f)
        return;
    if (s->n_held > 2 || c < 0x20 || c > 0x7e) {
        end_escape(s, c, sink);
        return;
    }
    switch (c) {
    case '[':
        s->state = AGENT_SCREEN_CSI;
        break;
    case ']':
        s->state = AGENT_SCREEN_OSC;
        break;
    case 'P':
        s->state = AGENT_SCREEN_DCS;
        break;
    case '_': /* graphics and the like: answered by the terminal */
        begin_string(s, true, sink);
        break;
    case 'X':
    case '^':
        begin_string(s, false, sink);
        break;
    default:
        end_escape(s, c, sink);
    }
}

static void on_csi_byte(struct agent_screen *s, uint8_t c, const struct sink *sink)
{
    if (c == ENQ)
        return;
    hold(s, c);
    if (c >= 0x40 && c <= 0x7e)
        end_csi(s, sink);
    else if (c >= 0x7f)
        end_sequence(s, true, sink);
}

static void on_osc_byte(struct agent_screen *s, uint8_t c, const struct sink *sink)
{
    if (s->esc && c != '\\') { /* it is cut short by another sequence */
        s->n_held--;
        pass(sink, s->held, s->n_held);
        begin_escape(s);
        on_escape_byte(s, c, sink);
        return;
    }
    hold(s, c);
    if (s->esc)
        end_sequence(s, !osc_is_question(s->held + 2, osc_len(s, 2)), sink);
    else if (c == BEL)
        end_sequence(s, !osc_is_question(s->held + 2, osc_len(s, 1)), sink);
    else
        s->esc = c == ESC;
}

/* DECRQSS ("$q") and XTGETTCAP ("+q") ask; others draw. */
static void on_dcs_byte(struct agent_screen *s, uint8_t c, const struct sink *sink)
{
    hold(s, c);
    if (c >= 0x40 && c <= 0x7e)
        begin_string(
            s, c == 'q' && (s->held[s->n_held - 2] == '$' || s->held[s->n_held - 2] == '+'), sink);
}

static void on_string_byte(struct agent_screen *s, uint8_t c, const struct sink *sink)
{
    static const uint8_t esc = ESC;

    if (s->esc) {
        if (c != '\\') {
            begin_escape(s);
            on_escape_byte(s, c, sink);
            return;
        }
        if (!s->drop) {
            pass(sink, &esc, 1);
            pass(sink, &c, 1);
        }
        end_sequence(s, false, sink);
    } else if (c == ESC) {
        s->esc = true;
    } else if (!s->drop) {
        pass(sink, &c, 1);
        if (c == BEL) /* it may be a long OSC */
            end_sequence(s, false, sink);
    }
}

static void on_byte(struct agent_screen *s, uint8_t c, const struct sink *sink)
{
    bool string = s->state == AGENT_SCREEN_OSC || s->state == AGENT_SCREEN_STRING;

    if (c == CAN || c == SUB) {
        end_sequence(s, true, sink);
        pass(sink, &c, 1);
        return;
    }
    if (c == ESC && (!string || s->esc)) {
        pass(sink, s->held, s->n_held - (s->state == AGENT_SCREEN_OSC));
        begin_escape(s);
        return;
    }
    if (s->n_held >= AGENT_SCREEN_HELD && !s->esc) { /* questions are short */
        if (s->state == AGENT_SCREEN_OSC) {
            begin_string(s, false, sink);
        } else {
            end_sequence(s, true, sink);
            pass(sink, &c, 1);
            return;
        }
    }
    switch (s->state) {
    case AGENT_SCREEN_ESC:
        on_escape_byte(s, c, sink);
        break;
    case AGENT_SCREEN_CSI:
        on_csi_byte(s, c, sink);
        break;
    case AGENT_SCREEN_OSC:
        on_osc_byte(s, c, sink);
        break;
    case AGENT_SCREEN_DCS:
        on_dcs_byte(s, c, sink);
        break;
    case AGENT_SCREEN_STRING:
        on_string_byte(s, c, sink);
        break;
    case AGENT_SCREEN_GROUND:
        break; /* see agent_screen_feed() */
    }
}

static bool is_special(uint8_t c)
{
    return c == ESC || c == ENQ || c == SO || c == SI;
}

void agent_screen_feed(struct agent_screen *s, const uint8_t *data, size_t len, agent_screen_cb cb,
                       void *arg)
{
    struct sink sink = {cb, arg};
    size_t plain = 0; /* bytes before at that are to be passed on */

    for (size_t at = 0; at < len; at++) {
        uint8_t c = data[at];

        if (s->state != AGENT_SCREEN_GROUND) {
            on_byte(s, c, &sink);
            plain = at + 1;
        } else if (is_special(c)) {
            bool shift = c == SO || c == SI;

            pass(&sink, data + plain, at - plain + shift);
            plain = at + 1;
            if (shift)
                s->shifted = c == SO;
            else if (c == ESC)
                begin_escape(s);
        }
    }
    if (plain < len)
        pass(&sink, data + plain, len - plain);
}

void agent_screen_flush(struct agent_screen *s, agent_screen_cb cb, void *arg)
{
    static const uint8_t esc = ESC;
    struct sink sink = {cb, arg};

    if (s->state == AGENT_SCREEN_STRING && s->esc && !s->drop)
        pass(&sink, &esc, 1);
    end_sequence(s, true, &sink);
}

size_t agent_screen_modes(const struct agent_screen *s, char *out)
{
    size_t n = 0;

    for (size_t i = 0; i < N_MODES; i++) {
        bool on = (s->modes & 1u << i) != 0;

        if (modes[i].number == 6 && (s->top != 0 || s->bottom != 0)) { /* before the origin mode */
            n += (size_t)snprintf(out + n, AGENT_SCREEN_MODES - n, "\033[%u;", s->top);
            if (s->bottom != 0)
                n += (size_t)snprintf(out + n, AGENT_SCREEN_MODES - n, "%u", s->bottom);
            n += (size_t)snprintf(out + n, AGENT_SCREEN_MODES - n, "r");
        }
        if (on != modes[i].usual)
            n += (size_t)snprintf(out + n, AGENT_SCREEN_MODES - n, "\033[?%u%c", modes[i].number,
                                  on ? 'h' : 'l');
    }
    if (s->insert)
        n += (size_t)snprintf(out + n, AGENT_SCREEN_MODES - n, "\033[4h");
    if (s->keypad)
        n += (size_t)snprintf(out + n, AGENT_SCREEN_MODES - n, "\033=");
    for (size_t i = 0; i < 2; i++) {
        if (s->charsets[i] != 'B' && s->charsets[i] >= 0x30 && s->charsets[i] <= 0x7e)
            n += (size_t)snprintf(out + n, AGENT_SCREEN_MODES - n, "\033%c%c", "()"[i],
                                  s -> charsets[i]);
    }
    if (s->shifted)
        n += (size_t)snprintf(out + n, AGENT_SCREEN_MODES - n, "\016");
    return n;
}
