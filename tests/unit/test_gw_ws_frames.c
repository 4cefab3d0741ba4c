/* SPDX-License-Identifier: MIT */
#include "gateway/ws_frames.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

/* Frames of all length forms, one after the other; where each ends. */
static char stream[200 * 1024];
static size_t ends[16], n_ends, stream_len;

static void add(const char *head, size_t head_len, size_t payload)
{
    memcpy(stream + stream_len, head, head_len);
    memset(stream + stream_len + head_len, 0x88, payload); /* looks like heads of close frames */
    stream_len += head_len + payload;
    ends[n_ends++] = stream_len;
}

static void setup(void)
{
    stream_len = n_ends = 0;
    add("\x81\x00", 2, 0);
    add("\x82\x7d", 2, 125);
    add("\x01\x7e\x00\x7e", 4, 126);
    add("\x89\x04", 2, 4); /* a ping inside a message */
    add("\x80\x7e\xff\xff", 4, 65535);
    add("\x82\x7f\0\0\0\0\0\x01\0\0", 10, 65536);
    add("\x81\x85mask", 6, 5);
    add("\x81\xfe\x01\x00mask", 8, 256);
    add("\xc1\x03", 2, 3); /* compressed */
}

static bool is_end(size_t at)
{
    for (size_t i = 0; i < n_ends; i++)
        if (ends[i] == at)
            return true;
    return at == 0;
}

START_TEST(every_cut_is_between_frames_or_not)
{
    struct gw_ws_frames f = {0};

    for (size_t i = 0; i < stream_len; i++) {      /* byte by byte */
        if (gw_ws_frames_between(&f) != is_end(i)) /* ck_assert() of each would take long */
            ck_abort_msg("at %zu", i);
        gw_ws_frames_pass(&f, stream + i, 1);
    }
    ck_assert(gw_ws_frames_between(&f));
    for (size_t step = 2; step < 3000; step += 97) { /* and in larger pieces */
        memset(&f, 0, sizeof(f));
        for (size_t i = 0; i < stream_len;) {
            size_t n = stream_len - i < step ? stream_len - i : step;

            gw_ws_frames_pass(&f, stream + i, n);
            i += n;
            ck_assert_msg(gw_ws_frames_between(&f) == is_end(i), "step %zu at %zu", step, i);
        }
    }
}
END_TEST

START_TEST(no_place_after_a_close_frame_or_nonsense)
{
    static const char *const bad[] = {"\x88\x02\x03\xe8", "\x83\x00", "\x8b\x00",
                                      "\x89\x7e\x00\x7e"};

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct gw_ws_frames f = {0};

        gw_ws_frames_pass(&f, bad[i], 2);
        gw_ws_frames_pass(&f, bad[i] + 2, 2);
        gw_ws_frames_pass(&f, stream, stream_len);
        ck_assert(!gw_ws_frames_between(&f));
    }
}
END_TEST

START_TEST(our_own_frame_is_one)
{
    struct gw_ws_frames f = {0};

    gw_ws_frames_pass(&f, GW_WS_GOING_AWAY, sizeof(GW_WS_GOING_AWAY) - 1);
    ck_assert(f.closed && f.n_head == 0 && f.left == 0 && !f.lost);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("gateway/ws_frames");
    TCase *tc = tcase_create("frames");
    SRunner *sr = srunner_create(s);
    int n_failed;

    tcase_add_checked_fixture(tc, setup, NULL);
    tcase_add_test(tc, every_cut_is_between_frames_or_not);
    tcase_add_test(tc, no_place_after_a_close_frame_or_nonsense);
    tcase_add_test(tc, our_own_frame_is_one);
    suite_add_tcase(s, tc);
    srunner_run_all(sr, CK_ENV);
    n_failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return n_failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
