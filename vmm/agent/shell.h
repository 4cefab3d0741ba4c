/* SPDX-License-Identifier: MIT */
/* One login shell behind a terminal, with a side channel: commands are left in a file and announced
 * by signals, never typed; the shell's hooks (window.bash) say on a FIFO when a command began and
 * how it ended, and mark both places in the terminal's bytes. */
#ifndef VMM_AGENT_SHELL_H
#define VMM_AGENT_SHELL_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "vmm/agent/agent.h"
#include "vmm/agent/group.h"

struct agent_shell;

struct agent_shell_cbs {
    void (*on_output)(const uint8_t *data, size_t len, void *arg);
    /* The terminal's bytes have come to the beginning ('S') or end ('E') of a command's output. */
    void (*on_mark)(char kind, uint64_t seq, void *arg);
    void (*on_start)(uint64_t seq, void *arg);
    /* by_signal: status stands for the signal that ended the command, as far as is known. cut: it
     * was left before its end (interrupt, a newer command). */
    void (*on_end)(uint64_t seq, int status, bool by_signal, bool cut, void *arg);
    /* Typed bytes that were queued have left. */
    void (*on_input_drain)(void *arg);
    /* The shell is gone and its terminal is read to the end: last event. Code as in
     * agent_exit_cb. The shell is freed after it returns. */
    void (*on_gone)(bool exited, int code, void *arg);
};

/* Start one as the sandbox user, in group. Returns 0 and *out, or the fault. */
TR_MUST_CHECK int agent_shell_open(struct agent *a, struct agent_group *group, int rows, int cols,
                                   const struct agent_shell_cbs *cbs, void *arg,
                                   struct agent_shell **out, struct err *err);

/* Hand over a command (borrowed): seq grows with each. shown is what the terminal shows of it. env:
 * object of strings or NULL. A command posted before and not yet begun is dropped; one that runs is
 * left at the next chance: the caller has to end what it waits for. An empty command does only
 * that. Active secrets are among its variables; those that the shell has of old are taken away. */
TR_MUST_CHECK int agent_shell_post(struct agent_shell *sh, uint64_t seq, const char *command,
                                   size_t len, const char *shown, const json_t *env);
/* Take in what is there now; callbacks run. Timers use it before they judge. */
void agent_shell_read(struct agent_shell *sh);
/* Are the user's start-up files through? */
bool agent_shell_has_started(const struct agent_shell *sh);

/* Is the process still the shell that was started? A program that took its place ("exec zsh") knows
 * nothing of hooks. */
bool agent_shell_is_itself(const struct agent_shell *sh);
/* Is it running, or waiting for a processor or a disk? Then it may just be slow. */
bool agent_shell_works(const struct agent_shell *sh);
pid_t agent_shell_pid(const struct agent_shell *sh);
/* Names of secrets that the shell was started with and that are no longer active: it and what it
 * started still have them, but for commands posted from now on. New array. */
json_t *agent_shell_stale_secrets(const struct agent_shell *sh);
/* Process group in the foreground that is not the shell's own, or 0. */
pid_t agent_shell_foreground(const struct agent_shell *sh);
/* Bytes as typed. They are copied; returns how many are waiting now. */
size_t agent_shell_input(struct agent_shell *sh, const void *data, size_t len);
/* Leave what is printed in the terminal, so that who prints must wait, until this is taken back
 * (on: false). Timers look all the same, for one piece. */
void agent_shell_pause(struct agent_shell *sh, bool on);
/* Drop what was typed and not yet read, put the terminal's modes back. */
void agent_shell_reset_terminal(struct agent_shell *sh);
int agent_shell_resize(struct agent_shell *sh, int rows, int cols);
/* To the shell alone, or to what took its place. */
void agent_shell_signal(struct agent_shell *sh, int signum);
/* SIGKILL to the shell alone; on_gone follows. */
void agent_shell_kill(struct agent_shell *sh);
/* At the end of the program: close handles, no more events; freed when the loop is empty. */
void agent_shell_abandon(struct agent_shell *sh);

#endif
