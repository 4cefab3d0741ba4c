/* SPDX-License-Identifier: MIT */
/* What a file is. The first line is its name, the byte behind it the size of the pieces. The
 * answer must be the same in one piece and in many, and an early one must be final. */
#include <assert.h>
#include <stdint.h>
#include <string.h>
#include "sync/kinds.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *end = size > 0 ? memchr(data, '\n', size) : NULL;
    const char *name = (const char *)data;
    struct sync_kind_scan scan;
    size_t name_len, piece;
    enum sync_kind kind;
    bool is_open = true;

    if (end == NULL || end + 1 == data + size)
        return 0;
    name_len = (size_t)(end - data);
    piece = (size_t)end[1] + 1;
    size -= name_len + 2;
    data = end + 2;

    kind = sync_kind_of(name, name_len, data, size);
    assert(sync_kind_name(kind) != NULL && sync_kind_media_type(kind) != NULL);
    sync_kind_start(&scan, name, name_len);
    for (size_t at = 0; at < size; at += piece) {
        bool was_open = is_open;

        is_open = sync_kind_feed(&scan, data + at, size - at < piece ? size - at : piece);
        assert(was_open || !is_open);
        if (!is_open)
            assert(sync_kind_end(&scan) == kind);
    }
    assert(sync_kind_end(&scan) == kind);
    return 0;
}
