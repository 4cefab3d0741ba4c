/* SPDX-License-Identifier: MIT */
/* One stream. Bytes wait in buf while they may still belong to a match that is not complete; what
 * is known to be covered is kept as spans. Offsets are those of the stream. */
#include <stdlib.h>
#include <string.h>
#include <uv.h>

#include "transom/mask.h"
#include "vmm/mask/mask_internal.h"

#define PIECE      65536 /* bytes looked at before something is shown */
#define BREAKS_MAX 2     /* CR LF; more of them in a row end a wrapped form */

struct span {
    uint64_t begin, end;
};

struct tr_masker {
    struct tr_mask *mask;
    tr_mask_cb out;
    void *arg;
    uint32_t exact, wrapped; /* states */
    unsigned n_breaks;       /* line breaks in a row */

    uint8_t *buf; /* [begin, begin + len) of the stream */
    uint64_t begin;
    size_t len, cap;
    uint64_t
        *plain; /* where the bytes of buf that are no line breaks stand; as many as buf holds */
    size_t n_plain;
    struct span *spans; /* covered; apart from each other, ascending */
    size_t n_spans, cap_spans;
    bool covered; /* the last byte shown stood in a span, whose mask is shown already */
    bool has_hidden;
};

int tr_masker_new(struct tr_mask *mask, tr_mask_cb out, void *arg, struct tr_masker **masker)
{
    struct tr_masker *m = calloc(1, sizeof(*m));

    *masker = m;
    if (m == NULL)
        return UV_ENOMEM;
    m->out = out;
    m->arg = arg;
    m->mask = mask;
    tr_mask_ref(mask);
    return 0;
}

static void wipe(struct tr_masker *m)
{
    if (m->buf != NULL)
        explicit_bzero(m->buf, m->cap);
    free(m->buf);
    free(m->plain);
    m->buf = NULL;
    m->plain = NULL;
    m->begin += m->len;
    m->len = m->cap = m->n_plain = m->n_spans = 0;
}

void tr_masker_free(struct tr_masker *m)
{
    if (m == NULL)
        return;
    wipe(m);
    free(m->spans);
    tr_mask_unref(m->mask);
    free(m);
}

static int reserve(struct tr_masker *m, size_t more)
{
    size_t cap = m->len + more;
    uint64_t *plain;
    uint8_t *buf;

    if (cap <= m->cap)
        return 0;
    cap = cap < 1024 ? 1024 : cap + cap / 2;
    plain = realloc(m->plain, cap * sizeof(*plain));
    if (plain == NULL)
        return UV_ENOMEM;
    m->plain = plain;
    buf = malloc(cap); /* not realloc(): the old place must be wiped */
    if (buf == NULL)
        return UV_ENOMEM;
    if (m->buf != NULL) {
        memcpy(buf, m->buf, m->len);
        explicit_bzero(m->buf, m->cap);
        free(m->buf);
    }
    m->buf = buf;
    m->cap = cap;
    return 0;
}

/* Matches come with ascending ends, so a new one swallows or joins only the last ones. */
static int cover(struct tr_masker *m, uint64_t begin, uint64_t end)
{
    struct span *last;

    m->has_hidden = true;
    while (m->n_spans > 0) {
        last = &m->spans[m->n_spans - 1];
        if (last->end < begin)
            break;
        if (last->begin < begin)
            begin = last->begin;
        m->n_spans--;
    }
    if (m->n_spans == m->cap_spans) {
        size_t cap = m->cap_spans == 0 ? 16 : m->cap_spans * 2;
        struct span *spans = realloc(m->spans, cap * sizeof(*spans));

        if (spans == NULL)
            return UV_ENOMEM;
        m->spans = spans;
        m->cap_spans = cap;
    }
    m->spans[m->n_spans++] = (struct span){begin, end};
    return 0;
}

/* Where the last n bytes that are no line breaks begin, as far as they are in reach. */
static uint64_t plain_begin(const struct tr_masker *m, uint32_t n)
{
    return n > m->n_plain ? m->begin : m->plain[m->n_plain - n];
}

static int look_at(struct tr_masker *m, uint8_t byte, uint64_t at)
{
    const struct mask_automaton *exact = &m->mask->exact, *wrapped = &m->mask->wrapped;
    uint32_t found;
    int r = 0;

    m->exact = mask_automaton_step(exact, m->exact, byte);
    found = m->exact == MASK_ROOT ? 0 : exact->nodes[m->exact].found;
    if (found != 0) /* what was shown before is out of reach */
        r = cover(m, found > at + 1 - m->begin ? m->begin : at + 1 - found, at + 1);
    if (byte == '\n' || byte == '\r') {
        if (++m->n_breaks > BREAKS_MAX)
            m->wrapped = MASK_ROOT;
        return r;
    }
    m->n_breaks = 0;
    m->plain[m->n_plain++] = at;
    m->wrapped = mask_automaton_step(wrapped, m->wrapped, byte);
    found = m->wrapped == MASK_ROOT ? 0 : wrapped->nodes[m->wrapped].found;
    if (found != 0 && r == 0)
        r = cover(m, plain_begin(m, found), at + 1);
    return r;
}

static void show_plain(struct tr_masker *m, uint64_t from, uint64_t to)
{
    if (from == to)
        return;
    m->covered = false;
    m->out(m->buf + (from - m->begin), (size_t)(to - from), m->arg);
}

/* Show everything before offset to, and forget it. */
static void show(struct tr_masker *m, uint64_t to)
{
    uint64_t at = m->begin;
    size_t n = 0, gone = 0;

    for (; n < m->n_spans && m->spans[n].begin < to; n++) {
        struct span *s = &m->spans[n];

        if (s->begin > at)
            show_plain(m, at, s->begin);
        if (!m->covered)
            m->out((const uint8_t *)TR_MASK_TEXT, sizeof(TR_MASK_TEXT) - 1, m->arg);
        m->covered = true;
        at = s->end < to ? s->end : to;
        if (s->end > to) {
            s->begin = to; /* the rest of it belongs to the same mask */
            break;
        }
    }
    show_plain(m, at, to);
    if (n > 0) {
        memmove(m->spans, m->spans + n, (m->n_spans - n) * sizeof(*m->spans));
        m->n_spans -= n;
    }
    while (gone < m->n_plain && m->plain[gone] < to)
        gone++;
    memmove(m->plain, m->plain + gone, (m->n_plain - gone) * sizeof(*m->plain));
    m->n_plain -= gone;
    m->len -= (size_t)(to - m->begin);
    memmove(m->buf, m->buf + (to - m->begin), m->len);
    m->begin = to;
}

/* The first byte that may belong to a match to come. */
static uint64_t hold_from(const struct tr_masker *m)
{
    uint64_t end = m->begin + m->len, from = end;

    if (m->exact != MASK_ROOT) {
        uint32_t depth = m->mask->exact.nodes[m->exact].depth;

        from = depth > m->len ? m->begin : end - depth; /* a flush may have shown some of it */
    }
    if (m->wrapped != MASK_ROOT) {
        uint64_t begin = plain_begin(m, m->mask->wrapped.nodes[m->wrapped].depth);

        from = begin < from ? begin : from;
    }
    return from;
}

static int write_piece(struct tr_masker *m, const uint8_t *data, size_t len)
{
    uint64_t at = m->begin + m->len;
    int r = reserve(m, len);

    if (r != 0)
        return r;
    memcpy(m->buf + m->len, data, len);
    m->len += len;
    for (size_t i = 0; i < len; i++) {
        if ((r = look_at(m, data[i], at + i)) != 0)
            return r;
    }
    show(m, hold_from(m));
    return 0;
}

int tr_masker_write(struct tr_masker *m, const void *data, size_t len)
{
    const uint8_t *at = data;

    if (m->mask == NULL) {
        if (len > 0)
            m->out(at, len, m->arg);
        return 0;
    }
    while (len > 0) {
        size_t n = len < PIECE ? len : PIECE;

        if (write_piece(m, at, n) != 0) {
            wipe(m);
            m->exact = m->wrapped = MASK_ROOT;
            return UV_ENOMEM;
        }
        at += n;
        len -= n;
    }
    return 0;
}

void tr_masker_flush(struct tr_masker *m)
{
    if (m->len > 0)
        show(m, m->begin + m->len);
}

size_t tr_masker_held(const struct tr_masker *m)
{
    return m->len;
}

bool tr_masker_has_hidden(const struct tr_masker *m)
{
    return m->has_hidden;
}

void tr_masker_set(struct tr_masker *m, struct tr_mask *mask)
{
    tr_masker_flush(m);
    tr_mask_ref(mask);
    tr_mask_unref(m->mask);
    m->mask = mask;
    m->exact = m->wrapped = MASK_ROOT;
    m->n_breaks = 0;
    m->covered = false;
    if (mask == NULL)
        wipe(m);
}
