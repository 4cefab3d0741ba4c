/* SPDX-License-Identifier: MIT */
/* The launcher: the program re-executed as --launch-machine. It reads a spec from standard input (a
 * socket), opens everything with the manager's rights, gives the rights up and becomes QEMU.
 *
 * It answers on the same socket: lines "W <text>" are warnings; "E <code> <text>" is the reason why
 * it ends. End of file without an E line: QEMU has been executed. */
#ifndef VMM_LAUNCH_H
#define VMM_LAUNCH_H

/* Descriptors that it is started with, for a template or a clone. */
#define LAUNCH_MEMORY_FD 3
#define LAUNCH_STATE_FD  4

int vm_launch_main(void);

#endif
