/* SPDX-License-Identifier: MIT */
/* A QMP client on a libuv loop. */
#ifndef VMM_QMP_H
#define VMM_QMP_H

#include <jansson.h>
#include <uv.h>
#include "transom/err.h"

struct qmp;

/* value: what the command returned (borrowed), NULL on failure. status UV_EREMOTEIO: QEMU refused,
 * err has its words; UV_ETIMEDOUT; UV_ECANCELED: the connection ended first. */
typedef void (*qmp_reply_cb)(int status, json_t *value, const struct err *err, void *arg);

struct qmp_cbs {
    /* Greeting and capabilities are through: commands may be given. */
    void (*on_ready)(struct qmp *q, void *arg);
    /* data is borrowed and may be NULL. */
    void (*on_event)(struct qmp *q, const char *name, json_t *data, void *arg);
    /* Last event, exactly once: ended (status 0: by the peer or qmp_close()). q is then freed. */
    void (*on_close)(struct qmp *q, int status, const struct err *err, void *arg);
};

/* Take over a connected descriptor (owned from success on). No callback runs before the return. */
TR_MUST_CHECK int qmp_open(uv_loop_t *loop, int fd, const struct qmp_cbs *cbs, void *arg,
                           struct qmp **out);

/* Give a command; arguments are taken over, also on failure (NULL: none). A command that is not
 * answered in 10 s ends the connection. Returns 0: cb (may be NULL) runs once, later. */
TR_MUST_CHECK int qmp_execute(struct qmp *q, const char *command, json_t *arguments,
                              qmp_reply_cb cb, void *arg);

/* The same, with a descriptor that goes along (borrowed for the call). UV_EAGAIN: earlier commands
 * are still on their way out. */
TR_MUST_CHECK int qmp_execute_fd(struct qmp *q, const char *command, json_t *arguments, int fd,
                                 qmp_reply_cb cb, void *arg);

/* Close; open commands get UV_ECANCELED, then on_close runs. Again: nothing. */
void qmp_close(struct qmp *q);

#endif
