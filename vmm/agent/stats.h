/* SPDX-License-Identifier: MIT */
/* The machine's figures: while somebody reads the event stream, a "stats" event every 10 s, the
 * first one a second after the first reader came. All of it is read from /proc and statvfs("/"),
 * nothing of which waits.
 *
 * {"interval_ms"  what the processor's share is the mean of
 *  "cpu_percent"  of all processors together, 0 to 100
 *  "cpus","load1","load5","load15","processes",
 *  "mem_total_kb","mem_available_kb","disk_total_kb","disk_used_kb"} */
#ifndef VMM_AGENT_STATS_H
#define VMM_AGENT_STATS_H

#include "vmm/agent/agent.h"

struct agent_stats;

TR_MUST_CHECK int agent_stats_new(struct agent *a, struct agent_stats **out);
/* There is a reader. */
void agent_stats_wake(struct agent_stats *s);
void agent_stats_stop(struct agent_stats *s);
void agent_stats_free(struct agent_stats *s);

/* The processors' time since boot in ticks, and what of it was no idling, from the text of
 * /proc/stat. Returns false when it is none. */
bool agent_stats_parse_cpu(const char *text, uint64_t *total, uint64_t *busy);
/* A value in kB of /proc/meminfo text, by name with its colon; 0 when there is none. */
uint64_t agent_stats_parse_memory(const char *text, const char *name);

#endif
