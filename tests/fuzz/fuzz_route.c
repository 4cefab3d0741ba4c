/* SPDX-License-Identifier: MIT */
/* Route records as Redis may hold them. What is accepted must survive the round trip. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include "transom/state.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define LABEL "abcdefgh01234567"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct tr_route a, b;
    struct err err = {0};
    char *text;

    if (tr_route_parse(LABEL, (const char *)data, size, &a, &err) != 0) {
        assert(err.code == UV_EINVAL && err.msg[0] != '\0');
        return 0;
    }
    text = tr_route_encode(&a);
    assert(text != NULL);
    assert(tr_route_parse(LABEL, text, strlen(text), &b, &err) == 0);
    assert(a.state == b.state && a.port == b.port && a.instance == b.instance);
    assert(strcmp(a.address, b.address) == 0 && strcmp(a.reason, b.reason) == 0);
    assert(strcmp(a.node, b.node) == 0 && strcmp(a.owner, b.owner) == 0);
    free(text);
    return 0;
}
