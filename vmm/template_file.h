/* SPDX-License-Identifier: MIT */
/* A template on disk: what a machine that was booted, made ready and held still was in memory, on
 * its disk and in its devices. It is in a folder of its own, with a manifest that is written last
 * and says what it is bound to: another image, kernel, QEMU or list of devices would go on with it
 * without a complaint and corrupt itself. Blocking. */
#ifndef VMM_TEMPLATE_FILE_H
#define VMM_TEMPLATE_FILE_H

#include <jansson.h>
#include "vmm/driver/driver.h"
#include "vmm/image.h"
#include "vmm/text.h"

#define TEMPLATE_NEW    ".new" /* the folder of one that is being built */
#define TEMPLATE_DISK   "disk"
#define TEMPLATE_STATE  "state"
#define TEMPLATE_MEMORY "memory"

#define TEMPLATE_BOOT_ID_SIZE 64

struct template_file {
    char dir[600];
    int memory_fd;                       /* sealed; -1: none */
    uint64_t memory_bytes;               /* of them that are not zero */
    char label[VMM_ID_LEN + 1];          /* that its machine had */
    char boot_id[TEMPLATE_BOOT_ID_SIZE]; /* of the template's kernel: no clone may have it */
};

/* What a template of this machine is bound to (new). */
TR_MUST_CHECK int template_binding(const struct vm_spec *spec, const struct vmm_image *image,
                                   json_t **out, struct err *err);

/* The one below root that is bound to this, checked whole, its memory in a sealed memfd. -ENOENT:
 * there is none. Others, and what is broken or unfinished, are removed. */
TR_MUST_CHECK int template_load(const char *root, const json_t *binding, struct template_file *out,
                                struct err *err);

/* Make the folder root/.new, empty. */
TR_MUST_CHECK int template_prepare(const char *root, struct err *err);

/* The memory of a machine to be a template: a descriptor, or < 0 with err. */
TR_MUST_CHECK int template_memory(unsigned memory_mb, struct err *err);

/* Make root/.new, which has disk and state by now, a template. memory_fd, which nobody maps any
 * more, is taken over on success. */
TR_MUST_CHECK int template_save(const char *root, const json_t *binding, const char *label,
                                const char *boot_id, int memory_fd, struct template_file *out,
                                struct err *err);

void template_close(struct template_file *file);

#endif
