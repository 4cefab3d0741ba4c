/* SPDX-License-Identifier: MIT */
/* Sessions on disk: what was promised is there after any restart, broken records harm nobody. */
#include "vmm/session.h"

#include <check.h>
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "vmm/file.h"

static char dir[64];
static struct vmm_sessions *s;

static void open_again(void)
{
    struct err err = {0};

    if (s != NULL) {
        vmm_sessions_close(s);
        free(s);
    }
    s = calloc(1, sizeof(*s));
    s->vcpus = 2;
    s->memory_mb = 512;
    s->disk_mb = 1024;
    s->start_timeout_ms = 1000;
    ck_assert_msg(vmm_sessions_open(s, dir, &err) == 0, "%s", err.msg);
}

static void setup(void)
{
    snprintf(dir, sizeof(dir), "/tmp/transom-sessions-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(dir));
    s = NULL;
    open_again();
}

static void teardown(void)
{
    struct err err = {0};

    vmm_sessions_close(s);
    free(s);
    ck_assert_int_eq(vmm_file_remove_tree(dir, &err), 0);
}

static struct vmm_session *make(const char *owner, const char *name)
{
    struct vmm_session *session;
    struct err err = {0};

    ck_assert_int_eq(
        vmm_session_new(s, owner, &(struct vmm_session_settings){.name = name}, &session, &err), 0);
    return session;
}

static size_t count(const char *path, const char *part)
{
    DIR *d = opendir(path);
    struct dirent *entry;
    size_t n = 0;

    while (d != NULL && (entry = readdir(d)) != NULL)
        n += entry->d_name[0] != '.' && strstr(entry->d_name, part) != NULL;
    if (d != NULL)
        closedir(d);
    return n;
}

START_TEST(new_session_is_there_after_a_restart)
{
    struct vmm_session *session = make("alice", "n\xc3\xa4me \"quoted\"");
    struct vmm_sandbox *sb = vmm_session_sandbox(session, "primary");
    char id[VMM_ID_LEN + 1], label[VMM_ID_LEN + 1];
    int64_t created = session->created_ms;
    struct err err = {0};

    ck_assert(tr_label_valid(session->id, strlen(session->id)));
    ck_assert(tr_label_valid(sb->label, strlen(sb->label)));
    memcpy(id, session->id, sizeof(id));
    memcpy(label, sb->label, sizeof(label));
    sb->instance = 41;
    ck_assert_int_eq(vmm_sandbox_save(s, sb, &err), 0);
    open_again();
    session = vmm_session_find(s, id);
    ck_assert_ptr_nonnull(session);
    ck_assert_str_eq(session->owner, "alice");
    ck_assert_str_eq(session->name, "n\xc3\xa4me \"quoted\"");
    ck_assert_int_eq(session->created_ms, created);
    sb = vmm_session_sandbox(session, "primary");
    ck_assert_ptr_nonnull(sb);
    ck_assert_str_eq(sb->label, label);
    ck_assert_uint_eq(sb->instance, 41);
    ck_assert_int_eq(sb->memory_mb, 512);
    ck_assert_int_eq(sb->state, TR_SANDBOX_ASLEEP);
    ck_assert_ptr_eq(vmm_sessions_by_label(s, label), sb);
    ck_assert_ptr_null(vmm_session_sandbox(session, "other"));
}
END_TEST

START_TEST(order_is_that_of_creation)
{
    char ids[20][VMM_ID_LEN + 1];
    int i = 0;

    for (i = 0; i < 20; i++) {
        struct vmm_session *session = make("alice", "");

        memcpy(ids[i], session->id, sizeof(ids[i]));
        session->created_ms = 1000 + i; /* several in one millisecond are ordered by id */
        ck_assert_int_eq(vmm_session_mark_deleting(s, session, &(struct err){0}), 0); /* saves */
    }
    open_again();
    i = 0;
    for (struct vmm_session *it = s->first; it != NULL; it = it->next)
        ck_assert_str_eq(it->id, ids[i++]);
    ck_assert_int_eq(i, 20);
    for (struct vmm_session *it = s->last; it != NULL; it = it->prev)
        ck_assert_str_eq(it->id, ids[--i]);
}
END_TEST

START_TEST(deletion_leaves_nothing_but_a_memory)
{
    struct vmm_session *keep = make("alice", "keep"), *session = make("alice", "gone");
    char id[VMM_ID_LEN + 1], label[VMM_ID_LEN + 1];
    struct err err = {0};

    memcpy(id, session->id, sizeof(id));
    memcpy(label, session->sandboxes->label, sizeof(label));
    ck_assert_int_eq(vmm_session_mark_deleting(s, session, &err), 0);
    ck_assert(session->sandboxes->closed);
    ck_assert_int_eq(vmm_session_remove(s, session, &err), 0);
    ck_assert_ptr_null(vmm_session_find(s, id));
    ck_assert_ptr_null(vmm_sessions_by_label(s, label));
    ck_assert_str_eq(session->id, id); /* still to be looked at until the reaping */
    vmm_sessions_reap(s);
    ck_assert_str_eq(vmm_sessions_gone(s, id)->owner, "alice");
    ck_assert_ptr_null(vmm_sessions_gone(s, keep->id));
    ck_assert_uint_eq(count(dir, ""), 1);
    ck_assert_ptr_eq(s->first, keep);
    ck_assert_ptr_eq(s->last, keep);
}
END_TEST

START_TEST(deletion_cut_off_is_known_after_a_restart)
{
    struct vmm_session *session = make("alice", "");
    char id[VMM_ID_LEN + 1];
    struct err err = {0};

    memcpy(id, session->id, sizeof(id));
    ck_assert_int_eq(vmm_session_mark_deleting(s, session, &err), 0);
    open_again();
    ck_assert(vmm_session_find(s, id)->deleting);
}
END_TEST

START_TEST(creation_cut_off_leaves_nothing)
{
    char path[128];
    struct err err = {0};

    snprintf(path, sizeof(path), "%s/aaaaaaaaaaaaaaaa/sandboxes", dir);
    ck_assert_int_eq(vmm_file_mkdirs(path, 0700, &err), 0);
    ck_assert_int_eq(vmm_file_write(path, "primary.json", "{}", 2, &err), 0);
    open_again();
    ck_assert_uint_eq(s->by_id.n_entries, 0);
    ck_assert_uint_eq(count(dir, ""), 0);
}
END_TEST

static void damage(const char *id, const char *text, size_t len)
{
    char path[128];
    struct err err = {0};

    snprintf(path, sizeof(path), "%s/%s", dir, id);
    ck_assert_int_eq(vmm_file_mkdirs(path, 0700, &err), 0);
    ck_assert_int_eq(vmm_file_write(path, "session.json", text, len, &err), 0);
}

START_TEST(broken_records_are_kept_aside)
{
    static const char *const texts[] = {
        "",
        "{\"id\":",
        "null",
        "[1]",
        "{\"id\":\"../../../etc/x\",\"owner\":\"a\",\"name\":\"\",\"created_ms\":1}",
        "{\"id\":\"bbbbbbbbbbbbbbbb\",\"owner\":\"a\",\"name\":\"\",\"created_ms\":1}",
        "{\"id\":\"aaaaaaaaaaaaaaa6\",\"owner\":5,\"name\":\"\",\"created_ms\":1}",
        "{\"id\":\"aaaaaaaaaaaaaaa7\",\"owner\":\"a\",\"name\":\"\",\"created_ms\":-1}",
        ("{\"id\":\"aaaaaaaaaaaaaaa8\",\"id\":\"aaaaaaaaaaaaaaa8\",\"owner\":\"a\",\"name\":\"\","
         "\"created_ms\":1}")};
    struct vmm_session *good = make("alice", "");
    char id[VMM_ID_LEN + 1], *huge = calloc(1, 70000);

    memcpy(id, good->id, sizeof(id));
    memset(huge, ' ', 70000);
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        char name[17];

        snprintf(name, sizeof(name), "aaaaaaaaaaaaaaa%zu", i);
        damage(name, texts[i], strlen(texts[i]));
        open_again();
        ck_assert_msg(s->by_id.n_entries == 1, "%s", texts[i]);
    }
    damage("cccccccccccccccc", huge, 70000);
    open_again();
    free(huge);
    ck_assert_ptr_nonnull(vmm_session_find(s, id));
    ck_assert_uint_eq(s->by_id.n_entries, 1);
    ck_assert_uint_eq(count(dir, ".broken-"), sizeof(texts) / sizeof(texts[0]) + 1);
    open_again();
    ck_assert_uint_eq(count(dir, ".broken-"), sizeof(texts) / sizeof(texts[0]) + 1);
}
END_TEST

START_TEST(broken_sandbox_harms_only_itself)
{
    struct vmm_session *session = make("alice", "");
    char id[VMM_ID_LEN + 1], path[128];
    struct err err = {0};

    memcpy(id, session->id, sizeof(id));
    snprintf(path, sizeof(path), "%s/%s/sandboxes", dir, id);
    ck_assert_int_eq(vmm_file_write(path, "second.json", "{\"name\":\"second\"}", 17, &err), 0);
    open_again();
    session = vmm_session_find(s, id);
    ck_assert_ptr_nonnull(vmm_session_sandbox(session, "primary"));
    ck_assert_ptr_null(vmm_session_sandbox(session, "second"));
    ck_assert_uint_eq(count(path, ".broken-"), 1);
}
END_TEST

START_TEST(label_of_two_sessions_is_given_once)
{
    struct vmm_session *a = make("alice", ""), *b = make("bob", "");
    char id_a[VMM_ID_LEN + 1], id_b[VMM_ID_LEN + 1];
    struct err err = {0};

    memcpy(id_a, a->id, sizeof(id_a));
    memcpy(id_b, b->id, sizeof(id_b));
    memcpy(b->sandboxes->label, a->sandboxes->label, sizeof(b->sandboxes->label));
    ck_assert_int_eq(vmm_sandbox_save(s, b->sandboxes, &err), 0);
    open_again();
    ck_assert_uint_eq(s->by_id.n_entries, 1);
    ck_assert((vmm_session_find(s, id_a) != NULL) != (vmm_session_find(s, id_b) != NULL));
}
END_TEST

START_TEST(unwritable_folder_gives_the_reason_and_no_session)
{
    struct vmm_session *session = NULL;
    struct err err = {0};
    char moved[80];

    snprintf(moved, sizeof(moved), "%s.moved", dir);
    ck_assert_int_eq(rename(dir, moved), 0);
    ck_assert_int_eq(vmm_file_write("/tmp", dir + 5, "x", 1, &err), 0); /* a file in its place */
    ck_assert_int_lt(vmm_session_new(s, "alice", &(struct vmm_session_settings){0}, &session, &err),
                     0);
    ck_assert_ptr_nonnull(strstr(err.msg, dir));
    ck_assert_ptr_null(session);
    ck_assert_uint_eq(s->by_id.n_entries + s->by_label.n_entries, 0);
    ck_assert_int_eq(unlink(dir), 0);
    ck_assert_int_eq(rename(moved, dir), 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("vmm/session");
    TCase *tc = tcase_create("records");
    SRunner *sr = srunner_create(suite);
    int n_failed;

    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_add_test(tc, new_session_is_there_after_a_restart);
    tcase_add_test(tc, order_is_that_of_creation);
    tcase_add_test(tc, deletion_leaves_nothing_but_a_memory);
    tcase_add_test(tc, deletion_cut_off_is_known_after_a_restart);
    tcase_add_test(tc, creation_cut_off_leaves_nothing);
    tcase_add_test(tc, broken_records_are_kept_aside);
    tcase_add_test(tc, broken_sandbox_harms_only_itself);
    tcase_add_test(tc, label_of_two_sessions_is_given_once);
    tcase_add_test(tc, unwritable_folder_gives_the_reason_and_no_session);
    suite_add_tcase(suite, tc);
    srunner_run_all(sr, CK_ENV);
    n_failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return n_failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
