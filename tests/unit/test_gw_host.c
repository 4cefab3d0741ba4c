/* SPDX-License-Identifier: MIT */
/* Host names, addresses and pages: what is small and pure. */
#include <arpa/inet.h>
#include <check.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gateway/address.h"
#include "gateway/host.h"
#include "gateway/options.h"
#include "gateway/pages.h"
#include "gateway/wake.h"

static enum gw_host_kind kind_of(const char *value)
{
    struct gw_host host;

    gw_host_parse((struct gw_str){value, strlen(value)}, "test", "preview.test", &host);
    if (host.kind == GW_HOST_PREVIEW)
        ck_assert_str_eq(host.label, "ab12ab12ab12ab12");
    else
        ck_assert_str_eq(host.label, "");
    return host.kind;
}

START_TEST(spellings)
{
    ck_assert_int_eq(kind_of("ab12ab12ab12ab12.preview.test"), GW_HOST_PREVIEW);
    ck_assert_int_eq(kind_of("AB12ab12ab12ab12.Preview.TEST.:80"), GW_HOST_PREVIEW);
    ck_assert_int_eq(kind_of("ab12ab12ab12ab12.preview.test:"), GW_HOST_PREVIEW);
    ck_assert_int_eq(kind_of("api.test:1"), GW_HOST_API);
    ck_assert_int_eq(kind_of("ADMIN.test"), GW_HOST_ADMIN);
    ck_assert_int_eq(kind_of("xab12ab12ab12ab12.preview.test"), GW_HOST_OTHER);
    ck_assert_int_eq(kind_of("ab12ab12ab12ab12.preview.test.."), GW_HOST_OTHER);
    ck_assert_int_eq(kind_of("ab12ab12ab12ab12xpreview.test"), GW_HOST_OTHER);
    ck_assert_int_eq(kind_of("preview.test"), GW_HOST_OTHER);
    ck_assert_int_eq(kind_of("test"), GW_HOST_OTHER);
    ck_assert_int_eq(kind_of("[::1]:80"), GW_HOST_OTHER);
    ck_assert_int_eq(kind_of("api.test:65536"), GW_HOST_INVALID);
    ck_assert_int_eq(kind_of("api.test:1:1"), GW_HOST_INVALID);
    ck_assert_int_eq(kind_of("api.test,api.test b"), GW_HOST_INVALID);
    ck_assert_int_eq(kind_of("[::1"), GW_HOST_INVALID);
}
END_TEST

static int port_of(const char *value)
{
    struct gw_host host;

    gw_host_parse((struct gw_str){value, strlen(value)}, "test", "preview.test", &host);
    if (host.kind != GW_HOST_PREVIEW)
        return -1;
    ck_assert_str_eq(host.label, "ab12ab12ab12ab12");
    return host.port;
}

START_TEST(ports)
{
    ck_assert_int_eq(port_of("ab12ab12ab12ab12.preview.test"), 0);
    ck_assert_int_eq(port_of("3000-ab12ab12ab12ab12.preview.test"), 3000);
    ck_assert_int_eq(port_of("1-AB12ab12ab12ab12.PREVIEW.test.:80"), 1);
    ck_assert_int_eq(port_of("65535-ab12ab12ab12ab12.preview.test"), 65535);
    ck_assert_int_eq(port_of("65536-ab12ab12ab12ab12.preview.test"), -1);
    ck_assert_int_eq(port_of("99999-ab12ab12ab12ab12.preview.test"), -1);
    ck_assert_int_eq(port_of("100000-ab12ab12ab12ab12.preview.test"), -1);
    ck_assert_int_eq(port_of("0-ab12ab12ab12ab12.preview.test"), -1);
    ck_assert_int_eq(port_of("03000-ab12ab12ab12ab12.preview.test"), -1);
    ck_assert_int_eq(port_of("-ab12ab12ab12ab12.preview.test"), -1);
    ck_assert_int_eq(port_of("+80-ab12ab12ab12ab12.preview.test"), -1);
    ck_assert_int_eq(port_of("80--ab12ab12ab12ab12.preview.test"), -1);
    ck_assert_int_eq(port_of("80-80-ab12ab12ab12ab12.preview.test"), -1);
    ck_assert_int_eq(port_of("80.ab12ab12ab12ab12.preview.test"), -1);
    ck_assert_int_eq(port_of("8080ab12ab12ab12ab12.preview.test"), -1);
    ck_assert_int_eq(port_of("80-ab12ab12ab12ab1.preview.test"), -1);
    ck_assert_int_eq(port_of("x.ab12ab12ab12ab12.preview.test"), -1);
    ck_assert_int_eq(port_of("80-ab12ab12ab12ab12.test"), -1);
    ck_assert_int_eq(port_of("ab12ab12ab12ab12-80.preview.test"), -1);
}
END_TEST

START_TEST(addresses)
{
    struct sockaddr_storage sa;
    socklen_t len;
    char text[64];
    size_t n;

    ck_assert_int_eq(gw_address_parse("10.20.200.3:8080", &sa, &len), 0);
    n = gw_address_text((struct sockaddr *)&sa, text);
    ck_assert(n == 11 && memcmp(text, "10.20.200.3", n) == 0);
    gw_address_format((struct sockaddr *)&sa, text);
    ck_assert_str_eq(text, "10.20.200.3:8080");
    ck_assert_int_eq(gw_address_parse("[::ffff:1.2.3.4]:80", &sa, &len), 0);
    n = gw_address_text((struct sockaddr *)&sa, text);
    ck_assert(n == 7 && memcmp(text, "1.2.3.4", n) == 0);
    ck_assert_int_eq(gw_address_parse("[2001:db8::1]:443", &sa, &len), 0);
    gw_address_format((struct sockaddr *)&sa, text);
    ck_assert_str_eq(text, "[2001:db8::1]:443");
    ck_assert_int_lt(gw_address_parse("localhost:80", &sa, &len), 0);
    ck_assert_int_lt(gw_address_parse("1.2.3.4", &sa, &len), 0);
    ck_assert_int_lt(gw_address_parse("1.2.3.4:99999", &sa, &len), 0);
}
END_TEST

static bool trusts(const struct gw_options *o, const char *address)
{
    struct sockaddr_storage sa;
    socklen_t len;

    ck_assert_int_eq(gw_address_parse(address, &sa, &len), 0);
    return gw_options_trusts(o, (struct sockaddr *)&sa);
}

START_TEST(trusted_proxies)
{
    static const char text[] =
        "gateway: { trusted_proxies: [10.0.0.0/9, 192.168.1.1, \"2001:db8::/33\"] }\n";
    struct tr_config *config;
    struct gw_options o;
    struct err err = {0};

    ck_assert_int_eq(tr_config_parse("t", text, sizeof(text) - 1, &config, &err), 0);
    ck_assert_int_eq(gw_options_init(&o, config, &err), 0);
    ck_assert(trusts(&o, "10.127.255.255:1") && !trusts(&o, "10.128.0.0:1"));
    ck_assert(trusts(&o, "[::ffff:10.1.2.3]:1"));
    ck_assert(trusts(&o, "192.168.1.1:1") && !trusts(&o, "192.168.1.2:1"));
    ck_assert(trusts(&o, "[2001:db8:7fff::1]:1") && !trusts(&o, "[2001:db8:8000::1]:1"));
    ck_assert_str_eq(o.preview_domain, "preview.localhost");
    gw_options_fini(&o);
    tr_config_free(config);
}
END_TEST

START_TEST(options_that_disagree)
{
    static const char *const texts[] = {
        "gateway: { http: [], https: [] }\n",
        "gateway: { https: [\"127.0.0.1:0\"] }\n",
    };

    for (size_t i = 0; i < 2; i++) {
        struct tr_config *config;
        struct gw_options o;
        struct err err = {0};

        ck_assert_int_eq(tr_config_parse("t", texts[i], strlen(texts[i]), &config, &err), 0);
        ck_assert_int_lt(gw_options_init(&o, config, &err), 0);
        ck_assert_ptr_nonnull(strstr(err.msg, "gateway.https"));
        gw_options_fini(&o);
        tr_config_free(config);
    }
}
END_TEST

START_TEST(page_bodies_escape)
{
    struct gw_bufs bufs = {0};
    struct gw_page page = {.status = 503, .code = "failed", .message = "a<b>&\"c\"\n\\"};
    struct gw_buf *buf = gw_page_body(&bufs, &page, false);

    ck_assert_ptr_nonnull(buf);
    buf->data[buf->len] = '\0';
    ck_assert_str_eq(buf->data,
                     "{\"code\":\"failed\",\"message\":\"a<b>&\\\"c\\\"\\u000a\\\\\"}\n");
    gw_buf_put(&bufs, buf);
    buf = gw_page_body(&bufs, &page, true);
    buf->data[buf->len] = '\0';
    ck_assert_ptr_nonnull(strstr(buf->data, "a&lt;b&gt;&amp;&quot;c&quot;"));
    ck_assert_ptr_null(strstr(buf->data, "refresh"));
    gw_buf_put(&bufs, buf);
    page.retry_after_s = 3;
    buf = gw_page_body(&bufs, &page, true);
    buf->data[buf->len] = '\0';
    ck_assert_ptr_nonnull(strstr(buf->data, "content=\"3\""));
    gw_buf_put(&bufs, buf);
    gw_bufs_fini(&bufs);
}
END_TEST

START_TEST(wakes_are_asked_for_once_in_a_while)
{
    static struct gw_wakes wakes;
    char label[TR_LABEL_LEN + 1] = "ab12ab12ab12ab12";
    unsigned n_due = 0;
    int status;

    gw_wakes_init(&wakes);
    ck_assert(gw_wake_due(&wakes, label, 1000, &status));
    ck_assert(!gw_wake_due(&wakes, label, 1000, &status));
    ck_assert_int_eq(status, 0);
    gw_wake_done(&wakes, label, 409);
    ck_assert(!gw_wake_due(&wakes, label, 5999, &status));
    ck_assert_int_eq(status, 409);
    ck_assert(gw_wake_due(&wakes, label, 6000, &status));
    gw_wake_done(&wakes, label, 0);
    ck_assert(!gw_wake_due(&wakes, label, 6001, &status));
    ck_assert_int_eq(status, -1);
    /* More labels at once than are kept: some have to wait, none is asked for twice. */
    for (unsigned round = 0; round < 2; round++)
        for (unsigned i = 0; i < 3 * GW_WAKE_SLOTS; i++) {
            snprintf(label, sizeof(label), "%016u", i);
            n_due += gw_wake_due(&wakes, label, 20000, &status);
        }
    ck_assert_uint_le(n_due, GW_WAKE_SLOTS);
    ck_assert_uint_ge(n_due, GW_WAKE_SLOTS / 2);
    gw_wakes_fini(&wakes);
}
END_TEST

START_TEST(buffers_are_recycled)
{
    struct gw_bufs bufs = {0};
    struct gw_buf *a = gw_buf_get(&bufs, 100), *b;
    char *room;

    gw_buf_put(&bufs, a);
    ck_assert_ptr_eq(gw_buf_get(&bufs, 4096), a);
    room = gw_buf_room(&bufs, &a, 4096);
    memset(room, 'x', 4096);
    a->len = 4096;
    b = a;
    ck_assert_ptr_nonnull(gw_buf_room(&bufs, &b, 1));
    ck_assert_uint_eq(b->len, 4096);
    gw_buf_consume(&bufs, &b, 4096);
    ck_assert_ptr_null(b);
    gw_bufs_fini(&bufs);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("gateway/host");
    TCase *tc = tcase_create("small");
    SRunner *sr = srunner_create(s);
    int n_failed;

    tcase_add_test(tc, spellings);
    tcase_add_test(tc, ports);
    tcase_add_test(tc, addresses);
    tcase_add_test(tc, trusted_proxies);
    tcase_add_test(tc, options_that_disagree);
    tcase_add_test(tc, page_bodies_escape);
    tcase_add_test(tc, wakes_are_asked_for_once_in_a_while);
    tcase_add_test(tc, buffers_are_recycled);
    suite_add_tcase(s, tc);
    srunner_run_all(sr, CK_ENV);
    n_failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return n_failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
