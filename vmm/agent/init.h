/* SPDX-License-Identifier: MIT */
/* The initrd stage: from the kernel's first process to a mounted root, systemd and the agent. */
#ifndef VMM_AGENT_INIT_H
#define VMM_AGENT_INIT_H

#include <stdbool.h>
#include <stddef.h>

/* Run by the first process, once, before any thread exists. Mounts the machine's root as the kernel
 * command line says (transom.root=SERIAL, transom.data=SERIAL), then forks. Returns 0 in the child,
 * which is in the new root, in its own session and cgroup, and goes on as the agent. The first
 * process itself never returns: it becomes /sbin/init, or says on the console what failed and
 * powers the machine off. */
int agent_init_stage(void);

/* The value of the word "NAME=value" of a kernel command line, cut to size. The last one wins, as
 * for the kernel. Returns false and leaves value empty if there is none. */
bool agent_cmdline_word(const char *cmdline, const char *name, char *value, size_t size);

/* The rate of the local APIC's timer in kHz as the kernel measured it: of the text of
 * /proc/timer_list. 0: there is none. */
unsigned agent_lapic_khz(const char *timer_list);

/* A line of the initrd's module list: "FILE" or "FILE DEVICE", DEVICE being a virtio device type.
 * file is cut to size. Returns false for an empty line. *device is 0 when there is none. */
bool agent_module_line(const char *line, char *file, size_t size, unsigned *device);

#endif
