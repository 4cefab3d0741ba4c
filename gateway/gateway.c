/* SPDX-License-Identifier: MIT */
/* Path: options -> certificate, log, listeners, metrics -> rights given up -> workers -> ready ->
 * signal -> drain -> end. The main thread is the control thread: its libuv loop feeds the route
 * table, answers /metrics and waits for signals. */
#include "gateway/gateway.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <uv.h>

#include "gateway/feed.h"
#include "gateway/listener.h"
#include "gateway/log.h"
#include "gateway/metrics.h"
#include "gateway/privileges.h"
#include "gateway/tls.h"
#include "gateway/worker.h"
#include "transom/daemon.h"
#include "transom/log.h"

struct control {
    uv_loop_t loop;
    uv_signal_t sigterm, sigint, sighup;
    struct gw_options opt;
    struct gw_gateway gw;
    struct gw_feed *feed;
    struct gw_metrics *metrics;
    bool stopping;
};

int gw_gateway_check(const struct tr_config *config, struct err *err)
{
    struct gw_options opt;
    struct ssl_ctx_st *ctx = NULL;
    int r = gw_options_init(&opt, config, err);

    if (r == 0 && opt.n_https > 0)
        r = gw_tls_new(opt.certificate, opt.key, opt.http2, &ctx, err);
    if (ctx != NULL)
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

static void on_signal(uv_signal_t *handle, int number)
{
    struct control *c = handle->data;

    if (c->stopping) { /* asked twice: no more patience */
        log_warn("second signal: ending at once");
        _exit(1);
    }
    log_info("%s: draining for at most %llu ms", number == SIGINT ? "SIGINT" : "SIGTERM",
             (unsigned long long)c->opt.drain_ms);
    c->stopping = true;
    tr_daemon_notify("STOPPING=1");
    for (unsigned i = 0; i < c->gw.n_workers; i++)
        gw_worker_stop(&c->gw.workers[i]);
    uv_stop(&c->loop);
}

static void on_hangup(uv_signal_t *handle, int number)
{
    (void)handle;
    (void)number;
    log_warn("SIGHUP: nothing is reloaded; restart to read configuration and certificates again");
}

static int prepare(struct control *c, char *urls, size_t len, struct err *err)
{
    struct gw_gateway *gw = &c->gw;
    int r = 0;

    gw->opt = &c->opt;
    gw_wakes_init(&gw->wakes);
    if (c->opt.certificate[0] != '\0' && c->opt.key[0] != '\0')
        r = gw_tls_new(c->opt.certificate, c->opt.key, c->opt.http2, &gw->tls, err);
    if (r == 0)
        r = gw_log_open(c->opt.access_log, &gw->log, err);
    if (r != 0)
        return r;
    if (gw_table_new(&gw->table) != 0)
        return tr_err_set(err, UV_ENOMEM, "out of memory");
    gw->workers = calloc(c->opt.n_workers, sizeof(*gw->workers));
    if (gw->workers == NULL)
        return tr_err_set(err, UV_ENOMEM, "out of memory");
    for (unsigned i = 0; i < c->opt.n_workers; i++) {
        gw->n_workers = i + 1;
        r = gw_worker_init(&gw->workers[i], gw, i);
        if (r != 0)
            return tr_err_set(err, r, "worker: %s", uv_strerror(r));
    }
    return gw_listeners_open(gw, urls, len, err);
}

static int start(struct control *c, struct err *err)
{
    char urls[1024], metrics[64] = "off", rights[160];
    int r = prepare(c, urls, sizeof(urls), err);

    if (r == 0)
        r = gw_feed_open(&c->loop, c->opt.redis_url, c->gw.table, on_gone, c, &c->feed, err);
    if (r == 0 && c->opt.metrics[0] != '\0')
        r = gw_metrics_open(&c->loop, c->opt.metrics, &c->gw, c->feed, metrics, &c->metrics, err);
    if (r == 0)
        r = gw_drop_privileges(c->opt.user, rights, sizeof(rights), err);
    if (r != 0)
        return r;
    uv_signal_start(&c->sigterm, on_signal, SIGTERM);
    uv_signal_start(&c->sigint, on_signal, SIGINT);
    uv_signal_start(&c->sighup, on_hangup, SIGHUP);
    for (unsigned i = 0; i < c->gw.n_workers; i++) {
        r = gw_worker_start(&c->gw.workers[i]);
        if (r != 0)
            return tr_err_set(err, r, "worker thread: %s", uv_strerror(r));
    }
    log_info("%s", rights);
    log_info("ready listen=%s metrics=%s workers=%u domain=%s previews=%s", urls, metrics,
             c->gw.n_workers, c->opt.domain, c->opt.preview_domain);
    tr_daemon_notify("READY=1");
    return 0;
}

static void fini(struct control *c)
{
    for (unsigned i = 0; i < c->gw.n_workers; i++)
        gw_worker_join(&c->gw.workers[i]);
    if (c->feed != NULL)
        gw_feed_close(c->feed);
    gw_metrics_close(c->metrics);
    uv_close((uv_handle_t *)&c->sigterm, NULL);
    uv_close((uv_handle_t *)&c->sigint, NULL);
    uv_close((uv_handle_t *)&c->sighup, NULL);
    uv_run(&c->loop, UV_RUN_DEFAULT);
    uv_loop_close(&c->loop);
    for (unsigned i = 0; i < c->gw.n_workers; i++)
        gw_worker_fini(&c->gw.workers[i]);
    free(c->gw.workers);
    gw_wakes_fini(&c->gw.wakes);
    gw_table_free(c->gw.table);
    gw_log_close(c->gw.log);
    gw_tls_free(c->gw.tls);
    gw_options_fini(&c->opt);
}

int gw_gateway_run(const struct tr_config *config)
{
    struct control *c = calloc(1, sizeof(*c));
    struct err err = {0};
    int r;

    if (c == NULL || uv_loop_init(&c->loop) != 0)
        abort();
    if (uv_signal_init(&c->loop, &c->sigterm) != 0 || uv_signal_init(&c->loop, &c->sigint) != 0 ||
        uv_signal_init(&c->loop, &c->sighup) != 0)
        abort();
    c->sigterm.data = c->sigint.data = c;
    gw_raise_descriptor_limit();
    r = gw_options_init(&c->opt, config, &err);
    if (r == 0)
        r = start(c, &err);
    if (r == 0) {
        uv_run(&c->loop, UV_RUN_DEFAULT);
        /* While workers drain, the table goes on being fed and figures being served by nobody:
         * their threads end by themselves. */
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
