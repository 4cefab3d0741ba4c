/* SPDX-License-Identifier: MIT */
/* Path: open -> spawn -> on_output ("started") -> cb -> ... -> on_end -> (backoff) -> spawn.
 * close -> on_closed, each handle -> its cb. */
#include "vmm/net/dnsmasq.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "transom/log.h"
#include "vmm/proc/child.h"
#include "vmm/proc/procid.h"

#define START_MS       5000
#define BACKOFF_MIN_MS 200
#define BACKOFF_MAX_MS 5000
#define STEADY_MS      10000 /* after so long the next failure starts from the shortest backoff */
#define ARGUMENT_MAX   4224
#define USER_NOBODY    65534U

struct dnsmasq {
    uv_loop_t *loop;
    uv_process_t process;
    uv_pipe_t output;
    uv_timer_t timer; /* start deadline, then backoff */
    char *name, *dir, *netns, *conf;
    dnsmasq_cb cb;
    void *arg;
    void (*close_cb)(void *arg);
    void *close_arg;
    struct err err;
    char text[1024]; /* what it said last */
    size_t text_len;
    uint64_t started_at;
    uint64_t backoff_ms;
    int n_open; /* live or closing process and output handles, and the timer */
    bool running, ready, closing, end;
};

static int spawn(struct dnsmasq *d, struct err *err);

/* --- configuration --- */

char *dnsmasq_config(const struct dnsmasq_options *o, const char *user)
{
    char *text = NULL;
    size_t len, i;
    FILE *f = open_memstream(&text, &len);

    if (f == NULL)
        return NULL;
    (void)fprintf(f,
                  "# Written by transom-vmm at each start.\n"
                  "%s%s\n"
                  "log-facility=-\n"
                  "pid-file=\n"
                  "port=%u\n"
                  "listen-address=%s\n"
                  "except-interface=lo\n"
                  "bind-interfaces\n"
                  "no-hosts\n"
                  "domain-needed\n"
                  "cache-size=1000\n"
                  "dns-forward-max=500\n",
                  user[0] != '\0' ? "keep-in-foreground\nuser=" : "no-daemon", user, o->port,
                  o->listen);
    if (o->n_servers > 0) {
        (void)fputs("no-resolv\n", f);
        /* Guests have no IPv6: an answer they cannot use only costs them a try. */
        (void)fputs("filter-AAAA\n", f);
    } else {
        (void)fputs("resolv-file=/etc/resolv.conf\n", f);
    }
    for (i = 0; i < o->n_servers; i++)
        (void)fprintf(f, "server=%s\n", o->servers[i]);
    if (fclose(f) != 0) {
        free(text);
        return NULL;
    }
    return text;
}

/* The user it drops to. In a user namespace that does not map nobody it cannot become another one:
 * "", and it stays what it is, which its debugging mode allows. */
static const char *drop_user(void)
{
    unsigned long inside, outside, count;
    const char *user = "";
    FILE *f;

    f = geteuid() == 0 ? fopen("/proc/self/uid_map", "re") : NULL;
    if (f == NULL)
        return "";
    while (fscanf(f, "%lu %lu %lu", &inside, &outside, &count) == 3)
        if (USER_NOBODY >= inside && USER_NOBODY - inside < count)
            user = "nobody";
    (void)fclose(f);
    return user;
}

static int write_config(struct dnsmasq *d, const struct dnsmasq_options *o, struct err *err)
{
    char *text = dnsmasq_config(o, drop_user());
    int fd, r = 0;

    if (text == NULL)
        return tr_err_set(err, UV_ENOMEM, "out of memory");
    fd = open(d->conf, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0644);
    if (fd < 0 || write(fd, text, strlen(text)) != (ssize_t)strlen(text))
        r = tr_err_set(err, -errno, "%s: %s", d->conf, strerror(errno));
    if (fd >= 0)
        (void)close(fd);
    free(text);
    return r;
}

/* --- what earlier managers left --- */

static void conf_argument(const char *dir, const char *name, char *out, size_t size)
{
    (void)snprintf(out, size, "--conf-file=%s/%s.conf", dir, name);
}

/* It is known by its configuration file. Blocks for the moment that a killed one takes to end; so
 * its port is free afterwards. */
static void end_old(const char *dir, const char *name)
{
    char argument[ARGUMENT_MAX];

    conf_argument(dir, name, argument, sizeof(argument));
    procid_kill_by_argument(argument);
}

void dnsmasq_remove(const char *dir, const char *name)
{
    char path[4200];

    end_old(dir, name);
    (void)snprintf(path, sizeof(path), "%s/%s.conf", dir, name);
    (void)unlink(path);
}

/* --- running --- */

static void dnsmasq_free(struct dnsmasq *d)
{
    free(d->name);
    free(d->dir);
    free(d->netns);
    free(d->conf);
    free(d);
}

static void check_closed(struct dnsmasq *d)
{
    if (!d->closing || d->n_open > 0)
        return;
    if (d->end)
        dnsmasq_remove(d->dir, d->name);
    if (d->close_cb != NULL)
        d->close_cb(d->close_arg);
    dnsmasq_free(d);
}

/* The first outcome is told once. */
static void tell(struct dnsmasq *d, int status)
{
    dnsmasq_cb cb = d->cb;

    d->cb = NULL;
    if (cb != NULL)
        cb(status, &d->err, d->arg);
}

/* Last line of what it said, without its own name in front. */
static const char *last_words(struct dnsmasq *d)
{
    char *p;

    while (d->text_len > 0 && (unsigned char)d->text[d->text_len - 1] <= ' ')
        d->text_len--;
    d->text[d->text_len] = '\0';
    p = strrchr(d->text, '\n');
    p = p != NULL ? p + 1 : d->text;
    if (strncmp(p, "dnsmasq: ", 9) == 0)
        p += 9;
    return p[0] != '\0' ? p : "it said nothing";
}

static void on_backoff(uv_timer_t *timer)
{
    struct err err = {0};

    (void)spawn(timer->data, &err); /* a failure is handled once its handles are closed */
}

/* Process and output are closed: what next? */
static void on_handles_closed(struct dnsmasq *d)
{
    if (d->closing) {
        check_closed(d);
        return;
    }
    if (!d->ready) {
        (void)uv_timer_stop(&d->timer);
        if (d->err.code == 0)
            (void)tr_err_set(&d->err, UV_EIO, "dnsmasq: %s", last_words(d));
        if (d->cb != NULL) {
            tell(d, d->err.code);
            return;
        }
    }
    if (uv_now(d->loop) - d->started_at > STEADY_MS)
        d->backoff_ms = BACKOFF_MIN_MS;
    log_warn("dnsmasq (%s) ended: %s; again in %llu ms", d->name,
             d->err.code != 0 ? d->err.msg : last_words(d), (unsigned long long)d->backoff_ms);
    (void)uv_timer_start(&d->timer, on_backoff, d->backoff_ms, 0);
    d->backoff_ms = d->backoff_ms * 2 > BACKOFF_MAX_MS ? BACKOFF_MAX_MS : d->backoff_ms * 2;
}

static void on_closed(uv_handle_t *handle)
{
    struct dnsmasq *d = handle->data;

    if (--d->n_open == (d->closing ? 0 : 1)) /* the timer stays */
        on_handles_closed(d);
}

static void on_end(uv_process_t *process, int64_t code, int signal)
{
    struct dnsmasq *d = process->data;

    (void)code;
    (void)signal;
    d->running = false;
    uv_close((uv_handle_t *)process, on_closed);
    if (d->closing && !uv_is_closing((uv_handle_t *)&d->output))
        uv_close((uv_handle_t *)&d->output, on_closed);
}

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buf)
{
    static char scratch[1024]; /* consumed before on_output returns; one loop thread */

    (void)handle;
    (void)suggested;
    *buf = uv_buf_init(scratch, sizeof(scratch));
}

static void on_output(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf)
{
    struct dnsmasq *d = stream->data;

    if (n < 0) {
        if (!uv_is_closing((uv_handle_t *)stream))
            uv_close((uv_handle_t *)stream, on_closed);
        return;
    }
    if (d->text_len + (size_t)n >= sizeof(d->text)) {
        size_t drop = d->text_len + (size_t)n - sizeof(d->text) + 1;

        if (drop >= d->text_len) {
            d->text_len = 0;
        } else {
            memmove(d->text, d->text + drop, d->text_len - drop);
            d->text_len -= drop;
        }
    }
    if ((size_t)n >= sizeof(d->text) - d->text_len)
        n = (ssize_t)(sizeof(d->text) - d->text_len - 1);
    memcpy(d->text + d->text_len, buf->base, (size_t)n);
    d->text_len += (size_t)n;
    d->text[d->text_len] = '\0';
    if (!d->ready && strstr(d->text, "started, version") != NULL) {
        d->ready = true;
        (void)uv_timer_stop(&d->timer);
        tell(d, 0);
    }
}

static void on_start_timer(uv_timer_t *timer)
{
    struct dnsmasq *d = timer->data;

    (void)tr_err_set(&d->err, UV_ETIMEDOUT, "dnsmasq did not start in time");
    if (d->running)
        (void)uv_process_kill(&d->process, SIGKILL);
}

static int spawn(struct dnsmasq *d, struct err *err)
{
    char net[80], conf[ARGUMENT_MAX];
    char *inside[] = {"nsenter", net, "dnsmasq", conf, NULL};
    char **argv = d->netns[0] != '\0' ? inside : inside + 2;
    uv_stdio_container_t stdio[3] = {0};
    uv_process_options_t options = {0};
    int r;

    (void)snprintf(net, sizeof(net), "--net=/run/netns/%s", d->netns);
    conf_argument(d->dir, d->name, conf, sizeof(conf));
    if (uv_pipe_init(d->loop, &d->output, 0) != 0)
        abort(); /* cannot fail on Unix */
    stdio[0].flags = stdio[1].flags = UV_IGNORE;
    stdio[2].flags = UV_CREATE_PIPE | UV_WRITABLE_PIPE;
    stdio[2].data.stream = (uv_stream_t *)&d->output;
    options.file = argv[0];
    options.args = argv;
    options.env = (char **)child_environment;
    options.stdio = stdio;
    options.stdio_count = 3;
    options.flags = UV_PROCESS_DETACHED; /* names are served while a manager is replaced */
    options.exit_cb = on_end;
    r = uv_spawn(d->loop, &d->process, &options);
    d->process.data = d->output.data = d;
    d->n_open += 2;
    d->ready = false;
    d->text_len = 0;
    tr_err_clear(&d->err);
    d->started_at = uv_now(d->loop);
    if (r != 0) {
        (void)tr_err_set(err, r, "cannot run %s: %s%s", argv[0], uv_strerror(r),
                         r == UV_ENOENT ? " (install dnsmasq-base and util-linux)" : "");
        d->err = *err;
        uv_close((uv_handle_t *)&d->process, on_closed);
        uv_close((uv_handle_t *)&d->output, on_closed);
        return r;
    }
    d->running = true;
    if (uv_read_start((uv_stream_t *)&d->output, on_alloc, on_output) != 0)
        (void)uv_process_kill(&d->process, SIGKILL);
    (void)uv_timer_start(&d->timer, on_start_timer, START_MS, 0);
    return 0;
}

int dnsmasq_open(uv_loop_t *loop, const struct dnsmasq_options *o, dnsmasq_cb cb, void *arg,
                 struct dnsmasq **out, struct err *err)
{
    struct dnsmasq *d = calloc(1, sizeof(*d));
    int r = 0;

    if (d == NULL || (d->name = strdup(o->name)) == NULL || (d->dir = strdup(o->dir)) == NULL ||
        (d->netns = strdup(o->netns)) == NULL ||
        asprintf(&d->conf, "%s/%s.conf", o->dir, o->name) < 0) {
        if (d != NULL)
            dnsmasq_free(d);
        return tr_err_set(err, UV_ENOMEM, "out of memory");
    }
    d->loop = loop;
    d->backoff_ms = BACKOFF_MIN_MS;
    end_old(d->dir, d->name);
    r = write_config(d, o, err);
    if (r != 0) {
        dnsmasq_free(d);
        return r;
    }
    if (uv_timer_init(loop, &d->timer) != 0)
        abort(); /* cannot fail on Unix */
    d->timer.data = d;
    d->n_open = 1;
    r = spawn(d, err);
    if (r != 0) {
        dnsmasq_close(d, true, NULL, NULL);
        return r;
    }
    d->cb = cb;
    d->arg = arg;
    *out = d;
    return 0;
}

void dnsmasq_close(struct dnsmasq *d, bool end, void (*cb)(void *arg), void *arg)
{
    if (d->closing)
        return;
    d->closing = true;
    d->end = end;
    d->close_cb = cb;
    d->close_arg = arg;
    d->cb = NULL;
    uv_close((uv_handle_t *)&d->timer, on_closed);
    if (!d->running) { /* process and output are closing or closed; output may still be read */
        if (d->n_open > 1 && !uv_is_closing((uv_handle_t *)&d->output))
            uv_close((uv_handle_t *)&d->output, on_closed);
        return;
    }
    if (end) {
        (void)uv_process_kill(&d->process, SIGKILL); /* it holds nothing; on_end goes on */
        return;
    }
    uv_close((uv_handle_t *)&d->process, on_closed);
    if (!uv_is_closing((uv_handle_t *)&d->output))
        uv_close((uv_handle_t *)&d->output, on_closed);
}
