/* SPDX-License-Identifier: MIT */
/* A file that is, or is not, an ancestor. The sum at its end is made right first, since no fuzzer
 * finds it; what is taken then must be writable again, to the same states. */
#include <assert.h>
#include <openssl/sha.h>
#include <stdlib.h>
#include <string.h>
#include "sync/ancestor.h"
#include "sync/path.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define INSTANCE UINT64_C(0x0807060504030201)

static void check(const struct sync_state *st)
{
    struct sync_cursor c;
    const struct sync_node *node;

    for (sync_cursor_start(&c, st, "", 0); (node = sync_cursor_get(&c)) != NULL;
         sync_cursor_next(&c)) {
        assert(sync_path_check(node->path, node->len) == SYNC_PATH_OK);
        assert(node->value.what == SYNC_IS_FILE || node->value.what == SYNC_IS_LINK ||
               node->value.what == SYNC_IS_DIR);
        assert(!node->value.is_exec || node->value.what == SYNC_IS_FILE);
    }
}

static bool is_same(const struct sync_state *a, const struct sync_state *b)
{
    struct sync_cursor ca, cb;
    const struct sync_node *na, *nb;

    sync_cursor_start(&ca, a, "", 0);
    for (sync_cursor_start(&cb, b, "", 0); (nb = sync_cursor_get(&cb)) != NULL;
         sync_cursor_next(&ca), sync_cursor_next(&cb)) {
        na = sync_cursor_get(&ca);
        if (na == NULL || sync_path_order(na->path, na->len, nb->path, nb->len) != 0 ||
            !sync_value_is_same(&na->value, &nb->value))
            return false;
    }
    return sync_cursor_get(&ca) == NULL;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t *bytes = malloc(size + SHA256_DIGEST_LENGTH), *again;
    struct sync_state *st, *back;
    size_t len;
    int r;

    if (bytes == NULL || sync_state_new(0, 0, &st) != 0 || sync_state_new(0, 0, &back) != 0)
        abort();
    assert(sync_ancestor_decode(data, size, INSTANCE, st) != 0 || size >= SHA256_DIGEST_LENGTH);
    if (size > 0)
        memcpy(bytes, data, size);
    SHA256(bytes, size, bytes + size);
    r = sync_ancestor_decode(bytes, size + SHA256_DIGEST_LENGTH, INSTANCE, st);
    assert(r == 0 || sync_state_count(st) == 0);
    check(st);
    if (r == 0) {
        if (sync_ancestor_encode(st, INSTANCE, &again, &len) != 0)
            abort();
        assert(sync_ancestor_decode(again, len, INSTANCE, back) == 0 && is_same(st, back));
        assert(sync_ancestor_decode(again, len, INSTANCE + 1, back) != 0);
        free(again);
    }
    sync_state_free(st);
    sync_state_free(back);
    free(bytes);
    return 0;
}
