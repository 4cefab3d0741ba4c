/* SPDX-License-Identifier: MIT */
/* A .git folder's stream looked through for a secret, whole and in pieces that byte 0 sizes: the
 * answer is the same. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include "sync/git_screen.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct sync_secrets secrets;

static void init(void)
{
    static const struct tr_mask_secret one = {"secret-value", 12};
    struct tr_mask *mask;

    sync_secrets_init(&secrets);
    if (tr_mask_new(&one, 1, &mask) != 0)
        abort();
    sync_secrets_set(&secrets, mask);
    tr_mask_unref(mask);
}

static int screen(const uint8_t *data, size_t size, size_t step)
{
    struct sync_git_screen *s;
    int r = 0;

    if (sync_git_screen_new(&secrets, 1 << 20, &s) != 0)
        abort();
    for (size_t at = 0; at < size && r == 0; at += step)
        r = sync_git_screen_feed(s, data + at, size - at < step ? size - at : step);
    sync_git_screen_free(s);
    return r;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int whole;

    if (secrets.version == 0)
        init();
    if (size < 2)
        return 0;
    whole = screen(data + 1, size - 1, size - 1);
    assert(whole == screen(data + 1, size - 1, 1 + data[0]));
    return 0;
}
