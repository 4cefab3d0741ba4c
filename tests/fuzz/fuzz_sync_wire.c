/* SPDX-License-Identifier: MIT */
/* Messages of either direction: whatever is taken for one can be written again, and reads the
 * same. */
#include <assert.h>
#include "sync/wire.h"
#include "sync_blocks.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static size_t bytes_of(struct sync_pack *pack, const struct sync_msg *msg, uint8_t *out)
{
    const uint8_t *bytes;
    size_t len;

    if (sync_pack_add(pack, msg) != 0 || sync_pack_flush(pack) != 0)
        abort(); /* what was read must be fit to be sent */
    bytes = sync_pack_bytes(pack, &len);
    memcpy(out, bytes, len);
    sync_pack_taken(pack, len);
    return len;
}

/* One message through a writer and a reader, and again. */
static void check(const struct sync_msg *msg)
{
    static uint8_t first[SYNC_BLOCK_MAX], second[SYNC_BLOCK_MAX];
    struct sync_unpack *unpack;
    struct sync_pack *a, *b;
    struct sync_msg again;
    size_t len;

    if (sync_pack_new(false, &a) != 0 || sync_pack_new(false, &b) != 0 ||
        sync_unpack_new(&unpack) != 0)
        abort();
    len = bytes_of(a, msg, first);
    assert(sync_unpack_feed(unpack, first, len) == len);
    assert(sync_unpack_next(unpack, &again) == 1);
    assert(again.type == msg->type);
    assert(bytes_of(b, &again, second) == len && memcmp(first, second, len) == 0);
    assert(sync_unpack_next(unpack, &again) == 0 && sync_unpack_at_end(unpack));
    sync_pack_free(a);
    sync_pack_free(b);
    sync_unpack_free(unpack);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct sync_unpack *unpack;
    struct sync_msg msg;
    size_t len, at = 0, piece;
    uint8_t *bytes;
    int r, n = 0;

    if (size == 0 || sync_unpack_new(&unpack) != 0)
        return 0;
    bytes = sync_blocks(data, size, &len);
    piece = (data[0] & 0x7f) + 1;
    for (;;) {
        r = sync_unpack_next(unpack, &msg);
        if (r < 0 || (r == 0 && at == len))
            break;
        if (r == 1 && n++ < 16)
            check(&msg);
        else if (r == 0)
            at += sync_unpack_feed(unpack, bytes + at, piece < len - at ? piece : len - at);
    }
    sync_unpack_free(unpack);
    free(bytes);
    return 0;
}
