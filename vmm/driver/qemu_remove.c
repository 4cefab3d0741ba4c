/* SPDX-License-Identifier: MIT */
/* Path: qemu_remove -> remove_work (a worker thread) -> after_remove -> cb. */
#include "vmm/driver/qemu_int.h"

#include <stdlib.h>

#include "vmm/driver/remains.h"

struct removal {
    uv_work_t work;
    struct vm_spec_copy copy;
    struct err err;
    vm_done_cb cb;
    void *arg;
};

static void remove_work(uv_work_t *work)
{
    struct removal *r = work->data;

    if (remains_remove(&r->copy.spec, true, NULL, &r->err) != 0)
        tr_err_wrap(&r->err, "cleaning up");
}

static void after_remove(uv_work_t *work, int status)
{
    struct removal *r = work->data;

    (void)status;
    r->cb(r->err.code, &r->err, r->arg);
    vm_spec_fini(&r->copy);
    free(r);
}

int qemu_remove(uv_loop_t *loop, const struct vm_spec *spec, vm_done_cb cb, void *arg,
                struct err *err)
{
    struct removal *removal;
    int r = vm_spec_check_place(spec, err);

    if (r != 0)
        return r;
    removal = calloc(1, sizeof(*removal));
    if (removal == NULL || vm_spec_copy(spec, &removal->copy) != 0) {
        free(removal);
        return tr_err_set(err, UV_ENOMEM, "out of memory");
    }
    removal->cb = cb;
    removal->arg = arg;
    removal->work.data = removal;
    if (uv_queue_work(loop, &removal->work, remove_work, after_remove) != 0)
        abort(); /* fails only without a work function */
    return 0;
}
