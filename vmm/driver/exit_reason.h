/* SPDX-License-Identifier: MIT */
/* From what was seen of a machine's end to one reason and a sentence. Pure. */
#ifndef VMM_EXIT_REASON_H
#define VMM_EXIT_REASON_H

#include <stdint.h>
#include "vmm/driver/driver.h"

struct exit_facts {
    char shutdown[40];     /* reason of QMP's SHUTDOWN event, "" none seen */
    bool off;              /* adopted in state "shutdown": the event was missed */
    int code, signal;      /* of the process; code -1: not known (not our child) */
    bool we_quit, we_kill; /* what we asked of it */
    uint64_t oom_kills;
    unsigned memory_mb;
    char panic[200]; /* line of the console, "" none */
    char stderr_tail[400];
};

void exit_explain(const struct exit_facts *facts, struct vm_exit *out);

/* Find a kernel panic's line in console output; control bytes become blanks. Returns false when
 * there is none. */
bool exit_find_panic(const char *console, size_t len, char *line, size_t size);

#endif
