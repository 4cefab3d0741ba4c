/* SPDX-License-Identifier: MIT */
/* One call at a time: ASKED by the engine's thread, RUNNING once the loop has begun it, DONE when
 * the conversation is over. What both threads touch is under the lock; what only the loop touches
 * says so. */
#include "sync/side_remote.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include "sync/remote.h"

enum {
    ANSWERS_HIGH = 4 * 1024 * 1024, /* bytes that wait for the engine: the agent is held */
    ANSWERS_LOW = 1024 * 1024,      /* ... and let go */
    WORDS_HIGH = 1024 * 1024,       /* bytes that wait for the loop: the engine waits */
};

#define WATCH_SHORT_MS 2000 /* a watch that ends so soon is not begun again at once, ... */
#define WATCH_PAUSE_MS 5000 /* ... but then */

enum kind { LISTING, ENTRY, LISTED, HASHED, READING, PIECE, READ, APPLIED, OP, COMMIT, WATCH };

struct msg {
    struct msg *next;
    enum kind kind;
    uint32_t index;
    int status;
    bool flag; /* changed; COMMIT: id counts; WATCH: on */
    struct sync_sig sig;
    struct sync_tree_read read;
    struct sync_op op; /* its strings are in bytes */
    struct sync_id id;
    int64_t size;
    size_t len, len2; /* of bytes: the first string, a second one behind it */
    uint8_t bytes[];
};

struct queue {
    struct msg *first, *last;
    size_t bytes;
};

enum state { IDLE, ASKED, RUNNING, DONE };

struct sync_side_remote {
    uv_loop_t *loop;
    const struct sync_side_remote_cbs *cbs;
    void *arg;
    pthread_mutex_t lock;
    pthread_cond_t cond; /* for the engine */
    bool is_stopped;
    enum state state;
    enum sync_remote_kind kind;
    const struct sync_name *dirs; /* the asker's, until DONE */
    const struct sync_want *wants;
    size_t n;
    int status;
    struct err err;
    struct queue answers, words, watches;
    bool is_last_word, is_out_of_memory;
    /* The engine's. */
    const struct sync_side_cbs *engine_cbs;
    void *engine_arg;
    /* The loop's. */
    uv_async_t async;
    struct sync_remote *call, *watch;
    size_t next; /* of dirs or wants */
    bool is_full, has_ended, is_held, is_watch_full;
    uint64_t watch_since_ms;
    uv_timer_t pause; /* before a watch is begun again */
    bool is_closing;
    int n_handles; /* not closed */
    void (*on_close)(void *arg);
    void *on_close_arg;
};

/* ---- queues ---- */

static void push(struct queue *q, struct msg *m)
{
    m->next = NULL;
    if (q->last != NULL)
        q->last->next = m;
    else
        q->first = m;
    q->last = m;
    q->bytes += sizeof(*m) + m->len + m->len2;
}

static struct msg *pop(struct queue *q)
{
    struct msg *m = q->first;

    if (m == NULL)
        return NULL;
    q->first = m->next;
    if (q->first == NULL)
        q->last = NULL;
    q->bytes -= sizeof(*m) + m->len + m->len2;
    return m;
}

static void drop(struct queue *q)
{
    struct msg *m;

    while ((m = pop(q)) != NULL)
        free(m);
}

/* NULL: no memory. Both strings get a NUL. */
static struct msg *make(enum kind kind, const void *bytes, size_t len, const void *more,
                        size_t more_len)
{
    struct msg *m = calloc(1, sizeof(*m) + len + more_len + 2);

    if (m == NULL)
        return NULL;
    m->kind = kind;
    m->len = len;
    m->len2 = more_len;
    if (len > 0)
        memcpy(m->bytes, bytes, len);
    if (more_len > 0)
        memcpy(m->bytes + len + 1, more, more_len);
    return m;
}

/* ---- the loop's thread: answers ---- */

/* m may be NULL: there was no memory for it, and the call is to end. */
static void answer(struct sync_side_remote *s, struct msg *m)
{
    bool is_full;

    pthread_mutex_lock(&s->lock);
    if (m != NULL)
        push(&s->answers, m);
    else
        s->is_out_of_memory = true;
    is_full = s->answers.bytes > ANSWERS_HIGH;
    pthread_cond_signal(&s->cond);
    pthread_mutex_unlock(&s->lock);
    if (m == NULL) {
        sync_remote_cancel(s->call);
    } else if (is_full && !s->is_held) {
        s->is_held = true;
        sync_remote_hold(s->call, true);
    }
}

static void answer_with(struct sync_side_remote *s, enum kind kind, uint32_t index, int status,
                        bool flag, const struct sync_sig *sig, const struct sync_tree_read *read,
                        const void *bytes, size_t len)
{
    struct msg *m = make(kind, bytes, len, NULL, 0);

    if (m != NULL) {
        m->index = index;
        m->status = status;
        m->flag = flag;
        if (sig != NULL)
            m->sig = *sig;
        if (read != NULL)
            m->read = *read;
    }
    answer(s, m);
}

static void on_listing(uint32_t index, int status, const struct sync_sig *sig, void *arg)
{
    answer_with(arg, LISTING, index, status, false, sig, NULL, NULL, 0);
}

static void on_entry(uint32_t index, const struct sync_tree_entry *entry, void *arg)
{
    struct msg *m = make(ENTRY, entry->name, entry->name_len, entry->target,
                         entry->target != NULL ? entry->target_len : 0);

    if (m != NULL) {
        m->index = index;
        m->sig = entry->sig;
        m->flag = entry->target != NULL;
    }
    answer(arg, m);
}

static void on_listed(uint32_t index, int status, bool changed, void *arg)
{
    answer_with(arg, LISTED, index, status, changed, NULL, NULL, NULL, 0);
}

static void on_hashed(uint32_t index, int status, const struct sync_tree_read *read,
                      const uint8_t *head, size_t head_len, void *arg)
{
    answer_with(arg, HASHED, index, status, false, NULL, read, head, head_len);
}

static void on_reading(uint32_t index, int status, const struct sync_sig *sig, void *arg)
{
    answer_with(arg, READING, index, status, false, sig, NULL, NULL, 0);
}

static void on_piece(uint32_t index, const uint8_t *bytes, size_t len, void *arg)
{
    answer_with(arg, PIECE, index, 0, false, NULL, NULL, bytes, len);
}

static void on_read(uint32_t index, int status, const struct sync_tree_read *read, void *arg)
{
    answer_with(arg, READ, index, status, false, NULL, read, NULL, 0);
}

static void on_applied(uint32_t index, int status, const struct sync_sig *sig, void *arg)
{
    answer_with(arg, APPLIED, index, status, false, sig, NULL, NULL, 0);
}

/* ---- the loop's thread: calls ---- */

static void maybe_closed(struct sync_side_remote *s);

static void finish(struct sync_side_remote *s, int status, const struct err *err)
{
    pthread_mutex_lock(&s->lock);
    s->state = DONE;
    s->status = s->is_out_of_memory ? -ENOMEM : status;
    s->err = err != NULL ? *err : (struct err){.code = status};
    pthread_cond_signal(&s->cond);
    pthread_mutex_unlock(&s->lock);
}

static void on_done(struct sync_remote *call, int status, const struct err *err, void *arg)
{
    struct sync_side_remote *s = arg;

    (void)call;
    s->call = NULL;
    finish(s, status, err);
    maybe_closed(s);
}

/* Dirs and wants. */
static int say_next(struct sync_side_remote *s)
{
    if (s->kind == SYNC_REMOTE_LIST)
        return sync_remote_dir(s->call, s->dirs[s->next].path, s->dirs[s->next].len);
    return sync_remote_want(s->call, s->wants[s->next].path, s->wants[s->next].len,
                            &s->wants[s->next].sig);
}

static int say_word(struct sync_side_remote *s, struct msg *m)
{
    switch (m->kind) {
    case OP:
        m->op.path = (const char *)m->bytes;
        m->op.target = (const char *)m->bytes + m->len + 1;
        return sync_remote_op(s->call, &m->op, m->size);
    case PIECE:
        return sync_remote_content(s->call, m->bytes, m->len);
    default:
        return sync_remote_content_end(s->call, m->flag ? &m->id : NULL);
    }
}

/* Say what there is to say, until the session is full. */
static void speak(struct sync_side_remote *s)
{
    int r = 1;

    while (s->call != NULL && !s->is_full && r == 1) {
        struct msg *m = NULL;
        bool is_over;

        if (s->kind == SYNC_REMOTE_APPLY) {
            pthread_mutex_lock(&s->lock);
            m = pop(&s->words);
            is_over = m == NULL && s->is_last_word;
            pthread_cond_signal(&s->cond);
            pthread_mutex_unlock(&s->lock);
            if (m == NULL && !is_over) {
                sync_remote_flush(s->call);
                return;
            }
        } else {
            is_over = s->next == s->n;
        }
        if (is_over) {
            if (!s->has_ended)
                sync_remote_end(s->call);
            s->has_ended = true;
            return;
        }
        r = m != NULL ? say_word(s, m) : say_next(s);
        free(m);
        s->next++;
    }
    if (r == 0)
        s->is_full = true;
    if (r < 0 && s->call != NULL)
        sync_remote_cancel(s->call);
}

static void on_drain(void *arg)
{
    struct sync_side_remote *s = arg;

    s->is_full = false;
    speak(s);
}

static const struct sync_remote_cbs call_cbs = {
    .on_listing = on_listing,
    .on_entry = on_entry,
    .on_listed = on_listed,
    .on_hashed = on_hashed,
    .on_reading = on_reading,
    .on_piece = on_piece,
    .on_read = on_read,
    .on_applied = on_applied,
    .on_drain = on_drain,
    .on_done = on_done,
};

static void begin(struct sync_side_remote *s)
{
    struct tr_h2 *h2 = s->cbs->session(s->arg);
    struct err err = {0};
    int r;

    s->next = 0;
    s->is_full = s->has_ended = s->is_held = false;
    r = h2 == NULL ? tr_err_set(&err, -ENOTCONN, "no connection to the agent")
                   : sync_remote_start(s->loop, h2, s->kind, &call_cbs, s, &s->call);
    if (r != 0) {
        if (h2 != NULL)
            tr_err_set(&err, r, "the agent cannot be asked: %s", uv_strerror(r));
        s->call = NULL;
        finish(s, r, &err);
        return;
    }
    pthread_mutex_lock(&s->lock);
    s->state = RUNNING;
    pthread_mutex_unlock(&s->lock);
}

/* ---- the loop's thread: watching ---- */

static void on_watch_dirty(const char *dir, size_t len, void *arg)
{
    struct sync_side_remote *s = arg;

    if (!s->is_stopped)
        s->cbs->on_dirty(dir, len, s->arg);
}

static void on_watch_lost(const char *dir, size_t len, int status, void *arg)
{
    struct sync_side_remote *s = arg;

    if (!s->is_stopped)
        s->cbs->on_lost(dir, len, status, s->arg);
}

static void on_watch_overflow(void *arg)
{
    struct sync_side_remote *s = arg;

    if (!s->is_stopped)
        s->cbs->on_overflow(s->arg);
}

static void speak_of_watches(struct sync_side_remote *s);

static void on_watch_drain(void *arg)
{
    struct sync_side_remote *s = arg;

    s->is_watch_full = false;
    speak_of_watches(s);
}

static void on_pause_over(uv_timer_t *timer)
{
    on_watch_overflow(timer->data);
}

static void on_watch_done(struct sync_remote *call, int status, const struct err *err, void *arg)
{
    struct sync_side_remote *s = arg;

    (void)call;
    (void)status;
    (void)err;
    s->watch = NULL;
    if (s->is_closing)
        maybe_closed(s);
    else if (uv_now(s->loop) - s->watch_since_ms >= WATCH_SHORT_MS)
        on_watch_overflow(s);
    else
        (void)uv_timer_start(&s->pause, on_pause_over, WATCH_PAUSE_MS, 0); /* cannot fail */
}

static const struct sync_remote_cbs watch_cbs = {
    .on_dirty = on_watch_dirty,
    .on_lost = on_watch_lost,
    .on_overflow = on_watch_overflow,
    .on_drain = on_watch_drain,
    .on_done = on_watch_done,
};

/* Without a session watches are dropped: whoever connects again adds them anew. */
static void speak_of_watches(struct sync_side_remote *s)
{
    for (;;) {
        struct msg *m = NULL;
        struct tr_h2 *h2;
        int r;

        if (s->is_watch_full)
            return;
        pthread_mutex_lock(&s->lock);
        if (!s->is_stopped)
            m = pop(&s->watches);
        pthread_mutex_unlock(&s->lock);
        if (m == NULL)
            break;
        h2 = s->watch == NULL ? s->cbs->session(s->arg) : NULL;
        if (h2 != NULL) {
            s->is_watch_full = false;
            s->watch_since_ms = uv_now(s->loop);
            if (sync_remote_start(s->loop, h2, SYNC_REMOTE_WATCH, &watch_cbs, s, &s->watch) != 0)
                s->watch = NULL;
        }
        r = s->watch == NULL ? 1
            : m->flag        ? sync_remote_watch(s->watch, (const char *)m->bytes, m->len)
                             : sync_remote_unwatch(s->watch, (const char *)m->bytes, m->len);
        free(m);
        s->is_watch_full = r == 0;
    }
    if (s->watch != NULL)
        sync_remote_flush(s->watch);
}

/* ---- the loop's thread: both ---- */

static void on_async(uv_async_t *async)
{
    struct sync_side_remote *s = async->data;
    bool is_asked, is_low, is_stopped;

    pthread_mutex_lock(&s->lock);
    is_stopped = s->is_stopped;
    is_asked = s->state == ASKED;
    is_low = s->answers.bytes <= ANSWERS_LOW;
    pthread_mutex_unlock(&s->lock);
    if (is_stopped) {
        if (is_asked)
            finish(s, -ECANCELED, NULL);
        return;
    }
    if (is_asked)
        begin(s);
    if (s->call != NULL && s->is_held && is_low) {
        s->is_held = false;
        sync_remote_hold(s->call, false);
    }
    speak(s);
    speak_of_watches(s);
}

int sync_side_remote_open(uv_loop_t *loop, const struct sync_side_remote_cbs *cbs, void *arg,
                          struct sync_side_remote **out)
{
    struct sync_side_remote *s = calloc(1, sizeof(*s));

    if (s == NULL)
        return -ENOMEM;
    s->loop = loop;
    s->cbs = cbs;
    s->arg = arg;
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->cond, NULL);
    if (uv_async_init(loop, &s->async, on_async) != 0) {
        pthread_cond_destroy(&s->cond);
        pthread_mutex_destroy(&s->lock);
        free(s);
        return -ENOMEM;
    }
    s->async.data = s;
    if (uv_timer_init(loop, &s->pause) != 0)
        abort(); /* cannot fail on Unix */
    s->pause.data = s;
    s->n_handles = 2;
    *out = s;
    return 0;
}

void sync_side_remote_stop(struct sync_side_remote *s)
{
    pthread_mutex_lock(&s->lock);
    s->is_stopped = true;
    pthread_mutex_unlock(&s->lock);
    if (s->call != NULL)
        sync_remote_cancel(s->call);
    if (s->watch != NULL)
        sync_remote_cancel(s->watch);
    uv_async_send(&s->async);
}

static void maybe_closed(struct sync_side_remote *s)
{
    if (!s->is_closing || s->n_handles > 0 || s->call != NULL || s->watch != NULL)
        return;
    drop(&s->answers);
    drop(&s->words);
    drop(&s->watches);
    pthread_cond_destroy(&s->cond);
    pthread_mutex_destroy(&s->lock);
    s->on_close(s->on_close_arg);
    free(s);
}

static void on_handle_closed(uv_handle_t *handle)
{
    struct sync_side_remote *s = handle->data;

    s->n_handles--;
    maybe_closed(s);
}

void sync_side_remote_close(struct sync_side_remote *s, void (*cb)(void *arg), void *arg)
{
    s->on_close = cb;
    s->on_close_arg = arg;
    s->is_closing = true;
    uv_close((uv_handle_t *)&s->async, on_handle_closed);
    uv_close((uv_handle_t *)&s->pause, on_handle_closed);
}

/* ---- the engine's thread ---- */

static void hand_out(struct sync_side_remote *s, const struct msg *m)
{
    const struct sync_side_cbs *cbs = s->engine_cbs;
    void *arg = s->engine_arg;

    switch (m->kind) {
    case LISTING:
        cbs->on_listing(m->index, m->status, &m->sig, arg);
        break;
    case ENTRY: {
        struct sync_tree_entry entry = {
            .name = (const char *)m->bytes, .name_len = m->len, .sig = m->sig};

        if (m->flag) {
            entry.target = (const char *)m->bytes + m->len + 1;
            entry.target_len = m->len2;
        }
        cbs->on_entry(m->index, &entry, arg);
        break;
    }
    case LISTED:
        cbs->on_listed(m->index, m->status, m->flag, arg);
        break;
    case HASHED:
        cbs->on_hashed(m->index, m->status, &m->read, m->bytes, m->len, arg);
        break;
    case READING:
        cbs->on_reading(m->index, m->status, &m->sig, arg);
        break;
    case PIECE:
        cbs->on_piece(m->index, m->bytes, m->len, arg);
        break;
    case READ:
        cbs->on_read(m->index, m->status, &m->read, arg);
        break;
    default:
        cbs->on_applied(m->index, m->status, &m->sig, arg);
    }
}

/* Give the engine what was answered. Called and returns with the lock held. */
static void hand_out_all(struct sync_side_remote *s)
{
    struct msg *m;

    while ((m = pop(&s->answers)) != NULL) {
        bool is_low = s->answers.bytes <= ANSWERS_LOW &&
                      s->answers.bytes + sizeof(*m) + m->len + m->len2 > ANSWERS_LOW;

        pthread_mutex_unlock(&s->lock);
        if (is_low)
            uv_async_send(&s->async);
        hand_out(s, m);
        free(m);
        pthread_mutex_lock(&s->lock);
    }
}

/* Begin; returns with the lock held if 0. */
static int ask(struct sync_side_remote *s, enum sync_remote_kind kind,
               const struct sync_side_cbs *cbs, void *arg, struct err *err)
{
    pthread_mutex_lock(&s->lock);
    if (s->is_stopped) {
        pthread_mutex_unlock(&s->lock);
        return tr_err_set(err, -ECANCELED, "stopped");
    }
    s->engine_cbs = cbs;
    s->engine_arg = arg;
    s->kind = kind;
    s->is_last_word = s->is_out_of_memory = false;
    s->state = ASKED;
    uv_async_send(&s->async);
    return 0;
}

/* Wait for the end. Called with the lock held, returns without. */
static int await(struct sync_side_remote *s, struct err *err)
{
    int status;

    for (;;) {
        hand_out_all(s);
        if (s->state == DONE && s->answers.first == NULL)
            break;
        if (s->answers.first == NULL)
            pthread_cond_wait(&s->cond, &s->lock);
    }
    s->state = IDLE;
    status = s->status;
    if (status != 0 && err != NULL) {
        if (s->err.msg[0] != '\0')
            *err = s->err;
        else
            tr_err_set(err, status, "%s", uv_strerror(status));
    }
    drop(&s->words);
    pthread_mutex_unlock(&s->lock);
    return status;
}

static int list(void *ctx, const struct sync_name *dirs, size_t n, const struct sync_side_cbs *cbs,
                void *arg, struct err *err)
{
    struct sync_side_remote *s = ctx;
    int r = ask(s, SYNC_REMOTE_LIST, cbs, arg, err);

    if (r != 0)
        return r;
    s->dirs = dirs;
    s->n = n;
    return await(s, err);
}

static int want(struct sync_side_remote *s, enum sync_remote_kind kind,
                const struct sync_want *wants, size_t n, const struct sync_side_cbs *cbs, void *arg,
                struct err *err)
{
    int r = ask(s, kind, cbs, arg, err);

    if (r != 0)
        return r;
    s->wants = wants;
    s->n = n;
    return await(s, err);
}

static int hash(void *ctx, const struct sync_want *wants, size_t n, const struct sync_side_cbs *cbs,
                void *arg, struct err *err)
{
    return want(ctx, SYNC_REMOTE_HASH, wants, n, cbs, arg, err);
}

static int read_files(void *ctx, const struct sync_want *wants, size_t n,
                      const struct sync_side_cbs *cbs, void *arg, struct err *err)
{
    return want(ctx, SYNC_REMOTE_READ, wants, n, cbs, arg, err);
}

static int apply_start(void *ctx, const struct sync_side_cbs *cbs, void *arg, struct err *err)
{
    struct sync_side_remote *s = ctx;
    int r = ask(s, SYNC_REMOTE_APPLY, cbs, arg, err);

    if (r == 0)
        pthread_mutex_unlock(&s->lock);
    return r;
}

/* m may be NULL: no memory. */
static int say(struct sync_side_remote *s, struct msg *m, struct err *err)
{
    bool was_empty;
    int r = 0;

    if (m == NULL)
        return tr_err_set(err, -ENOMEM, "out of memory");
    pthread_mutex_lock(&s->lock);
    was_empty = s->words.first == NULL;
    push(&s->words, m);
    if (was_empty)
        uv_async_send(&s->async);
    hand_out_all(s);
    while (s->state != DONE && s->words.bytes > WORDS_HIGH) {
        if (s->answers.first == NULL)
            pthread_cond_wait(&s->cond, &s->lock);
        hand_out_all(s);
    }
    if (s->state == DONE) { /* before its end */
        r = s->status != 0 ? s->status : -EPROTO;
        tr_err_set(err, r, "%s", s->err.msg[0] != '\0' ? s->err.msg : uv_strerror(r));
    }
    pthread_mutex_unlock(&s->lock);
    return r;
}

static int apply_op(void *ctx, const struct sync_op *op, int64_t size, struct err *err)
{
    struct msg *m = make(OP, op->path, op->path_len, op->target, op->target_len);

    if (m != NULL) {
        m->op = *op;
        m->size = size;
    }
    return say(ctx, m, err);
}

static int apply_content(void *ctx, const uint8_t *bytes, size_t len, struct err *err)
{
    return say(ctx, make(PIECE, bytes, len, NULL, 0), err);
}

static int apply_commit(void *ctx, const struct sync_id *id, struct err *err)
{
    struct msg *m = make(COMMIT, NULL, 0, NULL, 0);

    if (m != NULL && id != NULL) {
        m->flag = true;
        m->id = *id;
    }
    return say(ctx, m, err);
}

static int apply_end(void *ctx, struct err *err)
{
    struct sync_side_remote *s = ctx;

    pthread_mutex_lock(&s->lock);
    s->is_last_word = true;
    uv_async_send(&s->async);
    return await(s, err);
}

static void watch(void *ctx, const char *dir, size_t len, bool on)
{
    struct sync_side_remote *s = ctx;
    struct msg *m = make(WATCH, dir, len, NULL, 0);

    if (m == NULL)
        return; /* it is looked at with the others at the next overflow */
    m->flag = on;
    pthread_mutex_lock(&s->lock);
    push(&s->watches, m);
    pthread_mutex_unlock(&s->lock);
    uv_async_send(&s->async);
}

const struct sync_side_ops sync_side_remote_ops = {
    .list = list,
    .hash = hash,
    .read = read_files,
    .apply_start = apply_start,
    .apply_op = apply_op,
    .apply_content = apply_content,
    .apply_commit = apply_commit,
    .apply_end = apply_end,
    .watch = watch,
};
