/* SPDX-License-Identifier: MIT */
/* A machine that was restored from a snapshot is a new one, though its kernel and its programs run
 * on: what tells it from the others of the same template is made anew. Name, network, clock and
 * entropy are hello's; entropy must have been given before. */
#ifndef VMM_AGENT_RENEW_H
#define VMM_AGENT_RENEW_H

#include <stdbool.h>

#include "transom/err.h"

/* /etc/machine-id: a new one; unless again, only where the image has left it out. */
TR_MUST_CHECK int agent_renew_machine_id(bool again, struct err *err);

/* A new boot id for whoever reads it, no host keys of the distribution's OpenSSH server, which
 * makes them at its start, and no journal of the template. */
TR_MUST_CHECK int agent_renew(struct err *err);

/* Replace a small file in one step. */
TR_MUST_CHECK int agent_replace_file(const char *path, const char *text, struct err *err);

#endif
