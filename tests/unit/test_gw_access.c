/* SPDX-License-Identifier: MIT */
#include "gateway/access.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gateway/http1.h"
#include "gateway/request_id.h"

/* Under the key 00 01 02 ... 1f, until 2033; made by another implementation (Python's hmac). */
#define LABEL  "ab12ab12ab12ab12"
#define T8080  "8080.2000000000.sKn2h1uxXX6el4_2RLJP19jEqt83Xsdnge-u3uhaR9Y"
#define T3000  "3000.2000000000.T3e-M_vq9i7vId_IGFBzLaa4LzMxDnbUxosuipggcE4"
#define EXPIRY ((uint64_t)2000000000)

static uint8_t key[TR_ROUTE_KEY_SIZE];
static struct evp_mac_ctx_st *mac;

static void teardown(void)
{
    gw_token_mac_free(mac);
}

static void setup(void)
{
    mac = gw_token_mac_new();
    ck_assert_ptr_nonnull(mac);
    for (unsigned i = 0; i < sizeof(key); i++)
        key[i] = (uint8_t)i;
}

static bool valid(const char *token, uint16_t port, uint64_t now)
{
    uint64_t expires = 0;
    bool r =
        gw_token_valid(mac, (struct gw_str){token, strlen(token)}, key, LABEL, port, now, &expires);

    if (r)
        ck_assert_uint_eq(expires, EXPIRY);
    return r;
}

START_TEST(a_token_opens_its_port_until_it_expires)
{
    ck_assert(valid(T8080, 8080, 0));
    ck_assert(valid(T8080, 8080, EXPIRY - 1));
    ck_assert(!valid(T8080, 8080, EXPIRY));
    ck_assert(!valid(T8080, 8080, UINT64_MAX));
    ck_assert(!valid(T8080, 3000, 0));
    ck_assert(valid(T3000, 3000, 0));
    ck_assert(!valid(T3000, 8080, 0));
    key[31] ^= 1; /* what a new generation does */
    ck_assert(!valid(T8080, 8080, 0));
}
END_TEST

START_TEST(another_label_has_other_tokens)
{
    uint64_t expires;

    ck_assert(!gw_token_valid(mac, GW_STR(T8080), key, "bb12ab12ab12ab12", 8080, 0, &expires));
}
END_TEST

START_TEST(there_is_one_way_to_write_a_token)
{
    static const char good[] = T8080;
    char text[sizeof(good) + 8];

    for (size_t i = 0; i < sizeof(good) - 1; i++) {
        for (int c = 1; c < 256; c++) { /* any byte in any place */
            memcpy(text, good, sizeof(good));
            text[i] = (char)c;
            ck_assert_int_eq(valid(text, 8080, 0), c == good[i]);
        }
        memcpy(text, good, i); /* one byte less */
        memcpy(text + i, good + i + 1, sizeof(good) - i - 1);
        ck_assert(!valid(text, 8080, 0));
        memcpy(text, good, i); /* cut short */
        text[i] = '\0';
        ck_assert(!valid(text, 8080, 0));
    }
    ck_assert(!valid("0" T8080, 8080, 0));
    ck_assert(!valid(" " T8080, 8080, 0));
    ck_assert(!valid(T8080 "=", 8080, 0));
    ck_assert(!valid(T8080 "A", 8080, 0));
    ck_assert(!valid("73616.2000000000.sKn2h1uxXX6el4_2RLJP19jEqt83Xsdnge-u3uhaR9Y", 8080, 0));
    ck_assert(!valid("8080..sKn2h1uxXX6el4_2RLJP19jEqt83Xsdnge-u3uhaR9Y", 8080, 0));
    ck_assert(!valid("", 8080, 0));
}
END_TEST

static const char *clean_target(const char *target)
{
    static char text[512];
    size_t n = gw_access_clean_target((struct gw_str){target, strlen(target)}, text);

    ck_assert_uint_le(n, strlen(target));
    text[n] = '\0';
    return text;
}

START_TEST(queries)
{
    static const char *const table[][2] = {
        {"/", "/"},
        {"/?", "/?"},
        {"/?a", "/?a"},
        {"/?&&a&", "/?&&a&"},
        {"/?transom_token=x", "/"},
        {"/?transom_token", "/"},
        {"/?transom_token=x&a=1", "/?a=1"},
        {"/?a=1&transom_token=x", "/?a=1"},
        {"/?a=1&transom_token=x&b=%20&&c", "/?a=1&b=%20&&c"},
        {"/?transom_token=x&a=1&transom_token=y&b", "/?a=1&b"},
        {"/?transom_token=x&transom_token=y", "/"},
        {"/?transom%5ftoken=x&%74ransom_token=y", "/"},
        {"/?xtransom_token=x", "/?xtransom_token=x"},
        {"/?transom_tokens=x", "/?transom_tokens=x"},
        {"/?Transom_Token=x", "/?Transom_Token=x"},
        {"/?a=?transom_token=x", "/?a=?transom_token=x"},
        {"/transom_token=x", "/transom_token=x"},
        {"/transom_token=x?transom_token=x", "/transom_token=x"},
        {"//?transom_token=x", "//"},
        {"*", "*"},
    };

    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++)
        ck_assert_str_eq(clean_target(table[i][0]), table[i][1]);
}
END_TEST

START_TEST(locations_stay_on_the_host)
{
    static const char *const table[][2] = {
        {"/a?transom_token=x", "/a"},
        {"//evil.test/?transom_token=x", "/.//evil.test/"},
        {"/\\evil.test/?transom_token=x&b", "/./\\evil.test/?b"},
        {"/?transom_token=x", "/"},
    };

    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        char text[128];
        size_t n = gw_access_location((struct gw_str){table[i][0], strlen(table[i][0])}, text);

        text[n] = '\0';
        ck_assert_str_eq(text, table[i][1]);
    }
}
END_TEST

START_TEST(cookies)
{
    static const char *const table[][2] = {
        {"a=1", "a=1"},
        {"a=1; b=2", "a=1; b=2"},
        {" a=1 ;b ; ;", " a=1 ;b ; ;"},
        {"transom-preview=x", ""},
        {"transom-preview", ""},
        {"transom-preview=x;", ""},
        {"__Host-transom-preview=x; a=1", "a=1"},
        {"a=1; transom-preview=x", "a=1"},
        {"a=1; transom-preview=x; b=2", "a=1; b=2"},
        {"a=1;transom-preview=x;b=2", "a=1;b=2"},
        {"a=1;  transom-preview=x ; b=2", "a=1; b=2"},
        {"transom-preview=x; __Host-transom-preview=y", ""},
        {"a=1; transom-preview=x; __Host-transom-preview=y", "a=1"},
        {"a=1; transom-preview=x; __Host-transom-preview=y; b=\"2,;\"", "a=1; b=\"2,;\""},
        {"transom-preview2=x; xtransom-preview=y; transom=z", "transom-preview2=x; "
                                                              "xtransom-preview=y; transom=z"},
        {"a=transom-preview=x", "a=transom-preview=x"},
        {"a=1; transom-preview=x;", "a=1;"},
    };

    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        struct gw_str value = {table[i][0], strlen(table[i][0])};
        char text[128];
        size_t n = gw_access_clean_cookies(value, text);

        text[n] = '\0';
        ck_assert_str_eq(text, table[i][1]);
    }
}
END_TEST

/* A request from its head's text. */
static struct gw_field fields[32];
static struct gw_request request(const char *head)
{
    static const struct gw_http1_limits limits = {.head_bytes = 4096, .n_fields = 32};
    struct gw_request req;
    const char *why = NULL;

    ck_assert_int_eq(gw_http1_parse_request(head, strlen(head), &limits, fields, &req, &why), 0);
    return req;
}

static enum gw_access_verdict check(const char *head, bool html, bool secure)
{
    struct gw_access a = {
        .mac = mac, .key = key, .label = LABEL, .port = 8080, .now = EXPIRY - 10, .secure = secure};
    struct gw_request req = request(head);
    struct gw_str token = {NULL, 0};
    uint64_t expires = 0;
    enum gw_access_verdict v =
        gw_access_check(&a, &req, gw_access_navigates(&req, html), &token, &expires);

    if (v != GW_ACCESS_DENIED) {
        ck_assert_uint_eq(expires, EXPIRY);
        ck_assert(token.len == sizeof(T8080) - 1 && memcmp(token.p, T8080, token.len) == 0);
    }
    return v;
}

#define HOST "Host: h\r\n"

START_TEST(where_tokens_are_looked_for)
{
    static const struct {
        const char *head;
        bool secure;
        enum gw_access_verdict verdict;
    } table[] = {
        {"GET / HTTP/1.1\r\n" HOST "\r\n", false, GW_ACCESS_DENIED},
        {"GET /?a&transom_token=" T8080 " HTTP/1.1\r\n" HOST "\r\n", false, GW_ACCESS_ENTER},
        {"HEAD /?transom_token=" T8080 " HTTP/1.1\r\n" HOST "Sec-Fetch-Mode: Navigate\r\n\r\n",
         false, GW_ACCESS_ENTER},
        {"GET /?transom_token=" T8080 " HTTP/1.1\r\n" HOST "Sec-Fetch-Mode: cors\r\n\r\n", false,
         GW_ACCESS_GRANTED},
        {"POST /?transom_token=" T8080 " HTTP/1.1\r\n" HOST "\r\n", false, GW_ACCESS_GRANTED},
        {"GET /?transom_token=" T8080 " HTTP/1.1\r\n" HOST
         "Connection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
         "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
         false, GW_ACCESS_GRANTED},
        {"GET /?transom_token=x&transom_token=" T8080 " HTTP/1.1\r\n" HOST "\r\n", false,
         GW_ACCESS_ENTER},
        {"GET /?transom_token=" T3000 " HTTP/1.1\r\n" HOST "\r\n", false, GW_ACCESS_DENIED},
        {"GET / HTTP/1.1\r\n" HOST "transom-token: " T8080 "\r\n\r\n", false, GW_ACCESS_GRANTED},
        {"GET / HTTP/1.1\r\n" HOST "transom-token: x\r\nTransom-Token: " T8080 "\r\n\r\n", false,
         GW_ACCESS_GRANTED},
        {"GET / HTTP/1.1\r\n" HOST "Cookie: a=1; transom-preview=" T8080 "\r\n\r\n", false,
         GW_ACCESS_GRANTED},
        {"GET / HTTP/1.1\r\n" HOST
         "Cookie: a=1\r\nCookie: transom-preview=x; transom-preview=" T8080 "\r\n\r\n",
         false, GW_ACCESS_GRANTED},
        {"GET / HTTP/1.1\r\n" HOST "Cookie: __Host-transom-preview=" T8080 "\r\n\r\n", true,
         GW_ACCESS_GRANTED},
        {"GET / HTTP/1.1\r\n" HOST "Cookie: transom-preview=" T8080 "\r\n\r\n", true,
         GW_ACCESS_DENIED},
        {"GET / HTTP/1.1\r\n" HOST "Cookie: __Host-transom-preview=" T8080 "\r\n\r\n", false,
         GW_ACCESS_DENIED},
        {"GET / HTTP/1.1\r\n" HOST "Authorization: Bearer " T8080 "\r\n\r\n", false,
         GW_ACCESS_DENIED},
        {"GET /" T8080 " HTTP/1.1\r\n" HOST "Cookie: a=" T8080 "\r\n\r\n", false, GW_ACCESS_DENIED},
        /* No more than eight are computed. */
        {"GET / HTTP/1.1\r\n" HOST "Cookie: transom-preview=1;transom-preview=2;transom-preview=3;"
         "transom-preview=4;transom-preview=5;transom-preview=6;transom-preview=7;"
         "transom-preview=8;transom-preview=" T8080 "\r\n\r\n",
         false, GW_ACCESS_DENIED},
    };

    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++)
        ck_assert_msg(check(table[i].head, true, table[i].secure) == table[i].verdict, "%s",
                      table[i].head);
    /* Without a wish for HTML a link is as good, but nobody is redirected. */
    ck_assert_int_eq(check(table[1].head, false, false), GW_ACCESS_GRANTED);
}
END_TEST

START_TEST(cookie_attributes)
{
    struct gw_access a = {.key = key, .label = LABEL, .port = 8080, .now = EXPIRY - 10};
    char text[GW_ACCESS_COOKIE_MAX];

    ck_assert_uint_eq(gw_access_cookie(&a, GW_STR(T8080), EXPIRY, text), strlen(text));
    ck_assert_str_eq(text, "transom-preview=" T8080 "; Path=/; HttpOnly; SameSite=Lax; Max-Age=10");
    a.embed = true;
    (void)gw_access_cookie(&a, GW_STR(T8080), EXPIRY, text);
    ck_assert_str_eq(text, "transom-preview=" T8080 "; Path=/; HttpOnly; SameSite=Lax; Max-Age=10");
    a.secure = true;
    (void)gw_access_cookie(&a, GW_STR(T8080), EXPIRY, text);
    ck_assert_str_eq(text, "__Host-transom-preview=" T8080
                           "; Path=/; HttpOnly; Secure; SameSite=None; Partitioned; Max-Age=10");
    a.embed = false;
    (void)gw_access_cookie(&a, GW_STR(T8080), EXPIRY, text);
    ck_assert_str_eq(text, "__Host-transom-preview=" T8080
                           "; Path=/; HttpOnly; Secure; SameSite=Lax; Max-Age=10");
}
END_TEST

START_TEST(requests_are_cleaned)
{
    struct gw_bufs bufs = {0};
    struct gw_buf *text;
    struct gw_request req =
        request("GET /?a&transom_token=x HTTP/1.1\r\n" HOST "Cookie: a=1; transom-preview=x\r\n"
                "Cookie: transom-preview=y\r\nCookie: b=2\r\nTransom-Token: z\r\nX: transom\r\n"
                "\r\n");

    ck_assert_int_eq(gw_access_clean(&bufs, &req, &text), 0);
    ck_assert_ptr_nonnull(text);
    ck_assert(req.target.len == 3 && memcmp(req.target.p, "/?a", 3) == 0);
    ck_assert(fields[1].value_len == 3 && memcmp(fields[1].value, "a=1", 3) == 0);
    ck_assert(!fields[1].hop_by_hop && fields[2].hop_by_hop && !fields[3].hop_by_hop);
    ck_assert(fields[3].value_len == 3 && fields[4].hop_by_hop && !fields[5].hop_by_hop);
    gw_buf_put(&bufs, text);

    req = request("GET /?a HTTP/1.1\r\n" HOST "Cookie: a=1\r\n\r\n");
    ck_assert_int_eq(gw_access_clean(&bufs, &req, &text), 0);
    ck_assert_ptr_null(text);
    gw_bufs_fini(&bufs);
}
END_TEST

START_TEST(request_ids)
{
    static const char longest[] =
        "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
    static const char *const kept[] = {"a", "0123-ab._~+/=:@", longest};
    static const char *const replaced[] = {
        "X-Request-Id: \r\n",
        "X-Request-Id: a b\r\n",
        "X-Request-Id: a\"\r\n",
        "X-Request-Id: a\r\nx_request_id: b\r\n",
        "X-Request-Id: \xe4\r\n",
        "",
        "X-Request-Id: 0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdefg\r\n"};
    char head[256], made[GW_REQUEST_ID_LEN + 1], last[GW_REQUEST_ID_LEN + 1] = "";
    uint64_t state = 0;

    for (size_t i = 0; i < sizeof(kept) / sizeof(kept[0]); i++) {
        struct gw_request req;
        struct gw_str id;

        snprintf(head, sizeof(head), "GET / HTTP/1.1\r\n" HOST "X-Request-Id: %s\r\n\r\n", kept[i]);
        req = request(head);
        id = gw_request_id(&req, &state, made);
        ck_assert(id.len == strlen(kept[i]) && memcmp(id.p, kept[i], id.len) == 0);
        ck_assert(made[0] == '\0' && !fields[1].hop_by_hop);
    }
    for (size_t i = 0; i < sizeof(replaced) / sizeof(replaced[0]); i++) {
        struct gw_request req;
        struct gw_str id;

        snprintf(head, sizeof(head), "GET / HTTP/1.1\r\n" HOST "%s\r\n", replaced[i]);
        req = request(head);
        id = gw_request_id(&req, &state, made);
        ck_assert_ptr_eq(id.p, made);
        ck_assert_uint_eq(strlen(made), GW_REQUEST_ID_LEN);
        ck_assert_uint_eq(strspn(made, "0123456789abcdef"), GW_REQUEST_ID_LEN);
        ck_assert_str_ne(made, last);
        memcpy(last, made, sizeof(last));
        for (size_t j = 1; j < req.n_fields; j++)
            ck_assert(fields[j].hop_by_hop);
    }
}
END_TEST

int main(void)
{
    Suite *s = suite_create("gateway/access");
    TCase *tc = tcase_create("access");
    SRunner *sr = srunner_create(s);
    int n_failed;

    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_add_test(tc, a_token_opens_its_port_until_it_expires);
    tcase_add_test(tc, another_label_has_other_tokens);
    tcase_add_test(tc, there_is_one_way_to_write_a_token);
    tcase_add_test(tc, queries);
    tcase_add_test(tc, locations_stay_on_the_host);
    tcase_add_test(tc, cookies);
    tcase_add_test(tc, where_tokens_are_looked_for);
    tcase_add_test(tc, cookie_attributes);
    tcase_add_test(tc, requests_are_cleaned);
    tcase_add_test(tc, request_ids);
    suite_add_tcase(s, tc);
    srunner_run_all(sr, CK_ENV);
    n_failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return n_failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
