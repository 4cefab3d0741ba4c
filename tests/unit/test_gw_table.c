/* SPDX-License-Identifier: MIT */
/* The route table: changes, growth, sweeps, and readers beside the writer. */
#include <check.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gateway/table.h"

static struct gw_table *table;

static void setup(void)
{
    ck_assert_int_eq(gw_table_new(&table), 0);
}

static void teardown(void)
{
    gw_table_free(table);
}

static void label_of(unsigned n, char *out)
{
    snprintf(out, TR_LABEL_LEN + 1, "%016u", n);
}

static int put(unsigned n, unsigned instance, uint32_t generation)
{
    struct tr_route route = {.state = TR_SANDBOX_RUNNING, .port = 8080, .instance = instance};

    label_of(n, route.label);
    snprintf(route.address, sizeof(route.address), "10.%u.%u.%u", n >> 16 & 255, n >> 8 & 255,
             n & 255);
    return gw_table_put(table, &route, generation, 1000 + n);
}

static bool get(unsigned n, struct gw_route *out)
{
    char label[TR_LABEL_LEN + 1];

    label_of(n, label);
    return gw_table_get(table, label, out);
}

START_TEST(put_get_remove)
{
    struct gw_route r;
    char label[TR_LABEL_LEN + 1];

    ck_assert(!get(5, &r));
    ck_assert_int_eq(put(5, 1, 0), GW_TABLE_NEW);
    ck_assert(get(5, &r));
    ck_assert_str_eq(r.label, "0000000000000005");
    ck_assert(r.family == AF_INET && r.port == 8080 && r.instance == 1 && r.since_ms == 1005);
    ck_assert_uint_eq(gw_table_count(table), 1);
    label_of(5, label);
    ck_assert(gw_table_remove(table, label));
    ck_assert(!gw_table_remove(table, label));
    ck_assert(!get(5, &r));
    ck_assert_uint_eq(gw_table_count(table), 0);
}
END_TEST

START_TEST(only_a_difference_counts_as_a_change)
{
    struct tr_route route = {.state = TR_SANDBOX_FAILED, .label = "aaaaaaaaaaaaaaaa"};
    struct gw_route r;

    ck_assert_int_eq(put(1, 1, 0), GW_TABLE_NEW);
    ck_assert_int_eq(put(1, 1, 0), GW_TABLE_SAME);
    ck_assert_int_eq(put(1, 2, 0), GW_TABLE_CHANGED);
    strcpy(route.reason, "disk full");
    ck_assert_int_eq(gw_table_put(table, &route, 0, 7), GW_TABLE_NEW);
    strcpy(route.reason, "other");
    ck_assert_int_eq(gw_table_put(table, &route, 0, 8), GW_TABLE_SAME);
    ck_assert(gw_table_get(table, route.label, &r));
    ck_assert_str_eq(r.reason, "other");
    ck_assert_uint_eq(r.since_ms, 7);
    ck_assert_uint_eq(r.family, 0);
}
END_TEST

START_TEST(grows_step_by_step)
{
    struct gw_route r;

    for (unsigned i = 0; i < 50000; i++)
        ck_assert_int_eq(put(i, 1, 0), GW_TABLE_NEW);
    for (unsigned i = 0; i < 50000; i++)
        ck_assert(get(i, &r) && r.since_ms == 1000 + i);
    ck_assert(!get(50000, &r));
    ck_assert_uint_eq(gw_table_count(table), 50000);
}
END_TEST

static unsigned n_removed;

static void on_removed(const char *label, void *arg)
{
    (void)arg;
    ck_assert_uint_eq(strlen(label), TR_LABEL_LEN);
    n_removed++;
}

START_TEST(sweep_forgets_other_generations)
{
    struct gw_route r;

    n_removed = 0;
    for (unsigned i = 0; i < 1000; i++)
        (void)!put(i, 1, 1);
    for (unsigned i = 0; i < 1000; i += 2)
        (void)!put(i, 1, 2);
    gw_table_sweep(table, 2, on_removed, NULL);
    ck_assert_uint_eq(n_removed, 500);
    for (unsigned i = 0; i < 1000; i++)
        ck_assert(get(i, &r) == (i % 2 == 0));
}
END_TEST

static _Atomic bool stop;

/* A reader sees a label with one of the states that it had, never a mixture. */
static struct tr_route_extra *extra(const uint8_t *key)
{
    static const struct tr_route_rule rule = {.prefix = "/api", .prefix_len = 4, .port = 3000};
    struct tr_route_extra *x;
    struct err err = {0};

    ck_assert_int_eq(tr_route_extra_new(&rule, 1, NULL, 0, key, false, &x, &err), 0);
    return x;
}

START_TEST(what_few_routes_have_is_shared)
{
    struct tr_route route = {.state = TR_SANDBOX_ASLEEP,
                             .label = "aaaaaaaaaaaaaaaa",
                             .protocol = TR_PROTOCOL_H2C,
                             .wake = true,
                             .agent_port = 982};
    struct gw_route r, later;

    route.extra = extra(NULL);
    ck_assert_int_eq(gw_table_put(table, &route, 0, 1), GW_TABLE_NEW);
    tr_route_fini(&route);
    ck_assert(gw_table_get(table, route.label, &r));
    ck_assert(r.wake && r.protocol == TR_PROTOCOL_H2C && r.agent_port == 982);
    ck_assert(r.extra != NULL && r.extra->n_rules == 1 && !r.extra->is_private);
    route.wake = false;
    ck_assert_int_eq(gw_table_put(table, &route, 0, 2), GW_TABLE_SAME);
    ck_assert(gw_table_get(table, route.label, &later));
    ck_assert(!later.wake && later.extra == NULL);
    ck_assert_str_eq(r.extra->rules[0].prefix, "/api"); /* held by who got it */
    tr_route_extra_unref(r.extra);
}
END_TEST

START_TEST(losing_access_is_told)
{
    struct tr_route route = {.state = TR_SANDBOX_ASLEEP, .label = "aaaaaaaaaaaaaaaa"};
    uint8_t key[TR_ROUTE_KEY_SIZE] = {1};

    ck_assert_int_eq(gw_table_put(table, &route, 0, 1), GW_TABLE_NEW);
    route.extra = extra(key);
    ck_assert_int_eq(gw_table_put(table, &route, 0, 1), GW_TABLE_REVOKED);
    ck_assert_int_eq(gw_table_put(table, &route, 0, 1), GW_TABLE_SAME);
    tr_route_fini(&route);
    key[0] = 2;
    route.extra = extra(key);
    route.instance = 7;
    ck_assert_int_eq(gw_table_put(table, &route, 0, 1), GW_TABLE_REVOKED);
    tr_route_fini(&route);
    route.extra = extra(NULL);
    ck_assert_int_eq(gw_table_put(table, &route, 0, 1), GW_TABLE_SAME);
    tr_route_fini(&route);
    route.instance = 8;
    ck_assert_int_eq(gw_table_put(table, &route, 0, 1), GW_TABLE_CHANGED);
}
END_TEST

START_TEST(a_closed_port_is_told)
{
    struct tr_route route = {.state = TR_SANDBOX_RUNNING, .label = "aaaaaaaaaaaaaaaa"};
    static const struct tr_route_port ports[] = {{.port = 3000}, {.port = 4000}};
    struct err err = {0};

    for (size_t n = 0; n <= 2; n++) {
        if (n > 0)
            ck_assert_int_eq(tr_route_extra_new(NULL, 0, ports, n, NULL, false, &route.extra, &err),
                             0);
        ck_assert_int_eq(gw_table_put(table, &route, 0, 1), n == 0 ? GW_TABLE_NEW : GW_TABLE_SAME);
        tr_route_fini(&route);
    }
    ck_assert_int_eq(tr_route_extra_new(NULL, 0, ports + 1, 1, NULL, false, &route.extra, &err), 0);
    ck_assert_int_eq(gw_table_put(table, &route, 0, 1), GW_TABLE_CLOSED);
    ck_assert_int_eq(gw_table_put(table, &route, 0, 1), GW_TABLE_SAME);
    tr_route_fini(&route);
    ck_assert_int_eq(gw_table_put(table, &route, 0, 1), GW_TABLE_CLOSED);
    ck_assert_int_eq(gw_table_put(table, &route, 0, 1), GW_TABLE_SAME);
}
END_TEST

static void *reader(void *arg)
{
    struct gw_route r;
    unsigned long n = 0;

    (void)arg;
    while (!atomic_load(&stop)) {
        if (get((unsigned)(n++ % 100), &r))
            ck_assert(r.family == AF_INET && r.port == 8080);
    }
    return NULL;
}

START_TEST(readers_beside_the_writer)
{
    pthread_t threads[2];
    char label[TR_LABEL_LEN + 1];

    atomic_store(&stop, false);
    for (int i = 0; i < 2; i++)
        pthread_create(&threads[i], NULL, reader, NULL);
    for (unsigned i = 0; i < 20000; i++) {
        (void)!put(i % 3000, i, 0);
        if (i % 7 == 0) {
            label_of(i % 100, label);
            gw_table_remove(table, label);
        }
    }
    atomic_store(&stop, true);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("gateway/table");
    TCase *tc = tcase_create("table");
    SRunner *sr = srunner_create(s);
    int n_failed;

    tcase_set_timeout(tc, 60);
    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_add_test(tc, put_get_remove);
    tcase_add_test(tc, only_a_difference_counts_as_a_change);
    tcase_add_test(tc, what_few_routes_have_is_shared);
    tcase_add_test(tc, losing_access_is_told);
    tcase_add_test(tc, a_closed_port_is_told);
    tcase_add_test(tc, grows_step_by_step);
    tcase_add_test(tc, sweep_forgets_other_generations);
    tcase_add_test(tc, readers_beside_the_writer);
    suite_add_tcase(s, tc);
    srunner_run_all(sr, CK_ENV);
    n_failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return n_failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
