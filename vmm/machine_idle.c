/* SPDX-License-Identifier: MIT */
/* The idle rule applied to a machine (the rule itself: idle.c). When the time since the last
 * activity is nearly up, or somebody asks, the agent is asked what runs, so that the verdict rests
 * on what is, not on events that may have been missed while a channel was down.
 *
 * Path: tick or ask_idle() -> look() -> answers -> judge() -> stop, warn, tell who asked. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "transom/log.h"
#include "vmm/idle.h"
#include "vmm/live.h"
#include "vmm/machine_internal.h"

#define CHECK_MIN_MS    1000
#define CHECK_MAX_MS    30000
#define PUBLISH_STEP_MS 5000 /* smaller moves of the deadline are not written to Redis */
#define HOLDERS_MAX     20
#define HOLDER_TEXT_MAX 300 /* bytes; longer names are a guest's mischief and left out */

static uint64_t timeout_ms(const struct vmm_machine *m)
{
    const struct vmm_options *o = m->ms->vmm->options;
    const struct vmm_session *session = m->sb->session;

    return vmm_idle_timeout(session->persist, (uint64_t)session->idle_timeout_s * 1000,
                            (uint64_t)o->idle_timeout_s * 1000, (uint64_t)o->idle_persist_s * 1000);
}

static struct vmm_idle input(const struct vmm_machine *m, uint64_t now_ms)
{
    const struct vmm_options *o = m->ms->vmm->options;

    return (struct vmm_idle){
        .now_ms = now_ms,
        .last_activity_ms = m->idle.last_activity_ms,
        .timeout_ms = timeout_ms(m),
        .warning_ms = (uint64_t)o->idle_warning_s * 1000,
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

/* Once for each deadline: whoever works there may want to go on. */
static void warn(struct vmm_machine *m)
{
    const struct vmm_session *session = m->sb->session;
    json_t *told;

    if (m->idle.warned_ms == m->idle.deadline_ms || (told = vmm_machine_idle_json(m->sb)) == NULL)
        return;
    m->idle.warned_ms = m->idle.deadline_ms;
    vmm_live_event(m->ms->vmm, "sandbox.idle_warning", session->owner,
                   json_pack("{ss, ss, ss, sI, sO, sO}", "session", session->id, "sandbox",
                             m->sb->name, "label", m->label, "instance", (json_int_t)m->instance,
                             "deadline_at", json_object_get(told, "deadline_at"), "why",
                             json_object_get(told, "why")));
    json_decref(told);
}

/* Those who asked get their answer; told is taken, NULL: there is none. */
static void tell(struct vmm_machine *m, json_t *told)
{
    struct machine_idle_asker askers[MACHINE_ASKERS_MAX];
    unsigned n = m->idle.n_askers;

    memcpy(askers, m->idle.askers, n * sizeof(askers[0]));
    m->idle.n_askers = 0;
    for (unsigned i = 0; i < n; i++)
        askers[i].cb(told, askers[i].arg);
    json_decref(told);
}

static json_t *whole_verdict(const struct vmm_machine *m)
{
    json_t *told = vmm_machine_idle_json(m->sb);

    if (told != NULL &&
        (json_object_set_new(told, "timeout_s", json_integer((json_int_t)(timeout_ms(m) / 1000))) !=
             0 ||
         json_object_set(told, "holders", m->idle.holders) != 0)) {
        json_decref(told);
        told = NULL;
    }
    return told;
}

/* When to look again. */
static uint64_t pause_ms(const struct vmm_machine *m)
{
    uint64_t pause = timeout_ms(m) / 10;

    return pause < CHECK_MIN_MS ? CHECK_MIN_MS : pause > CHECK_MAX_MS ? CHECK_MAX_MS : pause;
}

/* All answers are here. */
static void judge(struct vmm_machine *m)
{
    uint64_t now = uv_now(m->ms->vmm->loop);
    struct vmm_idle in;
    struct vmm_idle_verdict v;
    struct err err = {0};

    /* No answer: a machine that cannot be asked is not stopped for being idle. */
    if (m->stopping || m->releasing || m->idle.failed) {
        m->idle.next_check_ms = now + CHECK_MAX_MS;
        tell(m, NULL);
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
    m->idle.next_check_ms = now + pause_ms(m);
    publish(m, now);
    tell(m, whole_verdict(m));
    if (v.warn)
        warn(m);
    if (v.stop && vmm_sandbox_stop(m->sb, "idle: nothing ran in it for its idle time", false, NULL,
                                   NULL, &err) < 0)
        log_error("vm=%s: %s", m->label, err.msg);
}

/* The machine may have ended, and another begun, while an answer was on its way. */
struct question {
    struct vmm *vmm;
    char label[VMM_ID_LEN + 1];
    uint64_t instance;
    void (*take)(struct vmm_machine *m, const json_t *reply);
};

/* Note what holds it, with these members of what the agent told. */
static void hold(struct vmm_machine *m, const char *kind, const json_t *told,
                 const char *const *members)
{
    json_t *holder;

    m->idle.n_holds++;
    if (json_array_size(m->idle.holders) >= HOLDERS_MAX)
        return;
    holder = json_pack("{s:s}", "kind", kind);
    for (; holder != NULL && *members != NULL; members++) {
        json_t *value = json_object_get(told, *members);

        if (json_is_integer(value) ||
            (json_is_string(value) && json_string_length(value) <= HOLDER_TEXT_MAX))
            json_object_set(holder, *members, value);
    }
    json_array_append_new(m->idle.holders, holder);
}

static void take_windows(struct vmm_machine *m, const json_t *reply)
{
    static const char *const members[] = {"name", "run_id", NULL};
    size_t i;
    json_t *w;

    json_array_foreach(json_object_get(reply, "windows"), i, w)
    {
        if (json_object_get(w, "run_id") != NULL && json_is_true(json_object_get(w, "busy")))
            hold(m, "run", w, members);
    }
}

static void take_execs(struct vmm_machine *m, const json_t *reply)
{
    static const char *const members[] = {"id", "pid", "command", NULL};
    size_t i;
    json_t *x;

    json_array_foreach(json_object_get(reply, "execs"), i, x)
    {
        const char *state = json_string_value(json_object_get(x, "state"));

        if (state == NULL || strcmp(state, "ended") != 0)
            hold(m, "exec", x, members);
    }
}

static void take_ssh(struct vmm_machine *m, const json_t *reply)
{
    static const char *const members[] = {"id", NULL};
    size_t i;
    json_t *c;

    json_array_foreach(json_object_get(reply, "connections"), i, c) hold(m, "ssh", c, members);
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

/* Ask for all that the verdict needs. */
static void look(struct vmm_machine *m, uint64_t now_ms)
{
    json_decref(m->idle.holders);
    m->idle.holders = json_array();
    m->idle.n_holds = 0;
    m->idle.serving = false;
    m->idle.failed = m->idle.holders == NULL;
    m->idle.next_check_ms = now_ms + CHECK_MAX_MS;
    ask(m, "/v1/windows", take_windows);
    ask(m, "/v1/exec", take_execs);
    ask(m, "/v1/ssh", take_ssh);
    ask(m, "/v1/status", take_status);
    if (m->idle.n_pending == 0)
        judge(m);
}

/* Nothing is asked as long as the deadline is far whatever runs. */
void machine_idle_tick(struct vmm_machine *m, uint64_t now_ms)
{
    struct vmm_idle in = input(m, now_ms);
    struct vmm_idle_verdict v;

    in.n_holds = 0;
    v = vmm_idle_judge(&in);
    if (m->idle.n_pending > 0 || now_ms < m->idle.next_check_ms)
        return;
    if (!v.stop && !v.warn) {
        m->idle.why = vmm_idle_why_text(v.why);
        m->idle.deadline_ms = v.deadline_ms;
        publish(m, now_ms);
    } else if (vmm_agent_session(m->agent) != NULL) {
        look(m, now_ms);
    } else {
        m->idle.next_check_ms = now_ms + CHECK_MAX_MS;
    }
}

int vmm_machine_ask_idle(const struct vmm_sandbox *sb, vmm_idle_cb cb, void *arg)
{
    struct vmm_machine *m = sb->machine;

    if (m == NULL || !m->up || m->stopping || m->releasing || vmm_agent_session(m->agent) == NULL)
        return -ENOTCONN;
    if (m->idle.n_askers == MACHINE_ASKERS_MAX)
        return -EBUSY;
    m->idle.askers[m->idle.n_askers++] = (struct machine_idle_asker){cb, arg};
    if (m->idle.n_pending == 0)
        look(m, uv_now(m->ms->vmm->loop));
    return 0;
}

void machine_idle_fini(struct vmm_machine *m)
{
    tell(m, NULL);
    json_decref(m->idle.holders);
}

void vmm_machine_judge(const struct vmm_sandbox *sb)
{
    if (sb->machine != NULL)
        sb->machine->idle.next_check_ms = 0;
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
