/* SPDX-License-Identifier: MIT */
/* QEMU's command line for a machine. */
#ifndef VMM_QEMU_ARGS_H
#define VMM_QEMU_ARGS_H

#include "vmm/driver/driver.h"

#define QEMU_CONSOLE_BYTES 65536 /* ring of the serial console; a power of two */

/* What the launcher has opened for it. Descriptors are -1 when there is none. */
struct qemu_places {
    const char *program;
    const char *kernel, *initrd; /* as the process will see them */
    int qmp_fd, agent_fd;        /* listening unix sockets */
    int root_fd;                 /* read-only */
    int data_fd, data_read_fd;   /* the same disk for reading and writing, and for reading only */
    int tap_fd;
    int memory_fd; /* see enum vm_memory */
};

/* Build a NULL-terminated argv of malloc'ed strings. Returns NULL when out of memory. */
char **qemu_args(const struct vm_spec *spec, const struct qemu_places *places);
void qemu_args_free(char **argv);

/* Memory that translated code may take under TCG, in MB. */
unsigned qemu_tb_mb(const struct vm_spec *spec);

#endif
