/* SPDX-License-Identifier: MIT */
/* The role of the process that packs a store's repository: `transom-vmm --repack FOLDER`. It reads
 * what guests wrote, so it has no rights but those on that repository, no network, and bounded
 * memory and time. What it packed goes to standard output as a number. */
#ifndef VMM_REPACK_H
#define VMM_REPACK_H

#include <stdbool.h>

/* Is this process one? Then it is done when this returns true, with *status to exit with. */
bool vmm_repack_main(int argc, char **argv, int *status);

#endif
