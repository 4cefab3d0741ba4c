/* SPDX-License-Identifier: MIT */
/* agentctl SOCKET: speaks to an agent for test programs, which have no HTTP/2 of their own.
 * Commands are JSON lines on standard input, events JSON lines on standard output:
 *   {"id":N,"op":"request","method":M,"path":P,"headers":{},"body":TEXT,"end":BOOL}
 *   {"id":N,"op":"data","b64":B,"end":BOOL}   {"id":N,"op":"reset"}
 *   {"id":N,"op":"pause"}  {"id":N,"op":"resume"}   whether received bytes are given back
 *   {"id":N,"ev":"head","status":S,"headers":{}}  {"id":N,"ev":"data","b64":B}
 *   {"id":N,"ev":"end"}  {"id":N,"ev":"close","code":C}  {"id":N,"ev":"sent"} (request body
 * drained)
 *   {"ev":"open"}  {"ev":"over"}
 * and those of agentctl_sync.h.
 * Ends when its standard input or the connection does. */
#include <errno.h>
#include <jansson.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <uv.h>

#include "agentctl_sync.h"
#include "transom/channel.h"
#include "transom/h2_uv.h"
#include "transom/log.h"
#include "vmm/agent/base64.h"

#define MAX_STREAMS 4096
#define MAX_HEADERS 16
#define PING_MS     30000 /* as the manager does: silence is told from a peer that is gone */

struct stream {
    struct tr_h2_stream *st;
    int id;
    bool paused;
    size_t held; /* received, not given back */
};

static struct stream streams[MAX_STREAMS];
static struct tr_channel *channel;
static struct tr_h2_conn *conn;
static uv_loop_t loop;
static uv_pipe_t input;
static char *line;
static size_t line_len, line_cap;

static void say(json_t *event)
{
    char *text = json_dumps(event, JSON_COMPACT);

    puts(text);
    fflush(stdout);
    free(text);
    json_decref(event);
}

static struct stream *find(int id, bool make)
{
    struct stream *unused = NULL;

    for (size_t i = 0; i < MAX_STREAMS; i++) {
        if (streams[i].id == id)
            return &streams[i];
        if (streams[i].id == 0 && unused == NULL)
            unused = &streams[i];
    }
    if (!make)
        return NULL;
    if (unused == NULL)
        abort();
    unused->id = id;
    return unused;
}

static void on_head(struct tr_h2_stream *st, const struct tr_h2_head *head, bool end, void *arg)
{
    struct stream *s = arg;
    json_t *headers = json_object();

    (void)st;
    (void)end;
    for (size_t i = 0; i < head->n_fields; i++)
        json_object_set_new(headers, head->fields[i].name, json_string(head->fields[i].value));
    say(json_pack("{s:i,s:s,s:i,s:o}", "id", s->id, "ev", "head", "status", head->status, "headers",
                  headers));
}

static void on_data(struct tr_h2_stream *st, const uint8_t *data, size_t len, void *arg)
{
    struct stream *s = arg;
    char *b64 = agent_base64_encode(data, len);

    say(json_pack("{s:i,s:s,s:s}", "id", s->id, "ev", "data", "b64", b64));
    free(b64);
    if (s->paused)
        s->held += len;
    else
        tr_h2_stream_consume(st, len);
}

static void on_end(struct tr_h2_stream *st, const struct tr_h2_head *trailers, void *arg)
{
    struct stream *s = arg;

    (void)st;
    (void)trailers;
    say(json_pack("{s:i,s:s}", "id", s->id, "ev", "end"));
}

static void on_drain(struct tr_h2_stream *st, void *arg)
{
    struct stream *s = arg;

    (void)st;
    say(json_pack("{s:i,s:s}", "id", s->id, "ev", "sent"));
}

static void on_close(struct tr_h2_stream *st, uint32_t code, void *arg)
{
    struct stream *s = arg;

    (void)st;
    say(json_pack("{s:i,s:s,s:i}", "id", s->id, "ev", "close", "code", (int)code));
    memset(s, 0, sizeof(*s));
}

static const struct tr_h2_stream_cbs stream_cbs = {.on_head = on_head,
                                                   .on_data = on_data,
                                                   .on_end = on_end,
                                                   .on_drain = on_drain,
                                                   .on_close = on_close};

static void request(struct stream *s, json_t *cmd)
{
    const char *method = json_string_value(json_object_get(cmd, "method"));
    const char *path = json_string_value(json_object_get(cmd, "path"));
    json_t *headers = json_object_get(cmd, "headers"), *body = json_object_get(cmd, "body"), *value;
    bool connect = strcmp(method, "CONNECT") == 0;
    bool end = json_is_true(json_object_get(cmd, "end"));
    struct tr_h2_field fields[4 + MAX_HEADERS];
    const char *name;
    size_t n = 0;
    int r;

    fields[n++] = TR_H2_FIELD(":method", method);
    if (!connect)
        fields[n++] = TR_H2_FIELD(":scheme", "http");
    fields[n++] = TR_H2_FIELD(":authority", connect ? path : "agent");
    if (!connect)
        fields[n++] = TR_H2_FIELD(":path", path);
    json_object_foreach(headers, name, value)
    {
        const char *text = json_string_value(value);

        fields[n++] = (struct tr_h2_field){name, strlen(name), text, strlen(text)};
    }
    r = tr_h2_request(tr_h2_conn_session(conn), fields, n, end && body == NULL, &stream_cbs, s,
                      &s->st);
    if (r != 0) {
        say(json_pack("{s:i,s:s,s:i}", "id", s->id, "ev", "close", "code", r));
        memset(s, 0, sizeof(*s));
        return;
    }
    if (body != NULL) {
        if (tr_h2_write(s->st, json_string_value(body), json_string_length(body)) < 0)
            abort();
        if (end)
            tr_h2_end(s->st, NULL, 0);
    }
}

static void send_data(struct stream *s, json_t *cmd)
{
    const char *b64 = json_string_value(json_object_get(cmd, "b64"));
    uint8_t *bytes = NULL;
    size_t len = 0;

    if (b64 != NULL && agent_base64_decode(b64, &bytes, &len) != 0)
        abort();
    if (len > 0 && tr_h2_write(s->st, bytes, len) == 1)
        on_drain(s->st, s);
    free(bytes);
    if (json_is_true(json_object_get(cmd, "end")))
        tr_h2_end(s->st, NULL, 0);
}

static void command(const char *text)
{
    json_t *cmd = json_loads(text, 0, NULL);
    const char *op = json_string_value(json_object_get(cmd, "op"));
    int id = (int)json_integer_value(json_object_get(cmd, "id"));
    struct stream *s;

    if (op == NULL || id <= 0) {
        fprintf(stderr, "agentctl: bad command: %s\n", text);
        exit(2);
    }
    if (conn != NULL && agentctl_sync(&loop, tr_h2_conn_session(conn), cmd, say)) {
        json_decref(cmd);
        return;
    }
    s = find(id, strcmp(op, "request") == 0);
    if (s == NULL) {
        json_decref(cmd); /* its close is on the way to the test */
        return;
    }
    if (strcmp(op, "request") == 0) {
        request(s, cmd);
    } else if (strcmp(op, "data") == 0) {
        send_data(s, cmd);
    } else if (strcmp(op, "reset") == 0) {
        tr_h2_reset(s->st, 8);
    } else {
        s->paused = strcmp(op, "pause") == 0;
        if (!s->paused) {
            tr_h2_stream_consume(s->st, s->held);
            s->held = 0;
        }
    }
    json_decref(cmd);
}

static void on_alloc(uv_handle_t *handle, size_t size, uv_buf_t *buf)
{
    (void)handle;
    if (line_cap - line_len < 65536) {
        line_cap = line_cap * 2 + 65536 * 2;
        line = realloc(line, line_cap);
        if (line == NULL)
            abort();
    }
    (void)size;
    *buf = uv_buf_init(line + line_len, 65536);
}

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf)
{
    char *newline, *at = line;

    (void)buf;
    if (n < 0) {
        uv_close((uv_handle_t *)stream, NULL);
        if (conn != NULL)
            tr_h2_conn_close(conn);
        if (channel != NULL)
            tr_channel_close(channel);
        return;
    }
    line_len += (size_t)n;
    while ((newline = memchr(at, '\n', line_len - (size_t)(at - line))) != NULL) {
        *newline = '\0';
        command(at);
        at = newline + 1;
    }
    line_len -= (size_t)(at - line);
    memmove(line, at, line_len);
}

static void on_conn_close(struct tr_h2_conn *c, int status, const char *reason, void *arg)
{
    (void)status;
    (void)arg;
    if (c == conn)
        conn = NULL;
    say(json_pack("{s:s,s:s}", "ev", "over", "reason", reason != NULL ? reason : ""));
    if (channel != NULL)
        tr_channel_close(channel);
}

static void on_open(struct tr_channel *ch, void *arg)
{
    static const struct tr_h2_conn_cbs cbs = {.on_close = on_conn_close};

    (void)arg;
    if (tr_h2_conn_open_channel(ch, false, NULL, PING_MS, &cbs, NULL, &conn) != 0)
        abort();
    say(json_pack("{s:s}", "ev", "open"));
    if (uv_read_start((uv_stream_t *)&input, on_alloc, on_read) != 0)
        abort();
}

static void on_bytes(struct tr_channel *ch, const uint8_t *data, size_t len, void *arg)
{
    (void)ch;
    (void)arg;
    if (conn != NULL)
        tr_h2_conn_channel_data(conn, data, len);
}

static void on_channel_drain(struct tr_channel *ch, void *arg)
{
    (void)ch;
    (void)arg;
    if (conn != NULL)
        tr_h2_conn_channel_drain(conn);
}

static void on_channel_end(struct tr_channel *ch, int status, void *arg)
{
    (void)ch;
    (void)arg;
    if (conn != NULL)
        tr_h2_conn_channel_closed(conn, status);
}

static void on_channel_close(struct tr_channel *ch, int status, void *arg)
{
    (void)ch;
    (void)status;
    (void)arg;
    channel = NULL;
    if (!uv_is_closing((uv_handle_t *)&input))
        uv_close((uv_handle_t *)&input, NULL);
}

int main(int argc, char **argv)
{
    static const struct tr_channel_cbs cbs = {.on_open = on_open,
                                              .on_data = on_bytes,
                                              .on_drain = on_channel_drain,
                                              .on_end = on_channel_end,
                                              .on_close = on_channel_close};
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    int fd;

    if (argc != 2 || strlen(argv[1]) >= sizeof(addr.sun_path)) {
        fprintf(stderr, "usage: agentctl SOCKET\n");
        return 2;
    }
    signal(SIGPIPE, SIG_IGN);
    snprintf(addr.sun_path, sizeof(addr.sun_path), "%s", argv[1]);
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connect(fd, (struct sockaddr *)&addr, sizeof(addr)) != 0) {
        fprintf(stderr, "agentctl: %s: %s\n", argv[1], strerror(errno));
        return 1;
    }
    if (uv_loop_init(&loop) != 0 || uv_pipe_init(&loop, &input, 0) != 0 ||
        uv_pipe_open(&input, 0) != 0 ||
        tr_channel_open(&loop, fd, fd, true, false, &cbs, NULL, &channel) != 0)
        abort();
    uv_run(&loop, UV_RUN_DEFAULT);
    free(line);
    return uv_loop_close(&loop) == 0 ? 0 : 1;
}
