/* SPDX-License-Identifier: MIT */
/* Settings of previews: bodies of the API, records, keys and tokens. */
#include "vmm/preview.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "vmm/file.h"
#include "vmm/preview_key.h"
#include "vmm/text.h"

#define LABEL "abcdefgh01234567"

static struct vmm_preview p;

static void setup(void)
{
    vmm_preview_init(&p);
}

static void teardown(void)
{
    vmm_preview_fini(&p);
}

typedef int (*set_fn)(struct vmm_preview *preview, const json_t *body, struct err *err);

/* Returns "" or the reason. */
static const char *try_set(set_fn set, const char *text)
{
    static struct err err;
    json_error_t fault;
    json_t *body = json_loads(text, 0, &fault);
    int r;

    ck_assert_msg(body != NULL, "%s: %s", text, fault.text);
    tr_err_clear(&err);
    r = set(&p, body, &err);
    json_decref(body);
    ck_assert_int_eq(r, err.code);
    ck_assert(r == 0 || r == -EINVAL);
    return err.msg;
}

START_TEST(what_is_given_replaces_what_was)
{
    ck_assert_str_eq(try_set(vmm_preview_set_ports, "{\"ports\":[{\"port\":9000},{\"port\":22}]}"),
                     "");
    ck_assert_str_eq(try_set(vmm_preview_set_routes,
                             "{\"port\":3000,\"protocol\":\"h2c\",\"rules\":[{\"prefix\":\"/a\","
                             "\"port\":1},{\"prefix\":\"/a/b\",\"port\":2,\"strip\":true}]}"),
                     "");
    ck_assert_uint_eq(p.port, 3000);
    ck_assert_int_eq(p.protocol, TR_PROTOCOL_H2C);
    ck_assert_uint_eq(p.places->n_rules, 2);
    ck_assert_str_eq(p.places->rules[0].prefix, "/a/b");
    ck_assert_uint_eq(p.places->n_ports, 2); /* the other setting stays */
    ck_assert(vmm_preview_has_port(&p, 9000) && vmm_preview_has_port(&p, 22));
    ck_assert(!vmm_preview_has_port(&p, 3000));
    for (unsigned port = 0; port <= UINT16_MAX; port++) {
        bool serves =
            port == 1 || port == 2 || port == 22 || port == 3000 || port == 8080 || port == 9000;

        ck_assert_int_eq(vmm_preview_serves(&p, (uint16_t)port), serves);
    }

    ck_assert_str_eq(try_set(vmm_preview_set_routes, "{\"rules\":null}"), "");
    ck_assert_uint_eq(p.port, 8080);
    ck_assert_int_eq(p.protocol, TR_PROTOCOL_HTTP1);
    ck_assert_uint_eq(p.places->n_rules, 0);
    ck_assert_uint_eq(p.places->n_ports, 2);
    ck_assert_str_eq(try_set(vmm_preview_set_ports, "{}"), "");
    ck_assert_ptr_null(p.places);

    ck_assert_str_eq(
        try_set(vmm_preview_set_access, "{\"mode\":\"private\",\"wake\":true,\"embed\":true}"), "");
    ck_assert(p.is_private && p.wake && p.embed);
    ck_assert_str_eq(try_set(vmm_preview_set_access, "{\"mode\":\"private\"}"), "");
    ck_assert(p.is_private && !p.wake && !p.embed);
    ck_assert_int_eq(p.generation, 1);
}
END_TEST

START_TEST(faults_name_the_member_and_change_nothing)
{
    static const struct {
        set_fn set;
        const char *body, *part;
    } bad[] = {
        {vmm_preview_set_routes, "{\"port\":0}", "port: "},
        {vmm_preview_set_routes, "{\"port\":\"80\"}", "port: "},
        {vmm_preview_set_routes, "{\"protocol\":\"h2\"}", "protocol: "},
        {vmm_preview_set_routes, "{\"protocol\":\"\"}", "protocol: "},
        {vmm_preview_set_routes, "{\"rules\":[{\"prefix\":\"/a\"}]}", "rules[0].port: missing"},
        {vmm_preview_set_routes, "{\"rules\":[{\"port\":1}]}", "rules[0].prefix: "},
        {vmm_preview_set_routes,
         "{\"rules\":[{\"prefix\":\"/a\",\"port\":1},{\"prefix\":\"/b/\",\"port\":1}]}",
         "rules[1].prefix: ends with"},
        {vmm_preview_set_routes, "{\"rules\":[{\"prefix\":\"/a\",\"port\":1,\"strip\":1}]}",
         "rules[0].strip: "},
        {vmm_preview_set_ports, "{\"ports\":[{\"port\":1},{\"port\":1}]}",
         "ports[1].port: the same as ports[0]"},
        {vmm_preview_set_ports, "{\"ports\":[3000]}", "ports[0]: not an object"},
        {vmm_preview_set_ports, "{\"ports\":{}}", "ports: not an array"},
        {vmm_preview_set_access, "{}", "mode: "},
        {vmm_preview_set_access, "{\"mode\":\"open\"}", "mode: "},
        {vmm_preview_set_access, "{\"mode\":\"private\",\"wake\":1}", "wake: "},
    };
    struct vmm_preview before;

    (void)try_set(vmm_preview_set_ports, "{\"ports\":[{\"port\":7}]}");
    vmm_preview_copy(&before, &p);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        const char *why = try_set(bad[i].set, bad[i].body);

        ck_assert_msg(strncmp(why, bad[i].part, strlen(bad[i].part)) == 0, "%s: \"%s\"",
                      bad[i].body, why);
        ck_assert_msg(vmm_preview_equal(&p, &before), "%s", bad[i].body);
    }
    vmm_preview_fini(&before);
}
END_TEST

START_TEST(equal_means_the_same_settings)
{
    static const struct {
        set_fn set;
        const char *body;
    } steps[] = {
        {vmm_preview_set_routes, "{\"port\":81}"},
        {vmm_preview_set_routes, "{\"port\":81,\"protocol\":\"h2c\"}"},
        {vmm_preview_set_routes, "{\"rules\":[{\"prefix\":\"/a\",\"port\":1}]}"},
        {vmm_preview_set_routes, "{\"rules\":[{\"prefix\":\"/b\",\"port\":1}]}"},
        {vmm_preview_set_routes, "{\"rules\":[{\"prefix\":\"/b\",\"port\":2}]}"},
        {vmm_preview_set_routes, "{\"rules\":[{\"prefix\":\"/b\",\"port\":2,\"strip\":true}]}"},
        {vmm_preview_set_routes, "{\"rules\":[{\"prefix\":\"/b\",\"port\":2,\"strip\":true,"
                                 "\"protocol\":\"h2c\"}]}"},
        {vmm_preview_set_routes, "{}"},
        {vmm_preview_set_ports, "{\"ports\":[{\"port\":1}]}"},
        {vmm_preview_set_ports, "{\"ports\":[{\"port\":2}]}"},
        {vmm_preview_set_ports, "{\"ports\":[{\"port\":2,\"protocol\":\"h2c\"}]}"},
        {vmm_preview_set_access, "{\"mode\":\"private\"}"},
        {vmm_preview_set_access, "{\"mode\":\"private\",\"wake\":true}"},
        {vmm_preview_set_access, "{\"mode\":\"private\"}"},
        {vmm_preview_set_access, "{\"mode\":\"private\",\"embed\":true}"},
    };
    struct vmm_preview before;

    for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
        vmm_preview_copy(&before, &p);
        ck_assert_str_eq(try_set(steps[i].set, steps[i].body), "");
        ck_assert_msg(!vmm_preview_equal(&p, &before), "%s", steps[i].body);
        vmm_preview_fini(&before);
        vmm_preview_copy(&before, &p);
        ck_assert_str_eq(try_set(steps[i].set, steps[i].body), "");
        ck_assert_msg(vmm_preview_equal(&p, &before), "%s again", steps[i].body);
        vmm_preview_fini(&before);
    }
}
END_TEST

START_TEST(a_record_gives_back_what_was_kept)
{
    struct vmm_preview again;
    struct err err = {0};
    json_t *record;

    (void)try_set(vmm_preview_set_ports, "{\"ports\":[{\"port\":9000,\"protocol\":\"h2c\"}]}");
    (void)try_set(vmm_preview_set_routes,
                  "{\"port\":3000,\"protocol\":\"h2c\",\"rules\":[{\"prefix\":\"/a\",\"port\":1,"
                  "\"strip\":true}]}");
    (void)try_set(vmm_preview_set_access, "{\"mode\":\"private\",\"wake\":true,\"embed\":true}");
    p.generation = 7;
    record = vmm_preview_record(&p);
    ck_assert_ptr_nonnull(record);
    ck_assert_msg(vmm_preview_parse(&again, record, &err) == 0, "%s", err.msg);
    ck_assert(vmm_preview_equal(&p, &again));
    vmm_preview_fini(&again);
    json_decref(record);

    ck_assert_int_eq(vmm_preview_parse(&again, NULL, &err), 0); /* an old record */
    vmm_preview_fini(&p);
    vmm_preview_init(&p);
    ck_assert(vmm_preview_equal(&p, &again));
}
END_TEST

START_TEST(a_damaged_record_does_not_count_as_public)
{
    static const char *const bad[] = {
        "[]",
        "{}",
        "{\"access\":7}",
        "{\"access\":{}}",
        "{\"access\":{\"mode\":\"private\"}}",
        "{\"access\":{\"mode\":\"public\",\"generation\":0}}",
        "{\"access\":{\"mode\":\"public\",\"generation\":1},\"port\":0}",
        "{\"access\":{\"mode\":\"public\",\"generation\":1},\"rules\":[{}]}",
    };
    struct err err;

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        json_t *record = json_loads(bad[i], 0, NULL);

        ck_assert_ptr_nonnull(record);
        tr_err_clear(&err);
        ck_assert_msg(vmm_preview_parse(&p, record, &err) == -EINVAL, "%s", bad[i]);
        ck_assert_ptr_nonnull(strstr(err.msg, "preview"));
        json_decref(record);
    }
}
END_TEST

START_TEST(the_route_carries_the_key_only_while_private)
{
    uint8_t master[TR_ROUTE_KEY_SIZE] = {1}, key[TR_ROUTE_KEY_SIZE];
    struct tr_route route = {.label = LABEL};

    ck_assert_int_eq(vmm_preview_route(&p, master, &route), 0);
    ck_assert_ptr_null(route.extra);
    ck_assert_uint_eq(route.port, 8080);
    (void)try_set(vmm_preview_set_ports, "{\"ports\":[{\"port\":9000}]}");
    (void)try_set(vmm_preview_set_access, "{\"mode\":\"public\",\"wake\":true,\"embed\":true}");
    ck_assert_int_eq(vmm_preview_route(&p, master, &route), 0);
    ck_assert(!route.extra->is_private && route.wake);
    ck_assert_uint_eq(route.extra->n_ports, 1);
    tr_route_fini(&route);
    (void)try_set(vmm_preview_set_access, "{\"mode\":\"private\",\"embed\":true}");
    p.generation = 3;
    ck_assert_int_eq(vmm_preview_route(&p, master, &route), 0);
    ck_assert_int_eq(vmm_preview_key(master, LABEL, 3, key), 0);
    ck_assert(route.extra->is_private && route.extra->embed && !route.wake);
    ck_assert_uint_eq(route.extra->n_ports, 1);
    ck_assert_mem_eq(route.extra->key, key, sizeof(key));
    tr_route_fini(&route);
}
END_TEST

/* Expected values: Python's hmac, hashlib and base64, from the formula in preview_key.h. */
START_TEST(keys_and_tokens_are_those_of_the_formula)
{
    uint8_t master[TR_ROUTE_KEY_SIZE], key[TR_ROUTE_KEY_SIZE];
    char hex[2 * TR_ROUTE_KEY_SIZE + 1], token[VMM_PREVIEW_TOKEN_SIZE];

    for (size_t i = 0; i < sizeof(master); i++)
        master[i] = (uint8_t)i;
    ck_assert_int_eq(vmm_preview_key(master, LABEL, 1, key), 0);
    vmm_hex(key, sizeof(key), hex);
    ck_assert_str_eq(hex, "95bbf91a74ba6cb37e52b97111c67d717938921dd2b5d14369aec6cc4ef0f321");
    ck_assert_int_eq(vmm_preview_token(key, LABEL, 8080, 1893456000, token), 0);
    ck_assert_str_eq(token, "8080.1893456000.jMFdffxbAVd1dzhCxFx2zdZI1zFAk2Ktq4V3QCw2fI4");
    ck_assert_int_eq(vmm_preview_key(master, LABEL, INT64_MAX, key), 0);
    vmm_hex(key, sizeof(key), hex);
    ck_assert_str_eq(hex, "35edf3b0dbfc86e8a0c19c8a7676219c603bc00f1905f8a6fcc3571a18281155");
    ck_assert_int_eq(vmm_preview_token(key, LABEL, 65535, INT64_MAX, token), 0);
    ck_assert_str_eq(token,
                     "65535.9223372036854775807.lUk2gcNZIg1UUCwaArJOGYKOf1lmwvoKuMD1LfZG2Hc");
    /* With both characters that base64 lacks. */
    ck_assert_int_eq(vmm_preview_token(key, LABEL, 1, 6, token), 0);
    ck_assert_str_eq(token, "1.6.yXVJK-tu1hq_0_UUb48QOusezyyJ3H8Y7ja6b57epO0");
}
END_TEST

START_TEST(the_master_key_is_made_once_and_guarded)
{
    uint8_t first[TR_ROUTE_KEY_SIZE], again[TR_ROUTE_KEY_SIZE];
    char dir[] = "/tmp/transom-preview-XXXXXX", path[64];
    struct err err = {0};
    struct stat st;

    ck_assert_ptr_nonnull(mkdtemp(dir));
    snprintf(path, sizeof(path), "%s/" VMM_PREVIEW_KEY_FILE, dir);
    ck_assert_msg(vmm_preview_master_open(dir, first, &err) == 0, "%s", err.msg);
    ck_assert_int_eq(stat(path, &st), 0);
    ck_assert_uint_eq(st.st_mode & 07777, 0600);
    ck_assert_int_eq(st.st_size, TR_ROUTE_KEY_SIZE);
    ck_assert_msg(vmm_preview_master_open(dir, again, &err) == 0, "%s", err.msg);
    ck_assert_mem_eq(first, again, sizeof(first));

    ck_assert_int_eq(chmod(path, 0640), 0);
    ck_assert_int_eq(vmm_preview_master_open(dir, again, &err), -EPERM);
    ck_assert_ptr_nonnull(strstr(err.msg, path));
    ck_assert_ptr_nonnull(strstr(err.msg, "0640"));
    ck_assert_int_eq(chmod(path, 0400), 0);
    ck_assert_int_eq(vmm_preview_master_open(dir, again, &err), 0);
    if (geteuid() == 0) {
        ck_assert_int_eq(chown(path, 65534, 65534), 0);
        ck_assert_int_eq(vmm_preview_master_open(dir, again, &err), -EPERM);
        ck_assert_ptr_nonnull(strstr(err.msg, "65534"));
        ck_assert_int_eq(chown(path, 0, 0), 0);
    }
    ck_assert_int_eq(chmod(path, 0600), 0);
    ck_assert_int_eq(truncate(path, TR_ROUTE_KEY_SIZE - 1), 0);
    ck_assert_int_eq(vmm_preview_master_open(dir, again, &err), -EBADMSG);
    ck_assert_int_eq(truncate(path, TR_ROUTE_KEY_SIZE + 1), 0);
    ck_assert_int_eq(vmm_preview_master_open(dir, again, &err), -EBADMSG);
    ck_assert_int_eq(unlink(path), 0);
    ck_assert_int_eq(symlink("/dev/zero", path), 0);
    ck_assert_int_ne(vmm_preview_master_open(dir, again, &err), 0);
    ck_assert_int_eq(unlink(path), 0);
    ck_assert_msg(vmm_preview_master_open(dir, again, &err) == 0, "%s", err.msg);
    ck_assert_mem_ne(first, again, sizeof(first)); /* a new one */
    ck_assert_int_eq(vmm_file_remove_tree(dir, &err), 0);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("vmm/preview");
    TCase *tc = tcase_create("preview");
    SRunner *sr = srunner_create(s);
    int n_failed;

    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_add_test(tc, what_is_given_replaces_what_was);
    tcase_add_test(tc, faults_name_the_member_and_change_nothing);
    tcase_add_test(tc, equal_means_the_same_settings);
    tcase_add_test(tc, a_record_gives_back_what_was_kept);
    tcase_add_test(tc, a_damaged_record_does_not_count_as_public);
    tcase_add_test(tc, the_route_carries_the_key_only_while_private);
    tcase_add_test(tc, keys_and_tokens_are_those_of_the_formula);
    tcase_add_test(tc, the_master_key_is_made_once_and_guarded);
    suite_add_tcase(s, tc);
    srunner_run_all(sr, CK_ENV);
    n_failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return n_failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
