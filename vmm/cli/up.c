/* SPDX-License-Identifier: MIT */
/* transom up: binds a local folder to a session's files (vmm/bind.h) and shows how it goes.
 *
 * Path: folder, session -> connect -> bytes between the request and up_serve, until a signal ->
 * "finish" -> the last sync -> "end". A connection that is lost is made again. */
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <uv.h>
#include "vmm/cli/cli.h"
#include "vmm/cli/http.h"
#include "vmm/cli/term.h"
#include "vmm/cli/up_folder.h"
#include "vmm/cli/up_serve.h"

#define STEP_MS      1000
#define RETRY_MS     250
#define RETRY_MAX_MS 10000
#define TRIES        5     /* before it ever worked */
#define SILENCE_MS   50000 /* the other end is heard every 15 s */
#define PROGRESS_MS  200
#define EXAMPLES     3 /* paths shown for a reason */

struct up {
    struct cli *cli;
    const char *api; /* where the session is, for the folder's record */
    struct up_folder folder;
    char *session, id[UP_ID_LEN + 1], *name; /* name: encoded */
    bool may_merge;
    uv_loop_t loop;
    int signal_fd;
    struct up_serve *serve;
    struct http_req *req;        /* NULL: none under way */
    bool is_answered;            /* bytes of the answer came */
    bool is_connected;           /* and its first line */
    bool was_connected;          /* one was, ever */
    bool is_lost_told;           /* since the last one */
    bool is_finishing, is_asked; /* a signal came; the other end knows */
    bool has_failed;             /* it said so */
    json_t *end;                 /* its last line, or NULL */
    int n_failed;                /* connections, before one was good */
    uint64_t heard_at, retry_at, retry_ms, progress_at, looked_at;
    /* What was shown. */
    bool is_in_step, is_left_out_told, has_progress;
    long long to_store, to_folder;
    json_t *faults; /* those that were told: path -> why */
};

static uint64_t now_ms(void)
{
    return uv_hrtime() / 1000000;
}

/* ---- what is shown ---- */

static void clear_progress(struct up *u)
{
    if (u->has_progress)
        printf("\r\033[K");
    u->has_progress = false;
}

static void TR_PRINTF(2, 3) show(struct up *u, const char *fmt, ...)
{
    va_list args;

    if (u->cli->json)
        return;
    clear_progress(u);
    va_start(args, fmt);
    vprintf(fmt, args);
    va_end(args);
    putchar('\n');
    fflush(stdout);
}

/* A line for programs. */
static void show_json(struct up *u, const json_t *line)
{
    char *text = u->cli->json ? json_dumps(line, JSON_COMPACT) : NULL;

    if (text != NULL) {
        puts(text);
        fflush(stdout);
    }
    free(text);
}

static long long number(const json_t *object, const char *key)
{
    return (long long)json_integer_value(json_object_get(object, key));
}

/* The first paths that are left out for a reason, as "a, b, ...". New. */
static char *examples(const json_t *list, const char *code, long long n)
{
    char *out = cli_printf("%s", "");
    const json_t *item;
    size_t i, shown = 0;

    json_array_foreach(list, i, item)
    {
        char *more;

        if (strcmp(cli_text(item, "code"), code) != 0)
            continue;
        if (shown++ == EXAMPLES)
            break;
        more = cli_printf("%s%s%s", out, shown == 1 ? "" : ", ", cli_text(item, "path"));
        free(out);
        out = more;
    }
    if (shown > 0 && n > EXAMPLES) {
        char *all = cli_printf("%s, ...", out);

        free(out);
        out = all;
    }
    return out;
}

static void show_left_out(struct up *u, const json_t *status)
{
    const json_t *list = json_object_get(status, "left_out"), *item;
    size_t i;

    if (list == NULL || u->is_left_out_told)
        return;
    u->is_left_out_told = true;
    json_array_foreach(json_object_get(status, "left_out_by"), i, item)
    {
        const char *code = cli_text(item, "code");
        char *some = examples(list, code, number(item, "paths"));

        show(u, "left out: %lld (%s)%s%s", number(item, "paths"), cli_text(item, "why"),
             *some != '\0' ? ": " : "", some);
        free(some);
    }
}

/* Each once, as long as it lasts. */
static void show_faults(struct up *u, const json_t *status)
{
    json_t *now = json_object(), *item;
    size_t i;

    json_array_foreach(json_object_get(status, "faults"), i, item)
    {
        const char *path = cli_text(item, "path"), *why = cli_text(item, "why");
        bool is_ours = strcmp(cli_text(item, "side"), "folder") == 0;

        json_object_set_new(now, path, json_string(why));
        if (strcmp(cli_text(u->faults, path), why) != 0)
            show(u, "cannot be done: %s in the %s: %s", path, is_ours ? "folder" : "session", why);
    }
    json_decref(u->faults);
    u->faults = now;
}

static void show_status(struct up *u, const json_t *status)
{
    long long to_store = number(status, "to_store"), to_folder = number(status, "to_folder");
    bool is_in_step = json_is_true(json_object_get(status, "in_step"));

    show_left_out(u, status);
    show_faults(u, status);
    if (is_in_step && (!u->is_in_step || to_store != u->to_store || to_folder != u->to_folder)) {
        show(u, "in step: %lld to the session, %lld to the folder; %lld paths in all",
             to_store - u->to_store, to_folder - u->to_folder, number(status, "paths"));
        u->to_store = to_store;
        u->to_folder = to_folder;
        u->is_in_step = true;
    }
}

static void show_progress(struct up *u)
{
    struct up_serve_counters counters;
    uint64_t now = now_ms();

    if (u->cli->json || u->serve == NULL || now < u->progress_at + PROGRESS_MS ||
        !isatty(STDOUT_FILENO))
        return;
    u->progress_at = now;
    up_serve_count(u->serve, &counters);
    if (!counters.is_busy) {
        clear_progress(u);
    } else {
        printf("\r\033[K... sent %.1f MiB, received %.1f MiB", (double)counters.sent / 1048576,
               (double)counters.received / 1048576);
        u->has_progress = true;
    }
    fflush(stdout);
}

static void on_line(const json_t *line, void *arg)
{
    struct up *u = arg;
    const char *type = cli_text(line, "type");

    show_json(u, line);
    if (strcmp(type, "hello") == 0) {
        u->is_connected = u->was_connected = true;
        u->may_merge = false; /* that was for the first time */
        u->retry_ms = RETRY_MS;
        if (u->is_lost_told)
            show(u, "connected again");
        u->is_lost_told = false;
    } else if (strcmp(type, "status") == 0) {
        show_status(u, line);
    } else if (strcmp(type, "conflict") == 0) {
        show(u, "conflict: %s: %s; the %s's version stays (transom kept list tells of the other)",
             cli_text(line, "path"), cli_text(line, "kind"),
             strcmp(cli_text(line, "winner"), "folder") == 0 ? "folder" : "session");
    } else if (strcmp(type, "failed") == 0) {
        clear_progress(u);
        cli_fail(1, "%s", cli_text(line, "message"));
        u->has_failed = true;
    } else if (strcmp(type, "end") == 0) {
        show_faults(u, line);
        json_decref(u->end);
        u->end = json_deep_copy(line);
    }
}

/* ---- the connection ---- */

static bool on_data(struct http_req *req, const uint8_t *data, size_t len)
{
    struct up *u = req->arg;

    u->is_answered = true;
    u->heard_at = now_ms();
    up_serve_input(u->serve, data, len);
    return true;
}

static long on_read(struct http_req *req, uint8_t *buf, size_t size)
{
    const struct up *u = req->arg;
    size_t n;

    if (req->status >= 300)
        return 0; /* refused: there is nothing to be said */
    n = u->is_answered ? up_serve_output(u->serve, buf, size) : 0;

    return n > 0 ? (long)n : -1; /* the other end speaks first */
}

static void disconnect(struct up *u)
{
    http_req_free(u->req);
    up_serve_free(u->serve);
    u->req = NULL;
    u->serve = NULL;
    u->is_answered = u->is_connected = u->is_asked = u->is_in_step = false;
    u->to_store = u->to_folder = 0;
}

static void start(struct up *u)
{
    const struct up_serve_options options = {
        .loop = &u->loop, .root = u->folder.root, .on_line = on_line, .arg = u};
    char *path =
        cli_printf("/v1/sessions/%s/bindings?folder=%s&name=%s&empty=%d&merge=%d", u->session,
                   u->id, u->name, up_folder_is_empty(&u->folder), u->may_merge);

    u->serve = up_serve_new(&options);
    u->req = http_req_new(u->cli->http, "POST", path);
    u->req->arg = u;
    u->req->on_data = on_data;
    u->req->on_read = on_read;
    http_req_stream_body(u->req, -1);
    http_start(u->req);
    free(path);
}

/* The answer is a refusal. Returns the exit status; 0: it is worth another try. */
static int explain(struct up *u)
{
    json_t *answer = u->req->body != NULL ? json_loads(u->req->body, 0, NULL) : NULL;
    const char *code = cli_text(answer, "code");
    int status = 1;

    clear_progress(u);
    if (strcmp(code, "unrelated") == 0)
        cli_fail(
            1,
            "%s and session %s both have files, and have not been in step before.\n"
            "  --merge            puts them together: nothing is deleted; where they differ, "
            "the folder's\n"
            "                     version stays and the session's is kept (transom kept list)\n"
            "  an empty folder    is filled with the session's files\n"
            "  a new session      takes the folder's files: transom session new, then -s ID",
            u->folder.path, u->session);
    else if (strcmp(code, "emptied") == 0)
        cli_fail(
            1,
            "%s is empty now, and was not when it was in step last. Nothing was deleted in the "
            "session.\n"
            "  --merge            fills the folder from the session\n"
            "  transom files rm   deletes files in the session, if that is meant",
            u->folder.path);
    else if (u->was_connected && (u->req->status == 429 || u->req->status / 100 == 5))
        status = 0;
    else
        status = http_explain(u->req);
    json_decref(answer);
    return status;
}

/* The request is over. Returns the exit status, or 0: it will be tried again. */
static int lost(struct up *u)
{
    int status = 0;

    if (u->has_failed)
        status = 1;
    else if (u->req->fault == HTTP_WHOLE && u->req->status / 100 != 2)
        status = explain(u);
    else if (!u->was_connected &&
             ++u->n_failed >= TRIES) /* the API answers, but does not do this */
        status = u->req->fault == HTTP_WHOLE ? cli_fail(1, "the manager has ended the connection")
                                             : http_explain(u->req);
    else if (u->is_finishing)
        status = cli_fail(1, "the connection was lost: what was changed last may not be in step");
    if (status == 0 && !u->is_lost_told)
        show(u, "the connection was lost; trying again");
    u->is_lost_told = true;
    disconnect(u);
    u->retry_at = now_ms() + u->retry_ms;
    u->retry_ms = u->retry_ms * 2 < RETRY_MAX_MS ? u->retry_ms * 2 : RETRY_MAX_MS;
    return status;
}

/* ---- the loop ---- */

/* Let bytes and events pass. */
static void step(struct up *u)
{
    struct pollfd fds[2] = {{.fd = u->signal_fd, .events = POLLIN},
                            {.fd = uv_backend_fd(&u->loop), .events = POLLIN}};
    bool has_more = u->serve != NULL && up_serve_step(u->serve);
    int timeout;

    uv_run(&u->loop, UV_RUN_NOWAIT);
    if (u->serve != NULL) /* what the watches had to say */
        has_more = up_serve_step(u->serve) || has_more;
    if (u->req != NULL && !u->req->done &&
        (u->req->status >= 300 || (u->is_answered && up_serve_has_output(u->serve))))
        http_req_resume(u->req);
    timeout = uv_backend_timeout(&u->loop);
    if (timeout < 0 || timeout > STEP_MS)
        timeout = STEP_MS;
    if (u->req == NULL && u->retry_at < now_ms() + (uint64_t)timeout)
        timeout = u->retry_at > now_ms() ? (int)(u->retry_at - now_ms()) : 0;
    http_step(u->cli->http, fds, 2, has_more ? 0 : timeout);
}

/* Returns true when it is to end at once. */
static bool take_signals(struct up *u)
{
    while (term_next_signal(u->signal_fd) != 0) {
        if (u->is_finishing || u->req == NULL)
            return true;
        u->is_finishing = true;
        show(u, "ending after a last sync; once more ends at once");
    }
    if (u->is_finishing && !u->is_asked && u->is_connected) {
        up_serve_finish(u->serve);
        u->is_asked = true;
    }
    return false;
}

static int end(struct up *u)
{
    bool is_good = json_is_true(json_object_get(u->end, "in_step")) &&
                   number(u->end, "n_faults") == 0 && *cli_text(u->end, "error") == '\0';

    if (is_good) {
        show(u, "in step; the files are in session %s", u->session);
        return 0;
    }
    clear_progress(u);
    if (number(u->end, "n_faults") > 0)
        return cli_fail(1, "not in step: %lld paths cannot be done", number(u->end, "n_faults"));
    return cli_fail(1, "not in step: %lld changes are not made%s%s", number(u->end, "pending"),
                    *cli_text(u->end, "error") != '\0' ? ": " : "", cli_text(u->end, "error"));
}

static int keep_in_step(struct up *u)
{
    int status = 0;

    for (;;) {
        if (u->req == NULL && now_ms() >= u->retry_at)
            start(u);
        step(u);
        if (take_signals(u)) {
            clear_progress(u);
            return cli_fail(1, "ended without a last sync");
        }
        if (u->end != NULL)
            return end(u);
        if (u->req != NULL && (u->req->done || up_serve_is_over(u->serve) ||
                               (u->is_connected && now_ms() >= u->heard_at + SILENCE_MS)))
            status = lost(u);
        if (status != 0)
            return status;
        if (now_ms() >= u->looked_at + STEP_MS) {
            u->looked_at = now_ms();
            if (!up_folder_is_there(&u->folder)) {
                clear_progress(u);
                return cli_fail(1, "%s is gone, or another folder is there now", u->folder.path);
            }
        }
        show_progress(u);
    }
}

/* ---- the session ---- */

/* The name of the folder, if it can be one. Borrowed. */
static const char *name_of(const struct up *u)
{
    const char *name = strrchr(u->folder.path, '/') + 1;
    json_t *text = json_string(name);
    bool is_good = text != NULL && strlen(name) <= 128;

    for (const char *c = name; *c != '\0'; c++)
        is_good = is_good && (unsigned char)*c >= ' ' && *c != 0x7f;
    json_decref(text);
    return is_good ? name : "";
}

/* New; NULL after saying why. */
static json_t *make_session(struct up *u)
{
    const char *name = name_of(u);
    json_t *body = json_object(), *session;

    if (*name != '\0')
        json_object_set_new(body, "name", json_string(name));
    session = cli_call(u->cli, "POST", "/v1/sessions", body);
    json_decref(body);
    return session;
}

/* The one that is meant: by the command line, from the last time, or a new one. New; NULL after
 * saying why. */
static json_t *find_session(struct up *u, bool *is_new)
{
    const char *env = getenv("TRANSOM_SESSION"), *last = up_folder_session(&u->folder, u->api);
    bool is_named = u->cli->session != NULL || (env != NULL && *env != '\0'), is_missing = false;
    char *id, *path;
    json_t *session;

    *is_new = !is_named && last == NULL;
    if (*is_new)
        return make_session(u);
    id = is_named ? cli_session_id(u->cli, NULL) : cli_encode(last);
    if (id == NULL)
        return NULL;
    path = cli_printf("/v1/sessions/%s", id);
    session = is_named ? cli_call(u->cli, "GET", path, NULL)
                       : cli_call_or_404(u->cli, "GET", path, NULL, &is_missing);
    if (is_missing) {
        fprintf(stderr, "transom: session %s, to which the folder was bound, is gone\n", id);
        *is_new = true;
        session = make_session(u);
    }
    free(path);
    free(id);
    return session;
}

static int choose_session(struct up *u)
{
    bool is_new;
    json_t *session = find_session(u, &is_new), *told;
    const char *url;

    if (session == NULL)
        return 1;
    url = cli_text(json_array_get(json_object_get(session, "sandboxes"), 0), "url");
    u->session = cli_printf("%s", cli_text(session, "id"));
    u->name = cli_encode(name_of(u));
    show(u, "session  %s%s\nurl      %s\nfolder   %s", u->session, is_new ? " (new)" : "", url,
         u->folder.path);
    told = json_pack("{ss, ss, ss, sb}", "type", "session", "session", u->session, "url", url,
                     "is_new", is_new);
    show_json(u, told);
    json_decref(told);
    json_decref(session);
    return up_folder_id(&u->folder, u->api, u->session, u->id);
}

int cmd_up(struct cli *cli, int argc, char **argv)
{
    static const int signals[] = {SIGINT, SIGTERM, SIGHUP};
    const struct http_target *target = http_target_of(cli->http);
    struct up u = {.cli = cli, .may_merge = cli->merge, .retry_ms = RETRY_MS};
    int status;

    u.api = target->api != NULL ? target->api : target->socket;
    status = up_folder_open(argc > 0 ? argv[0] : ".", &u.folder);
    if (status != 0)
        return status;
    u.faults = json_object();
    status = choose_session(&u);
    if (status == 0) {
        if (uv_loop_init(&u.loop) != 0)
            abort();
        u.signal_fd = term_signal_fd(signals, 3);
        status = keep_in_step(&u);
        disconnect(&u);
        uv_run(&u.loop, UV_RUN_DEFAULT); /* watches close */
        if (uv_loop_close(&u.loop) != 0)
            abort();
        close(u.signal_fd);
    }
    json_decref(u.end);
    json_decref(u.faults);
    free(u.session);
    free(u.name);
    up_folder_close(&u.folder);
    return status;
}
