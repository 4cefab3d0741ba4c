/* SPDX-License-Identifier: MIT */
/* The idle rule applied to a machine (the rule itself: idle.c). When the time since the last
 * activity is up, the agent is asked what runs, so that the verdict rests on what is, not on events
 * that may have been missed while a channel was down. */
#include <stdlib.h>
#include <string.h>
#include "transom/log.h"
#include "vmm/idle.h"
#include "vmm/live.h"
#include "vmm/machine_internal.h"

#define CHECK_MIN_MS    1000
#define CHECK_MAX_MS    30000
#define PUBLISH_STEP_MS 5000 /* smaller moves of the deadline are not written to Redis */

static struct vmm_idle input(const struct vmm_machine *m, uint64_t now_ms)
{
    const struct vmm_options *o = m->ms->vmm->options;

    return (struct vmm_idle){
        .now_ms = now_ms,
        .last_activity_ms = m->idle.last_activity_ms,
        .timeout_ms = (uint64_t)o->idle_timeout_s * 1000,
        .n_holds = m->idle.n_holds,
        .oldest_hold_ms = m->idle.held_since_ms,
        .max_run_ms = (uint64_t)o->idle_max_run_s * 1000,
        .holds_listen = m->idle.serving,
    };
}

static void publish(struct vmm_machine *m, uint64_t now_ms)
{
    uint64_t d = m->idle.deadline_ms, p = m->idle.published_ms;

    if ((d > p ? d - p : p - d) < PUBLISH_STEP_MS)
        return;
    m->idle.published_ms = d;
    vmm_live_idle(m->ms->vmm, m->label, vmm_wall_ms() + (int64_t)(d - now_ms));
}

/* All answers are here. */
static void judge(struct vmm_machine *m)
{
    uint64_t now = uv_now(m->ms->vmm->loop), pause;
    struct vmm_idle in;
    struct vmm_idle_verdict v;
    struct err err = {0};

    if (m->stopping || m->releasing)
        return;
    /* No answer: a machine that cannot be asked is not stopped for being idle. */
    if (m->idle.failed) {
        m->idle.next_check_ms = now + CHECK_MAX_MS;
        return;
    }
    if (m->idle.n_holds > 0 && !m->idle.serving) {
        m->idle.held_seen_ms = now;
        if (m->idle.held_since_ms == 0)
            m->idle.held_since_ms = m->idle.last_activity_ms;
    } else {
        m->idle.held_since_ms = 0;
        if (m->idle.held_seen_ms > m->idle.last_activity_ms)
            m->idle.last_activity_ms = m->idle.held_seen_ms;
    }
    in = input(m, now);
    v = vmm_idle_judge(&in);
    m->idle.why = vmm_idle_why_text(v.why);
    m->idle.deadline_ms = v.deadline_ms;
    publish(m, now);
    if (v.stop) {
        if (vmm_sandbox_stop(m->sb, "idle: nothing ran in it for idle.timeout_s", false, NULL, NULL,
                             &err) < 0)
            log_error("vm=%s: %s", m->label, err.msg);
        return;
    }
    pause = (uint64_t)m->ms->vmm->options->idle_timeout_s * 1000 / 10;
    m->idle.next_check_ms = now + (pause < CHECK_MIN_MS   ? CHECK_MIN_MS
                                   : pause > CHECK_MAX_MS ? CHECK_MAX_MS
                                                          : pause);
}

/* The machine may have ended, and another begun, while an answer was on its way. */
struct question {
    struct vmm *vmm;
    char label[VMM_ID_LEN + 1];
    uint64_t instance;
    void (*take)(struct vmm_machine *m, const json_t *reply);
};

static void take_windows(struct vmm_machine *m, const json_t *reply)
{
    size_t i;
    json_t *w;

    json_array_foreach(json_object_get(reply, "windows"), i, w) m->idle.n_holds +=
        json_object_get(w, "run_id") != NULL && json_is_true(json_object_get(w, "busy"));
}

static void take_execs(struct vmm_machine *m, const json_t *reply)
{
    size_t i;
    json_t *x;

    json_array_foreach(json_object_get(reply, "execs"), i, x)
    {
        const char *state = json_string_value(json_object_get(x, "state"));

        m->idle.n_holds += state == NULL || strcmp(state, "ended") != 0;
    }
}

static void take_ssh(struct vmm_machine *m, const json_t *reply)
{
    m->idle.n_holds += (unsigned)json_array_size(json_object_get(reply, "connections"));
}

static void take_status(struct vmm_machine *m, const json_t *reply)
{
    size_t i;
    json_t *l;

    json_array_foreach(json_object_get(reply, "listening"), i, l)
    {
        json_int_t port = json_integer_value(json_object_get(l, "port"));

        if (port > 0 && port <= UINT16_MAX && vmm_preview_serves(&m->sb->preview, (uint16_t)port))
            m->idle.serving = true;
    }
}

static void on_answer(int status, const json_t *reply, void *arg)
{
    struct question *q = arg;
    struct vmm_sandbox *sb = vmm_sessions_by_label(&q->vmm->sessions, q->label);
    struct vmm_machine *m = sb == NULL ? NULL : sb->machine;

    if (m != NULL && m->instance == q->instance && m->idle.n_pending > 0) {
        if (status == 200 && json_is_object(reply))
            q->take(m, reply);
        else if (status != 404) /* what an older agent does not know, it does not do */
            m->idle.failed = true;
        if (--m->idle.n_pending == 0)
            judge(m);
    }
    free(q);
}

static void ask(struct vmm_machine *m, const char *path,
                void (*take)(struct vmm_machine *m, const json_t *reply))
{
    struct question *q = calloc(1, sizeof(*q));

    m->idle.n_pending++;
    if (q != NULL) {
        q->vmm = m->ms->vmm;
        memcpy(q->label, m->label, sizeof(q->label));
        q->instance = m->instance;
        q->take = take;
        if (vmm_agent_call(m->agent, "GET", path, NULL, on_answer, q) == 0)
            return;
        free(q);
    }
    m->idle.failed = true;
    m->idle.n_pending--;
}

void machine_idle_tick(struct vmm_machine *m, uint64_t now_ms)
{
    struct vmm_idle in = {.now_ms = now_ms,
                          .last_activity_ms = m->idle.last_activity_ms,
                          .timeout_ms = (uint64_t)m->ms->vmm->options->idle_timeout_s * 1000};
    struct vmm_idle_verdict v = vmm_idle_judge(&in);

    if (m->idle.n_pending > 0 || now_ms < m->idle.next_check_ms)
        return;
    if (!v.stop) {
        m->idle.why = vmm_idle_why_text(v.why);
        m->idle.deadline_ms = v.deadline_ms;
        publish(m, now_ms);
        return;
    }
    m->idle.n_holds = 0;
    m->idle.serving = m->idle.failed = false;
    m->idle.next_check_ms = now_ms + CHECK_MAX_MS;
    if (vmm_agent_session(m->agent) == NULL)
        return;
    ask(m, "/v1/windows", take_windows);
    ask(m, "/v1/exec", take_execs);
    ask(m, "/v1/ssh", take_ssh);
    ask(m, "/v1/status", take_status);
    if (m->idle.n_pending == 0)
        judge(m);
}

void vmm_machine_touch(const struct vmm_sandbox *sb)
{
    struct vmm_machine *m = sb->machine;

    if (m == NULL)
        return;
    m->idle.last_activity_ms = uv_now(m->ms->vmm->loop);
    m->idle.next_check_ms = 0;
    m->idle.held_since_ms = 0;
}

json_t *vmm_machine_idle_json(const struct vmm_sandbox *sb)
{
    const struct vmm_machine *m = sb->machine;
    char time[VMM_TIME_SIZE];
    uint64_t now;

    if (m == NULL || !m->up || m->idle.deadline_ms == 0)
        return NULL;
    now = uv_now(m->ms->vmm->loop);
    vmm_time_text(vmm_wall_ms() + (int64_t)(m->idle.deadline_ms - now), time);
    return json_pack("{ss, ss}", "deadline_at", time, "why", m->idle.why ? m->idle.why : "");
}
