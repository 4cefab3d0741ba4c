/* SPDX-License-Identifier: MIT */
/* QMP messages out of a byte stream: one JSON object a line. The peer is a machine's process, which
 * its guest may have taken over: lines are bounded, and whatever is not a QMP object is a fault. */
#ifndef VMM_QMP_PARSE_H
#define VMM_QMP_PARSE_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include "transom/err.h"

#define QMP_LINE_MAX (256 * 1024) /* a full read of a 64 KiB console ring is 88 KiB of base64 */

struct qmp_parser {
    char *line;
    size_t len, size;
};

/* One message (borrowed). A negative result ends the parse with that status. */
typedef int (*qmp_message_cb)(json_t *message, void *arg);

void qmp_parser_init(struct qmp_parser *p);
void qmp_parser_fini(struct qmp_parser *p);

/* Feed bytes; cb runs for each whole line. Returns 0; UV_EMSGSIZE, UV_EPROTO or UV_ENOMEM with a
 * reason (the stream is of no more use); or what cb returned. */
TR_MUST_CHECK int qmp_parse(struct qmp_parser *p, const char *data, size_t len, qmp_message_cb cb,
                            void *arg, struct err *err);

#endif
