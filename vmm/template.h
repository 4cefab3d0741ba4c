/* SPDX-License-Identifier: MIT */
/* The template of this node: a machine of the usual size that is booted once, in the background,
 * warmed, and snapshotted when all of it is up; machines of that size start from there. What it is
 * bound to is template_file.h's business; a cold boot remains possible at any time. */
#ifndef VMM_TEMPLATE_H
#define VMM_TEMPLATE_H

#include <stdbool.h>
#include "vmm/driver/driver.h"
#include "vmm/image.h"
#include "vmm/machine.h"

#define VMM_TEMPLATE_PATH 640

struct vmm_template; /* where it is borrowed, NULL stands for none */

/* Nothing is begun before the first tick. */
TR_MUST_CHECK int vmm_template_open(struct vmm_machines *ms, struct vmm_template **out,
                                    struct err *err);
/* Ends what is under way and frees it; cb runs once, perhaps before this returns. */
void vmm_template_close(struct vmm_template *t, void (*cb)(void *arg), void *arg);
/* Once a second. */
void vmm_template_tick(struct vmm_template *t, uint64_t now_ms);

/* Change the spec of a machine that is to be started so that it is restored from the template.
 * *disk_from backs spec->disk_from. Returns false, and nothing is changed, when there is none that
 * fits. Else vmm_template_release() follows when the driver has been called. */
bool vmm_template_use(struct vmm_template *t, const struct vmm_image *image, struct vm_spec *spec,
                      char disk_from[VMM_TEMPLATE_PATH]);
void vmm_template_release(const struct vm_spec *spec);
/* Would vmm_template_use() do it for a machine of this size? */
bool vmm_template_fits(struct vmm_template *t, const struct vmm_image *image, unsigned vcpus,
                       unsigned memory_mb, unsigned disk_mb);
/* Another number for each template; 0: there is none. */
unsigned vmm_template_generation(const struct vmm_template *t);
/* The name that its machine had. */
const char *vmm_template_label(const struct vmm_template *t);
/* The boot id that no restored machine may still have. */
const char *vmm_template_boot_id(const struct vmm_template *t);
/* How a restored machine came up: a template that fails again and again is built anew. */
void vmm_template_judge(struct vmm_template *t, bool good);

#endif
