/* SPDX-License-Identifier: MIT */
/* Idempotency keys: which requests run, and that what is kept is bounded. */
#include "vmm/replay.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "vmm/request.h"
#include "vmm/router.h"
#include "vmm/vmm.h"

static struct vmm vmm;
static struct vmm_options options;
static uv_loop_t loop;
static struct tr_h2_field field;
static struct tr_h2_head head = {.method = "POST", .fields = &field, .n_fields = 1};
static const struct vmm_endpoint endpoint = {.method = "POST", .path = "/v1/things"};
static struct vmm_request req;

static void setup(void)
{
    memset(&vmm, 0, sizeof(vmm));
    ck_assert_int_eq(uv_loop_init(&loop), 0);
    vmm.loop = &loop;
    vmm.options = &options;
}

static void teardown(void)
{
    vmm_replays_fini(&vmm.replays);
    ck_assert_ptr_null(vmm.replays.first);
    ck_assert_int_eq(uv_loop_close(&loop), 0);
}

/* A request with this key and body, whose client is gone already: answers go nowhere. */
static bool begin(const char *owner, const char *path, const char *key, const char *body)
{
    field = TR_H2_FIELD("idempotency-key", key);
    memset(&req, 0, sizeof(req));
    req.vmm = &vmm;
    req.head = &head;
    req.endpoint = &endpoint;
    req.path = (char *)path;
    req.raw = (char *)body;
    req.raw_len = strlen(body);
    snprintf(req.who.owner, sizeof(req.who.owner), "%s", owner);
    return vmm_replay_begin(&req);
}

START_TEST(the_second_does_not_run)
{
    ck_assert(begin("ann", "/v1/things", "k", "{}"));
    vmm_replay_end(&req, 201, "{\"id\":1}", 8);
    ck_assert_ptr_null(req.replay);
    ck_assert(!begin("ann", "/v1/things", "k", "{}"));
    ck_assert(req.replayed);
    ck_assert(!begin("ann", "/v1/things", "k", "{\"name\":1}"));
    ck_assert(!req.replayed);
    /* Another owner, another place, another key: other things. */
    ck_assert(begin("bob", "/v1/things", "k", "{}"));
    ck_assert(begin("ann", "/v1/other", "k", "{}"));
    ck_assert(begin("ann", "/v1/things", "l", "{}"));
}
END_TEST

START_TEST(one_under_way_stops_the_next)
{
    struct vmm_request first;

    ck_assert(begin("ann", "/v1/things", "k", "{}"));
    first = req;
    ck_assert(!begin("ann", "/v1/things", "k", "{}"));
    ck_assert(!req.replayed);
    ck_assert_uint_eq(req.retry_after_s, 1);
    vmm_replay_end(&first, 201, "{}", 2);
    ck_assert(!begin("ann", "/v1/things", "k", "{}"));
    ck_assert(req.replayed);
}
END_TEST

START_TEST(what_failed_is_tried_anew)
{
    char *big = calloc(1, VMM_REPLAY_ANSWER + 1);

    for (int status = 400; status < 600; status += 103) {
        ck_assert(begin("ann", "/v1/things", "k", "{}"));
        vmm_replay_end(&req, status, "{}", 2);
    }
    ck_assert(begin("ann", "/v1/things", "k", "{}"));
    vmm_replay_drop(&req);
    ck_assert(begin("ann", "/v1/things", "k", "{}"));
    vmm_replay_end(&req, 201, big, VMM_REPLAY_ANSWER + 1); /* too long to be kept */
    ck_assert(begin("ann", "/v1/things", "k", "{}"));
    vmm_replay_drop(&req);
    vmm_replay_drop(&req);
    ck_assert_uint_eq(vmm.replays.by_id.n_entries, 0);
    free(big);
}
END_TEST

START_TEST(keys_that_cannot_be)
{
    char key[VMM_REPLAY_NAME + 2];

    memset(key, 'a', sizeof(key));
    key[VMM_REPLAY_NAME + 1] = '\0';
    ck_assert(!begin("ann", "/v1/things", key, "{}"));
    key[VMM_REPLAY_NAME] = '\0';
    ck_assert(begin("ann", "/v1/things", key, "{}"));
    ck_assert(!begin("ann", "/v1/things", "", "{}"));
    ck_assert(!begin("ann", "/v1/things", "a\nb", "{}"));
    ck_assert(!begin("ann", "/v1/things", "\xc3\xa4", "{}"));
    ck_assert_uint_eq(vmm.replays.by_id.n_entries, 1);
}
END_TEST

START_TEST(it_is_bounded)
{
    char key[24];

    for (int i = 0; i < 2 * VMM_REPLAYS_MAX; i++) {
        snprintf(key, sizeof(key), "key %d", i);
        ck_assert(begin("ann", "/v1/things", key, "{}"));
        vmm_replay_end(&req, 201, "{}", 2);
        ck_assert_uint_le(vmm.replays.by_id.n_entries, VMM_REPLAYS_MAX);
    }
    ck_assert(!begin("ann", "/v1/things", key, "{}"));    /* the last one is there */
    ck_assert(begin("ann", "/v1/things", "key 0", "{}")); /* the first one made room */
}
END_TEST

int main(void)
{
    Suite *s = suite_create("vmm/replay");
    TCase *tc = tcase_create("keys");
    SRunner *sr = srunner_create(s);
    int n_failed;

    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_add_test(tc, the_second_does_not_run);
    tcase_add_test(tc, one_under_way_stops_the_next);
    tcase_add_test(tc, what_failed_is_tried_anew);
    tcase_add_test(tc, keys_that_cannot_be);
    tcase_add_test(tc, it_is_bounded);
    suite_add_tcase(s, tc);
    srunner_run_all(sr, CK_ENV);
    n_failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return n_failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
