/* SPDX-License-Identifier: MIT */
/* The table of endpoints, and its agreement with openapi.json both ways. */
#include "vmm/router.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include "vmm/openapi.h"

static struct vmm_request req;

static int route(const char *method, const char *path)
{
    memset(&req, 0, sizeof(req));
    req.path = strdup(path);
    return vmm_route(&req, method);
}

static void clear(void)
{
    for (size_t i = 0; i < req.n_params; i++)
        free(req.params[i]);
    free(req.path);
}

static int status_of(const char *method, const char *path)
{
    int status = route(method, path);

    clear();
    return status;
}

static json_t *openapi(void)
{
    json_error_t fault;
    json_t *doc = json_loadb(vmm_openapi_start, (size_t)(vmm_openapi_end - vmm_openapi_start),
                             JSON_REJECT_DUPLICATES, &fault);

    ck_assert_msg(doc != NULL, "openapi.json:%d: %s", fault.line, fault.text);
    return doc;
}

static const json_t *operation(const json_t *doc, const char *method, const char *path)
{
    char lower[10] = "";

    for (size_t i = 0; method[i] && i < sizeof(lower) - 1; i++)
        lower[i] = (char)(method[i] | 0x20);
    return json_object_get(json_object_get(json_object_get(doc, "paths"), path), lower);
}

static const char *const scope_names[] = {NULL, "read", "session", "admin"};

START_TEST(every_endpoint_is_described)
{
    json_t *doc = openapi();

    for (size_t i = 0; i < vmm_n_endpoints; i++) {
        const struct vmm_endpoint *e = &vmm_endpoints[i];
        const json_t *op = operation(doc, e->method, e->path);
        const char *scope = json_string_value(json_object_get(op, "x-scope"));
        bool has_body = json_object_get(op, "requestBody") != NULL;
        const json_t *query = json_object_get(op, "parameters");
        size_t n, n_needed = 0;
        json_t *p;

        if (e->gateway_only) {
            ck_assert_msg(op == NULL, "%s %s is nobody's but the gateway's", e->method, e->path);
            continue;
        }
        ck_assert_msg(op != NULL, "%s %s is not in openapi.json", e->method, e->path);
        ck_assert_msg(scope_names[e->scope] == NULL
                          ? scope == NULL && json_object_get(op, "security") != NULL
                          : scope != NULL && strcmp(scope, scope_names[e->scope]) == 0,
                      "%s %s: scope", e->method, e->path);
        ck_assert_msg(has_body == (e->body != VMM_BODY_NONE), "%s %s: body", e->method, e->path);
        json_array_foreach(query, n, p) n_needed += json_is_true(json_object_get(p, "required"));
        ck_assert_msg(n_needed == (e->needs_query != NULL), "%s %s: query", e->method, e->path);
    }
    json_decref(doc);
}
END_TEST

START_TEST(every_description_has_its_endpoint)
{
    json_t *doc = openapi(), *operations, *op;
    const char *path, *method;

    json_object_foreach(json_object_get(doc, "paths"), path, operations)
    {
        json_object_foreach(operations, method, op)
        {
            bool found = false;

            for (size_t i = 0; i < vmm_n_endpoints; i++)
                found = found || (strcmp(vmm_endpoints[i].path, path) == 0 &&
                                  strcasecmp(vmm_endpoints[i].method, method) == 0);
            ck_assert_msg(found, "%s %s is described but not served", method, path);
            ck_assert_msg(json_object_get(op, "operationId") != NULL, "%s %s", method, path);
        }
    }
    json_decref(doc);
}
END_TEST

START_TEST(required_members_are_described)
{
    json_t *doc = openapi();

    for (size_t i = 0; i < vmm_n_endpoints; i++) {
        const struct vmm_endpoint *e = &vmm_endpoints[i];
        const json_t *schema = operation(doc, e->method, e->path);
        size_t n_required = 0;

        if (e->members == NULL || e->gateway_only)
            continue;
        schema = json_object_get(json_object_get(schema, "requestBody"), "content");
        schema = json_object_get(json_object_get(schema, "application/json"), "schema");
        for (const struct vmm_member *m = e->members; m->name != NULL; m++) {
            n_required += m->required;
            ck_assert_msg(json_object_get(json_object_get(schema, "properties"), m->name) != NULL,
                          "%s %s: member %s", e->method, e->path, m->name);
        }
        ck_assert_uint_eq(json_array_size(json_object_get(schema, "required")), n_required);
    }
    json_decref(doc);
}
END_TEST

START_TEST(every_endpoint_is_found)
{
    for (size_t i = 0; i < vmm_n_endpoints; i++) {
        const struct vmm_endpoint *e = &vmm_endpoints[i];

        memset(&req, 0, sizeof(req));
        req.from_gateway = e->gateway_only;
        req.path = strdup(e->path); /* each {x} is a value as good as any */
        ck_assert_msg(vmm_route(&req, e->method) == 200 && req.endpoint == e, "%s %s", e->method,
                      e->path);
        clear();
    }
}
END_TEST

START_TEST(parameters_are_decoded)
{
    ck_assert_int_eq(
        route("POST", "/v1/sessions/abc/sandboxes/primary/windows/a%20b%2Fc%C3%A9/run"), 200);
    ck_assert_uint_eq(req.n_params, 3);
    ck_assert_str_eq(req.params[0], "abc");
    ck_assert_str_eq(req.params[1], "primary");
    ck_assert_str_eq(req.params[2], "a b/c\xc3\xa9");
    clear();
}
END_TEST

START_TEST(a_file_s_path_is_the_rest)
{
    ck_assert_int_eq(route("GET", "/v1/sessions/abc/files/a/b%20c/%ff%2Fd"), 200);
    ck_assert_uint_eq(req.n_params, 2);
    ck_assert_str_eq(req.params[1], "a/b c/\xff/d");
    clear();
    ck_assert_int_eq(route("DELETE", "/v1/sessions/abc/files//a/../b/"), 200);
    ck_assert_str_eq(req.params[1], "/a/../b/"); /* the store refuses it */
    clear();
    ck_assert_int_eq(status_of("GET", "/v1/sessions/abc/files/"), 404);
    ck_assert_int_eq(status_of("GET", "/v1/sessions/abc/files/a%00"), 400);
    ck_assert_int_eq(route("POST", "/v1/sessions/abc/files/move"), 200);
    ck_assert_uint_eq(req.n_params, 1);
    clear();
    ck_assert_int_eq(route("POST", "/v1/sessions/abc/files/moved"), 405);
    ck_assert_str_eq(req.allow, "GET, HEAD, PUT, DELETE");
    clear();
}
END_TEST

START_TEST(paths_that_do_not_exist)
{
    static const char *const paths[] = {"",
                                        "/",
                                        "/v1",
                                        "/v1/",
                                        "/v1/versions",
                                        "/v1/version/",
                                        "/V1/version",
                                        "/v1//version",
                                        "/v1/sessions/",
                                        "/v1/sessions/a/",
                                        "/v1/sessions//sandboxes",
                                        "/v1/sessions/a/sandboxes/b/c",
                                        "/v1/sessions/a/sandboxes/b/files/list/x",
                                        "/v1/../v1/version",
                                        "/v2/version"};

    for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++)
        ck_assert_msg(status_of("GET", paths[i]) == 404, "%s", paths[i]);
}
END_TEST

START_TEST(wrong_methods_name_the_right_ones)
{
    ck_assert_int_eq(route("PATCH", "/v1/sessions/a/sandboxes/b/files"), 405);
    ck_assert_str_eq(req.allow, "GET, HEAD, PUT, DELETE");
    clear();
    ck_assert_int_eq(status_of("HEAD", "/v1/version"), 405);
    ck_assert_int_eq(status_of("get", "/v1/version"), 405);
}
END_TEST

START_TEST(broken_escapes)
{
    static const char *const ids[] = {"%", "%4", "%zz", "a%2", "%00", "a%0"};

    for (size_t i = 0; i < sizeof(ids) / sizeof(ids[0]); i++) {
        char path[64];

        snprintf(path, sizeof(path), "/v1/sessions/%s", ids[i]);
        ck_assert_msg(status_of("GET", path) == 400, "%s", path);
    }
    ck_assert_int_eq(status_of("GET", "/v1/sessions/%41"), 200);
}
END_TEST

START_TEST(members_are_checked_by_name)
{
    static const struct vmm_member members[] = {{"text", JSON_STRING, true},
                                                {"number", JSON_INTEGER, false},
                                                {"flag", JSON_TRUE, false},
                                                {0}};
    static const struct {
        const char *body, *names; /* the member in the message; NULL: good */
    } cases[] = {
        {"{\"text\":\"x\"}", NULL},
        {"{\"text\":\"x\",\"number\":1,\"flag\":false,\"more\":[]}", NULL},
        {"{\"text\":\"x\",\"number\":null}", NULL},
        {"{}", "\"text\" is missing"},
        {"{\"text\":null}", "\"text\" must be a string"},
        {"{\"text\":1}", "\"text\" must be a string"},
        {"{\"text\":\"x\",\"number\":1.5}", "\"number\" must be a whole number"},
        {"{\"text\":\"x\",\"number\":\"1\"}", "\"number\" must be a whole number"},
        {"{\"text\":\"x\",\"flag\":1}", "\"flag\" must be true or false"},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        json_t *body = json_loads(cases[i].body, 0, NULL);
        struct err err = {0};
        int r = vmm_check_members(body, members, &err);

        ck_assert_msg(r == (cases[i].names ? -EINVAL : 0), "%s", cases[i].body);
        if (cases[i].names != NULL)
            ck_assert_msg(strstr(err.msg, cases[i].names) != NULL, "%s: %s", cases[i].body,
                          err.msg);
        json_decref(body);
    }
}
END_TEST

int main(void)
{
    Suite *s = suite_create("vmm/router");
    TCase *tc = tcase_create("table");
    SRunner *sr = srunner_create(s);
    int n_failed;

    tcase_add_test(tc, every_endpoint_is_described);
    tcase_add_test(tc, every_description_has_its_endpoint);
    tcase_add_test(tc, required_members_are_described);
    tcase_add_test(tc, every_endpoint_is_found);
    tcase_add_test(tc, parameters_are_decoded);
    tcase_add_test(tc, a_file_s_path_is_the_rest);
    tcase_add_test(tc, paths_that_do_not_exist);
    tcase_add_test(tc, wrong_methods_name_the_right_ones);
    tcase_add_test(tc, broken_escapes);
    tcase_add_test(tc, members_are_checked_by_name);
    suite_add_tcase(s, tc);
    srunner_run_all(sr, CK_ENV);
    n_failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return n_failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
