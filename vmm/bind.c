/* SPDX-License-Identifier: MIT */
/* Path: request -> (an older connection of the same folder ends) -> what both sides have is looked
 * at (job) -> answer -> HTTP/2 on it -> control stream, sync -> ... -> "finish" -> last sync ->
 * end. Any fault, the client gone, the session deleted, the manager's end: close_bind() -> the sync
 * is closed -> freed, once the request is gone, too. */
#include "vmm/bind.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "transom/log.h"
#include "vmm/api.h"
#include "vmm/bind_check.h"
#include "vmm/file.h"
#include "vmm/live.h"
#include "vmm/sync.h"

#define LIVE_MAX       16    /* connections of one session */
#define NAME_SIZE      256   /* bytes of a folder's name, with the NUL */
#define LINE_SIZE      4096  /* of what the folder says, likewise */
#define LINES_HIGH     65536 /* bytes for it that wait: less important things are left unsaid */
#define LAST_MS        30000 /* for the last sync */
#define STUCK_MS       1000  /* of which so much, when all that is left cannot be done */
#define BYE_MS         5000  /* for the client to go by itself */
#define PING_MS        15000 /* between two pings; without an answer until the next it is gone */
#define SHOWN_MAX      50    /* paths of a list in one line, ... */
#define SHOWN_PATH_MAX 512   /* ... of so many bytes at most */

enum state {
    WAITING,  /* another of the same folder is on its way out */
    CHECKING, /* the job is under way */
    LIVE,     /* h2, control and sync are valid, until it closes */
    REFUSED,  /* answered; waits for its client to go */
};

struct vmm_bind {
    struct vmm_bind *prev, *next; /* vmm->binds */
    struct vmm *vmm;
    struct vmm_request *req; /* with a reference; its st is NULL once the client is gone */
    enum state state;
    char session[VMM_ID_LEN + 1], owner[VMM_OWNER_MAX + 1];
    char folder[VMM_BIND_ID_LEN + 1], name[NAME_SIZE];
    int64_t since_ms; /* wall clock */
    /* The job's while is_busy. */
    struct vmm_store_job job;
    struct vmm_bind_ask ask;
    char dir[VMM_PATH_SIZE];
    enum vmm_bind_verdict verdict;
    bool is_busy;
    /* Once LIVE. */
    struct tr_h2 *h2; /* NULL: over */
    uv_idle_t pump;   /* runs h2 after calls from outside it */
    bool has_pump;
    struct tr_h2_stream *control; /* NULL: over */
    char line[LINE_SIZE];
    size_t line_len;
    bool was_left_out_told;
    struct vmm_sync *sync;
    bool is_closing, is_finishing, is_pinged;
    uint64_t asked_ms, finish_ms, bye_ms, ping_ms; /* by the loop's clock; 0: not yet */
};

static void begin_next(const struct vmm_bind *like);

/* ---- the end ---- */

static void maybe_free(struct vmm_bind *b)
{
    if (b->req->st != NULL || b->is_busy || b->sync != NULL || b->has_pump)
        return;
    if (b->prev != NULL)
        b->prev->next = b->next;
    else
        b->vmm->binds = b->next;
    if (b->next != NULL)
        b->next->prev = b->prev;
    b->req->arg = NULL;
    b->req->cbs = NULL;
    vmm_request_unref(b->req);
    free(b);
}

static void on_pump_closed(uv_handle_t *handle)
{
    struct vmm_bind *b = handle->data;

    b->has_pump = false;
    maybe_free(b);
}

static void on_sync_closed(void *arg)
{
    struct vmm_bind *b = arg;

    b->sync = NULL;
    begin_next(b);
    maybe_free(b);
}

/* It touches neither the store nor the ancestor any more. */
static bool is_off(const struct vmm_bind *b)
{
    return !b->is_busy && b->sync == NULL && (b->is_closing || b->state == REFUSED);
}

/* The answer ends, and with it what the client still sends. */
static void end_answer(struct vmm_bind *b)
{
    if (b->req->st == NULL)
        return;
    if (b->state != LIVE) {
        vmm_reply_error(b->req, 503, "the manager ends, or the session is being deleted");
        return;
    }
    tr_h2_end(b->req->st, NULL, 0);
    tr_h2_stream_discard(b->req->st);
}

static void close_bind(struct vmm_bind *b)
{
    struct tr_h2 *h2 = b->h2;

    if (b->is_closing)
        return;
    b->is_closing = true;
    b->h2 = NULL;
    b->control = NULL;
    tr_h2_free(h2); /* its streams end, and the sync finds no session any more */
    end_answer(b);
    if (b->has_pump)
        uv_close((uv_handle_t *)&b->pump, on_pump_closed);
    if (b->sync != NULL)
        vmm_sync_close(b->sync, on_sync_closed, b);
    else if (!b->is_busy)
        begin_next(b);
}

/* ---- HTTP/2 on the request ---- */

static bool on_send(const uint8_t *data, size_t len, void *arg)
{
    const struct vmm_bind *b = arg;

    return b->req->st != NULL && tr_h2_write(b->req->st, data, len) > 0;
}

static void on_pump(uv_idle_t *idle)
{
    struct vmm_bind *b = idle->data;

    uv_idle_stop(idle);
    if (b->h2 != NULL)
        tr_h2_run(b->h2);
}

static void wake(void *arg)
{
    struct vmm_bind *b = arg;

    if (!b->is_closing)
        uv_idle_start(&b->pump, on_pump); /* cannot fail: the callback is not NULL */
}

static void on_over(struct tr_h2 *h2, int status, const char *reason, void *arg)
{
    struct vmm_bind *b = arg;

    log_debug("bind=%s: its HTTP/2 is over: %s (%d)", b->folder, reason, status);
    b->h2 = NULL;
    b->control = NULL;
    tr_h2_free(h2);
    close_bind(b);
}

static struct tr_h2 *get_h2(void *arg)
{
    const struct vmm_bind *b = arg;

    return b->h2;
}

/* ---- what is said ---- */

/* told (taken): a line of it. */
static void say(struct vmm_bind *b, json_t *told)
{
    char *text = told != NULL ? json_dumps(told, JSON_COMPACT) : NULL;

    json_decref(told);
    if (text != NULL && b->control != NULL && tr_h2_write(b->control, text, strlen(text)) >= 0)
        (void)!tr_h2_write(b->control, "\n", 1); /* a stream that ends says so itself */
    free(text);
}

static bool is_behind(const struct vmm_bind *b)
{
    return b->control == NULL || tr_h2_stream_queued(b->control) >= LINES_HIGH;
}

/* The beginning of a list of paths: a line is not to grow without bound. New. */
static json_t *beginning(const json_t *list)
{
    json_t *out = json_array(), *item;
    size_t i;

    json_array_foreach(list, i, item)
    {
        if (json_array_size(out) < SHOWN_MAX &&
            json_string_length(json_object_get(item, "path")) <= SHOWN_PATH_MAX)
            json_array_append(out, item);
    }
    return out;
}

/* As in the answer of GET, with less of the lists; what is left out is told once it is known. New.
 */
static json_t *status_line(struct vmm_bind *b, const char *type)
{
    const json_t *counters = vmm_sync_counters(b->sync);
    json_t *out = counters != NULL ? json_copy((json_t *)counters) : json_object();

    if (out == NULL)
        return NULL;
    json_object_set_new(out, "type", json_string(type));
    json_object_set_new(out, "faults", beginning(json_object_get(counters, "faults")));
    if (b->was_left_out_told || !json_is_true(json_object_get(out, "synced"))) {
        json_object_del(out, "left_out");
    } else {
        b->was_left_out_told = true;
        json_object_set_new(out, "left_out", beginning(json_object_get(counters, "left_out")));
    }
    return out;
}

/* All that is left is what cannot be done. */
static bool is_stuck(const json_t *counters)
{
    json_int_t pending = json_integer_value(json_object_get(counters, "pending"));

    return pending > 0 && pending <= json_integer_value(json_object_get(counters, "n_faults"));
}

static void on_finished(void *arg)
{
    struct vmm_bind *b = arg;

    b->bye_ms = uv_now(b->vmm->loop) + BYE_MS;
    if (b->control == NULL)
        return;
    say(b, status_line(b, "end"));
    tr_h2_end(b->control, NULL, 0);
}

/* The last sync, unless the first has yet to begin; then a little later. */
static void finish(struct vmm_bind *b)
{
    uint64_t now = uv_now(b->vmm->loop);

    if (b->is_finishing || b->bye_ms != 0 ||
        (!vmm_sync_is_running(b->sync) && now < b->asked_ms + BYE_MS))
        return;
    b->is_finishing = true;
    b->finish_ms = now;
    vmm_sync_finish(b->sync, LAST_MS, SYNC_CAUSE_API, on_finished, b);
}

static void on_news(void *arg)
{
    struct vmm_bind *b = arg;
    uint64_t now = uv_now(b->vmm->loop);

    if (!is_behind(b) && b->bye_ms == 0)
        say(b, status_line(b, "status"));
    if (b->is_finishing && now >= b->finish_ms + STUCK_MS && is_stuck(vmm_sync_counters(b->sync)))
        vmm_sync_hurry(b->sync);
}

static void on_files(int status, const char *why, void *arg)
{
    struct vmm_bind *b = arg;

    if (status == 0 || status == UV_ETIMEDOUT) /* much may be to be sent */
        return;
    say(b, json_pack("{ss, ss}", "type", "failed", "message", why));
    b->bye_ms = uv_now(b->vmm->loop) + BYE_MS;
    if (b->control != NULL)
        tr_h2_end(b->control, NULL, 0);
}

static void on_conflict(json_t *told, void *arg)
{
    struct vmm_bind *b = arg;

    vmm_live_event(b->vmm, "session.sync_conflict", b->owner,
                   json_pack("{ss, ss, ss, sO}", "session", b->session, "folder", b->folder, "name",
                             b->name, "conflict", told));
    if (!is_behind(b))
        say(b, json_pack("{ss, sO, sO, sO}", "type", "conflict", "path",
                         json_object_get(told, "path"), "kind", json_object_get(told, "kind"),
                         "winner", json_object_get(told, "winner")));
}

static void on_store_end(void *arg)
{
    close_bind(arg);
}

static const struct vmm_sync_cbs sync_cbs = {.h2 = get_h2,
                                             .on_files = on_files,
                                             .on_conflict = on_conflict,
                                             .on_news = on_news,
                                             .on_store_end = on_store_end};

/* ---- what is heard ---- */

static void on_line(struct vmm_bind *b)
{
    json_t *said = json_loadb(b->line, b->line_len, JSON_REJECT_DUPLICATES, NULL);
    const char *type = json_string_value(json_object_get(said, "type"));

    if (type != NULL && strcmp(type, "finish") == 0 && b->asked_ms == 0) {
        b->asked_ms = uv_now(b->vmm->loop);
        finish(b);
    }
    json_decref(said);
}

static void control_data(struct tr_h2_stream *st, const uint8_t *data, size_t len, void *arg)
{
    struct vmm_bind *b = arg;

    tr_h2_stream_consume(st, len);
    for (size_t i = 0; i < len && !b->is_closing; i++) {
        if (data[i] == '\n') {
            on_line(b);
            b->line_len = 0;
        } else if (b->line_len < sizeof(b->line)) {
            b->line[b->line_len++] = (char)data[i];
        } else {
            close_bind(b);
        }
    }
}

static void control_close(struct tr_h2_stream *st, uint32_t code, void *arg)
{
    (void)st;
    (void)code;
    close_bind(arg); /* an end well both ways comes after what was last said */
}

static const struct tr_h2_stream_cbs control_cbs = {.on_data = control_data,
                                                    .on_close = control_close};

/* ---- the beginning ---- */

static void refuse(struct vmm_bind *b, int status, const char *code, const char *message)
{
    b->state = REFUSED;
    vmm_reply_fault(b->req, status, code, "%s", message);
    begin_next(b);
}

static int open_h2(struct vmm_bind *b)
{
    static const struct tr_h2_cbs cbs = {.send = on_send, .wake = wake, .on_over = on_over};
    const struct tr_h2_field fields[] = {
        TR_H2_FIELD(":method", "POST"),
        TR_H2_FIELD(":scheme", "http"),
        TR_H2_FIELD(":authority", "folder"),
        TR_H2_FIELD(":path", "/v1/up"),
        TR_H2_FIELD("content-type", "application/x-ndjson"),
    };
    int r = tr_h2_new(false, NULL, &cbs, b, &b->h2);

    if (r != 0)
        return r;
    if (uv_idle_init(b->vmm->loop, &b->pump) != 0)
        abort(); /* cannot fail on Unix */
    b->pump.data = b;
    b->has_pump = true;
    return tr_h2_request(b->h2, fields, sizeof(fields) / sizeof(fields[0]), false, &control_cbs, b,
                         &b->control);
}

static int open_sync(struct vmm_bind *b, struct vmm_session *session, struct err *err)
{
    char label[64], ancestor[2 * VMM_PATH_SIZE];
    const struct vmm_sync_options options = {.vmm = b->vmm,
                                             .session = session,
                                             .label = label,
                                             .side = "folder",
                                             .ancestor = ancestor,
                                             .instance = vmm_bind_instance(b->folder)};

    snprintf(label, sizeof(label), "bind=%s", b->folder);
    vmm_bind_ancestor(b->dir, b->folder, ancestor, sizeof(ancestor));
    return vmm_sync_open(&options, &sync_cbs, b, &b->sync, err);
}

static void go_live(struct vmm_bind *b, struct vmm_session *session)
{
    const struct tr_h2_field type = TR_H2_FIELD("content-type", "application/octet-stream");
    struct err err = {0};

    if (open_sync(b, session, &err) != 0) {
        b->sync = NULL;
        b->state = REFUSED;
        vmm_reply_err(b->req, &err);
        begin_next(b);
        return;
    }
    b->state = LIVE;
    b->req->answered = true;
    b->ping_ms = uv_now(b->vmm->loop);
    if (tr_h2_respond(b->req->st, 200, &type, 1, false) != 0 || open_h2(b) != 0) {
        close_bind(b);
        return;
    }
    log_info("session=%s: the folder %s is bound", b->session, b->folder);
    say(b, json_pack("{ss, ss}", "type", "hello", "session", b->session));
    wake(b);
}

static void run_check(struct vmm_store_job *job, struct sync_store *store)
{
    struct vmm_bind *b = (struct vmm_bind *)((char *)job - offsetof(struct vmm_bind, job));

    b->ask.files = sync_store_files(store);
    (void)!vmm_bind_check(&b->ask, &b->verdict, &job->err);
}

static void on_checked(struct vmm_store_job *job)
{
    struct vmm_bind *b = (struct vmm_bind *)((char *)job - offsetof(struct vmm_bind, job));
    struct vmm_session *session = vmm_session_find(&b->vmm->sessions, b->session);

    b->is_busy = false;
    if (b->is_closing || b->req->st == NULL) {
        b->is_closing = true;
        begin_next(b);
        maybe_free(b);
    } else if (job->err.code != 0) {
        b->state = REFUSED;
        vmm_reply_err(b->req, &job->err);
        begin_next(b);
    } else if (session == NULL || session->deleting || b->vmm->ending) {
        close_bind(b);
    } else if (b->verdict == VMM_BIND_UNRELATED) {
        refuse(b, 409, "unrelated",
               "both the folder and the session have files, and have not been in step before");
    } else if (b->verdict == VMM_BIND_EMPTIED) {
        refuse(b, 409, "emptied", "the folder is empty, and was not when it was in step last");
    } else if (b->req->ended) {
        refuse(b, 400, "bad_request", "the body, one direction of the connection, has ended");
    } else {
        go_live(b, session);
    }
}

static void check(struct vmm_bind *b)
{
    struct vmm_session *session = vmm_session_find(&b->vmm->sessions, b->session);
    struct err err = {0};

    if (session == NULL) {
        close_bind(b);
        return;
    }
    b->state = CHECKING;
    b->is_busy = true;
    b->job.run = run_check;
    b->job.done = on_checked;
    if (vmm_store_submit(b->vmm, session, &b->job, &err) == 0)
        return;
    b->is_busy = false;
    b->state = REFUSED;
    vmm_reply_err(b->req, &err);
}

static bool is_same(const struct vmm_bind *a, const struct vmm_bind *b)
{
    return strcmp(a->session, b->session) == 0 && strcmp(a->folder, b->folder) == 0;
}

/* Of those with this one's folder the one that waits may go on, unless another is not off yet. */
static void begin_next(const struct vmm_bind *like)
{
    struct vmm_bind *waiting = NULL;

    for (struct vmm_bind *b = like->vmm->binds; b != NULL; b = b->next) {
        if (!is_same(b, like) || is_off(b))
            continue;
        if (b->state != WAITING)
            return;
        waiting = b;
    }
    if (waiting != NULL)
        check(waiting);
}

static void on_data(struct vmm_request *req, const uint8_t *data, size_t len)
{
    struct vmm_bind *b = req->arg;

    if (b->h2 == NULL) {
        vmm_request_drop(req, len); /* before the answer nothing is to be said */
        return;
    }
    tr_h2_stream_consume(req->st, len); /* HTTP/2 within has its own windows */
    tr_h2_feed(b->h2, data, len);
}

static void on_end(struct vmm_request *req, const struct tr_h2_head *trailers)
{
    struct vmm_bind *b = req->arg;

    (void)trailers;
    if (b->state == LIVE) /* else on_checked() sees it */
        close_bind(b);
}

static void on_drain(struct vmm_request *req)
{
    const struct vmm_bind *b = req->arg;

    if (b->h2 != NULL)
        tr_h2_writable(b->h2);
}

static void on_gone(struct vmm_request *req, uint32_t code)
{
    struct vmm_bind *b = req->arg;

    (void)code;
    close_bind(b);
    maybe_free(b);
}

static void on_dismiss(struct vmm_request *req, enum vmm_dismissal why)
{
    (void)why;
    close_bind(req->arg);
}

static const struct vmm_request_cbs request_cbs = {.on_data = on_data,
                                                   .on_end = on_end,
                                                   .on_drain = on_drain,
                                                   .on_gone = on_gone,
                                                   .on_dismiss = on_dismiss};

/* A member of the query that is 0 or 1. */
static bool query_flag(const struct vmm_request *req, const char *name)
{
    char *value = vmm_query_get(req->query, name);
    bool is_set = value != NULL && strcmp(value, "1") == 0;

    free(value);
    return is_set;
}

static bool read_query(struct vmm_bind *b)
{
    char *folder = vmm_query_get(b->req->query, "folder");
    char *name = vmm_query_get(b->req->query, "name");
    bool is_good = folder != NULL && strlen(folder) == VMM_BIND_ID_LEN &&
                   strspn(folder, "0123456789abcdef") == VMM_BIND_ID_LEN;

    if (is_good)
        memcpy(b->folder, folder, VMM_BIND_ID_LEN);
    else
        vmm_reply_error(b->req, 400, "\"folder\" is an id of %d hexadecimal digits",
                        VMM_BIND_ID_LEN);
    if (is_good && name != NULL && *name != '\0' && !vmm_name_valid(name, NAME_SIZE - 1)) {
        vmm_reply_error(b->req, 400, "\"name\" is text of at most %d bytes", NAME_SIZE - 1);
        is_good = false;
    }
    if (is_good && name != NULL)
        snprintf(b->name, sizeof(b->name), "%s", name);
    free(folder);
    free(name);
    return is_good;
}

void vmm_api_bind(struct vmm_request *req)
{
    struct vmm *vmm = req->vmm;
    struct vmm_bind *b = calloc(1, sizeof(*b)), *other, *next;
    size_t n_live = 0;

    if (b == NULL) {
        vmm_reply_error(req, 503, "out of memory");
        return;
    }
    b->vmm = vmm;
    b->req = req;
    snprintf(b->session, sizeof(b->session), "%s", req->session->id);
    snprintf(b->owner, sizeof(b->owner), "%s", req->session->owner);
    snprintf(b->dir, sizeof(b->dir), "%s/%s", vmm->sessions.dir, b->session);
    b->since_ms = vmm_wall_ms();
    for (other = vmm->binds; other != NULL; other = other->next)
        n_live += strcmp(other->session, b->session) == 0;
    if (n_live >= LIVE_MAX)
        vmm_reply_error(req, 429, "%d folders are bound to this session", LIVE_MAX);
    if (n_live >= LIVE_MAX || !read_query(b)) {
        free(b);
        return;
    }
    b->ask = (struct vmm_bind_ask){.dir = b->dir,
                                   .folder = b->folder,
                                   .is_empty = query_flag(req, "empty"),
                                   .may_merge = query_flag(req, "merge")};
    vmm_request_ref(req);
    req->cbs = &request_cbs;
    req->arg = b;
    b->next = vmm->binds;
    if (b->next != NULL)
        b->next->prev = b;
    vmm->binds = b;
    b->state = WAITING;
    /* Its client has come back before it was known that it had gone. */
    for (other = b->next; other != NULL; other = next) {
        next = other->next;
        if (is_same(other, b) && !is_off(other))
            close_bind(other);
    }
    begin_next(b);
}

/* ---- who is there ---- */

void vmm_api_bind_list(struct vmm_request *req)
{
    json_t *list = json_array();

    for (const struct vmm_bind *b = req->vmm->binds; b != NULL; b = b->next) {
        char since[VMM_TIME_SIZE];
        json_t *item;

        if (strcmp(b->session, req->session->id) != 0 || b->sync == NULL || b->is_closing)
            continue;
        item = vmm_sync_json(b->sync);
        vmm_time_text(b->since_ms, since);
        json_object_set_new(item, "folder", json_string(b->folder));
        json_object_set_new(item, "name", json_string(b->name));
        json_object_set_new(item, "since", json_string(since));
        json_array_append_new(list, item);
    }
    vmm_reply_json(req, 200, json_pack("{so}", "bindings", list));
}

static void on_ping(int status, void *arg)
{
    struct vmm_bind *b = arg;

    if (status == 0)
        b->is_pinged = false;
}

static void tick(struct vmm_bind *b, uint64_t now_ms)
{
    if (b->bye_ms != 0 && now_ms >= b->bye_ms) {
        close_bind(b);
        return;
    }
    if (b->asked_ms != 0)
        finish(b);
    vmm_sync_tick(b->sync, now_ms);
    if (now_ms < b->ping_ms + PING_MS)
        return;
    b->ping_ms = now_ms;
    if (b->is_pinged)
        close_bind(b);
    else
        b->is_pinged = tr_h2_ping(b->h2, on_ping, b) == 0;
}

void vmm_binds_tick(struct vmm *vmm, uint64_t now_ms)
{
    struct vmm_bind *next;

    for (struct vmm_bind *b = vmm->binds; b != NULL; b = next) {
        next = b->next; /* closing frees none at once: the request is there, or the sync */
        if (b->state == LIVE && !b->is_closing)
            tick(b, now_ms);
    }
}

void vmm_binds_look(struct vmm *vmm, const char *session_id)
{
    for (struct vmm_bind *b = vmm->binds; b != NULL; b = b->next)
        if (b->state == LIVE && !b->is_closing && strcmp(b->session, session_id) == 0)
            vmm_sync_look(b->sync);
}

void vmm_binds_secrets(struct vmm *vmm, const char *session_id, struct tr_mask *mask)
{
    for (struct vmm_bind *b = vmm->binds; b != NULL; b = b->next)
        if (b->sync != NULL && strcmp(b->session, session_id) == 0)
            vmm_sync_secrets(b->sync, mask);
}
