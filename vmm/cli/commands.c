/* SPDX-License-Identifier: MIT */
/* The table of commands and their options; --help and the parser come from it. */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "vmm/cli/cli.h"

#define AT(member)  offsetof(struct cli, member)
#define MAX_OPTIONS 32
#define LONG_BASE   1000 /* getopt values of options; above every letter */

const struct cli_option cli_common_options[] = {
    {0, "json", NULL, "print JSON, for programs", CLI_FLAG, AT(json)},
    {0, "socket", "PATH",
     "the manager's socket (default TRANSOM_SOCKET, else admin.sock in run_dir)", CLI_TEXT,
     AT(socket)},
    {0, "api", "URL", "a remote API; its key comes from TRANSOM_API_KEY or --key-file", CLI_TEXT,
     AT(api)},
    {0, "key-file", "FILE", "file that holds the API key", CLI_TEXT, AT(key_file)},
    {0, "profile", "PROFILE",
     "an API of transom login (default TRANSOM_PROFILE, else the one last chosen)", CLI_TEXT,
     AT(profile)},
    {'h', "help", NULL, "this text", CLI_FLAG, AT(help)},
    {0, NULL, NULL, NULL, CLI_FLAG, 0},
};
const struct cli_option cli_sandbox_options[] = {
    {'s', "session", "SESSION",
     "id or unique name (default TRANSOM_SESSION, else the only session there is)", CLI_TEXT,
     AT(session)},
    {0, "sandbox", "NAME", "which of the session's sandboxes (default primary)", CLI_TEXT,
     AT(sandbox)},
    {0, NULL, NULL, NULL, CLI_FLAG, 0},
};
#define END                                                                                        \
    {                                                                                              \
        0, NULL, NULL, NULL, CLI_FLAG, 0                                                           \
    }
static const struct cli_option run_options[] = {
    {'w', "window", "NAME", "window to run in (default main)", CLI_TEXT, AT(window)},
    {'e', "env", "NAME=VALUE", "environment of this run; may be repeated", CLI_LIST, AT(env)},
    {'d', "detach", NULL, "do not wait for the end", CLI_FLAG, AT(detach)},
    END,
};
static const struct cli_option logs_options[] = {
    {'w', "window", "NAME", "window (default main)", CLI_TEXT, AT(window)},
    {'f', "follow", NULL, "stay and show what comes, until the window closes or the run ends",
     CLI_FLAG, AT(follow)},
    {0, "run", "ID", "the output of this run alone", CLI_TEXT, AT(run)},
    END,
};
static const struct cli_option exec_options[] = {
    {'i', "interactive", NULL, "pass standard input on", CLI_FLAG, AT(interactive)},
    {'d', "detach", NULL, "do not wait: print its id for the job commands", CLI_FLAG, AT(detach)},
    {'u', "user", "USER", "sandbox (default) or root", CLI_TEXT, AT(user)},
    {0, "cwd", "FOLDER", "folder to run in (default the user's home)", CLI_TEXT, AT(cwd)},
    {'e', "env", "NAME=VALUE", "further environment; may be repeated", CLI_LIST, AT(env)},
    {0, "timeout", "SECONDS", "end it after this time", CLI_TEXT, AT(timeout)},
    END,
};
static const struct cli_option git_options[] = {
    {0, "git", "URL", "begin with the files of this Git repository", CLI_TEXT, AT(git)},
    {0, "ref", "REF", "with --git: a branch, a tag or a commit's whole id", CLI_TEXT, AT(ref)},
    {0, "depth", "N", "with --git: no more than N commits of the history", CLI_TEXT, AT(depth)},
    END,
};
static const struct cli_option attach_options[] = {
    {'i', "interactive", NULL, "pass standard input on", CLI_FLAG, AT(interactive)},
    END,
};
static const struct cli_option kill_options[] = {
    {0, "signal", "NAME", "send this signal, such as TERM, and no more", CLI_TEXT, AT(signal)},
    END,
};
static const struct cli_option put_options[] = {
    {0, "mode", "OCTAL", "permissions (default those of the local file)", CLI_TEXT, AT(mode)},
    {0, "owner", "OWNER", "with --user root: sandbox, root or UID:GID", CLI_TEXT, AT(owner)},
    END,
};
static const struct cli_option user_options[] = {
    {'u', "user", "USER", "whose rights: sandbox (default) or root", CLI_TEXT, AT(user)},
    END,
};
static const struct cli_option recursive_options[] = {
    {'r', "recursive", NULL, "folders, with all that is in them", CLI_FLAG, AT(recursive)},
    END,
};
static const struct cli_option move_options[] = {
    {'f', "force", NULL, "replace what is there", CLI_FLAG, AT(force)},
    END,
};
static const struct cli_option mkdir_options[] = {
    {0, "mode", "OCTAL", "permissions (default 0755)", CLI_TEXT, AT(mode)},
    END,
};
static const struct cli_option url_options[] = {
    {0, "host", NULL, "print the host name alone", CLI_FLAG, AT(host)},
    END,
};
static const struct cli_option protocol_options[] = {
    {0, "protocol", "PROTOCOL", "what the app speaks: http1 (default) or h2c, as gRPC servers do",
     CLI_TEXT, AT(protocol)},
    END,
};
static const struct cli_option route_options[] = {
    {0, "strip", NULL, "the app does not see the prefix", CLI_FLAG, AT(strip)},
    END,
};
static const struct cli_option access_options[] = {
    {0, "wake", NULL, "a request starts the sandbox when it is asleep", CLI_FLAG, AT(wake)},
    {0, "no-wake", NULL, "it does not", CLI_FLAG, AT(no_wake)},
    {0, "embed", NULL, "a private preview may be shown in other sites' frames", CLI_FLAG,
     AT(embed)},
    {0, "no-embed", NULL, "it may not", CLI_FLAG, AT(no_embed)},
    END,
};
static const struct cli_option share_options[] = {
    {0, "expires", "TIME", "how long it is good: 90s, 30m, 1h (default), up to 30d", CLI_TEXT,
     AT(expires)},
    {0, "port", "PORT", "an opened port (default the preview itself)", CLI_TEXT, AT(port)},
    {0, "path", "PATH", "where it leads (default /); may have a query", CLI_TEXT, AT(path)},
    {0, "revoke", NULL, "end all links, cookies and tokens there are", CLI_FLAG, AT(revoke)},
    END,
};
static const struct cli_option reset_options[] = {
    {'y', "yes", NULL, "do not ask", CLI_FLAG, AT(yes)},
    END,
};
static const struct cli_option key_options[] = {
    {0, "name", "NAME", "what the key is for", CLI_TEXT, AT(name)},
    {0, "scope", "SCOPE", "admin, session or read; may be repeated (default session)", CLI_LIST,
     AT(scopes)},
    END,
};
static const struct cli_option secret_options[] = {
    {0, "file", "FILE", "take the value from this file, as it is", CLI_TEXT, AT(file)},
    END,
};
static const struct cli_option idle_options[] = {
    {0, "persist", "on|off", "keep its machines longer without use (idle.persist_timeout_s)",
     CLI_TEXT, AT(persist)},
    {0, "idle-timeout", "SECONDS",
     "stop its machines after this time without use; default: the node's", CLI_TEXT,
     AT(idle_timeout)},
    END,
};
static const struct cli_option rename_options[] = {
    {0, "name", "NAME", "its new name", CLI_TEXT, AT(name)},
    END,
};
static const struct cli_option session_options[] = {
    {'s', "session", "SESSION",
     "id or unique name (default TRANSOM_SESSION, else the only session there is)", CLI_TEXT,
     AT(session)},
    END,
};
static const struct cli_option up_options[] = {
    {'s', "session", "SESSION",
     "id or unique name (default TRANSOM_SESSION, else that of the last time, else a new one)",
     CLI_TEXT, AT(session)},
    {0, "merge", NULL, "put together what both have, though nothing is known of the folder",
     CLI_FLAG, AT(merge)},
    END,
};
static const struct cli_option message_options[] = {
    {'m', "message", "TEXT", "what it is about", CLI_TEXT, AT(message)},
    END,
};
static const struct cli_option changes_options[] = {
    {0, "since", "CHECKPOINT", "id, \"first\" or \"latest\" (default latest)", CLI_TEXT, AT(since)},
    {0, "to", "CHECKPOINT", "up to this one (default the files as they are now)", CLI_TEXT, AT(to)},
    {0, "format", "FORMAT", "list (default), patch for git apply, or zip", CLI_TEXT, AT(format)},
    END,
};
static const struct cli_option proxy_options[] = {
    {0, "files", "FOLDER", "tell the key in it, and write known_hosts into it", CLI_TEXT,
     AT(files)},
    END,
};
static const struct cli_option doctor_options[] = {
    {'f', "config", "FILE", "configuration of the node (default /etc/transom/transom.yaml)",
     CLI_TEXT, AT(config)},
    END,
};
static const struct cli_option login_options[] = {
    {0, "insecure", NULL, "send the key over http:// to another computer", CLI_FLAG, AT(insecure)},
    END,
};
static const struct cli_option forward_options[] = {
    {0, "address", "ADDRESS", "address of this computer to listen on (default 127.0.0.1)", CLI_TEXT,
     AT(address)},
    END,
};
static const struct cli_option webhook_options[] = {
    {0, "event", "TYPE", "an event's type, or \"session.*\"; may be repeated (default all)",
     CLI_LIST, AT(events)},
    {0, "all", NULL, "everybody's events (administrators)", CLI_FLAG, AT(all)},
    END,
};
static const struct cli_option audit_options[] = {
    {'n', "limit", "N", "the last N entries (default 100)", CLI_TEXT, AT(limit)},
    END,
};
static const struct cli_option events_options[] = {
    {0, "since", "ID", "begin after this event", CLI_TEXT, AT(since)},
    END,
};

#define OPTIONS(name, ...)                                                                         \
    static const struct cli_option *const name[] = {__VA_ARGS__ cli_common_options, NULL}
OPTIONS(common, );
OPTIONS(on_sandbox, cli_sandbox_options, );
OPTIONS(of_session_new, git_options, idle_options, );
OPTIONS(of_session_set, idle_options, rename_options, );
OPTIONS(of_run, run_options, cli_sandbox_options, );
OPTIONS(of_logs, logs_options, cli_sandbox_options, );
OPTIONS(of_exec, exec_options, cli_sandbox_options, );
OPTIONS(of_attach, attach_options, cli_sandbox_options, );
OPTIONS(of_kill, kill_options, cli_sandbox_options, );
OPTIONS(of_put, put_options, user_options, cli_sandbox_options, );
OPTIONS(of_file, user_options, cli_sandbox_options, );
OPTIONS(of_tree, recursive_options, user_options, cli_sandbox_options, );
OPTIONS(of_move, move_options, user_options, cli_sandbox_options, );
OPTIONS(of_mkdir, mkdir_options, user_options, cli_sandbox_options, );
OPTIONS(of_url, url_options, cli_sandbox_options, );
OPTIONS(of_route, route_options, protocol_options, cli_sandbox_options, );
OPTIONS(of_port, protocol_options, cli_sandbox_options, );
OPTIONS(of_access, access_options, cli_sandbox_options, );
OPTIONS(of_share, share_options, cli_sandbox_options, );
OPTIONS(of_reset, reset_options, cli_sandbox_options, );
OPTIONS(of_key, key_options, );
OPTIONS(of_webhook, webhook_options, );
OPTIONS(of_audit, audit_options, );
OPTIONS(of_doctor, doctor_options, );
OPTIONS(of_login, login_options, );
OPTIONS(of_forward, forward_options, cli_sandbox_options, );
OPTIONS(of_events, events_options, );
OPTIONS(of_secret, secret_options, );
OPTIONS(of_session, session_options, );
OPTIONS(of_files, session_options, );
OPTIONS(of_up, up_options, );
OPTIONS(of_files_tree, recursive_options, session_options, );
OPTIONS(of_files_move, move_options, session_options, );
OPTIONS(of_checkpoint, message_options, session_options, );
OPTIONS(of_changes, changes_options, session_options, );
OPTIONS(of_proxy, proxy_options, cli_sandbox_options, );

const struct cli_command cli_commands[] = {
    {"session new", "[NAME]", "create a session and print its id",
     "With --git the node fetches the repository, which must not want a login; its history is "
     "there\n"
     "in the session's machines. If that fails, there is no session.",
     of_session_new, 0, 1, cmd_session_new},
    {"session list", "", "list your sessions", NULL, common, 0, 0, cmd_session_list},
    {"session show", "[SESSION]", "show a session and its sandboxes", NULL, on_sandbox, 0, 1,
     cmd_session_show},
    {"session set", "[SESSION]", "change how long its machines live without use, or its name", NULL,
     of_session_set, 0, 1, cmd_session_set},
    {"session why", "[SESSION]", "say why its machines still run, what holds them and until when",
     NULL, common, 0, 1, cmd_session_why},
    {"session delete", "SESSION...", "delete sessions, their machines and files", NULL, common, 1,
     99, cmd_session_delete},
    {"run", "[--] COMMAND...", "run a command in a window (a terminal) and show its output",
     "One word is shell text: transom run 'cd app && make'. Several words are one command and\n"
     "its arguments, kept as they are. The window keeps its shell, folder and variables from run\n"
     "to run. Ctrl-C interrupts the command; a third Ctrl-C in a row leaves it running and\n"
     "returns. The exit status is the command's (128 + N for signal N).",
     of_run, 1, -1, cmd_run},
    {"exec", "[--] PROGRAM [ARGUMENT...]", "run a program without a terminal, as in a pipe",
     "Standard output and standard error arrive apart and unchanged; with -i standard input is\n"
     "passed on. SIGINT, SIGTERM, SIGHUP and SIGQUIT are passed on. If transom ends, so does the\n"
     "program. The exit status is the program's (128 + N for signal N).",
     of_exec, 1, -1, cmd_exec},
    {"job list", "", "list programs that exec started: all that run, and detached ones that ended",
     NULL, on_sandbox, 0, 0, cmd_job_list},
    {"job attach", "ID", "show the output of a job from its beginning, until its end",
     "Ctrl-C interrupts the job; a third one leaves it running and returns. When transom ends in\n"
     "another way the job goes on. The exit status is the job's (128 + N for signal N).",
     of_attach, 1, 1, cmd_job_attach},
    {"job logs", "ID", "print the output of a job that is kept",
     "Of each of standard output and standard error the last 256 KiB are kept, for ten minutes\n"
     "after the end.",
     on_sandbox, 1, 1, cmd_job_logs},
    {"job kill", "ID...", "end jobs with all that they started, and forget them", NULL, of_kill, 1,
     99, cmd_job_kill},
    {"logs", "", "show the output of a window that is kept",
     "A window keeps the last MiB of its output. With -f a lost connection is taken up again\n"
     "where it broke.",
     of_logs, 0, 0, cmd_logs},
    {"window list", "", "list the windows of a sandbox", NULL, on_sandbox, 0, 0, cmd_window_list},
    {"window attach", "[WINDOW]", "use a window from this terminal (default main)",
     "Ctrl-] detaches; the window and what runs in it go on. A window that does not exist yet is\n"
     "opened.",
     on_sandbox, 0, 1, cmd_window_attach},
    {"window close", "WINDOW...", "close windows and end what runs in them", NULL, on_sandbox, 1,
     99, cmd_window_close},
    {"file put", "LOCAL [REMOTE]", "copy a file into a sandbox (LOCAL - is standard input)",
     "REMOTE is relative to /home/sandbox; ending in / it is a folder. The file appears whole or\n"
     "not at all; missing folders are made.",
     of_put, 1, 2, cmd_file_put},
    {"file get", "REMOTE [LOCAL]", "copy a file out of a sandbox (LOCAL - is standard output)",
     "The local file appears whole or not at all.", of_file, 1, 2, cmd_file_get},
    {"file list", "[FOLDER]", "list a folder of a sandbox (default /home/sandbox)", NULL, of_file,
     0, 1, cmd_file_list},
    {"file stat", "REMOTE...", "show what is at a path: type, permissions, owner, size", NULL,
     of_file, 1, 99, cmd_file_stat},
    {"file move", "FROM TO", "rename in a sandbox; missing folders are made", NULL, of_move, 2, 2,
     cmd_file_move},
    {"file mkdir", "FOLDER...", "make folders, and those above them", NULL, of_mkdir, 1, 99,
     cmd_file_mkdir},
    {"file delete", "REMOTE...", "delete files and empty folders of a sandbox", NULL, of_tree, 1,
     99, cmd_file_delete},
    {"file watch", "[REMOTE]", "show what changes at a path, as it happens",
     "Each line is a change and its path below REMOTE (default /home/sandbox). overflow: changes\n"
     "were lost; look again.",
     of_tree, 0, 1, cmd_file_watch},
    {"files ls", "[FOLDER]", "list the session's files, whether its machine runs or not",
     "These are the files that the session keeps: they go to every new machine of it.",
     of_files_tree, 0, 1, cmd_files_ls},
    {"files get", "FILE [LOCAL]", "copy one of the session's files (LOCAL - is standard output)",
     "The local file appears whole or not at all.", of_files, 1, 2, cmd_files_get},
    {"files put", "LOCAL [FILE]", "copy a file into the session (LOCAL - is standard input)",
     "FILE ending in / is a folder. The file appears whole or not at all; missing folders are "
     "made.\n"
     "It can be run if the local one can. With -r LOCAL is a folder, whose links are kept as "
     "links;\n"
     "-r LOCAL . puts what is in it into the session's home folder.",
     of_files_tree, 1, 2, cmd_files_put},
    {"files unzip", "ARCHIVE [FOLDER]",
     "unpack a ZIP archive into the session (ARCHIVE - is standard input)",
     "All of it or, when something of it cannot be taken, nothing. What was there before is in a\n"
     "checkpoint. Links are not taken, and .git folders are passed over.",
     of_files, 1, 2, cmd_files_unzip},
    {"files mkdir", "FOLDER...", "make folders, and those above them", NULL, of_files, 1, 99,
     cmd_files_mkdir},
    {"files mv", "FROM TO", "rename one of the session's files; missing folders are made", NULL,
     of_files_move, 2, 2, cmd_files_mv},
    {"files rm", "FILE...", "delete some of the session's files, and empty folders", NULL,
     of_files_tree, 1, 99, cmd_files_rm},
    {"checkpoint list", "", "list what was kept of the session's files, newest first", NULL,
     of_files, 0, 0, cmd_checkpoint_list},
    {"checkpoint show", "CHECKPOINT", "show a checkpoint and which files it changed",
     "CHECKPOINT is an id, at least 7 digits of one, \"latest\" or \"first\".", of_files, 1, 1,
     cmd_checkpoint_show},
    {"checkpoint diff", "CHECKPOINT", "print what a checkpoint changed, as a patch", NULL, of_files,
     1, 1, cmd_checkpoint_diff},
    {"checkpoint restore", "CHECKPOINT [FILE]", "make all files, or one, what they were then",
     "What there was is kept in a checkpoint first. FILE may be a folder.", of_files, 1, 2,
     cmd_checkpoint_restore},
    {"checkpoint", "", "keep the session's files as they are, and print the checkpoint's id", NULL,
     of_checkpoint, 0, 0, cmd_checkpoint},
    {"up", "[DIR]", "keep a local folder and a session's files in step, until Ctrl-C",
     "What changes in DIR (default the current folder) goes to the session and its machine, and\n"
     "back. From the folder text, source, documents and pictures are taken, as from a machine; "
     "what\n"
     "is left out is told. .git stays where it is. Ctrl-C ends it after a last sync: status 0 "
     "when\n"
     "both are in step. A lost connection is made again. The folder's session is remembered.",
     of_up, 0, 1, cmd_up},
    {"sync status", "", "show how a machine's files stand with the session's, and what is left out",
     "Conflicts come first: what lost is kept. Then what cannot be done, and where; then what is "
     "not\n"
     "taken from the machine, and why.",
     on_sandbox, 0, 0, cmd_sync_status},
    {"changes", "[LOCAL]", "show what changed in the session's files since a checkpoint",
     "A patch goes to standard output, an archive into LOCAL (changes.zip): what was added or\n"
     "modified.",
     of_changes, 0, 1, cmd_changes},
    {"kept list", "", "list what the sync with a machine replaced or removed, newest first",
     "Nothing that a sync overwrites is lost: it can be had back by its id.", of_files, 0, 0,
     cmd_kept_list},
    {"kept get", "ID LOCAL", "copy a kept version (LOCAL - is standard output)",
     "ID is also the id of any file that checkpoint show --json or changes --json tell.", of_files,
     2, 2, cmd_kept_get},
    {"ssh", "[SESSION [SSH-OPTION...]] [--] [COMMAND...]",
     "log in, or run a command, by the OpenSSH you have",
     "The key is made for this once, and the machine's host key comes from the API. Options of "
     "ssh\n"
     "go behind SESSION: transom ssh SESSION -L 9000:localhost:8080. The exit status is ssh's: "
     "the\n"
     "command's, or 255 when there is no connection.",
     on_sandbox, 0, -1, cmd_ssh},
    {"ssh-config", "[SESSION]", "print a Host block for ssh, scp, sftp, rsync and editors",
     "Put it into ~/.ssh/config; the host is then called transom-SESSION. Its key lies in\n"
     "~/.local/state/transom/ssh.",
     on_sandbox, 0, 1, cmd_ssh_config},
    {"ssh-proxy", "[SESSION]", "carry one SSH connection, as OpenSSH's ProxyCommand", NULL,
     of_proxy, 0, 1, cmd_ssh_proxy},
    {"port-forward", "[LOCAL:]PORT...", "let ports of this computer lead into a sandbox",
     "By the OpenSSH you have, to what listens on the sandbox's loopback or on all its addresses.\n"
     "It goes on until Ctrl-C. LOCAL is the port here (default the same).",
     of_forward, 1, 32, cmd_port_forward},
    {"url", "", "print the preview URL: what listens on port 8080 in the sandbox", NULL, of_url, 0,
     0, cmd_url},
    {"route list", "", "list which paths of the preview lead to which ports", NULL, on_sandbox, 0,
     0, cmd_route_list},
    {"route set", "PATH PORT", "let a path of the preview lead to a port",
     "The path covers itself and what is below it (/api: also /api/x, not /apis); the longest\n"
     "one wins. / is the preview itself, port 8080 unless set.",
     of_route, 2, 2, cmd_route_set},
    {"route clear", "[PATH...]", "remove routes (default all); / goes back to port 8080", NULL,
     on_sandbox, 0, 99, cmd_route_clear},
    {"port list", "", "list ports that are open under host names of their own", NULL, on_sandbox, 0,
     0, cmd_port_list},
    {"port open", "PORT...", "open ports and print their URLs",
     "Whoever may see the preview may see an open port, too.", of_port, 1, 64, cmd_port_open},
    {"port close", "PORT...", "close ports", NULL, on_sandbox, 1, 64, cmd_port_close},
    {"access show", "", "show who may see the preview", NULL, on_sandbox, 0, 0, cmd_access_show},
    {"access public", "", "let everybody with the URL see the preview",
     "What no option names stays as it is.", of_access, 0, 0, cmd_access_public},
    {"access private", "", "let only those with a link see the preview (see share)",
     "What no option names stays as it is. Links from an earlier private time are good again "
     "until\n"
     "they expire, unless revoked.",
     of_access, 0, 0, cmd_access_private},
    {"share", "", "print a link to a private preview",
     "Whoever opens the link sees the preview until it expires. With --json the token is shown\n"
     "too; programs send it as header Transom-Token.",
     of_share, 0, 0, cmd_share},
    {"sandbox list", "", "list the sandboxes of a session", NULL, on_sandbox, 0, 0,
     cmd_sandbox_list},
    {"sandbox start", "[NAME]", "start a sandbox and wait until it runs", NULL, on_sandbox, 0, 1,
     cmd_sandbox_start},
    {"sandbox stop", "[NAME]", "stop a sandbox", NULL, on_sandbox, 0, 1, cmd_sandbox_stop},
    {"sandbox reset", "[NAME]", "replace a sandbox by a fresh one; what ran in it ends", NULL,
     of_reset, 0, 1, cmd_sandbox_reset},
    {"secret set", "NAME", "set a secret: from --file, standard input or a prompt",
     "A secret is an environment variable of sessions that activated it, hidden in all output.\n"
     "It is never given on the command line. A line end at the end of standard input is left "
     "out.\n"
     "Sessions that have it active get the new value.",
     of_secret, 1, 1, cmd_secret_set},
    {"secret list", "", "list the names of your secrets", NULL, common, 0, 0, cmd_secret_list},
    {"secret delete", "NAME...", "delete secrets; they end in every session first", NULL, common, 1,
     99, cmd_secret_delete},
    {"secret activate", "NAME...", "make secrets variables of what a session starts from now on",
     "Windows that are open already get them for what is run in them. Values of less than 8 bytes\n"
     "cannot be hidden in output.",
     of_session, 1, 99, cmd_secret_activate},
    {"secret deactivate", "NAME...", "take secrets away from what a session starts from now on",
     "What runs already keeps them until it ends.", of_session, 1, 99, cmd_secret_deactivate},
    {"secret rotate-key", "", "seal all secrets of the node by a new key", NULL, common, 0, 0,
     cmd_secret_rotate},
    {"events", "", "show what happens to your sessions, as it happens", NULL, of_events, 0, 0,
     cmd_events},
    {"webhook create", "URL", "have events sent to a URL, and print the secret that signs them",
     "Each is POSTed as JSON. Transom-Signature: t=TIME,v1=HEX is the HMAC-SHA-256, by the secret, "
     "of\n"
     "\"TIME.BODY\"; Transom-Delivery is the same for each try of one event.",
     of_webhook, 1, 1, cmd_webhook_create},
    {"webhook list", "", "list webhooks and how their deliveries went", NULL, common, 0, 0,
     cmd_webhook_list},
    {"webhook delete", "ID...", "delete webhooks", NULL, common, 1, 99, cmd_webhook_delete},
    {"audit", "", "show who did what on the node (administrators)",
     "Every request that changed something or was refused, oldest first: time, owner, key, "
     "request,\n"
     "status, and where it came from. With --json each entry is a line.",
     of_audit, 0, 0, cmd_audit},
    {"key create", "OWNER", "create an API key; it is shown this once", NULL, of_key, 1, 1,
     cmd_key_create},
    {"key list", "", "list API keys (never the keys themselves)", NULL, common, 0, 0, cmd_key_list},
    {"key delete", "ID...", "revoke API keys", NULL, common, 1, 99, cmd_key_delete},
    {"login", "URL", "keep an API's URL and key as a profile, and use it from now on",
     "The key is asked for at the terminal, or comes from standard input, --key-file or\n"
     "TRANSOM_API_KEY. The profile's name is --profile NAME (default \"default\").",
     of_login, 1, 1, cmd_login},
    {"logout", "[PROFILE]", "forget a profile and its key (default the current one)", NULL, common,
     0, 1, cmd_logout},
    {"profile list", "", "list the profiles", NULL, common, 0, 0, cmd_profile_list},
    {"profile use", "PROFILE", "use this profile from now on; \"local\" is this host's manager",
     NULL, common, 1, 1, cmd_profile_use},
    {"completion", "SHELL", "print the completion for bash, zsh or fish",
     "In ~/.bashrc: eval \"$(transom completion bash)\"", common, 1, 1, cmd_completion},
    {"__complete", "WORD...", "candidates for the last word", NULL, common, 1, -1, cmd_complete},
    {"__man", "", "transom(1)", NULL, common, 0, 0, cmd_man},
    {"doctor", "", "look for what is wrong with this host, and say how to mend it",
     "Looks at programs, users, KVM, control groups, nftables, folders and the room in them, the\n"
     "image, DNS, certificates, Redis, sockets and the gateway, as the configuration has them. It\n"
     "changes nothing. Run it as root, on the node itself. Exit status 1: something is bad.",
     of_doctor, 0, 0, cmd_doctor},
    {"backup", "FILE", "keep all durable records of this node in a file, while it runs",
     "Sessions with their files and checkpoints, keys, secrets and what opens them; not the disks "
     "of\n"
     "machines. Run it as root, on the node itself, and guard the file as you guard the keys.",
     of_doctor, 1, 1, cmd_backup},
    {"restore", "FILE", "put a backup's records where there are none, before the manager starts",
     NULL, of_doctor, 1, 1, cmd_restore},
    {"node", "", "show the node: accelerator, load, image, Redis", NULL, common, 0, 0, cmd_node},
    {"version", "", "show the versions of this command and of the manager", NULL, common, 0, 0,
     cmd_version},
};
const size_t cli_n_commands = sizeof(cli_commands) / sizeof(cli_commands[0]);

/* The n-th option of a command over all its tables, or NULL. */
static const struct cli_option *option_at(const struct cli_command *command, size_t n)
{
    for (size_t t = 0; command->options[t] != NULL; t++) {
        for (const struct cli_option *o = command->options[t]; o->name != NULL; o++) {
            if (n-- == 0)
                return o;
        }
    }
    return NULL;
}

static void list_add(struct cli_list *list, const char *item)
{
    const char **items = realloc(list->items, (list->n + 1) * sizeof(*items));

    if (items == NULL)
        abort();
    list->items = items;
    items[list->n++] = item;
}

static void store(struct cli *cli, const struct cli_option *option, const char *value)
{
    char *at = (char *)cli + option->offset;

    switch (option->type) {
    case CLI_FLAG:
        *(bool *)at = true;
        break;
    case CLI_TEXT:
        *(const char **)at = value;
        break;
    case CLI_LIST:
        list_add((struct cli_list *)at, value);
        break;
    }
}

int cli_parse_options(struct cli *cli, const struct cli_command *command, int argc, char **argv)
{
    struct option longs[MAX_OPTIONS + 1] = {0};
    char shorts[2 * MAX_OPTIONS + 2];
    size_t len = 0;
    int c;

    if (command->max_args < 0)
        shorts[len++] = '+'; /* what follows the first argument belongs to the command to run */
    for (size_t i = 0; i < MAX_OPTIONS && option_at(command, i) != NULL; i++) {
        const struct cli_option *o = option_at(command, i);

        longs[i].name = o->name;
        longs[i].has_arg = o->type == CLI_FLAG ? no_argument : required_argument;
        longs[i].val = LONG_BASE + (int)i;
        if (o->letter == 0)
            continue;
        shorts[len++] = (char)o->letter;
        if (o->type != CLI_FLAG)
            shorts[len++] = ':';
    }
    shorts[len] = '\0';
    optind = 0;
    while ((c = getopt_long(argc, argv, shorts, longs, NULL)) != -1) {
        const struct cli_option *o =
            c >= LONG_BASE ? option_at(command, (size_t)(c - LONG_BASE)) : NULL;

        for (size_t i = 0; o == NULL && c != '?' && option_at(command, i) != NULL; i++) {
            if (option_at(command, i)->letter == c)
                o = option_at(command, i);
        }
        if (o == NULL) { /* getopt said why */
            fprintf(stderr, "See: transom %s --help\n", command->name);
            return -1;
        }
        store(cli, o, optarg);
    }
    return optind;
}

static void print_options(const struct cli_option *options)
{
    for (const struct cli_option *o = options; o->name != NULL; o++) {
        char left[64], letter[8] = "    ";

        if (o->letter != 0)
            snprintf(letter, sizeof(letter), "-%c, ", o->letter);
        snprintf(left, sizeof(left), "%s--%s%s%s", letter, o->name, o->value != NULL ? " " : "",
                 o->value != NULL ? o->value : "");
        printf("  %-24s %s\n", left, o->help);
    }
}

void cli_print_command_help(const struct cli_command *command)
{
    printf("Usage: transom %s [OPTION...]%s%s\n\n%c%s.\n", command->name,
           *command->args != '\0' ? " " : "", command->args, command->summary[0] - 'a' + 'A',
           command->summary + 1);
    if (command->details != NULL)
        printf("\n%s\n", command->details);
    printf("\nOptions:\n");
    for (size_t t = 0; command->options[t] != NULL; t++)
        print_options(command->options[t]);
}

void cli_print_overview(void)
{
    printf("Usage: transom COMMAND [OPTION...] [ARGUMENT...]\n\n"
           "Disposable Linux machines with terminals in them and a preview URL in front.\n\n"
           "Commands:\n");
    for (size_t i = 0; i < cli_n_commands; i++) {
        const struct cli_command *c = &cli_commands[i];
        char left[64];

        if (c->name[0] == '_') /* for scripts of ours */
            continue;
        snprintf(left, sizeof(left), "%s%s%s", c->name, *c->args != '\0' ? " " : "", c->args);
        printf("  %-32s %s\n", left, c->summary);
    }
    printf("\nOptions of every command:\n");
    print_options(cli_common_options);
    printf(
        "\nExit status: that of the command run (run, exec, ssh), else 0, 1 for a failure, 2 for\n"
        "wrong usage. More: transom COMMAND --help\n");
}
