/* SPDX-License-Identifier: MIT */
/* QMP's bytes come from a process that its guest may have taken over. */
#include <stddef.h>
#include <stdint.h>

#include "vmm/driver/console.h"
#include "vmm/driver/qmp_parse.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int on_message(json_t *message, void *arg)
{
    const char *text = json_string_value(json_object_get(message, "return"));
    size_t len;

    (void)arg;
    if (text != NULL)
        free(console_decode(text, &len));
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct qmp_parser parser;
    struct err err;
    size_t first = size > 0 ? data[0] % (size + 1) : 0;
    int r;

    qmp_parser_init(&parser);
    /* In two parts, cut where the first byte says. */
    r = qmp_parse(&parser, (const char *)data, first, on_message, NULL, &err);
    if (r == 0)
        r = qmp_parse(&parser, (const char *)data + first, size - first, on_message, NULL, &err);
    qmp_parser_fini(&parser);
    return r == 1; /* never: a fault is not a crash */
}
