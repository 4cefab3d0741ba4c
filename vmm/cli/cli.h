/* SPDX-License-Identifier: MIT */
/* The transom command: what its commands share. One file per group of commands; the table of all
 * of them is in commands.c. */
#ifndef VMM_CLI_CLI_H
#define VMM_CLI_CLI_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include "transom/err.h"

#define CLI_USAGE 2 /* exit status: wrong usage */

struct http;

struct cli_list {
    const char **items;
    size_t n;
};

/* What the command line and the environment say. Strings are borrowed from them. */
struct cli {
    struct http *http;
    /* every command */
    bool json, help;
    const char *socket, *api, *key_file, *profile;
    /* commands on a sandbox */
    const char *session, *sandbox;
    /* single commands */
    const char *signal, *owner, *limit, *config, *address;
    const char *window, *user, *cwd, *name, *since, *mode, *timeout;
    const char *to, *format, *message;
    const char *protocol, *port, *path, *expires, *file, *files, *run, *persist, *idle_timeout;
    const char *git, *ref, *depth;
    struct cli_list env, scopes, events;
    bool force, recursive;
    bool interactive, detach, follow, yes, host, curl, keep;
    bool all, insecure, strip, wake, no_wake, embed, no_embed, revoke, merge;
};

/* An option of a command; the value goes to the member of struct cli at offset. */
enum cli_option_type { CLI_FLAG, CLI_TEXT, CLI_LIST };
struct cli_option {
    int letter; /* 0: none */
    const char *name;
    const char *value; /* its name in --help; NULL for a flag */
    const char *help;
    enum cli_option_type type;
    size_t offset;
};

struct cli_command {
    const char *name; /* "session new" */
    const char *args; /* "[NAME]" */
    const char *summary;
    const char *details; /* further lines of --help; may be NULL */
    const struct cli_option *const
        *options;           /* NULL-terminated list of option tables; may be NULL */
    int min_args, max_args; /* max -1: any number, options end at the first */
    int (*run)(struct cli *cli, int argc, char **argv); /* arguments only; returns exit status */
};

extern const struct cli_command cli_commands[];
extern const size_t cli_n_commands;
/* Tables of options that several commands take; each ends with a NULL name. */
extern const struct cli_option cli_common_options[];  /* all */
extern const struct cli_option cli_sandbox_options[]; /* -s, --sandbox */

/* Parse the options of a command from argv[1..]. Returns the index of the first argument, or -1
 * after saying what is wrong. */
int cli_parse_options(struct cli *cli, const struct cli_command *command, int argc, char **argv);
void cli_print_command_help(const struct cli_command *command);
void cli_print_overview(void);

/* "transom: <text>" on standard error. Returns the exit status given. */
int cli_fail(int status, const char *fmt, ...) TR_PRINTF(2, 3);

/* An API call to its end. body (borrowed) may be NULL. Returns the answer (new; an object, {} for
 * no content), or NULL after saying why. */
json_t *cli_call(struct cli *cli, const char *method, const char *path, const json_t *body);
/* The same, but an answer of 404 is not an error: *missing is set and NULL returned. */
json_t *cli_call_or_404(struct cli *cli, const char *method, const char *path, const json_t *body,
                        bool *missing);

/* GET a list that comes in pages, to its end. path has a query already; the parameter cursor goes
 * on with what an answer has as "next". Returns the last answer with all members of list in it
 * (new), or NULL after saying why. */
json_t *cli_call_pages(struct cli *cli, const char *path, const char *cursor, const char *list);

/* Id of the session meant by -s, TRANSOM_SESSION or, failing both, the only one there is. arg (an
 * id or a unique name) goes before all. Returns a string for the caller to free, or NULL after
 * saying why. */
char *cli_session_id(struct cli *cli, const char *arg);
/* "/v1/sessions/ID/sandboxes/NAME" + a path made from fmt. The caller frees; NULL after saying
 * why. Values put into fmt must be encoded already. */
char *cli_sandbox_path(struct cli *cli, const char *fmt, ...) TR_PRINTF(2, 3);
/* "/v1/sessions/ID" + a path made from fmt, likewise. */
char *cli_session_path(struct cli *cli, const char *fmt, ...) TR_PRINTF(2, 3);
/* Set object[key] to bytes, or key_b64 to them in base 64 when they are no UTF-8 (files.c). */
void cli_set_bytes(json_t *object, const char *key, const char *bytes);
/* Percent-encode for a path segment or a query value. The caller frees; aborts without memory. */
char *cli_encode(const char *text);
/* printf() into new memory; aborts without memory, as a short-lived command may. */
char *cli_printf(const char *fmt, ...) TR_PRINTF(1, 2);
/* Shell text of a command: one word stands as it is; several are one command whose arguments stay
 * as they are, quoted where need be. The caller frees. */
char *cli_shell_text(int argc, char **argv);
json_t *cli_env_object(const struct cli_list *list); /* K=V items; NULL after saying which is not */

/* Become another program of ours, which is installed beside this one (doctor.c). Returns, with an
 * exit status, only when that cannot be done. */
int cli_run_beside(const char *name, const char *const *argv);

/* ssh into a session's sandbox with further words for it: options. Returns the exit status. */
int cli_ssh(struct cli *cli, const char *session, int n, char **words);

/* A port number of the command line; -CLI_USAGE after saying that it is none. */
int cli_port(const char *text);

/* Output (output.c). Text from the server has control characters replaced when it is shown. */
void cli_print_json(const json_t *value);
void cli_print_text(const char *text);
/* Show what a creation answered: all of it with --json, else the one member that is needed next.
 * Takes answer; NULL: the call failed and said so. Returns the exit status. */
int cli_print_answer(const struct cli *cli, json_t *answer, const char *member);
const char *cli_text(const json_t *object, const char *key); /* "" when absent; borrowed */
/* A table: columns are keys of the rows' objects; headers likewise, both NULL-terminated. */
void cli_print_table(const json_t *rows, const char *const *keys, const char *const *headers);

/* Whose rights a request about files has: "&user=root", or "" (file.c). */
const char *cli_file_user(const struct cli *cli);
/* Put the time of mtime_ms into an entry, as it is shown (file.c). */
void cli_add_mtime(json_t *entry);

/* Get a path of the API into a local file (file.c), which appears whole or not at all. where NULL:
 * the last component of remote; "-": standard output; or a folder. Returns the exit status. */
int cli_get_file(struct cli *cli, const char *path, const char *remote, const char *where);
/* PUT a local file ("-": standard input), as one stream. Returns the exit status. */
int cli_put_file(struct cli *cli, const char *path, const char *local);
/* The same by another method and as another type. *answer (may be NULL): new, if there is one. */
int cli_send_file(struct cli *cli, const char *method, const char *type, const char *path,
                  const char *local, json_t **answer);

/* Exit status for an object with exit_code or signal; fallback when it has neither. */
int cli_exit_status(const json_t *object, int fallback);
/* Number of a signal given as number or name, with or without SIG; 0 when unknown. */
int cli_signal_number(const json_t *value);
/* Name without SIG for the few that are forwarded; NULL for others. */
const char *cli_signal_name(int number);

/* Write all bytes. Returns 0 or -errno. */
TR_MUST_CHECK int cli_write_all(int fd, const void *data, size_t len);

/* The commands. */
int cmd_session_new(struct cli *cli, int argc, char **argv);
int cmd_session_list(struct cli *cli, int argc, char **argv);
int cmd_session_show(struct cli *cli, int argc, char **argv);
int cmd_session_set(struct cli *cli, int argc, char **argv);
int cmd_up(struct cli *cli, int argc, char **argv);
int cmd_sync_status(struct cli *cli, int argc, char **argv);
int cmd_session_why(struct cli *cli, int argc, char **argv);
int cmd_session_delete(struct cli *cli, int argc, char **argv);
int cmd_sandbox_list(struct cli *cli, int argc, char **argv);
int cmd_sandbox_start(struct cli *cli, int argc, char **argv);
int cmd_sandbox_stop(struct cli *cli, int argc, char **argv);
int cmd_sandbox_reset(struct cli *cli, int argc, char **argv);
int cmd_run(struct cli *cli, int argc, char **argv);
int cmd_exec(struct cli *cli, int argc, char **argv);
int cmd_logs(struct cli *cli, int argc, char **argv);
int cmd_job_list(struct cli *cli, int argc, char **argv);
int cmd_job_attach(struct cli *cli, int argc, char **argv);
int cmd_job_logs(struct cli *cli, int argc, char **argv);
int cmd_job_kill(struct cli *cli, int argc, char **argv);
int cmd_window_list(struct cli *cli, int argc, char **argv);
int cmd_window_attach(struct cli *cli, int argc, char **argv);
int cmd_window_close(struct cli *cli, int argc, char **argv);
int cmd_file_put(struct cli *cli, int argc, char **argv);
int cmd_file_get(struct cli *cli, int argc, char **argv);
int cmd_file_list(struct cli *cli, int argc, char **argv);
int cmd_file_delete(struct cli *cli, int argc, char **argv);
int cmd_file_stat(struct cli *cli, int argc, char **argv);
int cmd_file_move(struct cli *cli, int argc, char **argv);
int cmd_file_mkdir(struct cli *cli, int argc, char **argv);
int cmd_file_watch(struct cli *cli, int argc, char **argv);
int cmd_files_ls(struct cli *cli, int argc, char **argv);
int cmd_files_get(struct cli *cli, int argc, char **argv);
int cmd_files_put(struct cli *cli, int argc, char **argv);
int cmd_files_unzip(struct cli *cli, int argc, char **argv);
int cmd_files_mkdir(struct cli *cli, int argc, char **argv);
int cmd_files_mv(struct cli *cli, int argc, char **argv);
int cmd_files_rm(struct cli *cli, int argc, char **argv);
int cmd_checkpoint(struct cli *cli, int argc, char **argv);
int cmd_checkpoint_list(struct cli *cli, int argc, char **argv);
int cmd_checkpoint_show(struct cli *cli, int argc, char **argv);
int cmd_checkpoint_diff(struct cli *cli, int argc, char **argv);
int cmd_checkpoint_restore(struct cli *cli, int argc, char **argv);
int cmd_kept_list(struct cli *cli, int argc, char **argv);
int cmd_kept_get(struct cli *cli, int argc, char **argv);
int cmd_changes(struct cli *cli, int argc, char **argv);
int cmd_ssh(struct cli *cli, int argc, char **argv);
int cmd_ssh_config(struct cli *cli, int argc, char **argv);
int cmd_ssh_proxy(struct cli *cli, int argc, char **argv);
int cmd_url(struct cli *cli, int argc, char **argv);
int cmd_route_list(struct cli *cli, int argc, char **argv);
int cmd_route_set(struct cli *cli, int argc, char **argv);
int cmd_route_clear(struct cli *cli, int argc, char **argv);
int cmd_port_list(struct cli *cli, int argc, char **argv);
int cmd_port_open(struct cli *cli, int argc, char **argv);
int cmd_port_close(struct cli *cli, int argc, char **argv);
int cmd_access_show(struct cli *cli, int argc, char **argv);
int cmd_access_public(struct cli *cli, int argc, char **argv);
int cmd_access_private(struct cli *cli, int argc, char **argv);
int cmd_share(struct cli *cli, int argc, char **argv);
int cmd_secret_set(struct cli *cli, int argc, char **argv);
int cmd_secret_list(struct cli *cli, int argc, char **argv);
int cmd_secret_delete(struct cli *cli, int argc, char **argv);
int cmd_secret_activate(struct cli *cli, int argc, char **argv);
int cmd_secret_deactivate(struct cli *cli, int argc, char **argv);
int cmd_secret_rotate(struct cli *cli, int argc, char **argv);
int cmd_node(struct cli *cli, int argc, char **argv);
int cmd_version(struct cli *cli, int argc, char **argv);
int cmd_key_create(struct cli *cli, int argc, char **argv);
int cmd_key_list(struct cli *cli, int argc, char **argv);
int cmd_key_delete(struct cli *cli, int argc, char **argv);
int cmd_completion(struct cli *cli, int argc, char **argv);
int cmd_complete(struct cli *cli, int argc, char **argv);
int cmd_man(struct cli *cli, int argc, char **argv);
int cmd_login(struct cli *cli, int argc, char **argv);
int cmd_logout(struct cli *cli, int argc, char **argv);
int cmd_profile_list(struct cli *cli, int argc, char **argv);
int cmd_profile_use(struct cli *cli, int argc, char **argv);
int cmd_port_forward(struct cli *cli, int argc, char **argv);
int cmd_webhook_create(struct cli *cli, int argc, char **argv);
int cmd_webhook_list(struct cli *cli, int argc, char **argv);
int cmd_webhook_delete(struct cli *cli, int argc, char **argv);
int cmd_backup(struct cli *cli, int argc, char **argv);
int cmd_restore(struct cli *cli, int argc, char **argv);
int cmd_doctor(struct cli *cli, int argc, char **argv);
int cmd_audit(struct cli *cli, int argc, char **argv);
int cmd_events(struct cli *cli, int argc, char **argv);

#endif
