/* SPDX-License-Identifier: MIT */
/* What a program does with a stream: request, respond, write, end, reset, consume. Body bytes wait
 * in a chain of chunks until nghttp2 asks for them. */
#include "vmm/link/h2_internal.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHUNK_MIN  4096
#define FIELDS_MAX 1024

/* Fields that speak of one connection may not be sent in HTTP/2 (RFC 9113 section 8.2.2). */
static bool is_connection_field(const struct tr_h2_field *f)
{
    static const char *const names[] = {"connection", "keep-alive", "proxy-connection",
                                        "transfer-encoding", "upgrade"};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (strlen(names[i]) == f->name_len && memcmp(names[i], f->name, f->name_len) == 0)
            return true;
    }
    return false;
}

static bool field_ok(const struct tr_h2_field *f, bool pseudo_ok)
{
    size_t skip = 0;

    if (f->name_len == 0)
        return false;
    if (f->name[0] == ':') {
        if (!pseudo_ok)
            return false;
        skip = 1;
    }
    if (!nghttp2_check_header_name((const uint8_t *)f->name + skip, f->name_len - skip))
        return false;
    for (size_t i = 0; i < f->name_len; i++) {
        if (f->name[i] >= 'A' && f->name[i] <= 'Z')
            return false;
    }
    return !is_connection_field(f) &&
           nghttp2_check_header_value_rfc9113((const uint8_t *)f->value, f->value_len);
}

static nghttp2_nv nv_of(const struct tr_h2_field *f)
{
    return (nghttp2_nv){
        .name = (uint8_t *)f->name,
        .namelen = f->name_len,
        .value = (uint8_t *)f->value,
        .valuelen = f->value_len,
        .flags = NGHTTP2_NV_FLAG_NONE,
    };
}

/* Turn fields into *out (malloc'ed, n_before places left free in front). 0, -EINVAL or -ENOMEM. */
static int to_nv(const struct tr_h2_field *fields, size_t n, size_t n_before, bool pseudo_ok,
                 nghttp2_nv **out)
{
    nghttp2_nv *nv;

    if (n > FIELDS_MAX)
        return -EINVAL;
    nv = malloc((n + n_before + 1) * sizeof(*nv)); /* + 1: never an empty block */
    if (nv == NULL)
        return -ENOMEM;
    for (size_t i = 0; i < n; i++) {
        if (!field_ok(&fields[i], pseudo_ok)) {
            free(nv);
            return -EINVAL;
        }
        nv[n_before + i] = nv_of(&fields[i]);
    }
    *out = nv;
    return 0;
}

/* ---- queue ---- */

void h2_queue_clear(struct tr_h2_stream *st)
{
    struct h2_chunk *c;

    while ((c = st->head) != NULL) {
        st->head = c->next;
        free(c);
    }
    st->tail = NULL;
    st->queued = 0;
}

static int queue_add(struct tr_h2_stream *st, const uint8_t *data, size_t len)
{
    struct h2_chunk *tail = st->tail;
    size_t room = tail == NULL ? 0 : tail->cap - tail->off - tail->len;
    size_t first = len < room ? len : room;
    struct h2_chunk *c = NULL;

    if (len > first) { /* before anything is taken, so that failure takes nothing */
        size_t rest = len - first;
        size_t cap = rest < CHUNK_MIN ? CHUNK_MIN : rest;

        c = malloc(sizeof(*c) + cap);
        if (c == NULL)
            return -ENOMEM;
        *c = (struct h2_chunk){.len = rest, .cap = cap};
        memcpy(c->data, data + first, rest);
    }
    if (first > 0) {
        memcpy(tail->data + tail->off + tail->len, data, first);
        tail->len += first;
    }
    if (c != NULL) {
        if (tail != NULL)
            tail->next = c;
        else
            st->head = c;
        st->tail = c;
    }
    st->queued += len;
    return 0;
}

static size_t queue_take(struct tr_h2_stream *st, uint8_t *buf, size_t len)
{
    size_t done = 0;

    while (done < len && st->head != NULL) {
        struct h2_chunk *c = st->head;
        size_t n = len - done < c->len ? len - done : c->len;

        memcpy(buf + done, c->data + c->off, n);
        done += n;
        c->off += n;
        c->len -= n;
        if (c->len > 0)
            break;
        st->head = c->next;
        if (st->head == NULL)
            st->tail = NULL;
        free(c);
    }
    st->queued -= done;
    return done;
}

static void drain_note(struct tr_h2_stream *st)
{
    if (!st->want_drain || st->drain_due || st->queued > st->h2->options.stream_high_water / 4)
        return;
    st->drain_due = true;
    st->drain_next = st->h2->drains;
    st->h2->drains = st;
    st->h2->dirty = true;
}

void h2_drain_forget(struct tr_h2_stream *st)
{
    struct tr_h2_stream **p = &st->h2->drains;

    if (!st->drain_due)
        return;
    while (*p != st)
        p = &(*p)->drain_next;
    *p = st->drain_next;
    st->drain_due = false;
}

ssize_t h2_read_body(nghttp2_session *ng, int32_t stream_id, uint8_t *buf, size_t length,
                     uint32_t *data_flags, nghttp2_data_source *source, void *user_data)
{
    struct tr_h2_stream *st = nghttp2_session_get_stream_user_data(ng, stream_id);
    size_t n;

    (void)source;
    (void)user_data;
    if (st == NULL)
        return NGHTTP2_ERR_DEFERRED; /* ended by us: RST_STREAM is under way */
    n = queue_take(st, buf, length);
    drain_note(st);
    if (st->queued > 0)
        return (ssize_t)n;
    if (!st->ended) {
        if (n > 0)
            return (ssize_t)n;
        st->deferred = true;
        return NGHTTP2_ERR_DEFERRED;
    }
    *data_flags |= NGHTTP2_DATA_FLAG_EOF;
    if (st->trailers != NULL) {
        *data_flags |= NGHTTP2_DATA_FLAG_NO_END_STREAM;
        if (nghttp2_submit_trailer(ng, stream_id, st->trailers->nv, st->trailers->n) != 0)
            return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    }
    return (ssize_t)n;
}

static void resume(struct tr_h2_stream *st)
{
    if (st->deferred) {
        st->deferred = false;
        (void)nghttp2_session_resume_data(st->h2->ng, st->id); /* fails when already closed */
    }
    h2_touch(st->h2);
}

/* ---- public ---- */

int tr_h2_request(struct tr_h2 *h2, const struct tr_h2_field *fields, size_t n_fields, bool end,
                  const struct tr_h2_stream_cbs *cbs, void *arg, struct tr_h2_stream **out)
{
    nghttp2_data_provider body = {.read_callback = h2_read_body};
    struct tr_h2_stream *st;
    nghttp2_nv *nv = NULL;
    int32_t id;
    int r;

    if (!tr_h2_can_request(h2))
        return -EAGAIN;
    r = to_nv(fields, n_fields, 0, true, &nv);
    if (r != 0)
        return r;
    st = h2_stream_new(h2, 0);
    if (st == NULL) {
        free(nv);
        return -ENOMEM;
    }
    id = nghttp2_submit_request(h2->ng, NULL, nv, n_fields, end ? NULL : &body, st);
    free(nv);
    if (id < 0) {
        h2_list_del(&h2->live, st);
        h2_stream_free(st);
        return h2_errno(id);
    }
    st->id = id;
    st->ended = end;
    st->responded = true;
    st->announced = true;
    h2->n_announced++;
    h2->n_wire++;
    tr_h2_stream_set(st, cbs, arg);
    h2_touch(h2);
    *out = st;
    return 0;
}

void tr_h2_stream_set(struct tr_h2_stream *st, const struct tr_h2_stream_cbs *cbs, void *arg)
{
    if (cbs != NULL)
        st->cbs = *cbs;
    else
        memset(&st->cbs, 0, sizeof(st->cbs));
    st->arg = arg;
}

void *tr_h2_stream_arg(const struct tr_h2_stream *st)
{
    return st->arg;
}

struct tr_h2 *tr_h2_stream_session(const struct tr_h2_stream *st)
{
    return st->h2;
}

int32_t tr_h2_stream_id(const struct tr_h2_stream *st)
{
    return st->id;
}

int tr_h2_respond(struct tr_h2_stream *st, int status, const struct tr_h2_field *fields,
                  size_t n_fields, bool end)
{
    nghttp2_data_provider body = {.read_callback = h2_read_body};
    bool final = status >= 200;
    nghttp2_nv *nv = NULL;
    char text[8];
    int r;

    if (st->gone || !h2_alive(st->h2))
        return -EPIPE;
    if (!st->h2->server || st->responded || status < 100 || status > 999 || status == 101 ||
        (!final && end))
        return -EINVAL;
    r = to_nv(fields, n_fields, 1, false, &nv);
    if (r != 0)
        return r;
    snprintf(text, sizeof(text), "%d", status);
    nv[0] = nv_of(&(struct tr_h2_field){":status", 7, text, 3});
    if (final)
        r = nghttp2_submit_response(st->h2->ng, st->id, nv, n_fields + 1, end ? NULL : &body);
    else
        r = nghttp2_submit_headers(st->h2->ng, NGHTTP2_FLAG_NONE, st->id, NULL, nv, n_fields + 1,
                                   NULL);
    free(nv);
    if (r < 0)
        return h2_errno(r);
    if (final) {
        st->responded = true;
        st->ended = st->ended || end;
    }
    h2_touch(st->h2);
    return 0;
}

int tr_h2_write(struct tr_h2_stream *st, const void *data, size_t len)
{
    if (st->gone || st->ended || !h2_alive(st->h2))
        return -EPIPE;
    if (len > 0) {
        int r = queue_add(st, data, len);

        if (r != 0)
            return r;
        resume(st);
    }
    if (st->queued < st->h2->options.stream_high_water)
        return 1;
    st->want_drain = true;
    return 0;
}

/* One block: the array, then the text it points into. */
static struct h2_trailers *trailers_copy(const struct tr_h2_field *fields, size_t n)
{
    struct h2_trailers *t;
    size_t text = 0;
    uint8_t *p;

    for (size_t i = 0; i < n; i++)
        text += fields[i].name_len + fields[i].value_len;
    t = malloc(sizeof(*t) + n * sizeof(t->nv[0]) + text);
    if (t == NULL)
        return NULL;
    t->n = n;
    p = (uint8_t *)&t->nv[n];
    for (size_t i = 0; i < n; i++) {
        t->nv[i] = nv_of(&fields[i]);
        t->nv[i].name = memcpy(p, fields[i].name, fields[i].name_len);
        p += fields[i].name_len;
        t->nv[i].value = memcpy(p, fields[i].value, fields[i].value_len);
        p += fields[i].value_len;
    }
    return t;
}

void tr_h2_end(struct tr_h2_stream *st, const struct tr_h2_field *trailers, size_t n_trailers)
{
    if (st->gone || st->ended)
        return;
    for (size_t i = 0; i < n_trailers; i++) {
        if (!field_ok(&trailers[i], false)) {
            tr_h2_reset(st, NGHTTP2_INTERNAL_ERROR);
            return;
        }
    }
    if (n_trailers > 0) {
        st->trailers = trailers_copy(trailers, n_trailers);
        if (st->trailers == NULL) {
            tr_h2_reset(st, NGHTTP2_INTERNAL_ERROR);
            return;
        }
    }
    st->ended = true;
    resume(st);
}

void tr_h2_reset(struct tr_h2_stream *st, uint32_t code)
{
    struct tr_h2 *h2 = st->h2;

    if (st->gone)
        return;
    if (nghttp2_submit_rst_stream(h2->ng, NGHTTP2_FLAG_NONE, st->id, code) != 0)
        h2_fail(h2, -ENOMEM, "no memory for RST_STREAM");
    h2_stream_detach(st);
    st->code = code;
    h2_list_add(&h2->closing, st);
    h2_touch(h2);
}

void tr_h2_stream_consume(struct tr_h2_stream *st, size_t n)
{
    if (st->gone || st->discard)
        return;                  /* given back already */
    assert(n <= st->unconsumed); /* more than was handed out */
    st->unconsumed -= n;
    (void)nghttp2_session_consume(st->h2->ng, st->id, n);
    h2_touch(st->h2);
}

void tr_h2_stream_discard(struct tr_h2_stream *st)
{
    if (st->gone || st->discard)
        return;
    if (st->unconsumed > 0)
        tr_h2_stream_consume(st, st->unconsumed);
    st->discard = true;
    if (st->h2->server && st->out_done && !st->in_done)
        (void)nghttp2_submit_rst_stream(st->h2->ng, NGHTTP2_FLAG_NONE, st->id, NGHTTP2_NO_ERROR);
    h2_touch(st->h2);
}

size_t tr_h2_stream_queued(const struct tr_h2_stream *st)
{
    return st->queued;
}
