/* SPDX-License-Identifier: MIT */
/* Taking: list (job) -> look (stream) -> for each that is new: get (stream), add (jobs), end (job)
 * -> drop (job) -> finish. Restoring: list (job) -> for each: read (jobs), put (stream) -> look, to
 * know them again -> finish.
 *
 * One stream and one job at most are under way. Faults set `status` and end the stream; whoever
 * comes last (stream closed, job done) goes on in next(). */
#include "vmm/gits.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "sync/git_screen.h"
#include "sync/store_gits.h"
#include "transom/log.h"
#include "vmm/store_api.h"

#define TRIES      3         /* of one that is changed while it is read */
#define FOLDERS    (8 << 20) /* bytes of paths that are asked about; the agent's limit */
#define ANSWER_MAX (1 << 20) /* the guest is not trusted */
#define FOUND_MAX  2000      /* repositories of one machine that are kept */
#define TOLD_MAX   20        /* lines in the log about what is left out */
#define BLOCK      (256 * 1024)
#define H2_CANCEL  8

enum step { IDLE, LIST, LOOK, GET, END, DROP, READ, PUT };

struct folder { /* that has a .git */
    char *path;
    size_t len;
    int64_t bytes;
    char print[SYNC_ID_SIZE]; /* "" : not known */
    const char *error;        /* what the agent says; static */
};

struct folders {
    struct folder *items;
    size_t n, size;
};

struct vmm_gits {
    uv_loop_t *loop;
    struct vmm_gits_options o;
    uv_timer_t timer;
    /* Between operations. */
    struct folders known;   /* taken or restored in this boot, with the print of then */
    struct folders refused; /* by these secrets, with the print of then */
    uint64_t refused_by;
    bool may_drop; /* what is not in the machine was removed there */
    json_t *left_out;
    /* The operation. */
    enum step step;
    bool is_restore;
    int status;
    vmm_gits_cb cb;
    void *cb_arg;
    size_t n_dirs;
    struct sync_buf body; /* the paths of the store's folders, each with a NUL */
    struct folders kept;  /* in the store */
    struct folders found; /* in the machine */
    bool is_partial;      /* found is not all */
    size_t at;            /* in found (taking) or kept (restoring) */
    unsigned tries;
    json_t *fresh_left_out;
    bool has_changed; /* what the next checkpoint will have */
    /* The job. */
    struct vmm_store_job job;
    bool is_busy;
    enum step task;
    int result;
    struct sync_git_writer *writer;
    struct sync_git_screen *screen;
    bool is_look_only; /* what comes is not taken yet */
    bool was_seen;     /* the whole of it, and it holds no secret */
    int64_t n_seen;    /* bytes that came; what a guest says beforehand counts for nothing */
    struct sync_git_reader *reader;
    struct sync_buf in;    /* received, not in the job */
    struct sync_buf block; /* the job's */
    bool read_all;
    /* The stream. */
    struct tr_h2_stream *st;
    int http;
    bool has_end, is_full;
    void (*on_closed)(void *arg);
    void *on_closed_arg;
};

static void go_on(struct vmm_gits *g);

/* ---- lists ---- */

static struct folder *add_folder(struct folders *list, const char *path, size_t len)
{
    struct folder *f;

    if (list->n == list->size) {
        size_t size = list->size > 0 ? 2 * list->size : 16;
        struct folder *more = realloc(list->items, size * sizeof(*more));

        if (more == NULL)
            return NULL;
        list->items = more;
        list->size = size;
    }
    f = &list->items[list->n];
    *f = (struct folder){.path = malloc(len + 1), .len = len};
    if (f->path == NULL)
        return NULL;
    memcpy(f->path, path, len);
    f->path[len] = '\0';
    list->n++;
    return f;
}

static struct folder *find(const struct folders *list, const char *path, size_t len)
{
    for (size_t i = 0; i < list->n; i++) {
        if (list->items[i].len == len && memcmp(list->items[i].path, path, len) == 0)
            return &list->items[i];
    }
    return NULL;
}

static void free_folders(struct folders *list)
{
    for (size_t i = 0; i < list->n; i++)
        free(list->items[i].path);
    free(list->items);
    *list = (struct folders){0};
}

static void leave_out(struct vmm_gits *g, const struct folder *f, const char *code, const char *why)
{
    const char *end = f->len > 0 ? "/.git" : ".git";
    char *text = malloc(4 * f->len + 8), *at = text;

    if (text == NULL)
        return;
    for (size_t i = 0; i < f->len; i++) {
        unsigned char c = (unsigned char)f->path[i];

        if (c < 0x20 || c > 0x7e || c == '\\')
            at += sprintf(at, "\\x%02x", c);
        else
            *at++ = (char)c;
    }
    memcpy(at, end, strlen(end) + 1);
    if (json_array_size(g->fresh_left_out) < TOLD_MAX)
        log_warn("%s: %s is not kept: %s", g->o.label, text, why);
    json_array_append_new(g->fresh_left_out,
                          json_pack("{ss, ss, ss}", "path", text, "code", code, "why", why));
    free(text);
}

/* ---- jobs ---- */

static int list_dir(const char *path, size_t len, const struct sync_stat *st, const char *target,
                    void *arg)
{
    struct vmm_gits *g = arg;

    (void)target;
    if (st->type != SYNC_TYPE_DIR)
        return 0;
    if (g->body.len + len + 1 > FOLDERS) {
        g->is_partial = true;
        return 1;
    }
    g->n_dirs++;
    return sync_buf_add(&g->body, path, len) != 0 || sync_buf_add(&g->body, "", 1) != 0 ? -ENOMEM
                                                                                        : 0;
}

static int list_kept(const struct sync_git *git, void *arg)
{
    struct vmm_gits *g = arg;
    struct folder *f = add_folder(&g->kept, git->path, git->len);

    if (f == NULL)
        return -ENOMEM;
    f->bytes = git->bytes;
    return 0;
}

static int list(struct vmm_gits *g, struct sync_store *store)
{
    int r = sync_store_gits(store, list_kept, g, &g->job.err);

    g->n_dirs = 1; /* the home folder: "" */
    if (r == 0)
        r = sync_buf_add(&g->body, "", 1);
    if (r == 0)
        r = sync_store_list(store, "", 0, true, NULL, list_dir, g, &g->job.err);
    return r > 0 ? 0 : r;
}

/* Is there something to drop? With a store: do it. */
static int drop(struct vmm_gits *g, struct sync_store *store)
{
    int r = 0;

    for (size_t i = 0; i < g->kept.n && r == 0; i++) {
        const struct folder *f = &g->kept.items[i];

        if (find(&g->found, f->path, f->len) != NULL)
            continue;
        if (store == NULL)
            return 1;
        r = sync_store_git_drop(store, f->path, f->len, &g->job.err);
    }
    return r;
}

static int add(struct vmm_gits *g, struct sync_store *store)
{
    int r;

    g->n_seen += (int64_t)g->block.len;
    if (g->n_seen > g->o.max_bytes)
        return -EFBIG;
    r = sync_git_screen_feed(g->screen, g->block.data, g->block.len);
    if (r != 0 || g->is_look_only)
        return r == 1 ? -EACCES : r;
    if (g->writer == NULL)
        r = sync_git_writer_new(store, &g->writer, &g->job.err);
    if (r == 0)
        sync_git_writer_limit(g->writer, g->o.max_bytes);
    return r == 0 ? sync_git_writer_add(g->writer, g->block.data, g->block.len, &g->job.err) : r;
}

static int read_some(struct vmm_gits *g, struct sync_store *store)
{
    const struct folder *f = &g->kept.items[g->at];
    const void *piece;
    int64_t n = 1;
    int r = 0;

    if (g->reader == NULL)
        r = sync_git_reader_open(store, f->path, f->len, &g->reader, &g->job.err);
    while (r == 0 && n > 0 && g->block.len < BLOCK) {
        n = sync_git_reader_next(g->reader, &piece, &g->job.err);
        r = n < 0 ? (int)n : n > 0 ? sync_buf_add(&g->block, piece, (size_t)n) : 0;
    }
    g->read_all = n == 0;
    return r;
}

static void on_job(struct vmm_store_job *job, struct sync_store *store)
{
    struct vmm_gits *g = (struct vmm_gits *)((char *)job - offsetof(struct vmm_gits, job));
    const struct folder *f = g->task == END ? &g->found.items[g->at] : NULL;

    switch (g->task) {
    case LIST:
        g->result = list(g, store);
        break;
    case GET:
        g->result = add(g, store);
        break;
    case END:
        g->result = sync_git_writer_end(g->writer, f->path, f->len, &job->err);
        break;
    case DROP:
        g->result = drop(g, store);
        break;
    default:
        g->result = read_some(g, store);
    }
}

static void on_job_done(struct vmm_store_job *job)
{
    struct vmm_gits *g = (struct vmm_gits *)((char *)job - offsetof(struct vmm_gits, job));

    g->is_busy = false;
    if (g->result == 0)
        g->result = job->err.code; /* the store could not be opened */
    go_on(g);
}

static void submit(struct vmm_gits *g, enum step task)
{
    g->is_busy = true;
    g->result = 0;
    g->task = task;
    g->job.run = on_job;
    g->job.done = on_job_done;
    vmm_store_submit_held(g->o.hold, &g->job);
}

/* ---- the stream ---- */

static void on_head(struct tr_h2_stream *st, const struct tr_h2_head *head, bool end, void *arg)
{
    struct vmm_gits *g = arg;

    (void)st;
    (void)end;
    if (head->status >= 200)
        g->http = head->status;
}

static void on_data(struct tr_h2_stream *st, const uint8_t *data, size_t len, void *arg)
{
    struct vmm_gits *g = arg;
    bool is_content = g->step == GET && g->http == 200;

    if (!is_content)
        tr_h2_stream_consume(st, len);
    if ((!is_content && g->in.len + len > ANSWER_MAX) || sync_buf_add(&g->in, data, len) != 0) {
        g->status = g->status != 0 ? g->status : UV_ENOMEM;
        tr_h2_reset(st, H2_CANCEL);
        return;
    }
    if (is_content)
        go_on(g);
}

static void on_end(struct tr_h2_stream *st, const struct tr_h2_head *trailers, void *arg)
{
    struct vmm_gits *g = arg;

    (void)st;
    (void)trailers;
    g->has_end = true;
}

static void on_drain(struct tr_h2_stream *st, void *arg)
{
    struct vmm_gits *g = arg;

    (void)st;
    g->is_full = false;
    go_on(g);
}

static void on_close(struct tr_h2_stream *st, uint32_t code, void *arg)
{
    struct vmm_gits *g = arg;

    (void)st;
    (void)code;
    g->st = NULL;
    go_on(g);
}

/* path is of the folder, NULL: none. Returns whether it was sent. */
static bool ask(struct vmm_gits *g, enum step step, const char *method, const char *target,
                const struct folder *folder)
{
    static const struct tr_h2_stream_cbs cbs = {.on_head = on_head,
                                                .on_data = on_data,
                                                .on_end = on_end,
                                                .on_drain = on_drain,
                                                .on_close = on_close};
    struct tr_h2 *h2 = g->o.session(g->o.arg);
    char *path = folder != NULL ? vmm_store_encode(folder->path, folder->len) : NULL, *full = NULL;
    int r = h2 == NULL ? UV_ENOTCONN : 0;

    if (r == 0 && asprintf(&full, "%s%s%s", target, folder != NULL ? "?path=" : "",
                           path != NULL ? path : "") < 0) {
        full = NULL;
        r = UV_ENOMEM;
    }
    if (r == 0) {
        const struct tr_h2_field fields[] = {
            TR_H2_FIELD(":method", method),
            TR_H2_FIELD(":scheme", "http"),
            TR_H2_FIELD(":authority", "agent"),
            TR_H2_FIELD(":path", full),
            TR_H2_FIELD("content-type", "application/octet-stream"),
        };

        g->step = step;
        g->http = 0;
        g->has_end = g->is_full = false;
        g->in.len = 0;
        r = tr_h2_request(h2, fields, step == LOOK ? 4 : 5, step == GET, &cbs, g, &g->st);
        if (r != 0)
            g->st = NULL;
    }
    free(path);
    free(full);
    if (r != 0 && g->status == 0)
        g->status = r;
    return r == 0;
}

/* ---- the operation ---- */

static void fini_transfer(struct vmm_gits *g)
{
    sync_git_writer_free(g->writer);
    g->writer = NULL;
    sync_git_screen_free(g->screen);
    g->screen = NULL;
    sync_git_reader_close(g->reader);
    g->reader = NULL;
    g->block.len = g->in.len = 0;
    g->n_seen = 0;
    g->read_all = false;
}

static void finish(struct vmm_gits *g)
{
    vmm_gits_cb cb = g->cb;

    uv_timer_stop(&g->timer);
    fini_transfer(g);
    sync_buf_free(&g->body);
    sync_buf_free(&g->in);
    sync_buf_free(&g->block);
    free_folders(&g->kept);
    free_folders(&g->found);
    if (g->status == 0 && !g->is_restore) {
        json_decref(g->left_out);
        g->left_out = g->fresh_left_out;
    } else {
        json_decref(g->fresh_left_out);
    }
    g->fresh_left_out = NULL;
    g->step = IDLE;
    cb(g->status, g->cb_arg);
}

static void look(struct vmm_gits *g)
{
    if (!ask(g, LOOK, "POST", "/v1/git/look", NULL)) {
        finish(g);
        return;
    }
    if (tr_h2_write(g->st, g->body.data, g->body.len) < 0)
        tr_h2_reset(g->st, H2_CANCEL);
    else
        tr_h2_end(g->st, NULL, 0);
}

static int take_found(struct vmm_gits *g, const json_t *answer)
{
    const json_t *list = json_object_get(answer, "found"), *item;
    const char *path = (const char *)g->body.data; /* of number `last` */
    json_int_t last = -1;
    size_t i;

    if (!json_is_array(list))
        return UV_EPROTO;
    if (json_is_true(json_object_get(answer, "truncated")))
        g->is_partial = true;
    json_array_foreach(list, i, item)
    {
        json_int_t index = json_integer_value(json_object_get(item, "index"));
        const char *print = json_string_value(json_object_get(item, "print"));
        struct folder *f;

        if (g->found.n == FOUND_MAX) {
            log_warn("%s: more than %d repositories; those beyond are not kept", g->o.label,
                     FOUND_MAX);
            g->is_partial = true;
            break;
        }
        if (!json_is_integer(json_object_get(item, "index")) || index <= last ||
            index >= (json_int_t)g->n_dirs)
            return UV_EPROTO;
        for (; last < index; last++)
            path += last >= 0 ? strlen(path) + 1 : 0;
        f = add_folder(&g->found, path, strlen(path));
        if (f == NULL)
            return UV_ENOMEM;
        f->bytes = json_integer_value(json_object_get(item, "bytes"));
        if (print != NULL && strlen(print) == SYNC_ID_SIZE - 1 && f->bytes >= 0)
            memcpy(f->print, print, SYNC_ID_SIZE);
    }
    return 0;
}

static int note(struct folders *list, const struct folder *f)
{
    struct folder *known = find(list, f->path, f->len);

    if (known == NULL)
        known = add_folder(list, f->path, f->len);
    if (known == NULL)
        return UV_ENOMEM;
    memcpy(known->print, f->print, sizeof(known->print));
    return 0;
}

/* Restored ones are known by how they look now. */
static int know(struct vmm_gits *g, const struct folder *f)
{
    return note(&g->known, f);
}

/* It is as it was when it held a secret, and that still is one. */
static bool is_refused(struct vmm_gits *g, const struct folder *f)
{
    const struct folder *refused;

    if (g->refused_by != sync_secrets_version(g->o.secrets)) {
        free_folders(&g->refused);
        g->refused_by = sync_secrets_version(g->o.secrets);
    }
    refused = find(&g->refused, f->path, f->len);
    return refused != NULL && *f->print && strcmp(refused->print, f->print) == 0;
}

static void refuse(struct vmm_gits *g, const struct folder *f)
{
    leave_out(g, f, "secret", "holds the value of an active secret");
    if (*f->print && note(&g->refused, f) != 0)
        log_warn("%s: out of memory", g->o.label);
}

/* Begin to fetch it: to look it through, or to take it. */
static int begin_get(struct vmm_gits *g)
{
    int r;

    fini_transfer(g);
    r = sync_git_screen_new(g->o.secrets, 0, &g->screen);
    g->is_look_only = g->screen != NULL && !g->was_seen;
    return r;
}

static bool is_known(const struct vmm_gits *g, const struct folder *f)
{
    const struct folder *known = find(&g->known, f->path, f->len);

    return known != NULL && *f->print && strcmp(known->print, f->print) == 0 &&
           find(&g->kept, f->path, f->len) != NULL;
}

/* Taking: the next one that is to be fetched, or the end. */
static void next_found(struct vmm_gits *g)
{
    for (; g->at < g->found.n; g->at++) {
        const struct folder *f = &g->found.items[g->at];

        if (is_known(g, f))
            continue;
        if (is_refused(g, f))
            refuse(g, f);
        else if (!*f->print)
            leave_out(g, f, "git-unreadable",
                      "a Git repository's own data that cannot be read, or of too many files");
        else if (f->bytes > g->o.max_bytes)
            leave_out(g, f, "git-too-big", "a Git repository's own data, larger than the limit");
        else if (g->tries >= TRIES)
            leave_out(g, f, "git-changing",
                      "a Git repository's own data that changes all the time");
        else
            break;
        g->tries = 0;
        g->was_seen = false;
    }
    if (g->at < g->found.n) {
        g->tries++;
        g->status = begin_get(g);
        if (g->status != 0 || !ask(g, GET, "GET", "/v1/git", &g->found.items[g->at]))
            finish(g);
    } else if (g->may_drop && !g->is_partial && drop(g, NULL) != 0) {
        g->step = DROP;
        submit(g, DROP);
    } else {
        finish(g);
    }
}

static void after_look(struct vmm_gits *g)
{
    json_t *answer = g->has_end && g->http == 200
                         ? json_loadb((const char *)g->in.data, g->in.len, 0, NULL)
                         : NULL;

    if (answer == NULL)
        g->status = g->o.session(g->o.arg) == NULL ? UV_ENOTCONN : UV_EPROTO;
    else
        g->status = take_found(g, answer);
    json_decref(answer);
    g->in.len = 0;
    if (g->status != 0) {
        finish(g);
        return;
    }
    if (!g->is_restore) {
        g->at = 0;
        g->tries = 0;
        next_found(g);
        return;
    }
    for (size_t i = 0; i < g->found.n; i++) {
        const struct folder *f = &g->found.items[i], *kept = find(&g->kept, f->path, f->len);

        if (kept != NULL && *kept->print && know(g, f) != 0)
            break; /* it is fetched once more */
    }
    g->may_drop = true;
    finish(g);
}

/* GET is under way: what came goes into the store; the end of the one is the beginning of the
 * next. */
static void step_get(struct vmm_gits *g)
{
    struct folder *f = &g->found.items[g->at];

    if (g->task == GET && g->block.len > 0) { /* a job has ended */
        if (g->st != NULL)
            tr_h2_stream_consume(g->st, g->block.len);
        g->block.len = 0;
        if (g->result != 0) {
            if (g->result == -EACCES)
                refuse(g, f);
            else if (g->result == -EFBIG)
                leave_out(g, f, "git-too-big",
                          "a Git repository's own data, larger than the limit");
            else if (g->result == -E2BIG)
                leave_out(g, f, "git-too-big",
                          "too much is in it to be looked through for secrets");
            else
                leave_out(g, f, g->result == -EDQUOT ? "git-quota" : "git-fault",
                          g->result == -EDQUOT ? "the session's quota is used up"
                                               : "the store cannot take it");
            g->tries = 0;
            g->was_seen = false;
            g->at++;
            g->http = -1;
            if (g->st != NULL)
                tr_h2_reset(g->st, H2_CANCEL); /* on_close goes on */
            else
                next_found(g);
            return;
        }
    }
    if (g->http == 200 && g->in.len > 0) {
        struct sync_buf swap = g->block;

        g->block = g->in;
        g->in = swap;
        submit(g, GET);
    } else if (g->st != NULL) {
        return; /* more is to come */
    } else if (g->http == -1) {
        next_found(g);
    } else if (g->http == 200 && g->has_end && g->is_look_only) {
        g->was_seen = true;
        g->tries--; /* not a failed one */
        next_found(g);
    } else if (g->http == 200 && g->has_end && g->writer != NULL) {
        g->step = END;
        submit(g, END);
    } else if (g->http == 404) { /* it has gone meanwhile */
        g->at++;
        g->tries = 0;
        g->was_seen = false;
        g->is_partial = true;
        next_found(g);
    } else if (g->o.session(g->o.arg) == NULL) {
        g->status = UV_ENOTCONN;
        finish(g);
    } else {
        g->was_seen = false; /* changed: once more */
        next_found(g);
    }
}

static void step_end(struct vmm_gits *g)
{
    struct folder *f = &g->found.items[g->at];

    g->has_changed = g->has_changed || g->result == 0;
    if (g->result != 0)
        leave_out(g, f, "git-fault", "the store cannot take it");
    else if (know(g, f) != 0)
        log_warn("%s: out of memory", g->o.label);
    g->tries = 0;
    g->was_seen = false;
    g->at++;
    next_found(g);
}

/* ---- restoring ---- */

static void next_kept(struct vmm_gits *g)
{
    fini_transfer(g);
    if (g->at == g->kept.n) {
        look(g);
        return;
    }
    if (!ask(g, PUT, "PUT", "/v1/git", &g->kept.items[g->at])) {
        finish(g);
        return;
    }
    submit(g, READ);
}

static void after_put(struct vmm_gits *g)
{
    struct folder *f = &g->kept.items[g->at];

    if (g->http == 201) {
        f->print[0] = '?'; /* to be known */
    } else if (g->http == 0 && g->o.session(g->o.arg) == NULL) {
        g->status = UV_ENOTCONN;
        finish(g);
        return;
    } else if (g->http != 409) {
        log_warn("%s: the .git of \"%.80s\" cannot be put back: %d: %.*s", g->o.label, f->path,
                 g->http, (int)(g->in.len < 200 ? g->in.len : 200),
                 g->in.data != NULL ? (const char *)g->in.data : "");
    }
    g->at++;
    next_kept(g);
}

static void step_put(struct vmm_gits *g)
{
    int r;

    if (g->result != 0) {
        log_warn("%s: a kept .git cannot be read: %s", g->o.label, g->job.err.msg);
        g->result = 0;
        if (g->st != NULL)
            tr_h2_reset(g->st, H2_CANCEL);
    }
    if (g->st == NULL) {
        after_put(g);
        return;
    }
    if (g->block.len > 0) {
        r = tr_h2_write(g->st, g->block.data, g->block.len);
        g->block.len = 0;
        g->is_full = r == 0;
        if (r < 0)
            return; /* it has ended, which on_close tells */
    }
    if (g->read_all)
        tr_h2_end(g->st, NULL, 0);
    else if (!g->is_full)
        submit(g, READ);
}

/* ---- all of it ---- */

/* A stream or a job has something new. */
static void go_on(struct vmm_gits *g)
{
    if (g->is_busy)
        return;
    if (g->status != 0) { /* it ends */
        if (g->st != NULL)
            tr_h2_reset(g->st, H2_CANCEL);
        else
            finish(g);
        return;
    }
    switch (g->step) {
    case LIST:
        g->status = g->result;
        if (g->result != 0)
            finish(g);
        else if (!g->is_restore)
            look(g);
        else
            next_kept(g);
        break;
    case LOOK:
        if (g->st == NULL)
            after_look(g);
        break;
    case GET:
        step_get(g);
        break;
    case END:
        step_end(g);
        break;
    case DROP:
        g->has_changed = true;
        g->status = g->result;
        finish(g);
        break;
    case PUT:
        step_put(g);
        break;
    default:
        break;
    }
}

static void on_timer(uv_timer_t *timer)
{
    struct vmm_gits *g = timer->data;

    if (g->step == IDLE)
        return;
    if (g->status == 0)
        g->status = UV_ETIMEDOUT;
    if (g->st != NULL)
        tr_h2_reset(g->st, H2_CANCEL); /* on_close goes on */
}

static void start(struct vmm_gits *g, bool is_restore, uint64_t timeout_ms, vmm_gits_cb cb,
                  void *arg)
{
    g->is_restore = is_restore;
    g->status = 0;
    g->cb = cb;
    g->cb_arg = arg;
    g->at = g->n_dirs = 0;
    g->tries = 0;
    g->is_partial = g->has_changed = g->was_seen = false;
    g->fresh_left_out = json_array();
    (void)uv_timer_start(&g->timer, on_timer, timeout_ms, 0);
    g->step = LIST;
    submit(g, LIST);
}

void vmm_gits_restore(struct vmm_gits *g, uint64_t timeout_ms, vmm_gits_cb cb, void *arg)
{
    start(g, true, timeout_ms, cb, arg);
}

void vmm_gits_take(struct vmm_gits *g, uint64_t timeout_ms, vmm_gits_cb cb, void *arg)
{
    start(g, false, timeout_ms, cb, arg);
}

void vmm_gits_restored(struct vmm_gits *g)
{
    g->may_drop = true;
}

bool vmm_gits_is_busy(const struct vmm_gits *g)
{
    return g->step != IDLE;
}

bool vmm_gits_has_changed(const struct vmm_gits *g)
{
    return g->has_changed;
}

const json_t *vmm_gits_left_out(const struct vmm_gits *g)
{
    return g->left_out;
}

void vmm_gits_stop(struct vmm_gits *g)
{
    if (g->step == IDLE)
        return;
    if (g->status == 0)
        g->status = UV_ECANCELED;
    if (g->st != NULL)
        tr_h2_reset(g->st, H2_CANCEL); /* on_close goes on; a job's end does, too */
}

int vmm_gits_open(uv_loop_t *loop, const struct vmm_gits_options *options, struct vmm_gits **out)
{
    struct vmm_gits *g = calloc(1, sizeof(*g));

    if (g == NULL)
        return UV_ENOMEM;
    g->loop = loop;
    g->o = *options;
    g->left_out = json_array();
    if (uv_timer_init(loop, &g->timer) != 0)
        abort(); /* cannot fail on Unix */
    g->timer.data = g;
    *out = g;
    return 0;
}

static void on_timer_closed(uv_handle_t *handle)
{
    struct vmm_gits *g = handle->data;

    free_folders(&g->known);
    free_folders(&g->refused);
    json_decref(g->left_out);
    g->on_closed(g->on_closed_arg);
    free(g);
}

void vmm_gits_close(struct vmm_gits *g, void (*cb)(void *arg), void *arg)
{
    g->on_closed = cb;
    g->on_closed_arg = arg;
    uv_close((uv_handle_t *)&g->timer, on_timer_closed);
}
