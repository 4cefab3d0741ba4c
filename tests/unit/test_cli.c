/* SPDX-License-Identifier: MIT */
#include "vmm/cli/cli.h"

#include <check.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "vmm/cli/frames.h"

static char seen[4096]; /* what the frames gave, as text */

static int on_frame(uint8_t type, const uint8_t *data, size_t len, void *arg)
{
    size_t at = strlen(seen);
    bool output = type == FRAME_STDOUT || type == FRAME_STDERR;

    ck_assert(output == (len > 0 && arg == NULL) || !output);
    /* Output may come in pieces: their join is what counts. */
    if (output && at > 0 && seen[at - 1] == (char)('0' + type)) {
        snprintf(seen + at - 1, sizeof(seen) - at + 1, "%.*s%c", (int)len, (const char *)data,
                 '0' + type);
        return 0;
    }
    snprintf(seen + at, sizeof(seen) - at, "<%.*s%c", (int)len, (const char *)data, '0' + type);
    return 0;
}

static const char wire[] = "\0\0\0\0\x0a{\"id\":\"7\"}"
                           "\1\0\0\0\5hello"
                           "\1\0\0\0\0"
                           "\2\0\0\0\3err"
                           "\x07\0\0\0\2xx" /* a later version's */
                           "\3\0\0\0\x0f{\"exit_code\":3}";

START_TEST(frames_survive_any_cut)
{
    size_t len = sizeof(wire) - 1;

    for (size_t cut = 0; cut <= len; cut++) {
        struct frames f;

        frames_init(&f);
        seen[0] = '\0';
        ck_assert_int_eq(frames_feed(&f, (const uint8_t *)wire, cut, on_frame, NULL), 0);
        ck_assert_int_eq(frames_feed(&f, (const uint8_t *)wire + cut, len - cut, on_frame, NULL),
                         0);
        ck_assert_str_eq(seen, "<{\"id\":\"7\"}0<hello1<err2<xx7<{\"exit_code\":3}3");
    }
}
END_TEST

START_TEST(frames_byte_by_byte)
{
    struct frames f;

    frames_init(&f);
    seen[0] = '\0';
    for (size_t i = 0; i < sizeof(wire) - 1; i++)
        ck_assert_int_eq(frames_feed(&f, (const uint8_t *)wire + i, 1, on_frame, NULL), 0);
    ck_assert_str_eq(seen, "<{\"id\":\"7\"}0<hello1<err2<xx7<{\"exit_code\":3}3");
}
END_TEST

START_TEST(overlong_control_frame_is_refused)
{
    static const uint8_t head[] = {FRAME_EXIT, 0, 0, 0x40, 0x01};
    struct frames f;

    frames_init(&f);
    ck_assert_int_eq(frames_feed(&f, head, sizeof(head), on_frame, NULL), -EMSGSIZE);
}
END_TEST

static int stop(uint8_t type, const uint8_t *data, size_t len, void *arg)
{
    (void)type;
    (void)data;
    (void)len;
    ++*(int *)arg;
    return -EPIPE;
}

START_TEST(callback_ends_the_feeding)
{
    struct frames f;
    int n = 0;

    frames_init(&f);
    ck_assert_int_eq(frames_feed(&f, (const uint8_t *)wire, sizeof(wire) - 1, stop, &n), -EPIPE);
    ck_assert_int_eq(n, 1);
}
END_TEST

static void assert_shell(const char *expected, int argc, ...)
{
    char *argv[8], *text;
    va_list ap;

    va_start(ap, argc);
    for (int i = 0; i < argc; i++)
        argv[i] = va_arg(ap, char *);
    va_end(ap);
    text = cli_shell_text(argc, argv);
    ck_assert_str_eq(text, expected);
    free(text);
}

START_TEST(words_become_shell_text)
{
    assert_shell("cd app && make", 1, "cd app && make");
    assert_shell("python3 -c 'print(1)'", 3, "python3", "-c", "print(1)");
    assert_shell("echo '' 'a b' 'it'\\''s' '$HOME' plain", 6, "echo", "", "a b", "it's", "$HOME",
                 "plain");
}
END_TEST

/* What a real shell makes of the text is what was put in. */
START_TEST(quoted_words_come_back_from_a_shell)
{
    char every[256], *argv[4] = {"printf", "%s", every, NULL}, *text, out[300];
    int fds[2], status;
    ssize_t n, got = 0;
    pid_t pid;

    for (int i = 1; i < 256; i++)
        every[i - 1] = (char)i;
    every[255] = '\0';
    text = cli_shell_text(3, argv);
    ck_assert_int_eq(pipe(fds), 0);
    pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        dup2(fds[1], STDOUT_FILENO);
        execl("/bin/sh", "sh", "-c", text, (char *)NULL);
        _exit(127);
    }
    close(fds[1]);
    while ((n = read(fds[0], out + got, sizeof(out) - (size_t)got)) > 0)
        got += n;
    close(fds[0]);
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_int_eq(status, 0);
    ck_assert_int_eq(got, 255);
    ck_assert_int_eq(memcmp(out, every, 255), 0);
    free(text);
}
END_TEST

START_TEST(encoding)
{
    char *text = cli_encode("a/b c%\xc3\xa9?&.~-_");

    ck_assert_str_eq(text, "a%2Fb%20c%25%C3%A9%3F%26.~-_");
    free(text);
}
END_TEST

static int status_of(const char *json, int fallback)
{
    json_t *o = json_loads(json, 0, NULL);
    int r = cli_exit_status(o, fallback);

    json_decref(o);
    return r;
}

START_TEST(exit_statuses)
{
    ck_assert_int_eq(status_of("{\"exit_code\":0}", 9), 0);
    ck_assert_int_eq(status_of("{\"exit_code\":77}", 9), 77);
    ck_assert_int_eq(status_of("{\"signal\":\"KILL\"}", 9), 137);
    ck_assert_int_eq(status_of("{\"signal\":\"SIGTERM\"}", 9), 143);
    ck_assert_int_eq(status_of("{\"signal\":11}", 9), 139);
    ck_assert_int_eq(status_of("{\"signal\":\"RTMIN+3\"}", 9), 255);
    ck_assert_int_eq(status_of("{}", 9), 9);
    ck_assert_int_eq(status_of("[]", 9), 9);
    ck_assert_str_eq(cli_signal_name(SIGTERM), "TERM");
    ck_assert_ptr_null(cli_signal_name(SIGCHLD));
}
END_TEST

START_TEST(environment_options)
{
    const char *items[] = {"A=1", "B=x=y", "C="};
    struct cli_list list = {items, 3};
    json_t *env = cli_env_object(&list);

    ck_assert_str_eq(cli_text(env, "A"), "1");
    ck_assert_str_eq(cli_text(env, "B"), "x=y");
    ck_assert_ptr_nonnull(json_object_get(env, "C"));
    json_decref(env);
    items[0] = "novalue";
    ck_assert_ptr_null(cli_env_object(&list));
    items[0] = "=x";
    ck_assert_ptr_null(cli_env_object(&list));
    items[0] = "A=\xff";
    ck_assert_ptr_null(cli_env_object(&list));
}
END_TEST

static const struct cli_command *command(const char *name)
{
    for (size_t i = 0; i < cli_n_commands; i++) {
        if (strcmp(cli_commands[i].name, name) == 0)
            return &cli_commands[i];
    }
    ck_abort_msg("no command %s", name);
    return NULL;
}

START_TEST(options_end_where_the_command_to_run_begins)
{
    char *argv[] = {"transom", "-i", "-e", "A=1",    "--env=B=2", "-s",
                    "x",       "ls", "-l", "--json", NULL};
    char *bad[] = {"transom", "--nonsense", NULL};
    struct cli cli = {0};

    ck_assert_int_eq(cli_parse_options(&cli, command("exec"), 10, argv), 7);
    ck_assert(cli.interactive && !cli.json);
    ck_assert_uint_eq(cli.env.n, 2);
    ck_assert_str_eq(cli.env.items[1], "B=2");
    ck_assert_str_eq(cli.session, "x");
    ck_assert_int_eq(cli_parse_options(&cli, command("exec"), 2, bad), -1);
    free(cli.env.items);
}
END_TEST

START_TEST(every_command_is_well_formed)
{
    for (size_t i = 0; i < cli_n_commands; i++) {
        const struct cli_command *c = &cli_commands[i];
        bool letters[128] = {false};

        ck_assert_ptr_nonnull(c->run);
        ck_assert(c->summary[0] >= 'a' && c->summary[0] <= 'z');
        for (size_t k = 0; k < i; k++)
            ck_assert_str_ne(c->name, cli_commands[k].name);
        for (size_t t = 0; c->options[t] != NULL; t++) {
            for (const struct cli_option *o = c->options[t]; o->name != NULL; o++) {
                ck_assert_msg((o->type == CLI_FLAG) == (o->value == NULL), "%s --%s", c->name,
                              o->name);
                if (o->letter != 0)
                    ck_assert_msg(!letters[o->letter], "%s -%c", c->name, o->letter);
                letters[o->letter] = true;
            }
        }
    }
}
END_TEST

int main(void)
{
    Suite *s = suite_create("vmm/cli");
    TCase *tc = tcase_create("cli");
    SRunner *sr = srunner_create(s);
    int n_failed;

    tcase_add_test(tc, frames_survive_any_cut);
    tcase_add_test(tc, frames_byte_by_byte);
    tcase_add_test(tc, overlong_control_frame_is_refused);
    tcase_add_test(tc, callback_ends_the_feeding);
    tcase_add_test(tc, words_become_shell_text);
    tcase_add_test(tc, quoted_words_come_back_from_a_shell);
    tcase_add_test(tc, encoding);
    tcase_add_test(tc, exit_statuses);
    tcase_add_test(tc, environment_options);
    tcase_add_test(tc, options_end_where_the_command_to_run_begins);
    tcase_add_test(tc, every_command_is_well_formed);
    suite_add_tcase(s, tc);
    srunner_run_all(sr, CK_ENV);
    n_failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return n_failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
