/* SPDX-License-Identifier: MIT */
/* Signal names without "SIG". */
#ifndef VMM_AGENT_SIGNAME_H
#define VMM_AGENT_SIGNAME_H

#include <jansson.h>
#include <stdbool.h>

/* Number of "TERM" or "SIGTERM", or -1. */
int agent_signal_number(const char *name);
/* Name, or "?" for a number without one. Real-time signals have none. */
const char *agent_signal_name(int signum);
/* Put exit_code into obj, and signal when the process was ended by one (exit_code is then 128 plus
 * the number, as shells have it). Returns obj (borrowed through). */
json_t *agent_exit_json(json_t *obj, bool exited, int code);

#endif
