/* SPDX-License-Identifier: MIT */
/* Range and Content-Range. The first 8 bytes are the size of the file, the rest is the header. What
 * comes out must lie within the file, or within what the part says of itself. */
#include <assert.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "vmm/agent/range.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_range(const char *text, int64_t size)
{
    int64_t first = -7, last = -7;

    switch (agent_range_parse(text, size, &first, &last)) {
    case AGENT_RANGE_PART:
        assert(first >= 0 && first <= last && last < size);
        break;
    case AGENT_RANGE_NOT:
    case AGENT_RANGE_ALL:
        assert(first == -7 && last == -7);
        break;
    }
}

static void check_part(const char *text)
{
    struct agent_part part;

    if (agent_part_parse(text, &part) != 0)
        return;
    if (part.first < 0)
        assert(part.first == -1 && part.last == -1 && part.total >= 0);
    else
        assert(part.first <= part.last && (part.total == -1 || part.last < part.total));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text;
    int64_t whole;

    if (size < sizeof(whole))
        return 0;
    memcpy(&whole, data, sizeof(whole));
    whole &= INT64_MAX;
    data += sizeof(whole);
    size -= sizeof(whole);
    text = malloc(size + 1);
    if (text == NULL)
        return 0;
    memcpy(text, data, size);
    text[size] = '\0';
    check_range(text, whole);
    check_range(text, whole & 0xff);
    check_part(text);
    free(text);
    return 0;
}
