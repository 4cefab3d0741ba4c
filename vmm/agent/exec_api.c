/* SPDX-License-Identifier: MIT */
/* What is asked about execs, and of them. */
#include "vmm/agent/exec_internal.h"

#include <signal.h>
#include <string.h>

#include "vmm/agent/secrets.h"
#include "vmm/agent/signame.h"

struct exec *exec_find(struct agent_request *req, bool running)
{
    const struct agent_text *id = &req->target.params[0];

    exec_trim(req->agent->execs);
    for (struct exec *x = req->agent->execs->list; x != NULL; x = x->next) {
        if (!(running && x->finished) && (!x->finished || x->kept) && strcmp(x->id, id->at) == 0 &&
            strlen(x->id) == id->len)
            return x;
    }
    agent_request_error(req, 404, NULL, running ? "no such exec is running" : "no such exec");
    return NULL;
}

/* The one that ended first; NULL: none is kept. */
static struct exec *oldest_ended(struct agent_execs *execs, size_t *n, size_t *bytes)
{
    struct exec *oldest = NULL;

    *n = *bytes = 0;
    for (struct exec *x = execs->list; x != NULL; x = x->next) {
        if (!x->finished || !x->kept)
            continue;
        ++*n;
        *bytes += exec_ring_bytes(x);
        if (oldest == NULL || x->ended_uptime <= oldest->ended_uptime)
            oldest = x;
    }
    return oldest;
}

void exec_trim(struct agent_execs *execs)
{
    int64_t now = agent_uptime_ms();
    size_t n, bytes;
    struct exec *x;

    while ((x = oldest_ended(execs, &n, &bytes)) != NULL &&
           (n > EXEC_ENDED_MAX || bytes > EXEC_ENDED_BYTES ||
            now - x->ended_uptime > EXEC_ENDED_KEEP_MS))
        exec_forget(x);
}

static json_t *ring_json(const struct agent_ring *ring)
{
    return json_pack("{s:I,s:I}", "from", (json_int_t)agent_ring_begin(ring), "to",
                     (json_int_t)ring->end);
}

static json_t *describe(const struct exec *x)
{
    json_t *obj =
        json_pack("{s:s,s:i,s:s,s:s,s:b,s:s,s:o}", "id", x->id, "pid", (int)x->pid, "user", x->user,
                  "command", x->command, "detached", (int)x->detached, "state",
                  x->finished ? "ended" : "running", "started_at", agent_time_json(x->started_at));

    if (obj == NULL)
        return NULL;
    if (x->detached) {
        json_object_set_new(obj, "stdout", ring_json(&x->outs[0].ring));
        json_object_set_new(obj, "stderr", ring_json(&x->outs[1].ring));
    }
    if (x->finished) {
        json_object_set_new(obj, "ended_at", agent_time_json(x->ended_at));
        json_object_update_new(obj, exec_exit_json(x));
    }
    return obj;
}

void agent_exec_handle_list(struct agent_request *req)
{
    json_t *list = json_array(), *answer;

    exec_trim(req->agent->execs);
    for (struct exec *x = req->agent->execs->list; x != NULL; x = x->next) {
        if (!x->finished || x->kept)
            json_array_append_new(list, describe(x));
    }
    answer = json_pack("{s:o}", "execs", list);
    agent_secrets_hide_json(req->agent->secrets, answer);
    agent_request_answer(req, 200, answer);
}

void agent_exec_handle_get(struct agent_request *req)
{
    struct exec *x = exec_find(req, false);
    json_t *answer = x != NULL ? describe(x) : NULL;

    if (x == NULL)
        return;
    agent_secrets_hide_json(req->agent->secrets, answer);
    agent_request_answer(req, 200, answer);
}

/* End it if it runs, and remember nothing of it. */
void agent_exec_handle_delete(struct agent_request *req)
{
    struct exec *x = exec_find(req, false);

    if (x == NULL)
        return;
    if (!x->finished)
        agent_group_signal(x->group, SIGKILL);
    exec_forget(x);
    agent_request_empty(req, 204);
}

void agent_exec_handle_signal(struct agent_request *req)
{
    const char *name = NULL;
    struct exec *x = exec_find(req, true);
    json_t *body = x != NULL ? agent_request_json(req) : NULL;
    int signum;

    if (body == NULL)
        return;
    if (agent_json_string(req, body, "signal", &name)) {
        signum = name != NULL ? agent_signal_number(name) : -1;
        if (signum < 0) {
            agent_request_error(req, 400, NULL, "signal must be a name such as TERM");
        } else {
            agent_group_signal(x->group, signum);
            agent_request_empty(req, 204);
        }
    }
    json_decref(body);
}
