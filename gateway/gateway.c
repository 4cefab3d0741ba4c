/* SPDX-License-Identifier: MIT */
/* The serving process. Path: what the keeper keeps -> configuration, certificates, log, listeners,
 * metrics -> rights given up -> workers -> ready -> reloads -> drain or stop -> end. The main
 * thread is the control thread: its libuv loop feeds the route table, answers /metrics and waits
 * for the keeper's words and for signals. */
#include "gateway/gateway.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>
#include <uv.h>

#include "gateway/admin_cookie.h"
#include "gateway/control.h"
#include "gateway/feed.h"
#include "gateway/figures.h"
#include "gateway/keeper.h"
#include "gateway/listener.h"
#include "gateway/live.h"
#include "gateway/log.h"
#include "gateway/metrics.h"
#include "gateway/privileges.h"
#include "gateway/tickets.h"
#include "gateway/tls.h"
#include "gateway/view.h"
#include "gateway/worker.h"
#include "transom/daemon.h"
#include "transom/log.h"

struct control {
    uv_loop_t loop;
    uv_signal_t sigterm, sigint, sighup;
    uv_poll_t words;   /* from the keeper */
    uv_timer_t rotate; /* of ticket keys; before, of waiting for routes */
    uv_async_t change; /* a worker has ended, or has taken a new configuration */
    struct gw_kept *kept;
    int tickets;                    /* descriptor of their keys */
    int admin;                      /* and of what the dashboard's cookies are sealed with */
    struct gw_live *live, *started; /* of now, and of the start */
    struct gw_gateway gw;
    struct gw_feed *feed;
    struct gw_figures *figures;
    struct gw_metrics *metrics;
    char ready_line[1400];
    bool begun, reloading, stopping;
};

#define WAIT_MS 5 /* for the routes, in an upgrade */

int gw_gateway_check(const struct tr_config *config, struct err *err)
{
    struct gw_options opt;
    struct ssl_ctx_st *ctx = NULL;
    int r = gw_options_init(&opt, config, err);
    bool borrowed = r == 0 && gw_borrow_user(opt.user);

    if (r == 0)
        r = gw_tls_new(&opt, &ctx, err);
    if (borrowed)
        gw_return_user();
    gw_tls_free(ctx);
    gw_options_fini(&opt);
    return r;
}

static void on_gone(const char *label, uint64_t keep_instance, void *arg)
{
    struct control *c = arg;
    struct gw_notice notice = {.keep_instance = keep_instance};

    memcpy(notice.label, label, TR_LABEL_LEN);
    for (unsigned i = 0; i < c->gw.n_workers; i++)
        gw_worker_notify(&c->gw.workers[i], &notice);
}

static void stop(struct control *c)
{
    if (c->stopping) /* by the keeper, and by a signal to the whole group */
        return;
    c->stopping = true;
    log_info("stopping: at most %llu ms for what is under way",
             (unsigned long long)c->live->opt.drain_ms);
    for (unsigned i = 0; i < c->gw.n_workers; i++)
        gw_worker_stop(&c->gw.workers[i]);
    if (!c->begun) /* else on_change() ends it: until then who loses access is told to leave */
        uv_stop(&c->loop);
}

/* Another process serves. This one goes on with what it has: its table is still fed. */
static void drain(struct control *c)
{
    log_info("another process serves now: at most %llu ms for connections and tunnels here",
             (unsigned long long)c->live->opt.upgrade_drain_ms);
    gw_metrics_close(c->metrics);
    c->metrics = NULL;
    uv_timer_stop(&c->rotate);
    for (unsigned i = 0; i < c->gw.n_workers; i++)
        gw_worker_drain(&c->gw.workers[i]);
}

/* When all workers are through a drain, nothing is left to do; when all have taken a new
 * configuration, it is in effect. */
static void on_change(uv_async_t *async)
{
    struct control *c = async->data;

    if (c->reloading && atomic_load(&c->live->n_taken) == c->gw.n_workers) {
        c->reloading = false;
        log_info("reloaded: %zu certificates", c->gw.n_certificates);
        gw_kept_say(c->kept, "reloaded");
    }
    if (atomic_load(&c->gw.n_ended) == c->gw.n_workers)
        uv_stop(&c->loop);
}

static void on_worker_change(void *arg)
{
    struct control *c = arg;

    uv_async_send(&c->change);
}

static void on_signal(uv_signal_t *handle, int number)
{
    (void)number;
    stop(handle->data);
}

/* Read everything before anything is changed. */
static int read_again(struct control *c, struct gw_live **out, struct err *err)
{
    struct tr_config *config;
    struct gw_live *live;
    int r = tr_daemon_reload(&config, err);

    if (r != 0)
        return r;
    r = gw_live_new(config, &live, err);
    if (r != 0) {
        tr_err_wrap(err, "%.200s", tr_daemon_config_path());
        return r;
    }
    r = gw_log_reopen(&c->gw.log, live->opt.access_log, err);
    if (r != 0) {
        gw_live_unref(live);
        return r;
    }
    if (live->tls == NULL) /* the listeners are still there */
        live->tls = gw_tls_ref(c->live->tls);
    *out = live;
    return 0;
}

static void on_rotate(uv_timer_t *timer)
{
    struct control *c = timer->data;
    int64_t wait = gw_tickets_rotate(c->live->opt.ticket_rotate_ms);

    if (wait < 0)
        log_error("ticket keys: %s; the old ones stay", strerror((int)-wait));
    uv_timer_start(timer, on_rotate, wait < 0 ? 60000 : (uint64_t)wait + 1, 0);
}

static void reload(struct control *c)
{
    struct err err = {0};
    struct gw_live *live;
    int64_t ends_s;

    if (c->stopping || !c->begun)
        return;
    if (read_again(c, &live, &err) != 0) {
        atomic_fetch_add(&c->gw.reloads_refused, 1);
        log_error("reload refused, everything stays as it was: %s", err.msg);
        gw_kept_say(c->kept, "refused");
        return;
    }
    gw_live_say_ignored(c->started, live);
    for (unsigned i = 0; i < c->gw.n_workers; i++)
        gw_worker_reload(&c->gw.workers[i], live);
    gw_live_unref(c->live);
    c->live = live;
    tr_daemon_apply_log(live->config);
    on_rotate(&c->rotate);
    atomic_fetch_add(&c->gw.reloads, 1);
    c->gw.n_certificates = gw_tls_certificates(live->tls, &ends_s);
    c->gw.certificates_end_s = ends_s;
    c->reloading = true; /* until all workers have it: see on_change() */
}

static void on_hangup(uv_signal_t *handle, int number)
{
    (void)number;
    reload(handle->data);
}

static void on_words(uv_poll_t *poll, int status, int events)
{
    struct control *c = poll->data;
    char text[GW_CONTROL_MAX];
    int fd, r;

    (void)events;
    r = status < 0 ? status : gw_control_receive(gw_kept_sock(c->kept), text, &fd, false);
    if (r == -EAGAIN)
        return;
    if (r != 1) { /* nobody would end us any more */
        log_error("the keeper is gone: ending");
        _exit(1);
    }
    if (fd >= 0)
        close(fd);
    if (strcmp(text, "reload") == 0)
        reload(c);
    else if (strcmp(text, "drain") == 0)
        drain(c);
    else if (strcmp(text, "stop") == 0)
        stop(c);
}

static int open_tickets(struct control *c, struct err *err)
{
    int r = -ENOENT;

    c->tickets = gw_kept_take(c->kept, "tickets");
    if (c->tickets >= 0)
        r = gw_tickets_open(c->tickets);
    if (r == 0)
        return 0;
    if (c->tickets >= 0)
        close(c->tickets);
    c->tickets = gw_tickets_create();
    r = c->tickets < 0 ? c->tickets : gw_tickets_open(c->tickets);
    if (r != 0)
        return tr_err_set(err, r, "ticket keys: %s", strerror(-r));
    return gw_kept_store(c->kept, "tickets", c->tickets, err);
}

static int open_admin(struct control *c, struct err *err)
{
    int r = -ENOENT;

    c->admin = gw_kept_take(c->kept, "admin");
    if (c->admin >= 0)
        r = gw_admin_secret_open(c->admin);
    if (r == 0)
        return 0;
    if (c->admin >= 0)
        close(c->admin);
    c->admin = gw_admin_secret_create();
    r = c->admin < 0 ? c->admin : gw_admin_secret_open(c->admin);
    if (r != 0)
        return tr_err_set(err, r, "the dashboard's secret: %s", strerror(-r));
    return gw_kept_store(c->kept, "admin", c->admin, err);
}

static int prepare(struct control *c, char *urls, size_t len, struct err *err)
{
    struct gw_gateway *gw = &c->gw;
    const struct gw_options *opt = &c->live->opt;
    int64_t ends_s;
    int r;

    gw->opt = opt;
    gw_wakes_init(&gw->wakes);
    gw_limits_init(&gw->limits);
    gw->on_change = on_worker_change;
    gw->arg = c;
    gw->start_s = (int64_t)time(NULL);
    gw->n_certificates = gw_tls_certificates(c->live->tls, &ends_s);
    gw->certificates_end_s = ends_s;
    r = gw_log_open(opt->access_log, &gw->log, err);
    if (r == 0)
        r = open_tickets(c, err);
    if (r == 0)
        r = open_admin(c, err);
    if (r != 0)
        return r;
    if (gw_table_new(&gw->table) != 0)
        return tr_err_set(err, UV_ENOMEM, "out of memory");
    gw->workers = calloc(opt->n_workers, sizeof(*gw->workers));
    if (gw->workers == NULL)
        return tr_err_set(err, UV_ENOMEM, "out of memory");
    for (unsigned i = 0; i < opt->n_workers; i++) {
        gw->n_workers = i + 1;
        r = gw_worker_init(&gw->workers[i], gw, i, c->live);
        if (r != 0)
            return tr_err_set(err, r, "worker: %s", uv_strerror(r));
    }
    return gw_listeners_open(gw, c->kept, urls, len, err);
}

/* Accept connections from here on. */
static int begin(struct control *c, struct err *err)
{
    for (unsigned i = 0; i < c->gw.n_workers; i++) {
        int r = gw_worker_start(&c->gw.workers[i]);

        if (r != 0)
            return tr_err_set(err, r, "worker thread: %s", uv_strerror(r));
    }
    c->begun = true;
    on_rotate(&c->rotate);
    log_info("%s", c->ready_line);
    gw_kept_forget_rest(c->kept);
    gw_kept_say(c->kept, "ready");
    return 0;
}

/* Are the routes here? Without Redis they never are: then the keeper's patience ends, and what
 * served before goes on. */
static void on_waiting(uv_timer_t *timer)
{
    struct control *c = timer->data;
    struct err err = {0};

    if (atomic_load(&gw_feed_figures(c->feed)->loads) == 0)
        return;
    uv_timer_stop(timer);
    if (begin(c, &err) == 0)
        return;
    log_error("%s", err.msg);
    _exit(1);
}

static int start(struct control *c, struct err *err)
{
    const struct gw_options *opt = &c->live->opt;
    char urls[1024], metrics[64] = "off", rights[256];
    struct gw_view *view;
    int r = prepare(c, urls, sizeof(urls), err);

    if (r == 0)
        r = gw_feed_open(&c->loop, opt->redis_url, c->gw.table, on_gone, c, &c->feed, err);
    if (r == 0)
        r = gw_figures_open(&c->loop, &c->gw, c->feed, &c->figures);
    if (r == 0 && opt->metrics[0] != '\0')
        r = gw_metrics_open(&c->loop, opt->metrics, c->kept, &c->gw, c->feed, metrics, &c->metrics,
                            err);
    if (r == 0)
        r = gw_view_new(opt, tr_daemon_config_path(), &view, err);
    if (r != 0)
        return r;
    r = gw_restrict(view, rights, sizeof(rights), err);
    gw_view_free(view);
    if (r != 0)
        return r;
    snprintf(c->ready_line, sizeof(c->ready_line),
             "ready listen=%s metrics=%s workers=%u domain=%s previews=%s pid=%d", urls, metrics,
             c->gw.n_workers, opt->domain, opt->preview_domain, (int)getpid());
    uv_signal_start(&c->sigterm, on_signal, SIGTERM);
    uv_signal_start(&c->sigint, on_signal, SIGINT);
    uv_signal_start(&c->sighup, on_hangup, SIGHUP);
    uv_poll_start(&c->words, UV_READABLE, on_words);
    log_info("%s", rights);
    if (!gw_kept_is_first(c->kept)) { /* others serve until this one knows what they know */
        uv_timer_start(&c->rotate, on_waiting, WAIT_MS, WAIT_MS);
        return 0;
    }
    return begin(c, err);
}

static void fini(struct control *c)
{
    for (unsigned i = 0; i < c->gw.n_workers; i++)
        gw_worker_join(&c->gw.workers[i]);
    if (c->figures != NULL)
        gw_figures_close(c->figures);
    if (c->feed != NULL)
        gw_feed_close(c->feed);
    gw_metrics_close(c->metrics);
    uv_close((uv_handle_t *)&c->sigterm, NULL);
    uv_close((uv_handle_t *)&c->sigint, NULL);
    uv_close((uv_handle_t *)&c->sighup, NULL);
    uv_close((uv_handle_t *)&c->rotate, NULL);
    uv_close((uv_handle_t *)&c->words, NULL);
    uv_close((uv_handle_t *)&c->change, NULL);
    uv_run(&c->loop, UV_RUN_DEFAULT);
    uv_loop_close(&c->loop);
    for (unsigned i = 0; i < c->gw.n_workers; i++)
        gw_worker_fini(&c->gw.workers[i]);
    free(c->gw.workers);
    gw_wakes_fini(&c->gw.wakes);
    gw_table_free(c->gw.table);
    gw_log_close(c->gw.log);
    gw_live_unref(c->started);
    gw_live_unref(c->live);
    if (c->tickets >= 0)
        close(c->tickets);
    if (c->admin >= 0)
        close(c->admin);
    gw_kept_free(c->kept);
}

static int init(struct control *c, struct tr_config *config, struct err *err)
{
    const char *number = getenv(GW_CONTROL_ENV);
    int sock = number != NULL ? atoi(number) : -1, r;

    c->tickets = c->admin = -1;
    if (uv_loop_init(&c->loop) != 0 || uv_signal_init(&c->loop, &c->sigterm) != 0 ||
        uv_signal_init(&c->loop, &c->sigint) != 0 || uv_signal_init(&c->loop, &c->sighup) != 0 ||
        uv_timer_init(&c->loop, &c->rotate) != 0 ||
        uv_async_init(&c->loop, &c->change, on_change) != 0)
        abort();
    c->sigterm.data = c->sigint.data = c->sighup.data = c->rotate.data = c->change.data = c;
    unsetenv(GW_CONTROL_ENV);
    signal(SIGUSR2, SIG_IGN); /* the keeper's, though it may be sent to the whole group */
    fcntl(sock, F_SETFD, FD_CLOEXEC);
    /* Without the keeper nobody would end this process. */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    r = gw_kept_new(sock, &c->kept, err);
    if (r != 0) {
        tr_config_free(config);
        return r;
    }
    if (uv_poll_init(&c->loop, &c->words, sock) != 0)
        abort();
    c->words.data = c;
    gw_raise_descriptor_limit();
    r = gw_live_new(config, &c->live, err);
    if (r == 0)
        c->started = gw_live_ref(c->live);
    return r;
}

int gw_gateway_run(struct tr_config *config)
{
    struct control *c = calloc(1, sizeof(*c));
    struct err err = {0};
    int r;

    if (c == NULL)
        abort();
    r = init(c, config, &err);
    if (r == 0)
        r = start(c, &err);
    if (r == 0) {
        uv_run(&c->loop, UV_RUN_DEFAULT); /* until every worker has ended */
    } else {
        log_error("%s", err.msg);
        for (unsigned i = 0; i < c->gw.n_workers; i++)
            gw_worker_stop(&c->gw.workers[i]);
    }
    fini(c);
    if (r == 0)
        log_info("ended");
    free(c);
    return r == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
