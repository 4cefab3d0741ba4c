/* SPDX-License-Identifier: MIT */
/* Booting again. Under emulation a kernel may mismeasure its timer when the host gives its
 * processor no time just then. The agent notices and reboots, within seconds; a boot that never
 * comes so far is given up in good time. The last one has what is left of vmm.start_timeout_ms. */
#include <unistd.h>
#include "transom/log.h"
#include "vmm/machine_internal.h"
#include "vmm/node.h"
#include "vmm/template.h"
#include "vmm/vmm.h"

#define BOOTS_MAX   8
#define LATE_MAX    2
#define RESTORE_MS  30000 /* from the start of its process to its agent's answer */
#define FIRST_SHARE 6 /* part of the time until the first is late; the second has twice as much */

static bool may_boot_again(const struct vmm_machine *m)
{
    return !m->up && !m->waits && !m->stopping && !m->releasing && m->n_boots > 0 &&
           m->n_boots < BOOTS_MAX && m->ms->vmm->node->accel == VM_ACCEL_TCG;
}

bool machine_boots_instead(struct vmm_machine *m, const char *why)
{
    struct err err = {0};

    if (!m->restored || m->up || m->waits || m->stopping || m->releasing)
        return false;
    log_warn("vm=%s: not restored, it boots instead: %s", m->label, why);
    if (!m->boot_over) /* a host that is too busy is no fault of the template */
        vmm_template_judge(m->ms->template, false);
    m->no_restore = true;
    (void)unlink(m->disk);
    if (machine_launch(m, &err) == 0)
        return true;
    log_error("vm=%s: %s", m->label, err.msg);
    return false;
}

bool machine_boots_again(struct vmm_machine *m, const struct vm_exit *ex)
{
    struct err err = {0};

    if (machine_boots_instead(m, m->boot_over  ? "its agent did not answer in time"
                                 : *ex->detail ? ex->detail
                                               : vm_exit_reason_name(ex->reason)))
        return true;
    if (!may_boot_again(m) || (ex->reason != VM_EXIT_RESET && !m->boot_over))
        return false;
    log_warn("vm=%s: boots again", m->label);
    (void)unlink(m->disk); /* nobody has worked there yet; it may be torn */
    if (machine_launch(m, &err) == 0)
        return true;
    log_error("vm=%s: %s", m->label, err.msg);
    return false;
}

bool machine_boot_is_late(struct vmm_machine *m, uint64_t now_ms)
{
    uint64_t first = (uint64_t)m->ms->vmm->options->start_timeout_ms / FIRST_SHARE;

    if (m->restored && m->vm_running && !m->boot_over && !m->up && !m->waits && !m->stopping &&
        !m->releasing)
        return m->boot_over = now_ms >= m->launched_ms + RESTORE_MS;
    if (!m->vm_running || m->boot_over || m->n_late == LATE_MAX || !may_boot_again(m))
        return false;
    if (m->boot_until_ms == 0)
        m->boot_until_ms = now_ms + (first << m->n_late);
    m->boot_over = now_ms >= m->boot_until_ms;
    m->n_late += m->boot_over;
    return m->boot_over;
}
