/* SPDX-License-Identifier: MIT */
/* The thread: take the inbox, run a round if one is due, publish, wait. The loop: hand out what was
 * published, and join the thread once it has ended. */
#include "sync/run.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include "sync/scan.h"

enum what { DIRTY, LOST, UNWATCHED, OVERFLOW, LOOK };

struct note { /* to the engine */
    struct note *next;
    enum what what;
    enum sync_side side;
    size_t len;
    char dir[];
};

struct told { /* a conflict, to the loop */
    struct told *next;
    enum sync_conflict_kind kind;
    enum sync_side winner;
    size_t len;
    char path[];
};

struct sync_run {
    const struct sync_run_cbs *cbs;
    void *arg;
    struct sync_engine_options options;
    char *ancestor;
    pthread_t thread;
    uv_async_t async; /* to the loop */
    pthread_mutex_t lock;
    pthread_cond_t cond; /* to the thread */
    /* Under the lock. */
    struct note *first, *last;
    size_t n_notes;
    bool is_kicked, is_stopped, is_finishing, has_ended;
    int64_t finish_ms; /* by when */
    int end_status;
    struct sync_run_news *news; /* not handed out yet, or NULL */
    struct told *told, **told_end;
    /* The loop's. */
    struct sync_run_news *shown;
    /* The thread's. */
    struct sync_engine *engine;
};

static int64_t now_ms(void)
{
    return (int64_t)(uv_hrtime() / 1000000);
}

/* ---- the thread ---- */

static void free_shown(struct sync_shown *list, size_t n)
{
    for (size_t i = 0; i < n; i++)
        free(list[i].path);
    free(list);
}

static void free_news(struct sync_run_news *news)
{
    if (news == NULL)
        return;
    free_shown(news->left_out, news->n_left_out);
    free_shown(news->faults, news->n_faults);
    free(news);
}

static bool show(struct sync_shown *list, size_t *n, const char *path, size_t len,
                 enum sync_side side, const char *name, const char *text)
{
    struct sync_shown *at = &list[*n];

    at->path = strndup(path, len);
    if (at->path == NULL)
        return false;
    at->len = len;
    at->side = side;
    at->name = name;
    at->text = text;
    return ++*n < SYNC_RUN_SHOWN;
}

static bool show_left_out(const char *path, size_t len, unsigned why, void *arg)
{
    struct sync_run_news *news = arg;

    return show(news->left_out, &news->n_left_out, path, len, SYNC_GUEST, sync_scan_why_name(why),
                sync_scan_why_text(why));
}

static bool count_left_out(const char *path, size_t len, unsigned why, void *arg)
{
    struct sync_run_news *news = arg;

    (void)path;
    (void)len;
    if (why < SYNC_RUN_WHYS)
        news->n_why[why]++;
    return true;
}

/* libuv has no names for some, a used up quota among them, and makes new texts for those. */
static const char *fault_name(int status)
{
    const char *name = strerrorname_np(-status);

    return name != NULL ? name : uv_err_name(status);
}

static const char *fault_text(int status)
{
    const char *text = strerrordesc_np(-status);

    return text != NULL ? text : uv_strerror(status);
}

static bool show_fault(enum sync_side side, const char *path, size_t len, int status, void *arg)
{
    struct sync_run_news *news = arg;

    return show(news->faults, &news->n_faults, path, len, side, fault_name(status),
                fault_text(status));
}

static void publish(struct sync_run *run, int round, const struct err *err)
{
    struct sync_run_news *news = calloc(1, sizeof(*news)), *old;

    if (news == NULL)
        return;
    sync_engine_status(run->engine, &news->status);
    news->round = round;
    news->err = *err;
    if (news->status.n_left_out > 0)
        news->left_out = calloc(SYNC_RUN_SHOWN, sizeof(*news->left_out));
    if (news->left_out != NULL)
        sync_engine_left_out(run->engine, show_left_out, news);
    sync_engine_left_out(run->engine, count_left_out, news);
    if (news->status.n_faults > 0)
        news->faults = calloc(SYNC_RUN_SHOWN, sizeof(*news->faults));
    if (news->faults != NULL)
        sync_engine_faults(run->engine, show_fault, news);
    pthread_mutex_lock(&run->lock);
    old = run->news;
    run->news = news;
    pthread_mutex_unlock(&run->lock);
    free_news(old);
    uv_async_send(&run->async);
}

static void on_conflict(const struct sync_conflict *c, void *arg)
{
    struct sync_run *run = arg;
    struct told *told = calloc(1, sizeof(*told) + c->len + 1);

    if (told == NULL)
        return; /* counted all the same */
    told->kind = c->kind;
    told->winner = c->winner;
    told->len = c->len;
    memcpy(told->path, c->path, c->len);
    pthread_mutex_lock(&run->lock);
    *run->told_end = told;
    run->told_end = &told->next;
    pthread_mutex_unlock(&run->lock);
}

static void pass_on(struct sync_run *run, const struct note *note, int64_t now)
{
    struct sync_engine *e = run->engine;

    switch (note->what) {
    case DIRTY:
        sync_engine_dirty(e, note->side, note->dir, note->len);
        break;
    case LOST:
        sync_engine_lost(e, note->side, note->dir, note->len);
        break;
    case UNWATCHED:
        sync_engine_unwatched(e, note->side, note->dir, note->len, now);
        sync_engine_dirty(e, note->side, note->dir, note->len);
        break;
    default:
        sync_engine_dirty_all(e, note->side, note->what == OVERFLOW);
    }
}

/* Take what is in the inbox. Called and returns with the lock held. */
static void take_notes(struct sync_run *run, int64_t now)
{
    struct note *note;

    while ((note = run->first) != NULL) {
        run->first = note->next;
        if (run->first == NULL)
            run->last = NULL;
        run->n_notes--;
        pthread_mutex_unlock(&run->lock);
        pass_on(run, note, now);
        free(note);
        pthread_mutex_lock(&run->lock);
    }
}

static void wait_until(struct sync_run *run, int64_t until_ms)
{
    struct timespec ts;
    int64_t ms = until_ms - now_ms();

    if (run->first != NULL || run->is_stopped || run->is_kicked || ms <= 0)
        return;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    ts.tv_sec += ms / 1000;
    ts.tv_nsec += ms % 1000 * 1000000;
    if (ts.tv_nsec >= 1000000000) {
        ts.tv_sec++;
        ts.tv_nsec -= 1000000000;
    }
    pthread_cond_timedwait(&run->cond, &run->lock, &ts);
}

/* Rounds until both sides are in step and nothing is awaited, or the time is over. */
static int finish(struct sync_run *run)
{
    struct sync_engine_status status = {0};
    struct err err;
    int r = -ETIMEDOUT;

    for (int side = 0; side < SYNC_N_SIDES; side++)
        sync_engine_dirty_all(run->engine, (enum sync_side)side, false);
    for (;;) {
        int64_t now = now_ms(), due;
        bool is_over;

        tr_err_clear(&err);
        r = sync_engine_round(run->engine, now, &err);
        publish(run, r, &err);
        sync_engine_status(run->engine, &status);
        due = sync_engine_due(run->engine);
        pthread_mutex_lock(&run->lock);
        take_notes(run, now);
        is_over = run->is_stopped || now >= run->finish_ms;
        if (!is_over && r == 0 && status.is_in_step &&
            (due < 0 || due > now + 2 * SYNC_SCAN_GONE_MS))
            is_over = true; /* nothing is awaited that will come soon */
        else if (!is_over)
            wait_until(run, r != 0 || due < 0 || due > now + 100 ? now + 100 : due);
        if (run->is_stopped)
            r = -ECANCELED;
        pthread_mutex_unlock(&run->lock);
        if (is_over)
            break;
    }
    return r == 0 && !status.is_in_step ? -ETIMEDOUT : r;
}

/* When the next round is due; -1: when there is news. */
static int64_t next_due(const struct sync_run *run, bool has_failed, int64_t not_before)
{
    int64_t due = sync_engine_due(run->engine);

    if (has_failed && (due < 0 || due < not_before))
        due = not_before;
    return due;
}

static int live(struct sync_run *run)
{
    int64_t not_before = 0;
    bool has_failed = false;

    for (;;) {
        struct err err = {0};
        int64_t due = next_due(run, has_failed, not_before);
        bool is_stopped, is_finishing;
        int r;

        if (due >= 0 && due <= now_ms()) {
            r = sync_engine_round(run->engine, now_ms(), &err);
            publish(run, r, &err);
            has_failed = r != 0;
            not_before = now_ms() + SYNC_RUN_RETRY_MS;
            due = next_due(run, has_failed, not_before);
        }
        pthread_mutex_lock(&run->lock);
        if (!run->is_finishing)
            wait_until(run, due < 0 ? now_ms() + 3600 * 1000 : due);
        take_notes(run, now_ms());
        if (run->is_kicked)
            not_before = 0;
        run->is_kicked = false;
        is_stopped = run->is_stopped;
        is_finishing = run->is_finishing;
        pthread_mutex_unlock(&run->lock);
        if (is_stopped)
            return -ECANCELED;
        if (is_finishing)
            return finish(run);
    }
}

static void *thread_main(void *arg)
{
    struct sync_run *run = arg;
    struct err err = {0};
    int r = sync_engine_new(&run->options, &run->engine, &err), saved;

    if (r == 0) {
        r = live(run);
        saved = sync_engine_save(run->engine, &err);
        if (r == 0)
            r = saved;
        sync_engine_free(run->engine);
    }
    pthread_mutex_lock(&run->lock);
    run->has_ended = true;
    run->end_status = r;
    pthread_mutex_unlock(&run->lock);
    uv_async_send(&run->async);
    return NULL;
}

/* ---- the loop ---- */

static void on_closed(uv_handle_t *handle)
{
    struct sync_run *run = handle->data;

    run->cbs->on_end(run->end_status, run->arg);
    free_news(run->news);
    free_news(run->shown);
    for (struct note *note = run->first, *next; note != NULL; note = next) {
        next = note->next;
        free(note);
    }
    pthread_cond_destroy(&run->cond);
    pthread_mutex_destroy(&run->lock);
    free(run->ancestor);
    free(run);
}

static void on_async(uv_async_t *async)
{
    struct sync_run *run = async->data;
    struct sync_run_news *news;
    struct told *told, *next;
    bool has_ended;

    pthread_mutex_lock(&run->lock);
    news = run->news;
    run->news = NULL;
    told = run->told;
    run->told = NULL;
    run->told_end = &run->told;
    has_ended = run->has_ended;
    pthread_mutex_unlock(&run->lock);
    for (; told != NULL; told = next) {
        next = told->next;
        run->cbs->on_conflict(told->path, told->len, told->kind, told->winner, run->arg);
        free(told);
    }
    if (news != NULL) {
        free_news(run->shown);
        run->shown = news;
        run->cbs->on_news(news, run->arg);
    }
    if (has_ended && !uv_is_closing((uv_handle_t *)async)) {
        pthread_join(run->thread, NULL);
        uv_close((uv_handle_t *)async, on_closed);
    }
}

static int init_cond(pthread_cond_t *cond)
{
    pthread_condattr_t attr;
    int r;

    if (pthread_condattr_init(&attr) != 0)
        return -ENOMEM;
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    r = pthread_cond_init(cond, &attr);
    pthread_condattr_destroy(&attr);
    return -r;
}

static void on_failed(uv_handle_t *handle)
{
    struct sync_run *run = handle->data;

    pthread_cond_destroy(&run->cond);
    pthread_mutex_destroy(&run->lock);
    free(run->ancestor);
    free(run);
}

int sync_run_start(uv_loop_t *loop, const struct sync_engine_options *options,
                   const struct sync_run_cbs *cbs, void *arg, struct sync_run **out)
{
    static const struct sync_engine_cbs engine_cbs = {.on_conflict = on_conflict};
    struct sync_run *run = calloc(1, sizeof(*run));
    pthread_attr_t attr;
    int r;

    if (run == NULL)
        return -ENOMEM;
    run->cbs = cbs;
    run->arg = arg;
    run->options = *options;
    run->options.cbs = &engine_cbs;
    run->options.arg = run;
    run->told_end = &run->told;
    run->ancestor = strdup(options->ancestor);
    run->options.ancestor = run->ancestor;
    if (run->ancestor == NULL || init_cond(&run->cond) != 0) {
        free(run->ancestor);
        free(run);
        return -ENOMEM;
    }
    pthread_mutex_init(&run->lock, NULL);
    run->async.data = run;
    r = uv_async_init(loop, &run->async, on_async);
    if (r != 0) {
        on_failed((uv_handle_t *)&run->async);
        return r;
    }
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, 512 * 1024);
    r = -pthread_create(&run->thread, &attr, thread_main, run);
    pthread_attr_destroy(&attr);
    if (r != 0) {
        uv_close((uv_handle_t *)&run->async, on_failed);
        return r;
    }
    *out = run;
    return 0;
}

static void send_note(struct sync_run *run, enum what what, enum sync_side side, const char *dir,
                      size_t len)
{
    struct note *note = calloc(1, sizeof(*note) + len + 1);

    if (note == NULL)
        return; /* the next look finds it */
    note->side = side;
    note->len = len;
    note->what = what;
    if (len > 0)
        memcpy(note->dir, dir, len);
    pthread_mutex_lock(&run->lock);
    if (run->n_notes >= SYNC_RUN_INBOX_MAX) {
        note->what = what == OVERFLOW ? OVERFLOW : LOOK;
        note->len = 0;
    }
    if (run->n_notes < 2 * SYNC_RUN_INBOX_MAX) {
        if (run->last != NULL)
            run->last->next = note;
        else
            run->first = note;
        run->last = note;
        run->n_notes++;
        note = NULL;
    }
    pthread_cond_signal(&run->cond);
    pthread_mutex_unlock(&run->lock);
    free(note); /* many looks at all wait already */
}

void sync_run_dirty(struct sync_run *run, enum sync_side side, const char *dir, size_t len)
{
    send_note(run, DIRTY, side, dir, len);
}

void sync_run_lost(struct sync_run *run, enum sync_side side, const char *dir, size_t len,
                   int status)
{
    send_note(run, status == -ENOENT || status == -ENOTDIR || status == -ELOOP ? LOST : UNWATCHED,
              side, dir, len);
}

void sync_run_overflow(struct sync_run *run, enum sync_side side)
{
    send_note(run, OVERFLOW, side, NULL, 0);
}

void sync_run_look(struct sync_run *run, enum sync_side side)
{
    send_note(run, LOOK, side, NULL, 0);
}

static void set(struct sync_run *run, bool *flag)
{
    pthread_mutex_lock(&run->lock);
    *flag = true;
    pthread_cond_signal(&run->cond);
    pthread_mutex_unlock(&run->lock);
}

void sync_run_kick(struct sync_run *run)
{
    send_note(run, OVERFLOW, SYNC_GUEST, NULL, 0);
    set(run, &run->is_kicked);
}

void sync_run_finish(struct sync_run *run, uint64_t timeout_ms)
{
    pthread_mutex_lock(&run->lock);
    run->finish_ms = now_ms() + (int64_t)timeout_ms;
    pthread_mutex_unlock(&run->lock);
    set(run, &run->is_finishing);
}

void sync_run_stop(struct sync_run *run)
{
    set(run, &run->is_stopped);
}
