/* SPDX-License-Identifier: MIT */
/* How far a guest's events have been taken: over lost channels, other managers and other boots; and
 * a guest that tells too much. */
#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "vmm/machine_internal.h"

static struct vmm vmm;
static struct vmm_machines ms;
static struct vmm_session session;
static struct vmm_sandbox sandbox;
static struct vmm_machine *m;
static char dir[64];

static void begin(void) /* another manager */
{
    m = calloc(1, sizeof(*m));
    ck_assert_ptr_nonnull(m);
    m->ms = &ms;
    m->sb = &sandbox;
    snprintf(m->data_dir, sizeof(m->data_dir), "%s", dir);
}

static void end(void)
{
    machine_events_fini(m);
    free(m);
}

static void setup(void)
{
    ms.vmm = &vmm;
    sandbox.session = &session;
    snprintf(session.owner, sizeof(session.owner), "ann");
    snprintf(sandbox.name, sizeof(sandbox.name), "primary");
    strcpy(dir, "/tmp/test-events-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(dir));
    begin();
}

static void teardown(void)
{
    char path[80];

    end();
    snprintf(path, sizeof(path), "%s/events", dir);
    (void)unlink(path);
    ck_assert_int_eq(rmdir(dir), 0);
    vmm_events_fini(&vmm.events);
    memset(&vmm, 0, sizeof(vmm));
}

static int64_t since(const char *boot)
{
    json_t *hello = json_pack("{ss*}", "boot_id", boot);
    int64_t seq = machine_events_since(hello, m);

    json_decref(hello);
    return seq;
}

static void tell(int64_t seq)
{
    json_t *event = json_pack("{sI, ss}", "seq", (json_int_t)seq, "type", "listen");

    machine_events_pass_on(m, "listen", event);
    machine_events_took(m, event);
    json_decref(event);
}

/* Events that were passed on, and what the last of them says. */
static size_t n_told(const char **last)
{
    const struct vmm_event *ev;
    uint64_t id = 0;
    size_t n = 0;

    while ((ev = vmm_events_next(&vmm.events, id, "ann")) != NULL) {
        id = ev->id;
        *last = ev->text;
        n++;
    }
    return n;
}

START_TEST(a_conversation_goes_on_behind_the_last_event)
{
    ck_assert_int_eq(since("boot-1"), -1);
    ck_assert_int_eq(since("boot-1"), 0); /* nothing came: all is news */
    tell(7);
    tell(8);
    ck_assert_int_eq(since("boot-1"), 8);
    end();
    begin();
    ck_assert_int_eq(since("boot-1"), 8);
    tell(9);
    ck_assert_int_eq(since("boot-1"), 9);
}
END_TEST

START_TEST(each_boot_counts_for_itself)
{
    ck_assert_int_eq(since("boot-1"), -1);
    tell(70);
    ck_assert_int_eq(since("boot-2"), -1);
    ck_assert_int_eq(since("boot-2"), 0);
    end();
    begin();
    ck_assert_int_eq(since("boot-2"), 0);
    ck_assert_int_eq(since("boot-1"), -1);
}
END_TEST

START_TEST(what_is_no_boot)
{
    char text[100] = "";

    memset(text, 'x', sizeof(text) - 1);
    ck_assert_int_eq(since(text), -1);
    ck_assert_int_eq(since("a b"), -1);
    ck_assert_int_eq(since(""), -1);
    ck_assert_int_eq(since(NULL), -1);
    ck_assert_int_eq(machine_events_since(NULL, m), -1);
}
END_TEST

START_TEST(a_damaged_file_counts_as_none)
{
    char path[80];
    FILE *f;

    snprintf(path, sizeof(path), "%s/events", dir);
    f = fopen(path, "w");
    ck_assert_ptr_nonnull(f);
    for (int i = 0; i < 1000; i++)
        fputs("rubbish", f);
    fclose(f);
    ck_assert_int_eq(since("boot-1"), -1);
    tell(3);
    end();
    begin();
    ck_assert_int_eq(since("boot-1"), 3);
}
END_TEST

START_TEST(too_many_are_named)
{
    const char *last = "";

    (void)since("boot-1");
    for (int i = 1; i <= 500; i++)
        tell(i);
    ck_assert_uint_eq(n_told(&last), 500);
    for (int i = 501; i <= 600; i++)
        tell(i);
    ck_assert_uint_eq(n_told(&last), 500);
    ck_assert_int_eq(since("boot-1"), 600);
    machine_events_tick(m);
    ck_assert_uint_eq(n_told(&last), 501);
    ck_assert_ptr_nonnull(strstr(last, "\"sandbox.gap\""));
    ck_assert_ptr_nonnull(strstr(last, "\"from\":501,\"to\":600"));
    tell(601);
    ck_assert_uint_eq(n_told(&last), 502);
    machine_events_tick(m);
    ck_assert_uint_eq(n_told(&last), 502);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("vmm/machine_events");
    TCase *tc = tcase_create("events");
    SRunner *sr = srunner_create(s);
    int n_failed;

    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_add_test(tc, a_conversation_goes_on_behind_the_last_event);
    tcase_add_test(tc, each_boot_counts_for_itself);
    tcase_add_test(tc, what_is_no_boot);
    tcase_add_test(tc, a_damaged_file_counts_as_none);
    tcase_add_test(tc, too_many_are_named);
    suite_add_tcase(s, tc);
    srunner_run_all(sr, CK_ENV);
    n_failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return n_failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
