/* SPDX-License-Identifier: MIT */
/* How an exec begins: what is asked for, its pipes, its process. */
#include "vmm/agent/exec_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "transom/log.h"
#include "vmm/agent/child.h"
#include "vmm/agent/event.h"
#include "vmm/agent/secrets.h"
#include "vmm/agent/signame.h"
#include "vmm/agent/spawn.h"
#include "vmm/agent/utf8.h"

/* The command line, as an array that ends in NULL (strings borrowed), or NULL: answered. */
static char **make_argv(struct agent_request *req, json_t *body)
{
    json_t *words = json_object_get(body, "argv");
    const char *command = NULL;
    char **argv;
    size_t n;

    if (!agent_json_string(req, body, "command", &command))
        return NULL;
    n = json_array_size(words); /* 0 for what is no array */
    if ((n == 0) == (command == NULL)) {
        agent_request_error(req, 400, NULL,
                            "either argv (an array of strings, not empty) or command is needed");
        return NULL;
    }
    argv = calloc(n + 4, sizeof(*argv));
    if (argv == NULL) {
        agent_request_error(req, 500, NULL, "out of memory");
        return NULL;
    }
    if (command != NULL) {
        argv[0] = "/bin/bash";
        argv[1] = "-lc";
        argv[2] = (char *)command;
        return argv;
    }
    for (size_t i = 0; i < n; i++) {
        argv[i] = (char *)json_string_value(json_array_get(words, i));
        if (argv[i] == NULL || argv[0][0] == '\0') {
            free(argv);
            agent_request_error(req, 400, NULL, "argv must hold strings, the first not empty");
            return NULL;
        }
    }
    return argv;
}

/* The command as it is told in listings, new. */
static char *show_command(char **argv)
{
    char text[EXEC_COMMAND_MAX + 8];
    size_t len = 0;

    for (size_t i = 0; argv[i] != NULL && len < EXEC_COMMAND_MAX; i++) {
        int n = snprintf(text + len, EXEC_COMMAND_MAX - len, "%s%s", i > 0 ? " " : "", argv[i]);

        len = n < (int)(EXEC_COMMAND_MAX - len) ? len + (size_t)n : EXEC_COMMAND_MAX;
    }
    return agent_utf8_repair(text, strlen(text), NULL); /* it may be cut within a character */
}

static void close_pair(int *fds)
{
    for (int i = 0; i < 2; i++) {
        if (fds[i] >= 0)
            close(fds[i]);
        fds[i] = -1;
    }
}

/* Make the pipes and the process. ours: our ends. */
static int launch(struct exec *x, struct agent_spawn *sp, bool want_stdin, int ours[3],
                  struct err *err)
{
    int pipes[3][2] = {{-1, -1}, {-1, -1}, {-1, -1}};
    int r = 0;

    for (int i = want_stdin ? 0 : 1; i < 3 && r == 0; i++) {
        if (pipe2(pipes[i], O_CLOEXEC) != 0)
            r = tr_err_set(err, -errno, "pipe: %s", strerror(errno));
        else
            fcntl(pipes[i][i == 0 ? 1 : 0], F_SETFL, O_NONBLOCK);
    }
    sp->fds[0] = pipes[0][0];
    sp->fds[1] = pipes[1][1];
    sp->fds[2] = pipes[2][1];
    if (r == 0)
        r = agent_spawn(sp, &x->pid, err);
    if (r != 0) {
        for (int i = 0; i < 3; i++)
            close_pair(pipes[i]);
        return r;
    }
    for (int i = 0; i < 3; i++) {
        ours[i] = pipes[i][i == 0 ? 1 : 0];
        if (pipes[i][i == 0 ? 0 : 1] >= 0)
            close(pipes[i][i == 0 ? 0 : 1]);
    }
    return 0;
}

/* From here on faults come out as the end of the exec. */
static void go(struct exec *x, const int ours[3], int64_t timeout_ms)
{
    uv_loop_t *loop = x->execs->agent->loop;
    int r = uv_timer_init(loop, &x->deadline);

    r = r != 0 ? r : uv_timer_init(loop, &x->linger);
    x->deadline.data = x->linger.data = x;
    x->n_open = 2;
    for (int i = 0; i < 2; i++) {
        struct exec_output *o = &x->outs[i];

        o->fd = ours[i + 1];
        o->type = i == 0 ? AGENT_FRAME_STDOUT : AGENT_FRAME_STDERR;
        r = r != 0 ? r : uv_poll_init(loop, &o->poll, o->fd);
        r = r != 0 ? r : uv_timer_init(loop, &o->hold);
        o->poll.data = o->hold.data = x;
        x->n_open += 2;
    }
    x->in.fd = ours[0];
    if (x->in.fd >= 0) {
        r = r != 0 ? r : uv_poll_init(loop, &x->in.poll, x->in.fd);
        x->in.poll.data = x;
        x->n_open++;
    }
    if (r == 0 && timeout_ms > 0)
        r = uv_timer_start(&x->deadline, exec_on_deadline, (uint64_t)timeout_ms, 0);
    if (r != 0)
        abort(); /* a pipe and a timer cannot be refused by a loop that works */
    x->next = x->execs->list;
    x->execs->list = x;
    x->execs->n++;
}

/* What a request asks for; strings are its body's. */
struct wish {
    const char *cwd, *user;
    bool want_stdin, detach;
    int64_t timeout_ms;
    json_t *env;
};

static bool parse_wish(struct agent_request *req, json_t *body, struct wish *w)
{
    *w = (struct wish){.user = AGENT_SANDBOX_USER};
    if (!agent_json_string(req, body, "cwd", &w->cwd) ||
        !agent_json_string(req, body, "user", &w->user) ||
        !agent_json_bool(req, body, "stdin", &w->want_stdin) ||
        !agent_json_bool(req, body, "detach", &w->detach) ||
        !agent_json_int(req, body, "timeout_ms", 0, INT64_C(86400000) * 30, &w->timeout_ms) ||
        !agent_json_env(req, body, "env", &w->env))
        return false;
    if (strcmp(w->user, AGENT_SANDBOX_USER) == 0 || strcmp(w->user, "root") == 0)
        return true;
    agent_request_error(req, 400, NULL, "user must be sandbox or root");
    return false;
}

static bool has_room(struct agent_request *req, bool detach)
{
    const struct agent_execs *execs = req->agent->execs;
    size_t n_detached = 0;

    for (const struct exec *x = execs->list; x != NULL; x = x->next)
        n_detached += x->detached && !x->finished;
    if (execs->n < EXEC_MAX && !(detach && n_detached >= EXEC_DETACHED_MAX))
        return true;
    agent_request_error(req, 429, "too_many", "%d %sexecs are running",
                        execs->n < EXEC_MAX ? EXEC_DETACHED_MAX : EXEC_MAX,
                        execs->n < EXEC_MAX ? "detached " : "");
    return false;
}

static void free_unborn(struct exec *x)
{
    if (x == NULL)
        return;
    exec_output_fini(x);
    exec_ring_fini(x);
    free(x->command);
    free(x);
}

/* The process and what we know of it, or NULL: answered. */
static struct exec *make(struct agent_request *req, const struct wish *w, char **argv, int ours[3])
{
    struct agent_child child;
    struct err err = {0};
    struct exec *x;
    int r = agent_child_init(&child, req->agent, w->user, w->env, &err);

    if (r != 0) {
        agent_request_fail(req, UV_EIO, &err);
        return NULL;
    }
    x = calloc(1, sizeof(*x));
    r = x == NULL ? UV_ENOMEM : exec_output_init(x, req->agent->secrets->mask);
    if (r == 0 && (x->command = show_command(argv)) == NULL)
        r = UV_ENOMEM;
    if (r == 0) {
        x->detached = x->kept = w->detach;
        r = w->detach ? exec_ring_init(x) : 0;
    }
    if (r == 0)
        r = agent_group_new(req->agent->groups, NULL, "x", &x->group);
    if (r == 0) {
        struct agent_spawn sp = {.path = argv[0],
                                 .argv = argv,
                                 .envp = child.envp,
                                 .cwd = w->cwd != NULL ? w->cwd : child.user.home,
                                 .user = child.change_user ? &child.user : NULL,
                                 .procs_fd = agent_group_procs_fd(x->group)};

        r = launch(x, &sp, w->want_stdin, ours, &err);
        if (r != 0)
            agent_group_free(x->group);
    }
    agent_child_fini(&child);
    if (r == 0)
        return x;
    /* A command that cannot be started is the caller's fault, whatever the errno. */
    agent_request_error(req, 400, r == UV_ENOENT ? "not_found" : "cannot_start", "%s",
                        err.msg[0] != '\0' ? err.msg : uv_strerror(r));
    free_unborn(x);
    return NULL;
}

static void start(struct agent_request *req, json_t *body, char **argv)
{
    struct agent_execs *execs = req->agent->execs;
    struct exec *x;
    struct wish w;
    int ours[3];

    exec_trim(execs);
    if (!parse_wish(req, body, &w) || !has_room(req, w.detach) || !agent_request_may_act(req) ||
        (x = make(req, &w, argv, ours)) == NULL)
        return;
    agent_group_set_leader(x->group, x->pid, true);
    x->execs = execs;
    snprintf(x->id, sizeof(x->id), "x%lu", ++execs->last_id);
    snprintf(x->user, sizeof(x->user), "%s", w.user);
    x->started_at = agent_wall_ms();
    if (!x->detached) {
        x->req = req;
        req->ctx = x;
        req->cbs = &exec_start_cbs;
    }
    go(x, ours, w.timeout_ms);
    if (agent_reaper_watch(req->agent->reaper, x->pid, exec_on_exit, x, &x->watch) != 0) {
        /* Without a watch there is no end to report: the reader must see a broken stream. */
        log_error("exec %s: out of memory", x->id);
        tr_h2_reset(req->stream, 2);
    }
    agent_event(req->agent, "exec_start", json_pack("{s:s,s:i}", "id", x->id, "pid", (int)x->pid));
    if (x->detached) {
        agent_request_answer(req, 201, json_pack("{s:s,s:i}", "id", x->id, "pid", (int)x->pid));
    } else {
        agent_request_head(req, 200, "application/vnd.transom.exec", NULL, NULL);
        exec_send_json(req, AGENT_FRAME_STARTED,
                       json_pack("{s:s,s:i}", "id", x->id, "pid", (int)x->pid));
    }
    exec_step(x);
}

void agent_exec_handle_start(struct agent_request *req)
{
    json_t *body = agent_request_json(req);
    char **argv = body != NULL ? make_argv(req, body) : NULL;

    if (argv != NULL)
        start(req, body, argv);
    free(argv);
    json_decref(body);
}
