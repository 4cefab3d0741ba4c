/* SPDX-License-Identifier: MIT */
#include "tests/unit/mask_reference.h"

#include <stdlib.h>
#include <string.h>

#include "vmm/mask/forms.h"

struct state {
    const char *text;
    size_t len;
    bool *covered;
};

static bool is_break(char c)
{
    return c == '\n' || c == '\r';
}

/* Does form stand at the beginning of text? Returns its end, or 0. */
static size_t match(const struct state *s, size_t at, const uint8_t *form, size_t len, bool wrapped)
{
    size_t n_breaks = 0;

    for (size_t i = 0; i < len; at++) {
        if (at == s->len)
            return 0;
        if (wrapped && i > 0 && is_break(s->text[at])) {
            if (++n_breaks > 2)
                return 0;
            continue;
        }
        n_breaks = 0;
        if ((uint8_t)s->text[at] != form[i++])
            return 0;
    }
    return at;
}

static int mark(const uint8_t *form, size_t len, bool wrapped, void *arg)
{
    struct state *s = arg;

    for (size_t at = 0; at < s->len; at++) {
        size_t end = match(s, at, form, len, wrapped);

        for (size_t i = at; i < end; i++)
            s->covered[i] = true;
    }
    return 0;
}

char *mask_reference(const struct tr_mask_secret *secrets, size_t n, const char *text, size_t len,
                     size_t *out_len)
{
    struct state s = {.text = text, .len = len, .covered = calloc(len + 1, sizeof(bool))};
    char *out = malloc(len * 3 + 1);
    size_t o = 0;

    if (s.covered == NULL || out == NULL)
        abort();
    for (size_t i = 0; i < n; i++) {
        if (mask_forms(secrets[i].value, secrets[i].len, mark, &s) != 0)
            abort();
    }
    for (size_t i = 0; i < len; i++) {
        if (!s.covered[i]) {
            out[o++] = text[i];
        } else if (i == 0 || !s.covered[i - 1]) {
            memcpy(out + o, TR_MASK_TEXT, sizeof(TR_MASK_TEXT) - 1);
            o += sizeof(TR_MASK_TEXT) - 1;
        }
    }
    free(s.covered);
    out[o] = '\0';
    *out_len = o;
    return out;
}
