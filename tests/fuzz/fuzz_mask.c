/* SPDX-License-Identifier: MIT */
/* Masking a stream in pieces gives what the slow reference gives for the whole.
 *
 * Input: how many secrets, each as length and bytes; size of the pieces; then the text, in which
 * 0xe0..0xe3 and a number stand for that form of that secret, 0xe4 cuts it short. */
#include <stdlib.h>
#include <string.h>

#include "tests/unit/mask_reference.h"
#include "vmm/mask/forms.h"

#define TEXT_MAX 4096
#define SECRETS  4

struct text {
    char bytes[TEXT_MAX];
    size_t len;
};

static void append(struct text *t, const void *data, size_t len)
{
    size_t n = len < TEXT_MAX - t->len ? len : TEXT_MAX - t->len;

    memcpy(t->bytes + t->len, data, n);
    t->len += n;
}

struct pick {
    struct text *text;
    size_t left, cut;
};

static int pick(const uint8_t *form, size_t len, bool wrapped, void *arg)
{
    struct pick *p = arg;

    if (p->left-- > 0)
        return 0;
    len = len > p->cut ? len - p->cut : 0;
    for (size_t i = 0; i < len; i++) {
        append(p->text, form + i, 1);
        if (wrapped && p->cut > 0 && i % 7 == 6)
            append(p->text, "\r\n", 2);
    }
    return 1;
}

static void out(const uint8_t *data, size_t len, void *arg)
{
    append(arg, data, len);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct text text, got;
    struct tr_mask_secret secrets[SECRETS];
    struct tr_mask *mask;
    struct tr_masker *m;
    size_t n = 0, step = 1, want_len;
    char *want;

    text.len = got.len = 0;
    if (size == 0)
        return 0;
    for (size_t left = *data++ % (SECRETS + 1); size-- > 1 && left > 0; left--) {
        size_t len = data[0] < size - 1 ? data[0] : size - 1;

        secrets[n++] = (struct tr_mask_secret){data + 1, len};
        data += 1 + len;
        size -= len;
    }
    if (size > 0 && size < TEXT_MAX) {
        step = 1u + *data++;
        for (size--; size > 0; size--, data++) {
            if (*data >= 0xe0 && *data <= 0xe4 && size > 1 && n > 0) {
                struct pick p = {&text, data[1], *data == 0xe4 ? data[1] % 4u : 0};
                size_t i = *data % n;

                if (mask_forms(secrets[i].value, secrets[i].len, pick, &p) < 0)
                    abort();
                data++;
                size--;
            } else {
                append(&text, data, 1);
            }
        }
    }
    if (text.len > TEXT_MAX / 3)
        text.len = TEXT_MAX / 3; /* masks may be longer than what they hide */
    if (tr_mask_new(secrets, n, &mask) != 0 || tr_masker_new(mask, out, &got, &m) != 0)
        abort();
    for (size_t at = 0; at < text.len; at += step) {
        if (tr_masker_write(m, text.bytes + at, text.len - at < step ? text.len - at : step) != 0)
            abort();
    }
    tr_masker_flush(m);
    want = mask_reference(secrets, n, text.bytes, text.len, &want_len);
    if (want_len != got.len || memcmp(want, got.bytes, want_len) != 0)
        abort();
    free(want);
    tr_masker_free(m);
    tr_mask_unref(mask);
    return 0;
}
