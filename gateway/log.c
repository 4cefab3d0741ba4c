/* SPDX-License-Identifier: MIT */
#include "gateway/log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>

#include "gateway/access.h"
#include "gateway/address.h"
#include "gateway/worker.h"
#include "transom/log.h"

#define GATHER_LEN   65536
#define LOG_LINE_MAX 4096 /* no single write is longer than a pipe takes whole */
#define TARGET_MAX   1024
#define TRACE_LEN    55

struct gw_access_log {
    int fd; /* its number stays the same: threads use it */
};

static int open_file(const char *path, struct err *err)
{
    int fd = strcmp(path, "-") == 0 ? fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3)
                                    : open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0640);

    return fd >= 0
               ? fd
               : tr_err_set(err, -errno, "gateway.access_log: %s: %s%s", path, strerror(errno),
                            errno == EACCES ? "; the gateway's user must be able to write it" : "");
}

int gw_log_open(const char *path, struct gw_access_log **out, struct err *err)
{
    struct gw_access_log *log;
    int fd;

    *out = NULL;
    if (path[0] == '\0')
        return 0;
    fd = open_file(path, err);
    if (fd < 0)
        return fd;
    log = malloc(sizeof(*log));
    if (log == NULL) {
        close(fd);
        return tr_err_set(err, -ENOMEM, "out of memory");
    }
    log->fd = fd;
    *out = log;
    return 0;
}

int gw_log_reopen(struct gw_access_log *const *log, const char *path, struct err *err)
{
    int fd, r = 0;

    if (*log == NULL || path[0] == '\0') {
        if ((*log == NULL) != (path[0] == '\0'))
            log_warn("reload: gateway.access_log: to begin or end a log takes SIGUSR2");
        return 0;
    }
    fd = open_file(path, err);
    if (fd < 0)
        return fd;
    if (dup3(fd, (*log)->fd, O_CLOEXEC) < 0)
        r = tr_err_set(err, -errno, "gateway.access_log: %s: %s", path, strerror(errno));
    close(fd);
    return r;
}

void gw_log_close(struct gw_access_log *log)
{
    if (log == NULL)
        return;
    close(log->fd);
    free(log);
}

/* JSON text: quotes, backslashes, controls and bytes beyond ASCII are escaped (as Latin-1, so that
 * any bytes make valid JSON). */
static size_t put_json(char *out, size_t room, const char *s, size_t len)
{
    size_t n = 0;

    for (size_t i = 0; i < len && room - n > 6; i++) {
        unsigned char c = (unsigned char)s[i];

        if (c == '"' || c == '\\') {
            out[n++] = '\\';
            out[n++] = (char)c;
        } else if (c >= ' ' && c < 0x7f) {
            out[n++] = (char)c;
        } else {
            n += (size_t)snprintf(out + n, 7, "\\u%04x", c);
        }
    }
    return n;
}

/* The request target, with "..." in place of what could be a token. */
static size_t put_target(char *out, size_t room, struct gw_str target)
{
    struct gw_str value;
    size_t at = 0, from = 0, n = 0;

    while (gw_access_next_param(target, &at, &value)) {
        size_t start = (size_t)(value.p - target.p);

        n += put_json(out + n, room - n, target.p + from, start - from);
        if (value.len > 0)
            n += put_json(out + n, room - n, "...", 3);
        from = start + value.len;
    }
    return n + put_json(out + n, room - n, target.p + from, target.len - from);
}

/* A field of that name in lower case; NULL: none, or several. */
static const struct gw_field *find_field(const struct gw_request *req, const char *name, size_t len)
{
    const struct gw_field *found = NULL;

    for (size_t i = 0; i < req->n_fields; i++) {
        const struct gw_field *f = &req->fields[i];

        if (f->name_len != len || strncasecmp(f->name, name, len) != 0)
            continue;
        if (found != NULL)
            return NULL;
        found = f;
    }
    return found;
}

/* The caller's place in its trace (W3C Trace Context section 3.2), which is passed on as it is. */
static size_t put_trace(char *out, size_t room, const struct gw_request *req)
{
    const struct gw_field *f = find_field(req, "traceparent", 11);

    if (f == NULL || f->value_len != TRACE_LEN)
        return 0;
    for (uint32_t i = 0; i < TRACE_LEN; i++)
        if (f->value[i] == '\0' || strchr("0123456789abcdef-", f->value[i]) == NULL)
            return 0;
    return (size_t)snprintf(out, room, "\"trace\":\"%.*s\",", TRACE_LEN, f->value);
}

void gw_log_begin(struct gw_exchange *x, const struct gw_request *req, const struct sockaddr *peer,
                  struct gw_str id)
{
    struct gw_worker *w = x->worker;
    struct gw_str target = req->target;
    char address[GW_ADDRESS_TEXT], *p;
    size_t room, n;

    if (w->gw->log == NULL)
        return;
    x->log = gw_buf_get(&w->bufs, LOG_LINE_MAX);
    if (x->log == NULL)
        return;
    p = x->log->data;
    room = LOG_LINE_MAX - 512; /* what the end adds */
    n = put_trace(p, room, req);
    n += (size_t)snprintf(
        p + n, room - n,
        "\"id\":\"%.*s\",\"client\":\"%.*s\",\"proto\":\"%s\",\"tls\":%s,\"host\":\"", (int)id.len,
        id.p, (int)gw_address_text(peer, address), address,
        x->http2       ? "HTTP/2"
        : x->minor > 0 ? "HTTP/1.1"
                       : "HTTP/1.0",
        x->tls ? "true" : "false");
    n += put_json(p + n, 320, req->host.p, req->host.len);
    n += (size_t)snprintf(p + n, room - n, "\",\"method\":\"");
    n += put_json(p + n, 48, req->method.p, req->method.len);
    n += (size_t)snprintf(p + n, room - n, "\",\"target\":\"");
    if (target.len > TARGET_MAX)
        target.len = TARGET_MAX;
    n += put_target(p + n, room - n - 2, target);
    p[n++] = '"';
    x->log->len = (uint32_t)n;
}

static void gather(struct gw_worker *w, const char *line, size_t len)
{
    if (w->log_buf == NULL)
        w->log_buf = malloc(GATHER_LEN);
    if (w->log_buf == NULL)
        return;
    if (w->log_len + len > GATHER_LEN)
        gw_log_flush(w);
    memcpy(w->log_buf + w->log_len, line, len);
    w->log_len += len;
}

static size_t put_time(char *p, size_t room)
{
    struct timespec ts;
    struct tm tm;

    clock_gettime(CLOCK_REALTIME, &ts);
    gmtime_r(&ts.tv_sec, &tm);
    return (size_t)snprintf(p, room, "{\"time\":\"%04d-%02d-%02dT%02d:%02d:%02d.%03ldZ\",",
                            tm.tm_year + 1900, tm.tm_mon + 1, tm.tm_mday, tm.tm_hour, tm.tm_min,
                            tm.tm_sec, ts.tv_nsec / 1000000);
}

void gw_log_end(struct gw_exchange *x, const char *end)
{
    struct gw_worker *w = x->worker;
    char line[LOG_LINE_MAX];
    size_t n;

    if (x->log == NULL)
        return;
    n = put_time(line, sizeof(line));
    memcpy(line + n, x->log->data, x->log->len);
    n += x->log->len;
    n += (size_t)snprintf(line + n, sizeof(line) - n,
                          ",\"label\":\"%s\",\"instance\":%llu,\"status\":%d,\"bytes_in\":%llu,"
                          "\"bytes_out\":%llu,\"ms\":%llu,\"retried\":%s,\"end\":\"%s\"}\n",
                          x->route.label, (unsigned long long)x->route.instance, x->status,
                          (unsigned long long)x->bytes_in, (unsigned long long)x->bytes_out,
                          (unsigned long long)(gw_loop_now(w->loop) - x->start_ms),
                          x->retried ? "true" : "false", end);
    gather(w, line, n);
    gw_buf_put(&w->bufs, x->log);
    x->log = NULL;
}

char *gw_log_take_note(struct gw_exchange *x)
{
    char *note;
    int n;

    if (x->log == NULL)
        return NULL;
    n = asprintf(&note, "%.*s,\"label\":\"%s\",\"instance\":%llu,\"status\":%d", (int)x->log->len,
                 x->log->data, x->route.label, (unsigned long long)x->route.instance,
                 x->http2 ? 200 : 101);
    gw_buf_put(&x->worker->bufs, x->log);
    x->log = NULL;
    return n < 0 ? NULL : note;
}

void gw_log_tunnel(struct gw_worker *w, char *note, uint64_t bytes_in, uint64_t bytes_out,
                   uint64_t start_ms, const char *end)
{
    char line[LOG_LINE_MAX];
    size_t n;

    if (note == NULL)
        return;
    n = put_time(line, sizeof(line));
    n += (size_t)snprintf(line + n, sizeof(line) - n,
                          "%s,\"bytes_in\":%llu,\"bytes_out\":%llu,\"ms\":%llu,"
                          "\"end\":\"tunnel: %s\"}\n",
                          note, (unsigned long long)bytes_in, (unsigned long long)bytes_out,
                          (unsigned long long)(gw_loop_now(w->loop) - start_ms), end);
    gather(w, line, n);
    free(note);
}

void gw_log_refusal(struct gw_worker *w, const struct sockaddr *peer, int status, const char *why)
{
    char line[512], address[GW_ADDRESS_TEXT];
    size_t n, len;

    if (w->gw->log == NULL)
        return;
    n = put_time(line, sizeof(line));
    len = gw_address_text(peer, address);
    n += (size_t)snprintf(line + n, sizeof(line) - n,
                          "\"client\":\"%.*s\",\"status\":%d,\"end\":\"refused: %s\"}\n", (int)len,
                          address, status, why);
    gather(w, line, n);
}

void gw_log_flush(struct gw_worker *w)
{
    size_t at = 0;

    while (at < w->log_len) {
        ssize_t n = write(w->gw->log->fd, w->log_buf + at, w->log_len - at);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            break; /* a full disk must not stop the edge */
        at += (size_t)n;
    }
    w->log_len = 0;
}
