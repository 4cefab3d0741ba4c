/* SPDX-License-Identifier: MIT */
/* The agent's parsers and encoders: UTF-8, base 64, names, /proc, accounts, signals, frames. */
#include <check.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <uv.h>

#include "vmm/agent/base64.h"
#include "vmm/agent/exec.h"
#include "vmm/agent/hello.h"
#include "vmm/agent/port.h"
#include "vmm/agent/stats.h"
#include "vmm/agent/group.h"
#include "vmm/agent/proc.h"
#include "vmm/agent/signame.h"
#include "vmm/agent/splice.h"
#include "vmm/agent/ssh_config.h"
#include "vmm/agent/ssh_keys.h"
#include "vmm/agent/ssh_session.h"
#include "vmm/agent/tunnel.h"
#include "vmm/agent/users.h"
#include "vmm/agent/utf8.h"

#define FFFD "\xef\xbf\xbd"

static void repairs_to(const char *in, size_t len, const char *want, size_t want_len)
{
    size_t n = 0;
    char *out = agent_utf8_repair(in, len, &n);

    ck_assert_ptr_nonnull(out);
    ck_assert_uint_eq(n, want_len);
    ck_assert_mem_eq(out, want, n);
    ck_assert(agent_utf8_valid(out, n));
    ck_assert_int_eq(agent_utf8_valid(in, len), len == want_len && memcmp(in, want, len) == 0);
    free(out);
}

#define REPAIR(in, want) repairs_to(in, sizeof(in) - 1, want, sizeof(want) - 1)

START_TEST(utf8_is_kept_and_the_rest_replaced)
{
    REPAIR("", "");
    REPAIR("abc\r\n\0z", "abc\r\n\0z");
    REPAIR("\xe2\x94\x80 \xf0\x9f\x98\x80 \xc2\x80", "\xe2\x94\x80 \xf0\x9f\x98\x80 \xc2\x80");
    REPAIR("a\377\376b\0c", "a" FFFD FFFD "b\0c");
    REPAIR("end\342", "end" FFFD);
    REPAIR("\342\224x", FFFD "x");                   /* one per maximal part */
    REPAIR("\xc0\xaf", FFFD FFFD);                   /* overlong */
    REPAIR("\xe0\x80\xaf", FFFD FFFD FFFD);          /* overlong */
    REPAIR("\xed\xa0\x80", FFFD FFFD FFFD);          /* a surrogate */
    REPAIR("\xf4\x90\x80\x80", FFFD FFFD FFFD FFFD); /* beyond U+10FFFF */
    REPAIR("\xf0\x9f\x98", FFFD);
    REPAIR("\xf0\x9f\x98\xf0\x9f\x98\x80", FFFD "\xf0\x9f\x98\x80");
}
END_TEST

static bool name_ok(const char *name)
{
    return agent_window_name_ok(name, strlen(name));
}

START_TEST(window_names)
{
    static const char *const good[] = {"server", "a.b", "a:b",   "a b", "../x", "x/y", "-x",
                                       "=s",     "%1",  "$(id)", ";id", " ",    "测试"};
    char name[130];

    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++)
        ck_assert_msg(name_ok(good[i]), "%s", good[i]);
    memset(name, 'n', sizeof(name));
    ck_assert(agent_window_name_ok(name, 128));
    ck_assert(!agent_window_name_ok(name, 129));
    ck_assert(!agent_window_name_ok("", 0));
    ck_assert(!name_ok("a\nb"));
    ck_assert(!agent_window_name_ok("a\0b", 3));
    ck_assert(!name_ok("a\x7f"));
    ck_assert(!name_ok("a\xc2\x9b"
                       "b")); /* a C1 control */
    ck_assert(name_ok("a\xc2\xa0"));
    ck_assert(!name_ok("bad\xff"));
}
END_TEST

START_TEST(base64_both_ways)
{
    static const char *const bad[] = {"a",        "abc",  "ab=c", "=abc",
                                      "ab==cd==", "a b=", "====", "abc\n"};
    uint8_t bytes[300], *out;
    size_t len;

    for (size_t i = 0; i < sizeof(bytes); i++)
        bytes[i] = (uint8_t)(i * 7);
    for (size_t n = 0; n < sizeof(bytes); n++) {
        char *text = agent_base64_encode(bytes, n);

        ck_assert_int_eq(agent_base64_decode(text, &out, &len), 0);
        ck_assert_uint_eq(len, n);
        ck_assert_mem_eq(out, bytes, n);
        free(out);
        free(text);
    }
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        ck_assert_msg(agent_base64_decode(bad[i], &out, &len) == UV_EINVAL, "%s", bad[i]);
}
END_TEST

START_TEST(host_names)
{
    char label[70];

    ck_assert(agent_hostname_ok("a"));
    ck_assert(agent_hostname_ok("0a-b.preview.localhost"));
    memset(label, 'x', sizeof(label));
    label[63] = '\0';
    ck_assert(agent_hostname_ok(label));
    label[63] = 'x';
    label[64] = '\0';
    ck_assert(!agent_hostname_ok(label));
    ck_assert(!agent_hostname_ok(""));
    ck_assert(!agent_hostname_ok("a..b"));
    ck_assert(!agent_hostname_ok("a."));
    ck_assert(!agent_hostname_ok(".a"));
    ck_assert(!agent_hostname_ok("-a"));
    ck_assert(!agent_hostname_ok("a-.b"));
    ck_assert(!agent_hostname_ok("a b"));
    ck_assert(!agent_hostname_ok("a\nb"));
}
END_TEST

START_TEST(listening_sockets)
{
    static const char v4[] = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when "
                             "retrnsmt   uid  timeout "
                             "inode\n"
                             "   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 "
                             "00000000  1000        0 "
                             "4242 1 0000 100 0 0 10 0\n"
                             "   1: 0100007F:1F90 0100007F:9C40 01 00000000:00000000 00:00000000 "
                             "00000000  1000        0 "
                             "4243 1 0000 100 0 0 10 0\n"
                             "   2: garbage\n"
                             "   3: 00000000:0016 00000000:0000 0A 00000000:00000000 00:00000000 "
                             "00000000     0        0 "
                             "77 1 0000 100 0 0 10 0"; /* cut short */
    static const char v6[] =
        "  sl  local_address ...\n"
        "   0: 00000000000000000000000001000000:0BB8 00000000000000000000000000000000:0000 0A "
        "00000000:00000000 00:00000000 00000000  1000        0 99 1 0 100 0 0 10 0\n";
    struct agent_listener out[4];

    ck_assert_uint_eq(agent_port_parse(v4, false, out, 4), 2);
    ck_assert_uint_eq(out[0].port, 8080);
    ck_assert_str_eq(out[0].address, "127.0.0.1");
    ck_assert_uint_eq(out[0].inode, 4242);
    ck_assert_uint_eq(out[1].port, 22);
    ck_assert_str_eq(out[1].address, "0.0.0.0");
    ck_assert_uint_eq(agent_port_parse(v4, false, out, 1), 1);
    ck_assert_uint_eq(agent_port_parse(v6, true, out, 4), 1);
    ck_assert_uint_eq(out[0].port, 3000);
    ck_assert_str_eq(out[0].address, "::1");
    ck_assert_uint_eq(agent_port_parse(v6, false, out, 4), 0);
    ck_assert_uint_eq(agent_port_parse("", false, out, 4), 0);
}
END_TEST

START_TEST(figures)
{
    static const char memory[] = "MemTotal:       16384 kB\nXMemAvailable: 1 kB\n"
                                 "MemAvailable:    4096 kB\nCommit: x\n";
    uint64_t total, busy;

    ck_assert(agent_stats_parse_cpu("cpu  10 1 5 80 4 2 3 5 7 7\ncpu0 1 1 1 1\n", &total, &busy));
    ck_assert_uint_eq(total, 110);
    ck_assert_uint_eq(busy, 26);
    ck_assert(agent_stats_parse_cpu("cpu 1 2 3 4", &total, &busy));
    ck_assert(!agent_stats_parse_cpu("cpu 1 2 3", &total, &busy));
    ck_assert(!agent_stats_parse_cpu("", &total, &busy));
    ck_assert_uint_eq(agent_stats_parse_memory(memory, "MemTotal:"), 16384);
    ck_assert_uint_eq(agent_stats_parse_memory(memory, "MemAvailable:"), 4096);
    ck_assert_uint_eq(agent_stats_parse_memory(memory, "Commit:"), 0);
    ck_assert_uint_eq(agent_stats_parse_memory("", "MemTotal:"), 0);
}
END_TEST

START_TEST(path_of_a_cgroup)
{
    static const char text[] = "4:memory:/x\n1:name=systemd:/y\n0::/vmagent/w1/r3.2\n";
    const char *path;

    ck_assert_uint_eq(agent_group_parse(text, &path), 16);
    ck_assert_int_eq(strncmp(path, "/vmagent/w1/r3.2", 16), 0);
    ck_assert_uint_eq(agent_group_parse("0::/", &path), 1);
    ck_assert_uint_eq(agent_group_parse("4:memory:/0::/x\n", &path), 0);
    ck_assert_uint_eq(agent_group_parse("", &path), 0);
}
END_TEST

START_TEST(process_status)
{
    struct agent_proc p;

    ck_assert(agent_proc_parse_stat("17 (a) b) S 3 17 5 34816 17 4194560 1 2 3 4 5 6 7 8 20 0 1 0 "
                                    "987654 1 2",
                                    &p));
    ck_assert_int_eq(p.pid, 17);
    ck_assert_int_eq(p.state, 'S');
    ck_assert_int_eq(p.ppid, 3);
    ck_assert_int_eq(p.pgrp, 17);
    ck_assert_int_eq(p.session, 5);
    ck_assert_uint_eq(p.start, 987654);
    ck_assert(!agent_proc_parse_stat("17 (a S 3", &p));
    ck_assert(!agent_proc_parse_stat("", &p));
    ck_assert(agent_proc_read(getpid(), &p));
    ck_assert_int_eq(p.ppid, getppid());
    ck_assert_uint_gt(p.start, 0);
}
END_TEST

START_TEST(accounts)
{
    char passwd[] = "/tmp/transom-passwd-XXXXXX", group[] = "/tmp/transom-group-XXXXXX";
    int fd = mkstemp(passwd), gd = mkstemp(group);
    struct agent_user u;

    dprintf(fd,
            "root:x:0:0:root:/root:/bin/bash\nbroken:x:y:1::/:\nminus:x:4294967295:1::/:/bin/sh\n"
            "sandbox:x:1000:1000:A,B:/home/sandbox:/bin/bash\nbare:x:7:8::/nowhere:\n");
    dprintf(gd, "root:x:0:\nadm:x:4:syslog,sandbox\nsandbox:x:1000:\nsudo:x:27:sandbox\n"
                "near:x:50:sandboxes,xsandbox\n");
    ck_assert_int_eq(agent_user_find(passwd, group, "sandbox", &u), 0);
    ck_assert_uint_eq(u.uid, 1000);
    ck_assert_str_eq(u.home, "/home/sandbox");
    ck_assert_uint_eq(u.n_groups, 3);
    ck_assert_uint_eq(u.groups[0], 1000);
    ck_assert_uint_eq(u.groups[1], 4);
    ck_assert_uint_eq(u.groups[2], 27);
    ck_assert_int_eq(agent_user_find(passwd, group, "bare", &u), 0);
    ck_assert_str_eq(u.shell, "/bin/sh");
    ck_assert_int_eq(agent_user_find_uid(passwd, group, 0, &u), 0);
    ck_assert_str_eq(u.name, "root");
    ck_assert_int_eq(agent_user_find(passwd, group, "broken", &u), UV_ENOENT);
    ck_assert_int_eq(agent_user_find(passwd, group, "minus", &u), UV_ENOENT);
    ck_assert_int_eq(agent_user_find("/nonexistent", group, "root", &u), UV_ENOENT);
    close(fd);
    close(gd);
    unlink(passwd);
    unlink(group);
}
END_TEST

START_TEST(signals_and_exits)
{
    json_t *obj;

    ck_assert_int_eq(agent_signal_number("TERM"), SIGTERM);
    ck_assert_int_eq(agent_signal_number("SIGKILL"), SIGKILL);
    ck_assert_int_eq(agent_signal_number("term"), -1);
    ck_assert_int_eq(agent_signal_number(""), -1);
    obj = agent_exit_json(json_object(), true, 137);
    ck_assert_int_eq(json_integer_value(json_object_get(obj, "exit_code")), 137);
    ck_assert_ptr_null(json_object_get(obj, "signal"));
    json_decref(obj);
    obj = agent_exit_json(json_object(), false, SIGKILL);
    ck_assert_int_eq(json_integer_value(json_object_get(obj, "exit_code")), 137);
    ck_assert_str_eq(json_string_value(json_object_get(obj, "signal")), "KILL");
    json_decref(obj);
}
END_TEST

START_TEST(frame_heads)
{
    uint8_t head[AGENT_FRAME_HEAD];

    agent_exec_frame_head(head, AGENT_FRAME_STDERR, 0x01020304);
    ck_assert_mem_eq(head, "\x02\x01\x02\x03\x04", 5);
}
END_TEST

START_TEST(tunnel_targets)
{
    bool v6 = false;

    ck_assert_uint_eq(agent_tunnel_port("127.0.0.1:8080", &v6), 8080);
    ck_assert(!v6);
    ck_assert_uint_eq(agent_tunnel_port("localhost:1", &v6), 1);
    ck_assert_uint_eq(agent_tunnel_port("[::1]:65535", &v6), 65535);
    ck_assert(v6);
    ck_assert_uint_eq(agent_tunnel_port("127.0.0.1:65536", &v6), 0);
    ck_assert_uint_eq(agent_tunnel_port("127.0.0.1:0", &v6), 0);
    ck_assert_uint_eq(agent_tunnel_port("127.0.0.1: 80", &v6), 0);
    ck_assert_uint_eq(agent_tunnel_port("127.0.0.1:80x", &v6), 0);
    ck_assert_uint_eq(agent_tunnel_port("127.0.0.1", &v6), 0);
    ck_assert_uint_eq(agent_tunnel_port("10.0.0.1:80", &v6), 0);
    ck_assert_uint_eq(agent_tunnel_port("127.0.0.1.evil:80", &v6), 0);
}
END_TEST

START_TEST(a_splice_asks_for_a_port)
{
    static const char *const bad[] = {"",   "0",  "08080", "65536", "99999", "123456",
                                      "-1", "+1", " 80",   "80 ",   "8\r",   "0x50"};

    ck_assert_uint_eq(agent_splice_parse("1", 1), 1);
    ck_assert_uint_eq(agent_splice_parse("8080\njunk", 4), 8080);
    ck_assert_uint_eq(agent_splice_parse("65535", 5), 65535);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        ck_assert_msg(agent_splice_parse(bad[i], strlen(bad[i])) == 0, "%s", bad[i]);
}
END_TEST

#define KEY_DATA "AAAAC3NzaC1lZDI1NTE5AAAAIJ0Yh1QmYfQn3kbk+/4w0x7r9Qv0mUe3a5Zk2bq1n1f="

START_TEST(a_public_key_is_one_line)
{
    static const char *const good[] = {"ssh-ed25519 " KEY_DATA, "ssh-ed25519 " KEY_DATA "\n",
                                       "ssh-ed25519 " KEY_DATA " me@here, \"quoted\"\r\n"};
    static const char *const bad[] = {"",
                                      " ",
                                      "ssh-ed25519",
                                      "ssh-ed25519 ",
                                      "ssh-ed25519 short",
                                      " ssh-ed25519 " KEY_DATA,
                                      "ssh-ed25519  " KEY_DATA,
                                      "ssh-ed25519\t" KEY_DATA,
                                      "ssh-ed25519x " KEY_DATA,
                                      "ssh-dss " KEY_DATA,
                                      "ssh-ed25519-cert-v01@openssh.com " KEY_DATA,
                                      "ssh-ed25519 " KEY_DATA "=x",
                                      "ssh-ed25519 " KEY_DATA "\nssh-ed25519 " KEY_DATA,
                                      "ssh-ed25519 " KEY_DATA " x\ny",
                                      "command=\"x\" ssh-ed25519 " KEY_DATA};
    char out[256], tight[sizeof("ssh-ed25519 " KEY_DATA)];

    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        ck_assert_msg(agent_ssh_key_line(good[i], out, sizeof(out)), "%s", good[i]);
        ck_assert_str_eq(out, good[0]);
    }
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        ck_assert_msg(!agent_ssh_key_line(bad[i], out, sizeof(out)), "%s", bad[i]);
    ck_assert(agent_ssh_key_line(good[0], tight, sizeof(tight)));
    ck_assert(!agent_ssh_key_line(good[0], tight, sizeof(tight) - 1));
}
END_TEST

START_TEST(no_value_leaves_its_place_in_an_sshd_config)
{
    char *env[] = {"A=plain", "B=a \"b\" 'c' \\ #d", "C=l1\nPermitRootLogin yes", "D=", NULL};
    struct agent_child child = {.user = {.name = "sandbox", .uid = 1000}, .envp = env, .n_env = 4};
    char *text = agent_ssh_config_text("/run/x", &child, "/run/x/s1.env");

    ck_assert_ptr_nonnull(text);
    ck_assert_ptr_nonnull(strstr(text, "\nAllowUsers sandbox\nPermitRootLogin no\n"));
    ck_assert_ptr_nonnull(strstr(text, "\nAuthenticationMethods publickey\n"));
    ck_assert_ptr_nonnull(strstr(text,
                                 "\nSetEnv \"A=plain\" \"B=a \\\"b\\\" \\'c\\' \\\\ #d\" \"D=\"\n"
                                 "ForceCommand exec /run/x/session --ssh-session /run/x/s1.env\n"));
    ck_assert_ptr_null(strstr(text, "PermitRootLogin yes"));
    ck_assert(agent_ssh_session_needed(&child));
    free(text);
    child.n_env = 1;
    text = agent_ssh_config_text("/run/x", &child, NULL);
    ck_assert_ptr_nonnull(text);
    ck_assert_ptr_null(strstr(text, "ForceCommand"));
    ck_assert(!agent_ssh_session_needed(&child));
    free(text);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("agent/text");
    TCase *tc = tcase_create("text");
    SRunner *sr = srunner_create(s);
    int n_failed;

    tcase_add_test(tc, utf8_is_kept_and_the_rest_replaced);
    tcase_add_test(tc, window_names);
    tcase_add_test(tc, a_splice_asks_for_a_port);
    tcase_add_test(tc, base64_both_ways);
    tcase_add_test(tc, host_names);
    tcase_add_test(tc, listening_sockets);
    tcase_add_test(tc, figures);
    tcase_add_test(tc, path_of_a_cgroup);
    tcase_add_test(tc, process_status);
    tcase_add_test(tc, accounts);
    tcase_add_test(tc, signals_and_exits);
    tcase_add_test(tc, frame_heads);
    tcase_add_test(tc, tunnel_targets);
    tcase_add_test(tc, a_public_key_is_one_line);
    tcase_add_test(tc, no_value_leaves_its_place_in_an_sshd_config);
    suite_add_tcase(s, tc);
    srunner_run_all(sr, CK_ENV);
    n_failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return n_failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
