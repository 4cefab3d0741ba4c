/* SPDX-License-Identifier: MIT */
/* A request to the agent: method, target and body are the input's, what handlers would do to the
 * machine is off. Byte 0: 1 greeted, 2 a content type of JSON, 4 another one, 8 the body comes byte
 * by byte. Then "METHOD TARGET\n" and the body. Each answer must be an answer: a status, and for an
 * error the JSON that says so. */
#include <assert.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <uv.h>

#include "transom/h2.h"
#include "transom/log.h"
#include "vmm/agent/agent.h"
#include "vmm/agent/request.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct wire {
    uint8_t *bytes;
    size_t len, cap;
};

static struct agent agent;
static uv_loop_t loop;
static struct wire to_server, to_client;
static int status;
static bool is_json;
static struct wire body;
static struct tr_h2_stream *stream; /* NULL once closed */

static bool put(struct wire *w, const uint8_t *data, size_t len)
{
    if (w->len + len > w->cap) {
        w->cap = (w->len + len) * 2;
        w->bytes = realloc(w->bytes, w->cap);
        if (w->bytes == NULL)
            abort();
    }
    memcpy(w->bytes + w->len, data, len);
    w->len += len;
    return true;
}

static bool on_send(const uint8_t *data, size_t len, void *arg)
{
    return put(arg, data, len);
}

static void on_over(struct tr_h2 *h2, int code, const char *reason, void *arg)
{
    (void)h2;
    (void)code;
    (void)reason;
    (void)arg;
}

static void on_head(struct tr_h2_stream *st, const struct tr_h2_head *head, bool end, void *arg)
{
    const char *type = tr_h2_head_get(head, "content-type");

    (void)st;
    (void)end;
    (void)arg;
    assert(status == 0);
    status = head->status;
    is_json = type != NULL && strcmp(type, "application/json") == 0;
}

static void on_data(struct tr_h2_stream *st, const uint8_t *data, size_t len, void *arg)
{
    (void)arg;
    put(&body, data, len);
    tr_h2_stream_consume(st, len);
}

static void on_close(struct tr_h2_stream *st, uint32_t code, void *arg)
{
    (void)st;
    (void)code;
    (void)arg;
    stream = NULL;
}

static void on_request(struct tr_h2 *h2, struct tr_h2_stream *st, const struct tr_h2_head *head,
                       bool end, void *arg)
{
    (void)arg;
    agent_request_start(h2, st, head, end, &agent);
}

static void set_up(void)
{
    static const struct agent_options options = {.host_test = true, .dry_run = true, .cgroup = ""};
    struct err err;

    tr_log_init("fuzz", TR_LOG_ERROR);
    if (uv_loop_init(&loop) != 0 || agent_init(&agent, &loop, &options, &err) != 0)
        abort();
}

static void exchange(struct tr_h2 *client, struct tr_h2 *server)
{
    static struct wire moving;

    for (int i = 0; i < 1000 && to_server.len + to_client.len > 0; i++) {
        struct wire *from = to_server.len > 0 ? &to_server : &to_client;

        moving.len = 0;
        put(&moving, from->bytes, from->len);
        from->len = 0;
        tr_h2_feed(from == &to_server ? server : client, moving.bytes, moving.len);
        tr_h2_run(client);
        tr_h2_run(server);
    }
}

/* to_head: an answer to HEAD has no content, whatever its head says. */
static void check_answer(bool to_head)
{
    json_t *answer = is_json ? json_loadb((const char *)body.bytes, body.len, 0, NULL) : NULL;

    assert(!to_head || body.len == 0);
    assert(!is_json || to_head || json_is_object(answer));
    assert(status == 0 || (status >= 200 && status < 600));
    if (status >= 400 && !to_head) {
        assert(json_is_string(json_object_get(answer, "code")));
        assert(json_is_string(json_object_get(answer, "message")));
    }
    json_decref(answer);
}

static void send_body(const uint8_t *data, size_t len, bool slowly, struct tr_h2 *client,
                      struct tr_h2 *server)
{
    for (size_t i = 0; slowly && i < len && i < 64; i++) {
        if (stream == NULL || tr_h2_write(stream, data + i, 1) < 0)
            return;
        tr_h2_run(client);
        exchange(client, server);
    }
    if (stream == NULL || (slowly && len > 64))
        return; /* never ends: what was begun must still be let go */
    if (!slowly && len > 0 && tr_h2_write(stream, data, len) < 0)
        return;
    tr_h2_end(stream, NULL, 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct tr_h2_stream_cbs stream_cbs = {
        .on_head = on_head, .on_data = on_data, .on_close = on_close};
    struct tr_h2_cbs client_cbs = {.send = on_send, .on_over = on_over};
    struct tr_h2_cbs server_cbs = {.on_request = on_request, .send = on_send, .on_over = on_over};
    const uint8_t *line = data + 1, *space, *newline;
    struct tr_h2_field fields[5];
    struct tr_h2 *client, *server;
    size_t n = 0;

    if (size < 2 || (newline = memchr(line, '\n', size - 1)) == NULL ||
        (space = memchr(line, ' ', (size_t)(newline - line))) == NULL)
        return 0;
    if (agent.loop == NULL)
        set_up();
    agent.greeted = (data[0] & 1) != 0;
    to_server.len = to_client.len = body.len = 0;
    status = 0;
    is_json = false;
    if (tr_h2_new(false, NULL, &client_cbs, &to_server, &client) != 0 ||
        tr_h2_new(true, NULL, &server_cbs, &to_client, &server) != 0)
        abort();
    tr_h2_writable(client);
    tr_h2_writable(server);
    fields[n++] = (struct tr_h2_field){":method", 7, (const char *)line, (size_t)(space - line)};
    fields[n++] = TR_H2_FIELD(":scheme", "http");
    fields[n++] = TR_H2_FIELD(":authority", "agent");
    fields[n++] =
        (struct tr_h2_field){":path", 5, (const char *)space + 1, (size_t)(newline - space - 1)};
    if (space - line == 7 && memcmp(line, "CONNECT", 7) == 0) {
        n = 1;
        fields[n++] = (struct tr_h2_field){":authority", 10, (const char *)space + 1,
                                           (size_t)(newline - space - 1)};
    }
    if ((data[0] & 6) != 0)
        fields[n++] =
            TR_H2_FIELD("content-type", (data[0] & 2) != 0 ? "application/json" : "text/x");
    if (tr_h2_request(client, fields, n, false, &stream_cbs, NULL, &stream) == 0) {
        send_body(newline + 1, size - (size_t)(newline + 1 - data), (data[0] & 8) != 0, client,
                  server);
        tr_h2_run(client);
        exchange(client, server);
        check_answer(space - line == 4 && memcmp(line, "HEAD", 4) == 0);
    }
    tr_h2_free(client);
    tr_h2_free(server);
    return 0;
}
