/* SPDX-License-Identifier: MIT */
/* The terminal that the transom command runs in. */
#ifndef VMM_CLI_TERM_H
#define VMM_CLI_TERM_H

#include <termios.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

/* Size of the terminal at standard output or input; false when neither is one. */
bool term_size(uint16_t *rows, uint16_t *cols);

/* Switch standard input, if it is a terminal, to raw mode. It is restored by term_restore(), at
 * exit, and when a signal that cannot be handled otherwise ends the process. */
void term_raw(void);
void term_restore(void); /* async-signal-safe; again: nothing */

/* Block the signals of a set and get them from the descriptor returned (-1 on failure). */
int term_signal_fd(const int *numbers, int n);
/* Next signal waiting at the descriptor, or 0. */
int term_next_signal(int fd);

/* Ask at the controlling terminal for what must not be shown while it is typed: "QUESTION SUBJECT:
 * ". Returns a descriptor to read the answer from, for term_shown() with *old, or -1 without a
 * terminal. */
int term_hidden(const char *question, const char *subject, struct termios *old);
/* As it was before; closes fd. */
void term_shown(int fd, const struct termios *old);

#endif
