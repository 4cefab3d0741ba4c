/* SPDX-License-Identifier: MIT */
/* Path of a folder: add -> queue -> (thread pool: look it up, inotify) -> watched -> an event ->
 * pending -> told -> pending ... -> lost or removed.
 *
 * While the pool adds watches, no events are read: the kernel keeps them. So an event never comes
 * for a watch that is not known yet. */
#include "sync/watch.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <unistd.h>
#include "sync/tree_internal.h"

#define BATCH      256 /* folders looked up at a time */
#define READ_BYTES 32768
#define MASK                                                                                       \
    (IN_CLOSE_WRITE | IN_CREATE | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO | IN_ATTRIB |            \
     IN_MODIFY | IN_DELETE_SELF | IN_MOVE_SELF | IN_ONLYDIR | IN_EXCL_UNLINK)

struct link {
    struct link *prev, *next; /* a ring; alone: both itself */
};

struct folder {
    struct link pending;                /* in `pending` or `due`, or alone */
    struct folder *next_path, *next_wd; /* in the tables */
    struct folder *next_queued;
    uint32_t hash;
    int wd;        /* -1: not watched (yet) */
    bool queued;   /* waits to be looked up, or is being looked up */
    bool again;    /* and once more after that */
    bool unwanted; /* goes when that is over */
    bool dirty;    /* first, last: since when it is to be told, and the last event */
    bool open;     /* open_first, open_last: of writing into files that stay open */
    uint64_t first, last, open_first, open_last; /* loop time in ms */
    size_t len;
    char path[];
};

/* A handle of its own, since it ends with its descriptor. */
struct source {
    uv_poll_t poll;
    struct sync_watch *watch; /* NULL: being closed */
};

struct job {
    uv_work_t work;
    struct folder *folders[BATCH];
    int result[BATCH]; /* a watch descriptor, or the errno */
    size_t n;
};

struct sync_watch {
    uv_loop_t *loop;
    const struct sync_watch_cbs *cbs;
    void *arg;
    struct sync_tree tree;
    int fd; /* of inotify */
    struct source *source;
    uv_timer_t timer;
    struct job job;
    struct folder **by_path, **by_wd;
    size_t n_buckets, n;
    struct folder *queue, **queue_end;
    struct link pending, due;
    bool busy, held, closing;
    int n_open; /* handles whose close is due, once closing */
};

static void look_up_next(struct sync_watch *w);
static void arm(struct sync_watch *w);

/* ---- lists and tables ---- */

static void link_init(struct link *l)
{
    l->prev = l->next = l;
}

static bool link_alone(const struct link *l)
{
    return l->next == l;
}

static void link_out(struct link *l)
{
    l->prev->next = l->next;
    l->next->prev = l->prev;
    link_init(l);
}

static void link_in(struct link *list, struct link *l)
{
    link_out(l);
    l->prev = list->prev;
    l->next = list;
    list->prev->next = l;
    list->prev = l;
}

static struct folder *of_link(struct link *l)
{
    return (struct folder *)((char *)l - offsetof(struct folder, pending));
}

static uint32_t hash_path(const char *path, size_t len)
{
    uint32_t h = 2166136261u;

    for (size_t i = 0; i < len; i++)
        h = (h ^ (uint8_t)path[i]) * 16777619u;
    return h;
}

static struct folder **wd_bucket(const struct sync_watch *w, int wd)
{
    return &w->by_wd[(uint32_t)wd * 2654435761u & (w->n_buckets - 1)];
}

static struct folder *find_path(const struct sync_watch *w, const char *path, size_t len)
{
    uint32_t hash = hash_path(path, len);
    struct folder *f = w->by_path[hash & (w->n_buckets - 1)];

    while (f != NULL && (f->hash != hash || f->len != len || memcmp(f->path, path, len) != 0))
        f = f->next_path;
    return f;
}

static struct folder *find_wd(const struct sync_watch *w, int wd)
{
    struct folder *f = *wd_bucket(w, wd);

    while (f != NULL && f->wd != wd)
        f = f->next_wd;
    return f;
}

static void unset_wd(struct sync_watch *w, struct folder *f)
{
    struct folder **at;

    if (f->wd < 0)
        return;
    for (at = wd_bucket(w, f->wd); *at != f; at = &(*at)->next_wd)
        ;
    *at = f->next_wd;
    f->wd = -1;
}

static void set_wd(struct sync_watch *w, struct folder *f, int wd)
{
    struct folder **at = wd_bucket(w, wd);

    f->wd = wd;
    f->next_wd = *at;
    *at = f;
}

/* Twice as many buckets. Without memory for them the chains grow. */
static void grow(struct sync_watch *w)
{
    size_t n = w->n_buckets * 2;
    struct folder **by_path = calloc(n, sizeof(struct folder *));
    struct folder **by_wd = calloc(n, sizeof(struct folder *)), **old = w->by_path;
    size_t n_old = w->n_buckets;

    if (by_path == NULL || by_wd == NULL) {
        free(by_path);
        free(by_wd);
        return;
    }
    free(w->by_wd);
    w->by_path = by_path;
    w->by_wd = by_wd;
    w->n_buckets = n;
    for (size_t i = 0; i < n_old; i++) {
        for (struct folder *f = old[i], *next; f != NULL; f = next) {
            next = f->next_path;
            f->next_path = by_path[f->hash & (n - 1)];
            by_path[f->hash & (n - 1)] = f;
            if (f->wd >= 0)
                set_wd(w, f, f->wd);
        }
    }
    free(old);
}

static struct folder *new_folder(struct sync_watch *w, const char *path, size_t len)
{
    struct folder *f = calloc(1, sizeof(*f) + len + 1), **at;

    if (f == NULL)
        return NULL;
    if (w->n >= w->n_buckets)
        grow(w);
    link_init(&f->pending);
    f->wd = -1;
    f->len = len;
    if (len > 0)
        memcpy(f->path, path, len);
    f->hash = hash_path(path, len);
    at = &w->by_path[f->hash & (w->n_buckets - 1)];
    f->next_path = *at;
    *at = f;
    w->n++;
    return f;
}

/* It is in no queue. Its watch, if it has one, goes. */
static void drop(struct sync_watch *w, struct folder *f)
{
    struct folder **at = &w->by_path[f->hash & (w->n_buckets - 1)];
    int wd = f->wd;

    unset_wd(w, f);
    if (wd >= 0)
        (void)inotify_rm_watch(w->fd, wd);
    link_out(&f->pending);
    while (*at != f)
        at = &(*at)->next_path;
    *at = f->next_path;
    w->n--;
    free(f);
}

static void enqueue(struct sync_watch *w, struct folder *f)
{
    f->queued = true;
    f->next_queued = NULL;
    *w->queue_end = f;
    w->queue_end = &f->next_queued;
}

/* ---- telling ---- */

static void mark(struct sync_watch *w, struct folder *f)
{
    uint64_t now = uv_now(w->loop);

    if (!f->dirty)
        f->first = now;
    f->dirty = true;
    f->last = now;
    link_in(&w->pending, &f->pending);
}

static void mark_open(struct sync_watch *w, struct folder *f)
{
    uint64_t now = uv_now(w->loop);

    if (!f->open)
        f->open_first = now;
    f->open = true;
    f->open_last = now;
    if (link_alone(&f->pending))
        link_in(&w->pending, &f->pending);
}

static void mark_at_once(struct sync_watch *w, struct folder *f)
{
    mark(w, f);
    f->first = f->last = 0;
}

static void mark_parent(struct sync_watch *w, const char *path, size_t len)
{
    size_t base = sync_path_base(path, len);
    struct folder *f = len == 0 ? NULL : find_path(w, path, base > 0 ? base - 1 : 0);

    if (f != NULL && f->wd >= 0)
        mark(w, f);
}

static uint64_t earlier(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint64_t due_at(const struct folder *f)
{
    uint64_t at = UINT64_MAX;

    if (f->dirty)
        at = earlier(f->last + SYNC_WATCH_QUIET_MS, f->first + SYNC_WATCH_LIMIT_MS);
    if (f->open)
        at = earlier(at, earlier(f->open_last + SYNC_WATCH_OPEN_QUIET_MS,
                                 f->open_first + SYNC_WATCH_OPEN_LIMIT_MS));
    return at;
}

/* Tell it. The listener may remove it, or anything else. Returns false when it would not hear. */
static bool tell(struct sync_watch *w, struct folder *f)
{
    char path[SYNC_PATH_MAX + 1];
    size_t len = f->len;

    memcpy(path, f->path, len + 1);
    link_out(&f->pending);
    if (w->cbs->on_dirty(path, len, w->arg)) {
        f = w->closing ? NULL : find_path(w, path, len);
        /* What was seen so far is told. With a listener who comes back here it is new again. */
        if (f != NULL && link_alone(&f->pending))
            f->dirty = f->open = false;
        return true;
    }
    f = w->closing ? NULL : find_path(w, path, len);
    if (f != NULL)
        link_in(&w->due, &f->pending);
    return false;
}

static void on_timer(uv_timer_t *timer)
{
    struct sync_watch *w = timer->data;
    uint64_t now = uv_now(w->loop);

    for (struct link *l = w->pending.next, *next; l != &w->pending; l = next) {
        next = l->next;
        if (due_at(of_link(l)) <= now)
            link_in(&w->due, l);
    }
    while (!w->closing && !w->held && !link_alone(&w->due)) {
        if (!tell(w, of_link(w->due.next)))
            w->held = true;
    }
    while (!w->closing && !link_alone(&w->due)) /* for the next time */
        link_in(&w->pending, w->due.next);
    if (!w->closing)
        arm(w);
}

/* The timer runs while something is to be told. */
static void arm(struct sync_watch *w)
{
    uint64_t at = UINT64_MAX, now = uv_now(w->loop);

    if (w->held || link_alone(&w->pending)) {
        (void)uv_timer_stop(&w->timer);
        return;
    }
    for (struct link *l = w->pending.next; l != &w->pending; l = l->next)
        at = earlier(at, due_at(of_link(l)));
    (void)uv_timer_start(&w->timer, on_timer, at > now ? at - now : 0, 0);
}

/* It is dropped, and that is told. */
static void lose(struct sync_watch *w, struct folder *f, int status)
{
    char path[SYNC_PATH_MAX + 1];
    size_t len = f->len;

    memcpy(path, f->path, len + 1);
    drop(w, f);
    mark_parent(w, path, len);
    w->cbs->on_lost(path, len, status, w->arg);
}

/* ---- events ---- */

static bool is_below(const struct folder *f, const char *path, size_t len)
{
    return f->len >= len && memcmp(f->path, path, len) == 0 &&
           (len == 0 || f->len == len || f->path[len] == '/');
}

/* path was moved elsewhere: what was watched there is watched by a wrong name. */
static void lose_all_below(struct sync_watch *w, const char *path, size_t len)
{
    struct link gone;

    link_init(&gone);
    for (size_t i = 0; i < w->n_buckets; i++) {
        for (struct folder *f = w->by_path[i]; f != NULL; f = f->next_path) {
            int wd = f->wd;

            if (wd < 0 || f->queued || !is_below(f, path, len))
                continue;
            unset_wd(w, f); /* so that it is nobody's parent any more */
            (void)inotify_rm_watch(w->fd, wd);
            link_in(&gone, &f->pending);
        }
    }
    while (!link_alone(&gone)) {
        if (w->closing)
            link_out(gone.next);
        else
            lose(w, of_link(gone.next), UV_ENOENT);
    }
}

static void source_close(struct sync_watch *w);
static int source_open(struct sync_watch *w);

/* Events were lost: nothing that is known about the watches can be trusted. */
static void overflow(struct sync_watch *w)
{
    source_close(w);
    for (size_t i = 0; i < w->n_buckets; i++) {
        for (struct folder *f = w->by_path[i], *next; f != NULL; f = next) {
            next = f->next_path;
            unset_wd(w, f); /* it went with the descriptor */
            if (f->queued)
                link_out(&f->pending);
            else
                drop(w, f);
        }
    }
    if (source_open(w) != 0) {
        /* Nothing will be watched, which is said of each that is added. */
    }
    w->cbs->on_overflow(w->arg);
}

static void take_event(struct sync_watch *w, const struct inotify_event *e)
{
    struct folder *f;

    if (e->mask & IN_Q_OVERFLOW) {
        overflow(w);
        return;
    }
    f = find_wd(w, e->wd);
    if (f == NULL)
        return; /* removed meanwhile */
    if (e->mask & IN_MOVE_SELF) {
        char path[SYNC_PATH_MAX + 1];
        size_t len = f->len;

        memcpy(path, f->path, len + 1);
        lose_all_below(w, path, len);
    } else if (e->mask & (IN_IGNORED | IN_UNMOUNT)) { /* also what follows IN_DELETE_SELF */
        if (f->queued)
            unset_wd(w, f);
        else
            lose(w, f, UV_ENOENT);
    } else if ((e->mask & IN_MODIFY) && !(e->mask & ~(uint32_t)(IN_MODIFY | IN_ISDIR))) {
        mark_open(w, f);
    } else {
        mark(w, f);
    }
}

static void on_readable(uv_poll_t *poll, int status, int events)
{
    struct source *source = poll->data;
    struct sync_watch *w = source->watch;
    uint8_t buf[READ_BYTES] __attribute__((aligned(8)));
    ssize_t n = read(w->fd, buf, sizeof(buf));

    (void)status;
    (void)events;
    for (ssize_t at = 0; at < n;) {
        const struct inotify_event *e = (const struct inotify_event *)(buf + at);

        take_event(w, e);
        if (w->closing || w->source != source)
            return; /* over, or the rest belongs to watches that are no more */
        at += (ssize_t)(sizeof(*e) + e->len);
    }
    arm(w);
}

static void on_source_close(uv_handle_t *handle)
{
    free(handle->data);
}

static void source_close(struct sync_watch *w)
{
    if (w->source == NULL)
        return;
    w->source->watch = NULL;
    uv_close((uv_handle_t *)&w->source->poll, on_source_close);
    close(w->fd);
    w->source = NULL;
    w->fd = -1;
}

static int source_start(struct sync_watch *w)
{
    return uv_poll_start(&w->source->poll, UV_READABLE, on_readable);
}

static int source_open(struct sync_watch *w)
{
    struct source *source = calloc(1, sizeof(*source));
    int fd = source == NULL ? -1 : inotify_init1(IN_CLOEXEC | IN_NONBLOCK), r;

    if (fd < 0) {
        r = source == NULL ? UV_ENOMEM : -errno;
        free(source);
        return r;
    }
    r = uv_poll_init(w->loop, &source->poll, fd);
    if (r != 0) {
        free(source);
        close(fd);
        return r;
    }
    source->poll.data = source;
    source->watch = w;
    w->source = source;
    w->fd = fd;
    r = source_start(w);
    if (r != 0)
        source_close(w);
    return r;
}

/* ---- adding ---- */

/* In the thread pool. Returns the watch descriptor or the errno. */
static int look_up(const struct sync_watch *w, const struct folder *f)
{
    int dir, wd;
    char self[32];

    if (w->fd < 0)
        return UV_ENOSPC;
    dir = sync_tree_open_at(&w->tree, f->path, O_PATH | O_DIRECTORY);
    if (dir < 0)
        return dir;
    snprintf(self, sizeof(self), "/proc/self/fd/%d", dir);
    wd = inotify_add_watch(w->fd, self, MASK);
    if (wd < 0)
        wd = -errno;
    close(dir);
    return wd;
}

static void on_look_up(uv_work_t *work)
{
    struct sync_watch *w = work->data;
    struct job *job = &w->job;
    int r = w->cbs->begin != NULL ? w->cbs->begin(w->arg) : 0;

    for (size_t i = 0; i < job->n; i++)
        job->result[i] = r != 0 ? r : look_up(w, job->folders[i]);
    if (r == 0 && w->cbs->end != NULL)
        w->cbs->end(w->arg);
}

/* This is the folder's watch from now on. It may have been another one's: the folder was moved. */
static void adopt(struct sync_watch *w, struct folder *f, int wd)
{
    struct folder *other = find_wd(w, wd);

    if (other != NULL && other != f) {
        unset_wd(w, other);
        if (!other->queued)
            lose(w, other, UV_ENOENT);
    }
    if (w->closing || f->wd == wd)
        return;
    if (f->wd >= 0) {
        int old = f->wd;

        unset_wd(w, f);
        (void)inotify_rm_watch(w->fd, old);
    }
    set_wd(w, f, wd);
}

static void on_one_looked_up(struct sync_watch *w, struct folder *f, int result)
{
    f->queued = false;
    if (f->unwanted) {
        if (result >= 0 && find_wd(w, result) == NULL)
            (void)inotify_rm_watch(w->fd, result);
        drop(w, f);
    } else if (f->again) {
        if (result >= 0 && find_wd(w, result) == NULL) { /* for whoever comes to adopt it */
            if (f->wd < 0)
                set_wd(w, f, result);
            else
                (void)inotify_rm_watch(w->fd, result);
        }
        enqueue(w, f);
    } else if (result < 0) {
        lose(w, f, result);
    } else {
        adopt(w, f, result);
        if (!w->closing)
            mark_at_once(w, f);
    }
}

static void maybe_free(struct sync_watch *w);

static void on_looked_up(uv_work_t *work, int status)
{
    struct sync_watch *w = work->data;

    (void)status;
    /* Busy until each was dealt with, whatever a listener asks for meanwhile: so all stay. */
    for (size_t i = 0; i < w->job.n && !w->closing; i++)
        on_one_looked_up(w, w->job.folders[i], w->job.result[i]);
    w->busy = false;
    if (w->closing) {
        maybe_free(w);
        return;
    }
    if (w->source != NULL && source_start(w) != 0)
        overflow(w);
    look_up_next(w);
    arm(w);
}

static void look_up_next(struct sync_watch *w)
{
    struct job *job = &w->job;

    if (w->busy || w->closing || w->queue == NULL)
        return;
    job->n = 0;
    while (w->queue != NULL && job->n < BATCH) {
        struct folder *f = w->queue;

        w->queue = f->next_queued;
        if (w->queue == NULL)
            w->queue_end = &w->queue;
        if (f->unwanted) { /* before it came to that */
            drop(w, f);
            continue;
        }
        f->again = false;
        job->folders[job->n++] = f;
    }
    if (job->n == 0)
        return;
    w->busy = true;
    if (w->source != NULL)
        (void)uv_poll_stop(&w->source->poll);
    job->work.data = w;
    if (uv_queue_work(w->loop, &job->work, on_look_up, on_looked_up) != 0)
        abort(); /* it fails without a callback only */
}

int sync_watch_add(struct sync_watch *w, const char *dir, size_t len)
{
    struct folder *f;

    if (w->closing || (len > 0 && sync_path_check(dir, len) != SYNC_PATH_OK))
        return UV_EINVAL;
    f = find_path(w, dir, len);
    if (f == NULL && w->n >= SYNC_WATCH_MAX)
        return UV_ENOSPC;
    if (f == NULL)
        f = new_folder(w, dir, len);
    if (f == NULL)
        return UV_ENOMEM;
    f->unwanted = false;
    if (f->queued)
        f->again = true;
    else
        enqueue(w, f);
    look_up_next(w);
    return 0;
}

void sync_watch_remove(struct sync_watch *w, const char *dir, size_t len)
{
    struct folder *f = w->closing ? NULL : find_path(w, dir, len);

    if (f == NULL)
        return;
    link_out(&f->pending);
    f->dirty = f->open = false;
    if (f->queued)
        f->unwanted = true;
    else
        drop(w, f);
}

void sync_watch_resume(struct sync_watch *w)
{
    if (w->closing || !w->held)
        return;
    w->held = false;
    arm(w);
}

size_t sync_watch_count(const struct sync_watch *w)
{
    return w->n;
}

/* ---- life ---- */

int sync_watch_open(uv_loop_t *loop, int root, const struct sync_watch_cbs *cbs, void *arg,
                    struct sync_watch **out)
{
    struct sync_watch *w = calloc(1, sizeof(*w));
    int r;

    if (w == NULL)
        return UV_ENOMEM;
    w->loop = loop;
    w->cbs = cbs;
    w->arg = arg;
    w->fd = -1;
    w->queue_end = &w->queue;
    link_init(&w->pending);
    link_init(&w->due);
    w->n_buckets = 64;
    w->by_path = calloc(w->n_buckets, sizeof(struct folder *));
    w->by_wd = calloc(w->n_buckets, sizeof(struct folder *));
    w->tree.stage = -1;
    w->tree.root = fcntl(root, F_DUPFD_CLOEXEC, 3);
    r = w->tree.root < 0 ? -errno : w->by_path == NULL || w->by_wd == NULL ? UV_ENOMEM : 0;
    if (r == 0)
        r = source_open(w);
    if (r != 0) {
        sync_tree_close(&w->tree);
        free(w->by_path);
        free(w->by_wd);
        free(w);
        return r;
    }
    if (uv_timer_init(loop, &w->timer) != 0)
        abort(); /* cannot fail on Unix */
    w->timer.data = w;
    *out = w;
    return 0;
}

static void maybe_free(struct sync_watch *w)
{
    void (*on_close)(void *arg) = w->cbs->on_close;
    void *arg = w->arg;

    if (w->busy)
        return;
    source_close(w);
    if (w->n_open > 0)
        return;
    for (size_t i = 0; i < w->n_buckets; i++) {
        for (struct folder *f = w->by_path[i], *next; f != NULL; f = next) {
            next = f->next_path;
            free(f);
        }
    }
    sync_tree_close(&w->tree);
    free(w->by_path);
    free(w->by_wd);
    free(w);
    if (on_close != NULL)
        on_close(arg);
}

static void on_timer_close(uv_handle_t *handle)
{
    struct sync_watch *w = handle->data;

    w->n_open--;
    maybe_free(w);
}

void sync_watch_close(struct sync_watch *w)
{
    if (w->closing)
        return;
    w->closing = true;
    w->n_open = 1;
    uv_close((uv_handle_t *)&w->timer, on_timer_close);
    if (!w->busy)
        source_close(w);
}
