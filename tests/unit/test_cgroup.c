/* SPDX-License-Identifier: MIT */
#include "vmm/driver/cgroup.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char v1_mounts[] =
    "31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755\n"
    "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct\n"
    "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime shared:5 - cgroup cgroup rw,memory\n"
    "39 31 0:36 / /sys/fs/cgroup/pids rw,relatime - cgroup cgroup rw,pids\n"
    "40 31 0:37 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,name=systemd\n"
    "41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n";

static const char v1_self[] = "9:name=systemd:/init.scope\n8:pids:/\n4:memory:/jobs/7\n"
                              "1:cpu,cpuacct:/slice\n0::/unified/x\n";

START_TEST(v1_groups_are_below_our_own)
{
    struct cgroup_mounts m;
    struct cgroup_group g;

    cgroup_parse_mounts(v1_mounts, v1_self, &m);
    cgroup_parse_controllers("hugetlb\n", &m);
    cgroup_plan(&m, "transom", "abc", &g);
    ck_assert_str_eq(g.dir[CGROUP_MEMORY], "/sys/fs/cgroup/memory/jobs/7/transom/abc");
    ck_assert_str_eq(g.dir[CGROUP_CPU], "/sys/fs/cgroup/cpu,cpuacct/slice/transom/abc");
    ck_assert_str_eq(g.dir[CGROUP_PIDS], "/sys/fs/cgroup/pids/transom/abc");
    ck_assert(!g.v2[CGROUP_MEMORY] && !g.v2[CGROUP_CPU] && !g.v2[CGROUP_PIDS]);
}
END_TEST

START_TEST(v2_groups_are_at_the_top)
{
    struct cgroup_mounts m;
    struct cgroup_group g;

    cgroup_parse_mounts("24 23 0:22 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n",
                        "0::/system.slice/transom.service\n", &m);
    cgroup_parse_controllers("cpuset cpu io memory pids\n", &m);
    cgroup_plan(&m, "transom", "abc", &g);
    ck_assert_str_eq(g.dir[CGROUP_MEMORY], "/sys/fs/cgroup/transom/abc");
    ck_assert_str_eq(g.dir[CGROUP_CPU], "/sys/fs/cgroup/transom/abc");
    ck_assert_str_eq(g.dir[CGROUP_PIDS], "/sys/fs/cgroup/transom/abc");
    ck_assert(g.v2[CGROUP_MEMORY] && g.v2[CGROUP_CPU] && g.v2[CGROUP_PIDS]);
}
END_TEST

START_TEST(v1_wins_where_both_offer_a_controller)
{
    struct cgroup_mounts m;
    struct cgroup_group g;

    cgroup_parse_mounts("35 31 0:32 / /c/memory rw - cgroup cgroup rw,memory\n"
                        "41 31 0:38 / /c/unified rw - cgroup2 cgroup2 rw\n",
                        "", &m);
    cgroup_parse_controllers("memory pids", &m);
    cgroup_plan(&m, "t", "n", &g);
    ck_assert_str_eq(g.dir[CGROUP_MEMORY], "/c/memory/t/n");
    ck_assert_str_eq(g.dir[CGROUP_PIDS], "/c/unified/t/n");
    ck_assert(g.v2[CGROUP_PIDS]);
    ck_assert_str_eq(g.dir[CGROUP_CPU], "");
}
END_TEST

/* A container without a cgroup namespace: the mount shows only its own part. */
START_TEST(a_partial_mount_is_not_named_twice)
{
    struct cgroup_mounts m;

    cgroup_parse_mounts("35 31 0:32 /docker/x /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n",
                        "4:memory:/docker/x/job\n", &m);
    ck_assert_str_eq(m.v1[CGROUP_MEMORY], "/sys/fs/cgroup/memory/job");
    cgroup_parse_mounts("35 31 0:32 /docker/x /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n",
                        "4:memory:/elsewhere\n", &m);
    ck_assert_str_eq(m.v1[CGROUP_MEMORY], "/sys/fs/cgroup/memory");
    cgroup_parse_mounts("35 31 0:32 / /c/memory ro - cgroup cgroup rw,memory\n",
                        "4:memory:/../../etc\n", &m);
    ck_assert_str_eq(m.v1[CGROUP_MEMORY], "/c/memory");
}
END_TEST

START_TEST(odd_mountinfo_is_survived)
{
    static const char *const texts[] = {
        "",
        "\n\n\n",
        " - ",
        "1 2 3 4 - cgroup\n",
        "1 - cgroup cgroup rw,memory\n",
        "35 31 0:32 / /c rw - cgroup cgroup\n",
        "35 31 0:32 / /c rw - cgroup cgroup memoryx,xmemory\n",
        "no newline at the end - cgroup2",
    };
    struct cgroup_mounts m;
    size_t i;

    for (i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        cgroup_parse_mounts(texts[i], "4:memory", &m);
        ck_assert_str_eq(m.v1[CGROUP_MEMORY], "");
    }
    cgroup_parse_mounts("35 31 0:32 / /my\\040dir\\134x rw - cgroup2 cgroup2 rw\n", "", &m);
    ck_assert_str_eq(m.v2, "/my dir\\x");
}
END_TEST

START_TEST(a_plan_survives_being_written_down)
{
    struct cgroup_mounts m;
    struct cgroup_group g, back;
    char text[2048];

    cgroup_parse_mounts(v1_mounts, v1_self, &m);
    cgroup_plan(&m, "transom", "abc", &g);
    ck_assert_int_eq(cgroup_encode(&g, text, sizeof(text)), 0);
    cgroup_decode(text, "transom", "abc", &back);
    ck_assert_int_eq(memcmp(&g, &back, sizeof(g)), 0);
    ck_assert_int_lt(cgroup_encode(&g, text, 20), 0);
    /* Somebody else's folder is not taken for ours. */
    cgroup_decode("memory v1 /sys/fs/cgroup/memory/other/abc\ncpu v1 etc/transom/abc\n"
                  "pids v2 /c/transom/abcd\n",
                  "transom", "abc", &back);
    ck_assert_str_eq(back.dir[CGROUP_MEMORY], "");
    ck_assert_str_eq(back.dir[CGROUP_CPU], "");
    ck_assert_str_eq(back.dir[CGROUP_PIDS], "");
    cgroup_decode("garbage", "transom", "abc", &back);
    ck_assert_str_eq(back.dir[CGROUP_MEMORY], "");
}
END_TEST

static int n_warnings;

static void count(const char *text)
{
    (void)text;
    n_warnings++;
}

/* Folders instead of a cgroup file system: groups are made and removed, limits are refused. */
START_TEST(what_cannot_be_limited_is_said)
{
    char dir[] = "/tmp/test_cgroup.XXXXXX", path[64];
    struct cgroup_mounts m = {.in_v2 = {true, false, true}};
    struct cgroup_limits limits = {.memory_bytes = 1 << 20, .cpu_percent = 100, .pids = 5};
    struct cgroup_group g;

    ck_assert_ptr_nonnull(mkdtemp(dir));
    (void)snprintf(m.v2, sizeof(m.v2), "%s", dir);
    cgroup_plan(&m, "t", "n", &g);
    n_warnings = 0;
    cgroup_enter(&m, &g, &limits, count);
    /* Not entered, no memory limit, no cpu controller, no pids limit. */
    ck_assert_int_eq(n_warnings, 4);
    (void)snprintf(path, sizeof(path), "%s/t/n", dir);
    ck_assert_int_eq(access(path, F_OK), 0);
    ck_assert_uint_eq(cgroup_oom_kills(&g), 0);
    ck_assert_int_eq(cgroup_remove(&g), 0);
    (void)snprintf(path, sizeof(path), "%s/t", dir);
    ck_assert_int_ne(access(path, F_OK), 0);
    ck_assert_int_eq(cgroup_remove(&g), 0); /* again: nothing to do */
    ck_assert_int_eq(rmdir(dir), 0);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("vmm/driver/cgroup");
    TCase *tc = tcase_create("paths");
    SRunner *sr = srunner_create(s);
    int n_failed;

    tcase_add_test(tc, v1_groups_are_below_our_own);
    tcase_add_test(tc, v2_groups_are_at_the_top);
    tcase_add_test(tc, v1_wins_where_both_offer_a_controller);
    tcase_add_test(tc, a_partial_mount_is_not_named_twice);
    tcase_add_test(tc, odd_mountinfo_is_survived);
    tcase_add_test(tc, a_plan_survives_being_written_down);
    tcase_add_test(tc, what_cannot_be_limited_is_said);
    suite_add_tcase(s, tc);
    srunner_run_all(sr, CK_ENV);
    n_failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return n_failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
