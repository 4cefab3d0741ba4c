/* SPDX-License-Identifier: MIT */
/* Has this text been said before? What a host cannot do is the same for every machine: the first
 * start warns, the others need not. */
#ifndef VMM_WARN_ONCE_H
#define VMM_WARN_ONCE_H

#include <stdbool.h>

/* True the first time (of the last few distinct texts). One thread. */
bool warn_once(const char *text);

#endif
