/* SPDX-License-Identifier: MIT */
#include "transom/config.h"

#include <check.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include "conf/options.h"
#include "transom/daemon.h"

static struct tr_config *parse(const char *text)
{
    struct tr_config *config = NULL;
    struct err err = {.msg = ""};

    ck_assert_msg(tr_config_parse("t", text, strlen(text), &config, &err) == 0, "%s", err.msg);
    return config;
}

START_TEST(defaults_obey_the_table)
{
    struct tr_config *config;
    struct err why;
    int64_t number;

    ck_assert_int_eq(tr_config_new(&config), 0);
    for (size_t i = 0; i < opt_count; i++) {
        const struct opt *opt = &opt_table[i];

        if (opt->section)
            continue;
        ck_assert_msg(opt->help[0] != '\0' && opt->help[strlen(opt->help) - 1] == '.', "%s: help",
                      opt->name);
        ck_assert_int_eq(opt_find(opt->name), (int)i); /* no name twice */
        if (opt->type == OPT_INT)
            ck_assert_msg(opt->unit[0] != '\0' && opt->min < opt->max, "%s", opt->name);
        if (!opt_is_list(opt))
            ck_assert_msg(opt_check(opt, opt->def, &number, &why) == 0, "%s: %s", opt->name,
                          why.msg);
    }
    ck_assert_uint_eq(tr_config_list_len(config, "gateway.http"), 1);
    ck_assert_str_eq(tr_config_list_get(config, "gateway.http", 0), "127.0.0.1:8080");
    ck_assert_uint_eq(tr_config_list_len(config, "gateway.https"), 0);
    ck_assert_int_eq(tr_config_int(config, "vmm.memory_mb"), 7168);
    ck_assert(!tr_config_bool(config, "vmm.stop_machines_on_exit"));
    ck_assert_str_eq(tr_config_str(config, "redis.url"), "");
    tr_config_free(config);
    tr_config_free(NULL);
}
END_TEST

START_TEST(derived_defaults_follow_what_is_set)
{
    struct tr_config *config = parse("domain: example.com\n");

    ck_assert_str_eq(tr_config_str(config, "preview_domain"), "preview.example.com");
    ck_assert_str_ne(tr_config_str(config, "node.name"), "");
    tr_config_free(config);
    config = parse("preview_domain: p.example.net\nnode:\n  name: n7\n");
    ck_assert_str_eq(tr_config_str(config, "preview_domain"), "p.example.net");
    ck_assert_str_eq(tr_config_str(config, "node.name"), "n7");
    tr_config_free(config);
}
END_TEST

START_TEST(values_replace_defaults)
{
    struct tr_config *config = parse("gateway:\n  http: ['127.0.0.1:1', \"[::1]:2\"]\n"
                                     "  workers: 7\nvmm: {stop_machines_on_exit: true}\n"
                                     "vmm.accelerator: tcg\n");

    ck_assert_uint_eq(tr_config_list_len(config, "gateway.http"), 2);
    ck_assert_str_eq(tr_config_list_get(config, "gateway.http", 1), "[::1]:2");
    ck_assert_int_eq(tr_config_int(config, "gateway.workers"), 7);
    ck_assert(tr_config_bool(config, "vmm.stop_machines_on_exit"));
    ck_assert_str_eq(tr_config_str(config, "vmm.accelerator"), "tcg");
    tr_config_free(config);
}
END_TEST

START_TEST(a_fault_leaves_nothing_behind)
{
    struct tr_config *config = (struct tr_config *)0x1;
    struct err err;

    ck_assert_int_eq(tr_config_parse("f", "vmm: {vcpus: 0}", 15, &config, &err), -EINVAL);
    ck_assert_ptr_eq(config, (struct tr_config *)0x1);
    ck_assert_int_eq(err.code, -EINVAL);
    ck_assert_int_eq(strncmp(err.msg, "f:1:14: option `vmm.vcpus`: ", 28), 0);
}
END_TEST

START_TEST(wrong_use_is_a_bug)
{
    struct tr_config *config = parse("");

    (void)tr_config_int(config, "domain");
}
END_TEST

START_TEST(unknown_name_is_a_bug)
{
    struct tr_config *config = parse("");

    (void)tr_config_str(config, "no.such");
}
END_TEST

START_TEST(nearest_names)
{
    ck_assert_str_eq(opt_nearest("gateway.htp"), "gateway.http");
    ck_assert_str_eq(opt_nearest("memory_mb"), "vmm.memory_mb");
    ck_assert_str_eq(opt_nearest("image.memory_mb"), "vmm.memory_mb");
    ck_assert_str_eq(opt_nearest("domian"), "domain");
    ck_assert_ptr_null(opt_nearest("gateway.xyzzy"));
    ck_assert_ptr_null(opt_nearest("kubernetes"));
    ck_assert_ptr_null(
        opt_nearest("gateway."
                    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
                    "aaaaaaaaaaaaaaaaaaaaaaaa"));
}
END_TEST

static const struct tr_daemon daemon_under_test = {
    .program = "transom-test", .component = "test", .purpose = "A test."};

static int run_daemon(int argc, char **argv, struct tr_config **config)
{
    /* Its messages are not this test's. */
    ck_assert_ptr_nonnull(freopen("/dev/null", "w", stderr));
    ck_assert_ptr_nonnull(freopen("/dev/null", "w", stdout));
    return tr_daemon_start(argc, argv, &daemon_under_test, config);
}
#define RUN(config, ...)                                                                           \
    run_daemon((int)(sizeof((char *[]){__VA_ARGS__}) / sizeof(char *)),                            \
               (char *[]){__VA_ARGS__, NULL}, config)

START_TEST(daemon_arguments)
{
    struct tr_config *config = NULL;
    char path[] = "/tmp/transom-config-XXXXXX";
    int fd = mkstemp(path);

    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(write(fd, "vmm:\n  vcpus: 3\n", 16), 16);
    ck_assert_int_eq(RUN(&config, "x", "--help"), 0);
    ck_assert_int_eq(RUN(&config, "x", "--version"), 0);
    ck_assert_int_eq(RUN(&config, "x", "--nonsense"), 2);
    ck_assert_int_eq(RUN(&config, "x", "-f"), 2);
    ck_assert_int_eq(RUN(&config, "x", "argument"), 2);
    ck_assert_int_eq(RUN(&config, "x", "-n", "-f", path), 0);
    ck_assert_int_eq(RUN(&config, "x", "--check", "-f", "/nonexistent"), 1);
    ck_assert_int_eq(RUN(&config, "x", "-f", "/nonexistent"), 1);
    ck_assert_ptr_null(config);
    ck_assert_int_eq(RUN(&config, "x", "-d", "-v", "-f", path), -1);
    ck_assert_int_eq(tr_config_int(config, "vmm.vcpus"), 3);
    tr_config_free(config);
    close(fd);
    unlink(path);
}
END_TEST

START_TEST(notify_reaches_the_service_manager)
{
    struct sockaddr_un sa = {.sun_family = AF_UNIX};
    char buf[64] = "", dir[] = "/tmp/transom-notify-XXXXXX";
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    ck_assert_ptr_nonnull(mkdtemp(dir));
    snprintf(sa.sun_path, sizeof(sa.sun_path), "%s/notify", dir);
    ck_assert_int_eq(bind(fd, (struct sockaddr *)&sa, sizeof(sa)), 0);
    setenv("NOTIFY_SOCKET", sa.sun_path, 1);
    tr_daemon_notify("READY=1");
    ck_assert_int_eq(recv(fd, buf, sizeof(buf), 0), 7);
    ck_assert_str_eq(buf, "READY=1");
    close(fd);
    unlink(sa.sun_path);
    tr_daemon_notify("STOPPING=1"); /* nobody there: no harm */
    unsetenv("NOTIFY_SOCKET");
    tr_daemon_notify("READY=1");
    rmdir(dir);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("conf/config");
    TCase *tc = tcase_create("config");
    SRunner *sr = srunner_create(s);
    int n_failed;

    tcase_add_test(tc, defaults_obey_the_table);
    tcase_add_test(tc, derived_defaults_follow_what_is_set);
    tcase_add_test(tc, values_replace_defaults);
    tcase_add_test(tc, a_fault_leaves_nothing_behind);
    tcase_add_test_raise_signal(tc, wrong_use_is_a_bug, SIGABRT);
    tcase_add_test_raise_signal(tc, unknown_name_is_a_bug, SIGABRT);
    tcase_add_test(tc, nearest_names);
    tcase_add_test(tc, daemon_arguments);
    tcase_add_test(tc, notify_reaches_the_service_manager);
    suite_add_tcase(s, tc);
    srunner_run_all(sr, CK_ENV);
    n_failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return n_failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
