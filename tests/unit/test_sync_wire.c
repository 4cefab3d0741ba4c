/* SPDX-License-Identifier: MIT */
#include "sync/wire.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <uv.h>
#include <zstd.h>

static const struct sync_sig sig = {.ino = UINT64_C(0x1122334455667788),
                                    .mtime_ns = -5,
                                    .ctime_ns = INT64_C(1700000000123456789),
                                    .size = 77,
                                    .mode = S_IFREG | 0644,
                                    .fresh = true};

/* One of each type, with what counts for it. */
static struct sync_msg sample(enum sync_msg_type type)
{
    static const uint8_t bytes[] = "some\0bytes";
    struct sync_msg msg = {.type = type};

    for (size_t i = 0; i < SYNC_ID_LEN; i++)
        msg.id.bytes[i] = (uint8_t)i;
    msg.path = "a/\xff\n";
    msg.path_len = 4;
    msg.has_sig = true;
    msg.sig = sig;
    msg.flag = true;
    msg.index = 7;
    if (type == SYNC_MSG_LOST)
        msg.status = UV_ENOSPC;
    msg.bytes = bytes;
    msg.len = sizeof(bytes);
    msg.size = 1234567;
    msg.op = (struct sync_op){.kind = SYNC_OP_FILE,
                              .path = "x/y",
                              .path_len = 3,
                              .expected = sig,
                              .has_id = true,
                              .id = msg.id,
                              .exec = true};
    msg.entry = (struct sync_tree_entry){
        .name = "name", .name_len = 4, .target = "to", .target_len = 2, .sig = sig};
    msg.entry.sig.mode = S_IFLNK | 0777;
    return msg;
}

static void check_sig(const struct sync_sig *a, const struct sync_sig *b)
{
    ck_assert(sync_sig_equal(a, b));
    ck_assert_int_eq(a->fresh, b->fresh);
}

static void check_text(const char *a, size_t a_len, const char *b, size_t b_len)
{
    ck_assert_uint_eq(a_len, b_len);
    ck_assert_int_eq(memcmp(a, b, a_len), 0);
}

static void check_same(const struct sync_msg *a, const struct sync_msg *b)
{
    ck_assert_int_eq(a->type, b->type);
    switch (a->type) {
    case SYNC_MSG_LOST:
        ck_assert_int_eq(a->status, b->status);
        check_text(a->path, a->path_len, b->path, b->path_len);
        break;
    case SYNC_MSG_DIR:
    case SYNC_MSG_WATCH:
    case SYNC_MSG_UNWATCH:
    case SYNC_MSG_DIRTY:
        check_text(a->path, a->path_len, b->path, b->path_len);
        break;
    case SYNC_MSG_WANT:
        check_text(a->path, a->path_len, b->path, b->path_len);
        ck_assert_int_eq(a->has_sig, b->has_sig);
        check_sig(&a->sig, &b->sig);
        break;
    case SYNC_MSG_OP:
        check_text(a->op.path, a->op.path_len, b->op.path, b->op.path_len);
        check_sig(&a->op.expected, &b->op.expected);
        ck_assert(sync_id_equal(&a->op.id, &b->op.id));
        ck_assert_int_eq(a->op.kind, b->op.kind);
        ck_assert_int_eq(a->op.exec, b->op.exec);
        ck_assert_int_eq(a->op.absent, b->op.absent);
        ck_assert_int_eq(a->op.has_id, b->op.has_id);
        ck_assert_int_eq(a->size, b->size);
        break;
    case SYNC_MSG_PIECE:
        check_text((const char *)a->bytes, a->len, (const char *)b->bytes, b->len);
        break;
    case SYNC_MSG_ENTRY:
        check_text(a->entry.name, a->entry.name_len, b->entry.name, b->entry.name_len);
        check_text(a->entry.target, a->entry.target_len, b->entry.target, b->entry.target_len);
        check_sig(&a->entry.sig, &b->entry.sig);
        break;
    case SYNC_MSG_COMMIT:
        ck_assert(sync_id_equal(&a->id, &b->id));
        break;
    case SYNC_MSG_DROP:
    case SYNC_MSG_OVERFLOW:
    case SYNC_MSG_ALIVE:
        break;
    default:
        ck_assert_uint_eq(a->index, b->index);
        ck_assert_int_eq(a->status, b->status);
        if (a->type != SYNC_MSG_LISTED)
            check_sig(&a->sig, &b->sig);
        if (a->type == SYNC_MSG_LISTED || a->type == SYNC_MSG_HASHED || a->type == SYNC_MSG_READ)
            ck_assert_int_eq(a->flag, b->flag);
        if (a->type == SYNC_MSG_HASHED)
            check_text((const char *)a->bytes, a->len, (const char *)b->bytes, b->len);
        break;
    }
}

/* All messages of bytes, fed in pieces, must be samples in order, `rounds` times. */
static void read_samples(const uint8_t *bytes, size_t len, size_t piece, int rounds)
{
    struct sync_unpack *unpack;
    struct sync_msg msg, want;
    size_t at = 0;
    int n = 0, r;

    ck_assert_int_eq(sync_unpack_new(&unpack), 0);
    for (;;) {
        r = sync_unpack_next(unpack, &msg);
        ck_assert_int_ge(r, 0);
        if (r == 1) {
            want = sample((enum sync_msg_type)(SYNC_MSG_DIR + n % (SYNC_N_MSG - SYNC_MSG_DIR)));
            check_same(&want, &msg);
            n++;
        } else if (at < len) {
            at += sync_unpack_feed(unpack, bytes + at, piece < len - at ? piece : len - at);
        } else {
            break;
        }
    }
    ck_assert_int_eq(n, rounds * (SYNC_N_MSG - SYNC_MSG_DIR));
    ck_assert(sync_unpack_at_end(unpack));
    sync_unpack_free(unpack);
}

static size_t pack_into(bool zip, int rounds, uint8_t *out, size_t size)
{
    struct sync_pack *pack;
    const uint8_t *bytes;
    size_t len;

    ck_assert_int_eq(sync_pack_new(zip, &pack), 0);
    for (int i = 0; i < rounds; i++) {
        for (int type = SYNC_MSG_DIR; type < SYNC_N_MSG; type++) {
            struct sync_msg msg = sample((enum sync_msg_type)type);

            ck_assert_int_eq(sync_pack_add(pack, &msg), 0);
        }
    }
    ck_assert_int_eq(sync_pack_flush(pack), 0);
    ck_assert_uint_eq(sync_pack_waiting(pack), 0);
    bytes = sync_pack_bytes(pack, &len);
    ck_assert_uint_le(len, size);
    memcpy(out, bytes, len);
    sync_pack_free(pack);
    return len;
}

static uint8_t packed[4 << 20];

START_TEST(every_message_comes_out_as_it_went_in)
{
    size_t plain = pack_into(false, 1, packed, sizeof(packed)), zipped;

    read_samples(packed, plain, 1, 1);
    read_samples(packed, plain, sizeof(packed), 1);
    zipped = pack_into(true, 1000, packed, sizeof(packed));
    read_samples(packed, zipped, 1, 1000);
    read_samples(packed, zipped, 4093, 1000);
    read_samples(packed, zipped, sizeof(packed), 1000);
    plain = pack_into(false, 1000, packed, sizeof(packed));
    ck_assert_uint_gt(plain, 10 * zipped);
    read_samples(packed, plain, 65536, 1000);
}
END_TEST

START_TEST(what_does_not_get_smaller_goes_as_it_is)
{
    static uint8_t noise[SYNC_PIECE_MAX];
    struct sync_msg msg = {.type = SYNC_MSG_PIECE, .bytes = noise, .len = sizeof(noise)};
    struct sync_pack *pack;
    size_t len;
    uint32_t x = 1;

    for (size_t i = 0; i < sizeof(noise); i++) {
        x = x * 1664525u + 1013904223u;
        noise[i] = (uint8_t)(x >> 24);
    }
    ck_assert_int_eq(sync_pack_new(true, &pack), 0);
    ck_assert_int_eq(sync_pack_add(pack, &msg), 0);
    ck_assert_int_eq(sync_pack_flush(pack), 0);
    (void)sync_pack_bytes(pack, &len);
    ck_assert_uint_eq(len, 1 + 8 + 5 + sizeof(noise));
    sync_pack_free(pack);
}
END_TEST

/* What bytes lead to: the first thing that is not "feed more" or a message. */
static int outcome(const uint8_t *bytes, size_t len)
{
    struct sync_unpack *unpack;
    struct sync_msg msg;
    size_t at = 0;
    int r;

    ck_assert_int_eq(sync_unpack_new(&unpack), 0);
    for (;;) {
        r = sync_unpack_next(unpack, &msg);
        if (r < 0 || (r == 0 && at == len))
            break;
        if (r == 0)
            at += sync_unpack_feed(unpack, bytes + at, len - at);
    }
    if (r == 0 && !sync_unpack_at_end(unpack))
        r = UV_EOF; /* cut */
    else if (r < 0) /* and stays so */
        ck_assert_int_eq(sync_unpack_next(unpack, &msg), UV_EPROTO);
    sync_unpack_free(unpack);
    return r;
}

static void put_u32(uint8_t *at, uint32_t v)
{
    for (int i = 0; i < 4; i++)
        at[i] = (uint8_t)(v >> (8 * i));
}

/* A plain block with one message of this type, length field and payload. */
static size_t one(uint8_t *out, uint8_t type, uint32_t len, const void *payload, uint32_t real)
{
    out[0] = SYNC_WIRE_VERSION;
    put_u32(out + 1, 5 + real);
    put_u32(out + 5, 5 + real);
    out[9] = type;
    put_u32(out + 10, len);
    if (real > 0)
        memcpy(out + 14, payload, real);
    return 14 + real;
}

START_TEST(a_broken_peer_is_found_out)
{
    static uint8_t b[SYNC_BLOCK_MAX * 2];
    size_t n;

    ck_assert_int_eq(outcome((const uint8_t *)"\1", 1), 0);
    ck_assert_int_eq(outcome((const uint8_t *)"\2", 1), UV_EPROTO);
    ck_assert_int_eq(outcome((const uint8_t *)"", 0), UV_EOF);
    n = one(b, SYNC_MSG_DIR, 3, "a/b", 3);
    ck_assert_int_eq(outcome(b, n), 0);
    for (size_t cut = 1; cut < n; cut++)
        ck_assert_int_eq(outcome(b, cut), cut == 1 ? 0 : UV_EOF);
    n = one(b, SYNC_MSG_DIR, 4, "a/b", 3); /* the message goes on in the next block */
    ck_assert_int_eq(outcome(b, n), UV_EOF);
    n = one(b, SYNC_MSG_DIR, 2, "a/b", 3);
    ck_assert_int_eq(outcome(b, n), UV_EPROTO); /* "a/", and then no message */
    n = one(b, 0, 0, NULL, 0);
    ck_assert_int_eq(outcome(b, n), UV_EPROTO);
    n = one(b, SYNC_N_MSG, 0, NULL, 0);
    ck_assert_int_eq(outcome(b, n), UV_EPROTO);
    n = one(b, SYNC_MSG_PIECE, SYNC_MSG_MAX + 1, NULL, 0);
    ck_assert_int_eq(outcome(b, n), UV_EPROTO);
    n = one(b, SYNC_MSG_PIECE, 0, NULL, 0);
    ck_assert_int_eq(outcome(b, n), UV_EPROTO);
    n = one(b, SYNC_MSG_DROP, 1, "x", 1);
    ck_assert_int_eq(outcome(b, n), UV_EPROTO);
    n = one(b, SYNC_MSG_DIR, 2, "..", 2);
    ck_assert_int_eq(outcome(b, n), UV_EPROTO);
    /* Blocks that are too large, empty, or grow when packed. */
    b[0] = SYNC_WIRE_VERSION;
    put_u32(b + 1, 1);
    put_u32(b + 5, SYNC_BLOCK_MAX + 1);
    ck_assert_int_eq(outcome(b, 9), UV_EPROTO);
    put_u32(b + 5, 0);
    ck_assert_int_eq(outcome(b, 9), UV_EPROTO);
    put_u32(b + 1, 0);
    put_u32(b + 5, 9);
    ck_assert_int_eq(outcome(b, 9), UV_EPROTO);
}
END_TEST

START_TEST(a_bomb_does_not_go_off)
{
    static uint8_t zeros[64 << 20], b[1 << 20];
    size_t n = ZSTD_compress(b + 9, sizeof(b) - 9, zeros, sizeof(zeros), 1);

    ck_assert(!ZSTD_isError(n));
    ck_assert_uint_lt(n, SYNC_BLOCK_MAX);
    b[0] = SYNC_WIRE_VERSION;
    put_u32(b + 1, (uint32_t)n);
    put_u32(b + 5, SYNC_BLOCK_MAX); /* it says 256 KiB and holds 64 MiB */
    ck_assert_int_eq(outcome(b, 9 + n), UV_EPROTO);
    n = ZSTD_compress(b + 9, sizeof(b) - 9, zeros, 1000, 1);
    put_u32(b + 1, (uint32_t)n);
    put_u32(b + 5, 1001); /* and less than it says */
    ck_assert_int_eq(outcome(b, 9 + n), UV_EPROTO);
    memset(b + 9, 0xff, 64); /* no frame at all */
    put_u32(b + 1, 64);
    ck_assert_int_eq(outcome(b, 9 + 64), UV_EPROTO);
}
END_TEST

static void refuse(const struct sync_msg *msg)
{
    struct sync_pack *pack;

    ck_assert_int_eq(sync_pack_new(true, &pack), 0);
    ck_assert_int_eq(sync_pack_add(pack, msg), UV_EINVAL);
    ck_assert_uint_eq(sync_pack_waiting(pack), 0);
    sync_pack_free(pack);
}

START_TEST(what_would_be_refused_is_not_sent)
{
    static const uint8_t bytes[SYNC_PIECE_MAX + 1];
    struct sync_msg msg = {.type = SYNC_MSG_PIECE, .bytes = bytes, .len = sizeof(bytes)};

    refuse(&msg);
    msg.len = 0;
    refuse(&msg);
    msg = sample(SYNC_MSG_OP);
    msg.op.path = "../x";
    msg.op.path_len = 4;
    refuse(&msg);
    msg = sample(SYNC_MSG_OP);
    msg.op.kind = SYNC_OP_DIR; /* with content */
    refuse(&msg);
    msg = sample(SYNC_MSG_OP);
    msg.op.kind = SYNC_OP_LINK; /* without a target */
    msg.size = 0;
    refuse(&msg);
    msg = sample(SYNC_MSG_ENTRY);
    msg.entry.name = "a/b";
    msg.entry.name_len = 3;
    refuse(&msg);
    msg = sample(SYNC_MSG_ENTRY);
    msg.entry.sig.mode = S_IFREG; /* with a target */
    refuse(&msg);
    msg = sample(SYNC_MSG_APPLIED);
    msg.status = 3;
    refuse(&msg);
    msg.status = -5000;
    refuse(&msg);
    msg = sample(SYNC_MSG_WANT);
    msg.path_len = 0;
    refuse(&msg);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("sync/wire");
    TCase *tc = tcase_create("wire");
    SRunner *sr = srunner_create(s);
    int n_failed;

    tcase_set_timeout(tc, 100);
    tcase_add_test(tc, every_message_comes_out_as_it_went_in);
    tcase_add_test(tc, what_does_not_get_smaller_goes_as_it_is);
    tcase_add_test(tc, a_broken_peer_is_found_out);
    tcase_add_test(tc, a_bomb_does_not_go_off);
    tcase_add_test(tc, what_would_be_refused_is_not_sent);
    suite_add_tcase(s, tc);
    srunner_run_all(sr, CK_ENV);
    n_failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return n_failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
