/* SPDX-License-Identifier: MIT */
/* Which QEMU is this? */
#ifndef VMM_QEMU_VERSION_H
#define VMM_QEMU_VERSION_H

#include <stdint.h>
#include <uv.h>
#include "transom/err.h"

/* From here on TCG may run a machine's processors at once. Before 8.1 it could keep the translation
 * of code that another processor was just changing (QEMU's commit "accel/tcg: Always lock pages
 * before translation"); Linux changes its own code all the time (static keys), and a processor that
 * keeps an old breakpoint never leaves it: the guest falls silent, mostly on a busy host. */
#define QEMU_VERSION_TCG_THREADS 801

/* version: major * 100 + minor; 0: not known. */
typedef void (*qemu_version_cb)(unsigned version, void *arg);

/* Ask the program ("": qemu-system-x86_64). Returns 0: cb runs exactly once, later. */
TR_MUST_CHECK int qemu_version_start(uv_loop_t *loop, const char *program, uint64_t timeout_ms,
                                     qemu_version_cb cb, void *arg, struct err *err);

/* From what --version prints. 0: it says something else. */
unsigned qemu_version_parse(const char *text);

#endif
