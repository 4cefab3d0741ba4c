/* SPDX-License-Identifier: MIT */
#include "sync/kinds.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#define PNG  "\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\1"
#define JPEG "\xff\xd8\xff\xe0\0\x10JFIF\0\1\1\0\0\1"
#define WEBP "RIFF\x24\0\0\0WEBPVP8 \x18\0"
#define OLE  "\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1\0\0\0\0\0\0\0\0"
#define ZIP  "PK\x03\x04\x14\0\6\0\x08\0\0\0!\0\0\0"

#define CASE(name, bytes, kind)                                                                    \
    {                                                                                              \
        name, bytes, sizeof(bytes) - 1, SYNC_KIND_##kind                                           \
    }

static const struct {
    const char *name, *bytes;
    size_t len;
    enum sync_kind kind;
} cases[] = {
    CASE("__init__.py", "", TEXT),
    CASE("x.png", "", TEXT),
    CASE("Makefile", "all:\n\tcc x.c\n", TEXT),
    CASE("Dockerfile", "FROM debian\r\n", TEXT),
    CASE(".env.example", "A=1", TEXT),
    CASE("a", "\x1b[1mansi\x1b[0m\a\b", TEXT),
    CASE("a",
         "\xef\xbb\xbf"
         "with a mark",
         TEXT),
    CASE("a", "\xc3\xa9 e\xcc\x81 \xe2\x82\xac \xf0\x9f\x98\x80 \xf4\x8f\xbf\xbf", TEXT),
    CASE("a", "\xed\x9f\xbf\xee\x80\x80\xef\xbf\xbf\xe0\xa0\x80\xf0\x90\x80\x80\xc2\x80", TEXT),
    CASE("a", "a\0b", BINARY),
    CASE("a", "a\xff", BINARY),
    CASE("a", "caf\xe9 latin", BINARY),
    CASE("a", "\xc0\x80", BINARY), /* too long a form */
    CASE("a", "\xc1\xbf", BINARY),
    CASE("a", "\xe0\x9f\xbf", BINARY),
    CASE("a", "\xf0\x8f\xbf\xbf", BINARY),
    CASE("a", "\xed\xa0\x80", BINARY),     /* a surrogate */
    CASE("a", "\xf4\x90\x80\x80", BINARY), /* over U+10FFFF */
    CASE("a", "\xf5\x80\x80\x80", BINARY),
    CASE("a", "\x80", BINARY),
    CASE("a", "ok\xe2\x82", BINARY), /* ends within a character */
    CASE("a", "ok\xe2\x82x", BINARY),
    CASE("a.ps1",
         "\xff\xfe"
         "W\0r\0\xac\x20\n\0",
         TEXT),
    CASE("a.ps1",
         "\xfe\xff"
         "\0W\0r\x20\xac\0\n",
         TEXT),
    CASE("a.ps1", "\xff\xfe", TEXT),
    CASE("a.ps1", "\xff\xfe\x3d\xd8\x00\xde", TEXT), /* U+1F600 */
    CASE("a.ps1", "\xff\xfe\x3d\xd8x\0", BINARY),    /* half a pair */
    CASE("a.ps1", "\xff\xfe\x3d\xd8", BINARY),
    CASE("a.ps1", "\xff\xfe\x00\xde", BINARY),
    CASE("a.ps1", "\xff\xfeW\0r", BINARY), /* half a unit */
    CASE("a.ps1", "\xff\xfeW\0\0\0", BINARY),
    CASE("a.ps1", "W\0r\0", BINARY),          /* no mark */
    CASE("a", "\xff\xfe\0\0W\0\0\0", BINARY), /* UTF-32 */
    CASE("a", "\xff", BINARY),
    CASE("a", "\xfe", BINARY),
    CASE("v.ts", "\x47\x40\x00\x10\x00\x00\xb0\x0d\x00\x01\xc1\x00\x00\x00\x01\xf0\x00", BINARY),
    CASE("v.ts", "export const x = 1;\n", TEXT),
    CASE("a.png", PNG, PNG),
    CASE("A.PNG", PNG, PNG),
    CASE("a.jpeg", JPEG, JPEG),
    CASE("a.webp", WEBP, WEBP),
    CASE("a.gif", "GIF89a\1\0\1\0\0\0\0;", GIF),
    CASE("a.gif", "GIF87a\1\0\1\0\0\0\0;", GIF),
    CASE("a.jpg", PNG, PNG), /* the name of another picture format */
    CASE("a.pdf", "%PDF-1.7\n%\xe2\xe3\xcf\xd3\n", PDF),
    CASE("a.txt", "%PDF-1.7 is how it starts", TEXT),
    CASE("a.docx", ZIP, DOCUMENT),
    CASE("a.odt", ZIP, DOCUMENT),
    CASE("a.doc", OLE, DOCUMENT),
    CASE("a.docx", OLE, MISMATCH),
    CASE("a.zip", ZIP, BINARY),
    CASE("a.jar", ZIP, BINARY),
    CASE("a.msi", OLE, BINARY),
    CASE(".py", PNG, MISMATCH),
    CASE("a.py", PNG, MISMATCH),
    CASE("a.pdf", PNG, MISMATCH),
    CASE("a.png", "\0\1\2\3", MISMATCH),
    CASE("a.webp", "RIFF\x24\0\0\0WAVEfmt \x18\0", MISMATCH),
    CASE("a.webp", "RIFX\x24\0\0\0WEBPVP8 \x18\0", MISMATCH),
    CASE("a.png", "version https://git-lfs.github.com/spec/v1\n", TEXT),
    CASE("png", PNG, MISMATCH), /* no ending at all */
    CASE("a.png", "\x89PNG", MISMATCH),
    CASE("a.out",
         "\x7f"
         "ELF\2\1\1\0",
         BINARY),
};

START_TEST(by_content_and_name_in_pieces_of_any_size)
{
    const char *bytes = cases[_i].bytes, *name = cases[_i].name;
    size_t len = cases[_i].len;

    ck_assert_msg(sync_kind_of(name, strlen(name), bytes, len) == cases[_i].kind, "case %d, %s: %s",
                  _i, name, sync_kind_name(sync_kind_of(name, strlen(name), bytes, len)));
    for (size_t piece = 1; piece <= 5; piece++) {
        struct sync_kind_scan scan;
        bool is_open = true;

        sync_kind_start(&scan, name, strlen(name));
        for (size_t at = 0; is_open && at < len; at += piece)
            is_open = sync_kind_feed(&scan, bytes + at, len - at < piece ? len - at : piece);
        ck_assert_int_eq(sync_kind_end(&scan), cases[_i].kind);
    }
}
END_TEST

START_TEST(the_last_of_many_bytes_counts)
{
    struct sync_kind_scan scan;
    char text[4096];

    memset(text, 'x', sizeof(text));
    sync_kind_start(&scan, "big.json", 8);
    for (int i = 0; i < 1000; i++)
        ck_assert(sync_kind_feed(&scan, text, sizeof(text)));
    ck_assert_int_eq(sync_kind_end(&scan), SYNC_KIND_TEXT);
    ck_assert(!sync_kind_feed(&scan, "", 1));
    ck_assert_int_eq(sync_kind_end(&scan), SYNC_KIND_BINARY);
}
END_TEST

START_TEST(a_picture_is_known_by_its_first_bytes)
{
    struct sync_kind_scan scan;

    sync_kind_start(&scan, "a.png", 5);
    ck_assert(!sync_kind_feed(&scan, PNG, sizeof(PNG) - 1));
    ck_assert_str_eq(sync_kind_media_type(sync_kind_end(&scan)), "image/png");
    sync_kind_start(&scan, "", 0);
    ck_assert_int_eq(sync_kind_end(&scan), SYNC_KIND_TEXT);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("sync/kinds");
    TCase *tc = tcase_create("kinds");
    SRunner *sr = srunner_create(s);
    int n_failed;

    tcase_add_loop_test(tc, by_content_and_name_in_pieces_of_any_size, 0,
                        sizeof(cases) / sizeof(cases[0]));
    tcase_add_test(tc, the_last_of_many_bytes_counts);
    tcase_add_test(tc, a_picture_is_known_by_its_first_bytes);
    suite_add_tcase(s, tc);
    srunner_run_all(sr, CK_ENV);
    n_failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return n_failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
