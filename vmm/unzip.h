/* SPDX-License-Identifier: MIT */
/* Unpacking of a ZIP archive that somebody sent, in a process of its own that can reach nothing but
 * the folder where the archive lies: `transom-vmm --unzip STAGING NAME BYTES`. STAGING/NAME is the
 * archive, STAGING/NAME.d the folder that is made. BYTES: what it may write at most. */
#ifndef VMM_UNZIP_H
#define VMM_UNZIP_H

#include <stdbool.h>

enum vmm_unzip_status {
    VMM_UNZIP_REFUSED = 3, /* no such archive, or one with things that are not taken */
    VMM_UNZIP_TOO_BIG = 4, /* more than BYTES */
};

/* If the arguments ask for it, do it and set the exit status. On success standard output has the
 * number of entries that were passed over because the session cannot hold them, and the first of
 * them; else standard error says why not. */
bool vmm_unzip_main(int argc, char **argv, int *status);

#endif
