/* SPDX-License-Identifier: MIT */
#include "vmm/driver/qemu_version.h"

#include <stdio.h>
#include <stdlib.h>

#include "vmm/driver/driver.h"
#include "vmm/proc/child.h"

struct question {
    qemu_version_cb cb;
    void *arg;
};

unsigned qemu_version_parse(const char *text)
{
    unsigned major, minor;

    if (sscanf(text, "QEMU emulator version %4u.%2u", &major, &minor) != 2)
        return 0;
    return major * 100 + minor;
}

static void on_answer(const struct child_result *child, void *arg)
{
    struct question *q = arg;

    q->cb(child->status == 0 ? qemu_version_parse(child->out) : 0, q->arg);
    free(q);
}

int qemu_version_start(uv_loop_t *loop, const char *program, uint64_t timeout_ms,
                       qemu_version_cb cb, void *arg, struct err *err)
{
    const char *argv[] = {*program != '\0' ? program : VM_QEMU_PROGRAM, "--version", NULL};
    struct question *q = malloc(sizeof(*q));
    int r;

    if (q == NULL)
        return tr_err_set(err, UV_ENOMEM, "out of memory");
    q->cb = cb;
    q->arg = arg;
    r = child_run(loop, argv, NULL, timeout_ms, on_answer, q, NULL, err);
    if (r != 0)
        free(q);
    return r;
}
