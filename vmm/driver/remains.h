/* SPDX-License-Identifier: MIT */
/* The files of a machine in its run directory, and their removal. Blocking. */
#ifndef VMM_REMAINS_H
#define VMM_REMAINS_H

#include <stdbool.h>
#include <stdint.h>
#include "vmm/driver/driver.h"

#define MACHINE_PIDFILE     "pidfile"
#define MACHINE_PIDFILE_TMP ".pidfile.tmp"
#define MACHINE_CGROUPS     "cgroups" /* where its control groups are */
#define MACHINE_QMP         "qmp.sock"
#define MACHINE_AGENT       "agent.sock"
#define MACHINE_ROOT        "root" /* empty folder: mount point of its view */

/* Open the run directory. Returns a descriptor, or < 0. */
TR_MUST_CHECK int remains_open(const struct vm_spec *spec);

/* Remove it all. kill: first end the process if the pidfile still names it, and wait for that.
 * *oom_kills (may be NULL) gets how many of its processes died for want of memory. Returns 0, also
 * when there was nothing, or < 0 with err. */
TR_MUST_CHECK int remains_remove(const struct vm_spec *spec, bool kill, uint64_t *oom_kills,
                                 struct err *err);

#endif
