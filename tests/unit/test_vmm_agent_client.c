/* SPDX-License-Identifier: MIT */
/* The manager's side of an agent that says what it likes, or nothing. */
#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <uv.h>

#include "transom/channel.h"
#include "transom/h2_uv.h"
#include "vmm/agent_client.h"

static uv_loop_t loop;
static struct vmm_agent *agent;
static uv_timer_t keep; /* the loop goes on while an agent says nothing */
static int n_ready, n_calls, last_status, n_closed, n_reset;
static int64_t since;        /* what the manager says of the events it has */
static char events_path[64]; /* what it asked for */

/* ---- the guest ---- */

static struct tr_channel *guest;
static struct tr_h2_conn *conn;

static void guest_stream_closed(struct tr_h2_stream *st, uint32_t code, void *arg)
{
    (void)st;
    (void)arg;
    n_reset += code == 8 /* CANCEL */;
}

static void guest_data(struct tr_h2_stream *st, const uint8_t *data, size_t len, void *arg)
{
    (void)data;
    (void)arg;
    tr_h2_stream_consume(st, len);
}

static void guest_request(struct tr_h2 *h2, struct tr_h2_stream *st, const struct tr_h2_head *head,
                          bool end, void *arg)
{
    static const struct tr_h2_stream_cbs cbs = {.on_data = guest_data,
                                                .on_close = guest_stream_closed};

    (void)h2;
    (void)end;
    (void)arg;
    tr_h2_stream_set(st, &cbs, NULL);
    if (strcmp(head->path, "/v1/hello") == 0)
        ck_assert_int_eq(tr_h2_respond(st, 200, NULL, 0, true), 0);
    else if (strncmp(head->path, "/v1/events", 10) == 0) {
        snprintf(events_path, sizeof(events_path), "%s", head->path);
        ck_assert_int_eq(tr_h2_respond(st, 200, NULL, 0, false), 0);
    } else if (strcmp(head->path, "/silent") != 0)
        ck_assert_int_eq(tr_h2_respond(st, 204, NULL, 0, true), 0);
}

static void guest_conn_closed(struct tr_h2_conn *c, int status, const char *reason, void *arg)
{
    (void)c;
    (void)status;
    (void)reason;
    (void)arg;
    conn = NULL;
}

static void guest_open(struct tr_channel *ch, void *arg)
{
    static const struct tr_h2_conn_cbs cbs = {.on_request = guest_request,
                                              .on_close = guest_conn_closed};

    (void)arg;
    ck_assert_int_eq(tr_h2_conn_open_channel(ch, true, NULL, 0, &cbs, NULL, &conn), 0);
}

static void channel_data(struct tr_channel *ch, const uint8_t *data, size_t len, void *arg)
{
    (void)ch;
    (void)arg;
    tr_h2_conn_channel_data(conn, data, len);
}

static void channel_drain(struct tr_channel *ch, void *arg)
{
    (void)ch;
    (void)arg;
    tr_h2_conn_channel_drain(conn);
}

static void channel_end(struct tr_channel *ch, int status, void *arg)
{
    (void)ch;
    (void)arg;
    tr_h2_conn_channel_closed(conn, status);
}

static void channel_close(struct tr_channel *ch, int status, void *arg)
{
    (void)ch;
    (void)status;
    (void)arg;
    guest = NULL;
}

/* ---- the manager ---- */

static int connect_guest(void *arg, struct err *err)
{
    static const struct tr_channel_cbs cbs = {guest_open, channel_data, channel_drain, channel_end,
                                              channel_close};
    int fd[2];

    (void)arg;
    (void)err;
    ck_assert_ptr_null(guest);
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fd), 0);
    ck_assert_int_eq(tr_channel_open(&loop, fd[1], fd[1], false, false, &cbs, NULL, &guest), 0);
    return fd[0];
}

static json_t *empty_body(void *arg)
{
    (void)arg;
    return json_object();
}

static void on_ready(const json_t *answer, void *arg)
{
    (void)answer;
    (void)arg;
    n_ready++;
}

static void on_refused(const char *why, void *arg)
{
    (void)why;
    (void)arg;
}

static void on_event(const json_t *event, void *arg)
{
    (void)event;
    (void)arg;
}

static int64_t events_since(const json_t *answer, void *arg)
{
    (void)answer;
    (void)arg;
    return since;
}

static void on_reply(int status, const json_t *reply, void *arg)
{
    (void)reply;
    (void)arg;
    n_calls++;
    last_status = status;
}

static void on_agent_closed(void *arg)
{
    (void)arg;
    n_closed++;
}

static void on_keep(uv_timer_t *timer)
{
    (void)timer;
}

static void setup(void)
{
    static const struct vmm_agent_cbs cbs = {.connect = connect_guest,
                                             .hello = empty_body,
                                             .secrets = empty_body,
                                             .on_ready = on_ready,
                                             .on_refused = on_refused,
                                             .on_event = on_event,
                                             .events_since = events_since};

    n_ready = n_calls = last_status = n_closed = n_reset = 0;
    since = -1;
    events_path[0] = '\0';
    ck_assert_int_eq(uv_loop_init(&loop), 0);
    ck_assert_int_eq(uv_timer_init(&loop, &keep), 0);
    ck_assert_int_eq(uv_timer_start(&keep, on_keep, 10, 10), 0);
    ck_assert_int_eq(vmm_agent_open(&loop, "test", &cbs, NULL, &agent), 0);
    while (n_ready == 0)
        uv_run(&loop, UV_RUN_ONCE);
}

static void close_all(void)
{
    vmm_agent_close(agent, on_agent_closed, NULL);
    uv_close((uv_handle_t *)&keep, NULL);
    uv_run(&loop, UV_RUN_DEFAULT); /* the guest's end goes with the wire */
}

static void teardown(void)
{
    ck_assert_int_eq(n_closed, 1);
    ck_assert_int_eq(uv_loop_close(&loop), 0);
}

START_TEST(a_call_is_answered_once)
{
    ck_assert_int_eq(vmm_agent_call_within(agent, 60000, "GET", "/", NULL, on_reply, NULL), 0);
    ck_assert_int_eq(n_calls, 0);
    while (n_calls == 0)
        uv_run(&loop, UV_RUN_ONCE);
    ck_assert_int_eq(last_status, 204);
    close_all();
    ck_assert_int_eq(n_calls, 1);
}
END_TEST

/* Pings and other calls are answered; this one is not. */
START_TEST(a_silent_agent_holds_up_nobody)
{
    ck_assert_int_eq(vmm_agent_call_within(agent, 100, "GET", "/silent", NULL, on_reply, NULL), 0);
    while (n_calls == 0)
        uv_run(&loop, UV_RUN_ONCE);
    ck_assert_int_eq(last_status, UV_ETIMEDOUT);
    while (n_reset == 0)
        uv_run(&loop, UV_RUN_ONCE);
    ck_assert_int_eq(vmm_agent_call_within(agent, 60000, "GET", "/", NULL, on_reply, NULL), 0);
    while (n_calls == 1)
        uv_run(&loop, UV_RUN_ONCE);
    ck_assert_int_eq(last_status, 204);
    close_all();
    ck_assert_int_eq(n_ready, 1);
}
END_TEST

START_TEST(calls_end_with_the_agent)
{
    ck_assert_int_eq(vmm_agent_call_within(agent, 60000, "GET", "/silent", NULL, on_reply, NULL),
                     0);
    ck_assert_int_eq(vmm_agent_call_within(agent, 60000, "GET", "/silent", NULL, NULL, NULL), 0);
    close_all();
    ck_assert_int_eq(n_calls, 1);
    ck_assert_int_eq(last_status, UV_ECONNRESET);
}
END_TEST

/* The channel breaks with a call under way: it ends, and the next conversation is not affected. */
START_TEST(calls_end_with_the_channel)
{
    ck_assert_int_eq(vmm_agent_call_within(agent, 60000, "GET", "/silent", NULL, on_reply, NULL),
                     0);
    tr_channel_close(guest);
    while (n_ready == 1)
        uv_run(&loop, UV_RUN_ONCE);
    ck_assert_int_eq(n_calls, 1);
    ck_assert_int_eq(last_status, UV_ECONNRESET);
    ck_assert_int_eq(vmm_agent_call_within(agent, 60000, "GET", "/", NULL, on_reply, NULL), 0);
    while (n_calls == 1)
        uv_run(&loop, UV_RUN_ONCE);
    ck_assert_int_eq(last_status, 204);
    close_all();
}
END_TEST

static void reconnect_on_reply(int status, const json_t *reply, void *arg)
{
    on_reply(status, reply, arg);
    vmm_agent_reconnect(agent, "test");
    vmm_agent_reconnect(agent, "test"); /* once is enough */
}

/* From inside a call's callback, with another call under way. */
START_TEST(it_begins_anew_when_told_to)
{
    ck_assert_int_eq(vmm_agent_call_within(agent, 60000, "GET", "/silent", NULL, on_reply, NULL),
                     0);
    ck_assert_int_eq(
        vmm_agent_call_within(agent, 100, "GET", "/silent", NULL, reconnect_on_reply, NULL), 0);
    while (n_ready == 1)
        uv_run(&loop, UV_RUN_ONCE);
    ck_assert_int_eq(n_calls, 2);
    close_all();
    ck_assert_int_eq(n_ready, 2);
}
END_TEST

START_TEST(events_go_on_where_they_ended)
{
    while (events_path[0] == '\0')
        uv_run(&loop, UV_RUN_ONCE);
    ck_assert_str_eq(events_path, "/v1/events");
    events_path[0] = '\0';
    since = INT64_C(4000000000123);
    tr_channel_close(guest);
    while (events_path[0] == '\0')
        uv_run(&loop, UV_RUN_ONCE);
    ck_assert_str_eq(events_path, "/v1/events?since=4000000000123");
    close_all();
}
END_TEST

int main(void)
{
    Suite *s = suite_create("vmm/agent_client");
    TCase *tc = tcase_create("calls");
    SRunner *sr = srunner_create(s);
    int n_failed;

    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_set_timeout(tc, 60);
    tcase_add_test(tc, a_call_is_answered_once);
    tcase_add_test(tc, a_silent_agent_holds_up_nobody);
    tcase_add_test(tc, calls_end_with_the_agent);
    tcase_add_test(tc, calls_end_with_the_channel);
    tcase_add_test(tc, it_begins_anew_when_told_to);
    tcase_add_test(tc, events_go_on_where_they_ended);
    suite_add_tcase(s, tc);
    srunner_run_all(sr, CK_ENV);
    n_failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return n_failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
