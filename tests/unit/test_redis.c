/* SPDX-License-Identifier: MIT */
/* The Redis connection against a real redis-server that is started, killed and started again. */
#include <check.h>
#include <hiredis/hiredis.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include "redis_server.h"
#include "transom/state.h"
#include "vmm/state/redis_url.h"

static uv_loop_t loop;
static struct redis_server server;

static struct tr_redis *redis;
static int n_up, n_down, n_close, n_null, n_reply;
static char last_down[400], last_reply[400];
static long long last_int;
static enum { NOWHERE, IN_UP, IN_DOWN, IN_REPLY } close_in;

#define RUN_UNTIL(cond)                                                                            \
    while (!(cond))                                                                                \
    ck_assert_msg(uv_run(&loop, UV_RUN_ONCE) != 0 || (cond), "loop ended early: %s", #cond)

static void on_up(struct tr_redis *r, void *arg)
{
    ck_assert_ptr_eq(arg, &loop);
    ck_assert(tr_redis_is_up(r));
    n_up++;
    if (close_in == IN_UP)
        tr_redis_close(r);
}

static void on_down(struct tr_redis *r, const char *why, void *arg)
{
    (void)arg;
    ck_assert(!tr_redis_is_up(r));
    n_down++;
    snprintf(last_down, sizeof(last_down), "%s", why);
    if (close_in == IN_DOWN)
        tr_redis_close(r);
}

static void on_close(struct tr_redis *r, void *arg)
{
    (void)arg;
    ck_assert_ptr_eq(r, redis);
    n_close++;
    redis = NULL;
}

static void on_reply(struct redisReply *reply, void *arg)
{
    (void)arg;
    n_reply++;
    if (close_in == IN_REPLY)
        tr_redis_close(redis);
    if (reply == NULL) {
        n_null++;
        ck_assert(!tr_redis_is_up(redis));
        return;
    }
    last_reply[0] = '\0';
    last_int = -1;
    if (reply->str != NULL)
        snprintf(last_reply, sizeof(last_reply), "%s", reply->str);
    if (reply->type == REDIS_REPLY_INTEGER)
        last_int = reply->integer;
}

static const struct tr_redis_cbs cbs = {.on_up = on_up, .on_down = on_down, .on_close = on_close};

static void open_redis(const char *where)
{
    struct err err = {0};

    ck_assert_msg(tr_redis_open(&loop, where, &cbs, &loop, &redis, &err) == 0, "%s", err.msg);
}

static int command(const char *a, const char *b, const char *c)
{
    const char *argv[] = {a, b, c};

    return tr_redis_command(redis, on_reply, NULL, c != NULL ? 3 : b != NULL ? 2 : 1, argv, NULL);
}

/* The reply to one command, as text. */
static const char *ask(const char *a, const char *b, const char *c)
{
    int n = n_reply;

    ck_assert_int_eq(command(a, b, c), 0);
    ck_assert_int_eq(n_reply, n); /* not from inside the call */
    RUN_UNTIL(n_reply > n);
    return last_reply;
}

static void setup(void)
{
    signal(SIGPIPE, SIG_IGN);
    n_up = n_down = n_close = n_null = n_reply = 0;
    close_in = NOWHERE;
    redis = NULL;
    ck_assert_int_eq(uv_loop_init(&loop), 0);
}

static void teardown(void)
{
    if (redis != NULL)
        tr_redis_close(redis);
    uv_run(&loop, UV_RUN_DEFAULT);
    ck_assert_ptr_null(redis);
    ck_assert_int_eq(uv_loop_close(&loop), 0);
    redis_server_kill(&server);
}

START_TEST(commands_are_answered_in_order)
{
    static const char bin[] = "a\0b\r\n\xff";
    const char *set[] = {"SET", "k", bin};
    size_t len[] = {3, 1, sizeof(bin) - 1};

    redis_server_start(&server, "");
    open_redis(server.url);
    ck_assert_int_eq(command("PING", NULL, NULL), UV_ENOTCONN);
    RUN_UNTIL(n_up == 1);
    ck_assert_int_eq(tr_redis_command(redis, NULL, NULL, 3, set, len), 0);
    ask("STRLEN", "k", NULL);
    ck_assert_int_eq(last_int, sizeof(bin) - 1);
    for (int i = 0; i < 1000; i++)
        ck_assert_int_eq(command("INCR", "n", NULL), 0);
    RUN_UNTIL(n_reply == 1001);
    ck_assert_int_eq(last_int, 1000);
    ask("NOSUCH", NULL, NULL); /* an error reply is a reply */
    ck_assert_int_eq(strncmp(last_reply, "ERR", 3), 0);
    ck_assert_int_eq(n_null, 0);
}
END_TEST

START_TEST(a_server_that_comes_and_goes)
{
    open_redis(server.url);
    RUN_UNTIL(n_down >= 3); /* keeps trying */
    ck_assert_ptr_nonnull(strstr(last_down, server.sock));
    redis_server_start(&server, "");
    RUN_UNTIL(n_up == 1);
    for (int i = 1; i <= 3; i++) {
        const char *wait[] = {"BLPOP", "never", "0"};
        int down = n_down, null = n_null;

        ck_assert_int_eq(tr_redis_command(redis, on_reply, NULL, 3, wait, NULL), 0);
        ck_assert_int_eq(command("PING", NULL, NULL), 0);
        uv_run(&loop, UV_RUN_NOWAIT);
        redis_server_kill(&server);
        RUN_UNTIL(n_down > down);
        ck_assert_int_eq(n_null, null + 2); /* each once, before on_down */
        ck_assert(!tr_redis_is_up(redis));
        ck_assert_int_eq(command("PING", NULL, NULL), UV_ENOTCONN);
        redis_server_start(&server, "");
        RUN_UNTIL(n_up == 1 + i);
        ck_assert_str_eq(ask("PING", NULL, NULL), "PONG");
    }
}
END_TEST

static const char script_text[] = "return redis.call('incrby', KEYS[1], ARGV[1])";

static void run_script(const char *by)
{
    const char *argv[] = {"n", by};
    int n = n_reply;

    ck_assert_int_eq(tr_redis_script(redis, script_text, on_reply, NULL, 1, 2, argv, NULL), 0);
    RUN_UNTIL(n_reply > n);
}

static int n_calls(const char *name)
{
    char key[64];
    const char *at;

    snprintf(key, sizeof(key), "cmdstat_%s:calls=", name);
    at = strstr(ask("INFO", "commandstats", NULL), key);
    return at == NULL ? 0 : (int)strtol(at + strlen(key), NULL, 10);
}

START_TEST(scripts_survive_flush_and_restart)
{
    redis_server_start(&server, "");
    open_redis(server.url);
    RUN_UNTIL(n_up == 1);
    for (int i = 1; i <= 3; i++) {
        run_script("2");
        ck_assert_int_eq(last_int, i * 2);
    }
    ask("CONFIG", "RESETSTAT", NULL);
    run_script("2");
    ck_assert_int_eq(n_calls("evalsha"), 1); /* the text travels once */
    ask("SCRIPT", "FLUSH", NULL);
    run_script("2");
    ck_assert_int_eq(last_int, 10);
    redis_server_kill(&server);
    RUN_UNTIL(n_down > 0);
    redis_server_start(&server, "");
    RUN_UNTIL(n_up == 2);
    run_script("5");
    ck_assert_int_eq(last_int, 5);
    ck_assert_int_eq(n_calls("evalsha"), 0); /* a new server is sent the text unasked: in order */
    run_script("5");
    ck_assert_int_eq(last_int, 10);
    {
        const char *argv[] = {"n"};

        ck_assert_int_eq(tr_redis_script(redis, script_text, on_reply, NULL, 2, 1, argv, NULL),
                         UV_EINVAL);
        ck_assert_int_eq(tr_redis_script(redis, "syntax error(", on_reply, NULL, 1, 1, argv, NULL),
                         0);
        RUN_UNTIL(strncmp(last_reply, "ERR", 3) == 0);
    }
}
END_TEST

START_TEST(password_and_database)
{
    char where[200];

    redis_server_start(&server, "s3cret:/@pass");
    snprintf(where, sizeof(where), "redis://:wrongpassword@127.0.0.1:%d", server.tcp_port);
    open_redis(where);
    RUN_UNTIL(strstr(last_down, "WRONGPASS") != NULL);
    ck_assert_ptr_null(strstr(last_down, "wrongpassword"));
    ck_assert_int_eq(n_up, 0);
    tr_redis_close(redis);
    RUN_UNTIL(n_close == 1);

    snprintf(where, sizeof(where), "redis://default:s3cret%%3a%%2F%%40pass@localhost:%d/3",
             server.tcp_port);
    open_redis(where);
    RUN_UNTIL(n_up == 1);
    ck_assert_ptr_nonnull(strstr(ask("CLIENT", "INFO", NULL), " db=3 "));
}
END_TEST

START_TEST(refused_and_silent_servers_are_left_again)
{
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    char where[64];
    int fd;

    snprintf(where, sizeof(where), "redis://127.0.0.1:%d", server.tcp_port);
    open_redis(where);
    RUN_UNTIL(n_down >= 2);
    ck_assert_ptr_nonnull(strstr(last_down, "refused"));
    /* Somebody accepts, but says nothing. */
    fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int)), 0);
    addr.sin_port = htons((uint16_t)server.tcp_port);
    ck_assert_int_eq(bind(fd, (struct sockaddr *)&addr, sizeof(addr)), 0);
    ck_assert_int_eq(listen(fd, 16), 0);
    RUN_UNTIL(strstr(last_down, "no answer") != NULL);
    close(fd);
    redis_server_start(&server, "");
    RUN_UNTIL(n_up == 1);
}
END_TEST

START_TEST(a_server_that_falls_silent_is_left)
{
    int down;

    redis_server_start(&server, "");
    open_redis(server.url);
    RUN_UNTIL(n_up == 1);
    down = n_down;
    kill(server.pid, SIGSTOP);
    ck_assert_int_eq(command("PING", NULL, NULL), 0);
    RUN_UNTIL(n_down == down + 1);
    ck_assert_int_eq(n_null, 1);
    ck_assert_ptr_nonnull(strstr(last_down, "no reply"));
    kill(server.pid, SIGCONT);
    RUN_UNTIL(n_up == 2);
    ask("PING", NULL, NULL);
}
END_TEST

START_TEST(closed_at_any_point_it_ends_once)
{
    char where[64];
    int n = 0;

    close_in = _i < 4 ? (int)_i : NOWHERE;
    if (_i == 4) { /* a host name whose look-up is under way */
        snprintf(where, sizeof(where), "redis://localhost:%d", server.tcp_port);
        open_redis(where);
    } else {
        open_redis(server.url);
    }
    if (_i == 0 || _i == 4) {
        if (_i == 4)
            uv_run(&loop, UV_RUN_NOWAIT);
        tr_redis_close(redis);
        tr_redis_close(redis);
    } else if (_i != IN_DOWN) {
        redis_server_start(&server, "");
        RUN_UNTIL(n_up == 1);
        if (_i == IN_REPLY || _i == 5) {
            for (; n < 10; n++)
                ck_assert_int_eq(command("PING", NULL, NULL), 0);
        }
        if (_i == 5)
            tr_redis_close(redis);
    }
    ck_assert_int_eq(n_close, 0);
    RUN_UNTIL(n_close == 1);
    ck_assert_int_eq(n_reply, n); /* each exactly once */
}
END_TEST

static void write_file(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");

    ck_assert_ptr_nonnull(f);
    ck_assert_int_ge(fputs(text, f), 0);
    ck_assert_int_eq(fclose(f), 0);
}

/* The file comes after us, is wrong at first, and changes with the server's password. */
START_TEST(password_in_a_file)
{
    char where[200], file[64];

    snprintf(file, sizeof(file), "%s/password", server.dir);
    snprintf(where, sizeof(where), "%s?user=default&password_file=%s", server.url, file);
    redis_server_start(&server, "one");
    open_redis(where);
    RUN_UNTIL(strstr(last_down, file) != NULL && strstr(last_down, "no such file") != NULL);
    write_file(file, "\n");
    RUN_UNTIL(strstr(last_down, "holds no password") != NULL);
    write_file(file, "twenty-three\n");
    RUN_UNTIL(strstr(last_down, "WRONGPASS") != NULL);
    ck_assert_int_eq(n_up, 0);
    write_file(file, "one\n");
    RUN_UNTIL(n_up == 1);
    redis_server_kill(&server);
    write_file(file, "two");
    redis_server_start(&server, "two");
    RUN_UNTIL(n_up == 2);
    tr_redis_close(redis);
    RUN_UNTIL(n_close == 1);
    unlink(file);
}
END_TEST

START_TEST(url_of_the_embedded_one)
{
    char url[200];
    struct redis_url u;
    struct err err;

    ck_assert_int_eq(tr_redis_embedded_url("/a&b%/?c@", "gateway", url, sizeof(url)), 0);
    tr_err_clear(&err);
    ck_assert_msg(redis_url_parse(url, &u, &err) == 0, "%s: %s", url, err.msg);
    ck_assert_str_eq(u.host, "/a&b%/?c@/redis.sock");
    ck_assert_str_eq(u.user, "gateway");
    ck_assert_str_eq(u.password_file, "/a&b%/?c@/redis-gateway.password");
    for (size_t size = 1; size < strlen(url) + 1; size++)
        ck_assert_int_eq(tr_redis_embedded_url("/a&b%/?c@", "gateway", url, size), UV_ENAMETOOLONG);
}
END_TEST

START_TEST(urls)
{
    static const char *const bad[] = {
        "",
        "redis:/x",
        "rediss://h",
        "unix:relative",
        "unix:/x?db=x",
        "http://h",
        "redis://",
        "redis://:6379",
        "redis://h:0",
        "redis://h:65536",
        "redis://h:1x",
        "redis://h:",
        "redis://h/99999999",
        "redis://h/x",
        "redis://nocolon@h",
        "redis://:SECRET%0@h",
        "redis://:SECRET%00@h",
        "redis://:SECRET%zz@h",
        "redis://[::1",
        "redis://[::1]x",
        "unix:/x?host=y",
        "unix:/x?user",
        "unix:/x?password_file=relative",
        "unix:/x?password_file=/a%00",
        "redis://h?password_file=",
        "redis://me:SECRET@h?password_file=/x",
        "redis://h?db=1&&db=x",
    };
    struct redis_url u;
    struct err err;

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        tr_err_clear(&err);
        ck_assert_msg(redis_url_parse(bad[i], &u, &err) == UV_EINVAL, "%s", bad[i]);
        ck_assert_int_eq(err.code, UV_EINVAL);
        ck_assert_ptr_null(strstr(err.msg, "SECRET"));
    }
    ck_assert_int_eq(redis_url_parse("redis://[::1]:7/2", &u, &err), 0);
    ck_assert_str_eq(u.host, "::1");
    ck_assert_uint_eq(u.port, 7);
    ck_assert_int_eq(u.db, 2);
    ck_assert(!u.has_password && !u.is_unix);
    ck_assert_int_eq(redis_url_parse("redis://me:a%20b:c@h", &u, &err), 0);
    ck_assert_str_eq(u.user, "me");
    ck_assert_str_eq(u.password, "a b:c");
    ck_assert_uint_eq(u.port, 6379);
    ck_assert_str_eq(u.shown, "redis://h:6379");
    ck_assert_int_eq(redis_url_parse("redis://:%41@h/", &u, &err), 0);
    ck_assert_str_eq(u.password, "A");
    ck_assert_int_eq(redis_url_parse("unix:/run/r.sock?db=4", &u, &err), 0);
    ck_assert_str_eq(u.host, "/run/r.sock");
    ck_assert_int_eq(u.db, 4);
    ck_assert(u.is_unix);
    ck_assert_int_eq(redis_url_parse("redis://h:7/2?user=g&password_file=/a%20b", &u, &err), 0);
    ck_assert_str_eq(u.host, "h");
    ck_assert_uint_eq(u.port, 7);
    ck_assert_int_eq(u.db, 2);
    ck_assert_str_eq(u.user, "g");
    ck_assert_str_eq(u.password_file, "/a b");
    ck_assert_str_eq(u.shown, "redis://h:7");
}
END_TEST

int main(void)
{
    Suite *s = suite_create("state/redis");
    TCase *tc = tcase_create("redis");
    SRunner *sr = srunner_create(s);
    int n_failed;

    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_set_timeout(tc, 120);
    tcase_add_test(tc, commands_are_answered_in_order);
    tcase_add_test(tc, a_server_that_comes_and_goes);
    tcase_add_test(tc, scripts_survive_flush_and_restart);
    tcase_add_test(tc, password_and_database);
    tcase_add_test(tc, refused_and_silent_servers_are_left_again);
    tcase_add_test(tc, a_server_that_falls_silent_is_left);
    tcase_add_loop_test(tc, closed_at_any_point_it_ends_once, 0, 6);
    tcase_add_test(tc, password_in_a_file);
    tcase_add_test(tc, url_of_the_embedded_one);
    tcase_add_test(tc, urls);
    suite_add_tcase(s, tc);
    redis_server_init(&server); /* here, so that a test that fails leaves nothing behind */
    srunner_run_all(sr, CK_ENV);
    redis_server_fini(&server);
    n_failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return n_failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
