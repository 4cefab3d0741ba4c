/* SPDX-License-Identifier: MIT */
/* Sorted chunks of pointers: finding is two binary searches, adding moves at most one chunk, and
 * adding in order, as a scan does, moves nothing. */
#include "sync/state.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { CHUNK = 512 };

struct chunk {
    size_t n; /* never 0 */
    struct sync_node *nodes[CHUNK];
};

struct sync_state {
    struct chunk **chunks;
    size_t n_chunks, size_chunks;
    size_t n, n_max;         /* nodes */
    size_t bytes, bytes_max; /* of their paths */
};

int sync_path_order(const char *a, size_t a_len, const char *b, size_t b_len)
{
    size_t n = a_len < b_len ? a_len : b_len;

    for (size_t i = 0; i < n; i++) {
        if (a[i] == b[i])
            continue;
        if (a[i] == '/')
            return -1;
        if (b[i] == '/')
            return 1;
        return (unsigned char)a[i] < (unsigned char)b[i] ? -1 : 1;
    }
    return a_len == b_len ? 0 : a_len < b_len ? -1 : 1;
}

bool sync_path_is_below(const char *path, size_t len, const char *dir, size_t dir_len)
{
    if (dir_len == 0)
        return len > 0;
    return len > dir_len && path[dir_len] == '/' && memcmp(path, dir, dir_len) == 0;
}

bool sync_path_is_within(const char *path, size_t len, const char *dir, size_t dir_len)
{
    return (len == dir_len && memcmp(path, dir, len) == 0) ||
           sync_path_is_below(path, len, dir, dir_len);
}

bool sync_value_is_same(const struct sync_value *a, const struct sync_value *b)
{
    if (a->what != b->what)
        return false;
    switch (a->what) {
    case SYNC_IS_FILE:
        return a->is_exec == b->is_exec && sync_id_equal(&a->id, &b->id);
    case SYNC_IS_LINK:
        return sync_id_equal(&a->id, &b->id);
    case SYNC_IS_LEFT_OUT:
        return a->why == b->why && a->is_there == b->is_there && a->has_id == b->has_id &&
               (!a->has_id || (a->is_exec == b->is_exec && sync_id_equal(&a->id, &b->id)));
    default:
        return true;
    }
}

int sync_state_new(size_t n_max, size_t bytes_max, struct sync_state **out)
{
    struct sync_state *st = calloc(1, sizeof(*st));

    if (st == NULL)
        return -ENOMEM;
    st->n_max = n_max > 0 ? n_max : SYNC_STATE_NODES_MAX;
    st->bytes_max = bytes_max > 0 ? bytes_max : SYNC_STATE_BYTES_MAX;
    *out = st;
    return 0;
}

void sync_state_clear(struct sync_state *st)
{
    for (size_t c = 0; c < st->n_chunks; c++) {
        for (size_t i = 0; i < st->chunks[c]->n; i++)
            free(st->chunks[c]->nodes[i]);
        free(st->chunks[c]);
    }
    st->n_chunks = st->n = st->bytes = 0;
}

void sync_state_free(struct sync_state *st)
{
    if (st == NULL)
        return;
    sync_state_clear(st);
    free(st->chunks);
    free(st);
}

size_t sync_state_count(const struct sync_state *st)
{
    return st->n;
}

static int order(const struct sync_node *node, const char *path, size_t len)
{
    return sync_path_order(node->path, node->len, path, len);
}

/* The first node that is not before path: its chunk and its place there. At the end: the place
 * behind the last chunk's last node, where a new node would go. Returns whether it is the path. */
static bool find(const struct sync_state *st, const char *path, size_t len, size_t *chunk,
                 size_t *at)
{
    size_t low = 0, high = st->n_chunks;
    const struct chunk *c;
    int r;

    while (low < high) { /* the first chunk whose last node is not before path */
        size_t mid = low + (high - low) / 2;

        c = st->chunks[mid];
        if (order(c->nodes[c->n - 1], path, len) < 0)
            low = mid + 1;
        else
            high = mid;
    }
    if (low == st->n_chunks) {
        *chunk = low > 0 ? low - 1 : 0;
        *at = low > 0 ? st->chunks[low - 1]->n : 0;
        return false;
    }
    *chunk = low;
    c = st->chunks[low];
    low = 0;
    high = c->n - 1; /* this one is not before path */
    while (low < high) {
        size_t mid = low + (high - low) / 2;

        r = order(c->nodes[mid], path, len);
        if (r < 0)
            low = mid + 1;
        else
            high = mid;
    }
    *at = low;
    return order(c->nodes[low], path, len) == 0;
}

struct sync_node *sync_state_get(const struct sync_state *st, const char *path, size_t len)
{
    size_t chunk, at;

    return find(st, path, len, &chunk, &at) ? st->chunks[chunk]->nodes[at] : NULL;
}

/* A new chunk at this place. */
static int add_chunk(struct sync_state *st, size_t place)
{
    struct chunk *c;

    if (st->n_chunks == st->size_chunks) {
        size_t size = st->size_chunks > 0 ? st->size_chunks * 2 : 16;
        struct chunk **more = realloc(st->chunks, size * sizeof(struct chunk *));

        if (more == NULL)
            return -ENOMEM;
        st->chunks = more;
        st->size_chunks = size;
    }
    c = malloc(sizeof(*c));
    if (c == NULL)
        return -ENOMEM;
    c->n = 0;
    memmove(st->chunks + place + 1, st->chunks + place,
            (st->n_chunks - place) * sizeof(struct chunk *));
    st->chunks[place] = c;
    st->n_chunks++;
    return 0;
}

/* Make room in a full chunk; the place may then be in the next one. */
static int split(struct sync_state *st, size_t *chunk, size_t *at)
{
    struct chunk *c, *next;
    size_t keep;
    int r = add_chunk(st, *chunk + 1);

    if (r != 0)
        return r;
    c = st->chunks[*chunk];
    next = st->chunks[*chunk + 1];
    keep = *at == CHUNK ? CHUNK : CHUNK / 2; /* added in order: leave full chunks behind */
    next->n = CHUNK - keep;
    memcpy(next->nodes, c->nodes + keep, next->n * sizeof(struct sync_node *));
    c->n = keep;
    if (*at >= keep) {
        *at -= keep;
        ++*chunk;
    }
    return 0;
}

int sync_state_put(struct sync_state *st, const char *path, size_t len, struct sync_node **out)
{
    struct sync_node *node;
    struct chunk *c;
    size_t chunk, at;
    int r;

    if (find(st, path, len, &chunk, &at)) {
        *out = st->chunks[chunk]->nodes[at];
        return 0;
    }
    if (st->n >= st->n_max || st->bytes + len > st->bytes_max || len > UINT16_MAX)
        return -ENOSPC;
    node = calloc(1, sizeof(*node) + len + 1);
    if (node == NULL)
        return -ENOMEM;
    node->len = (uint16_t)len;
    memcpy(node->path, path, len);
    r = st->n_chunks == 0               ? add_chunk(st, 0)
        : st->chunks[chunk]->n == CHUNK ? split(st, &chunk, &at)
                                        : 0;
    if (r != 0) {
        free(node);
        return r;
    }
    c = st->chunks[chunk];
    memmove(c->nodes + at + 1, c->nodes + at, (c->n - at) * sizeof(struct sync_node *));
    c->nodes[at] = node;
    c->n++;
    st->n++;
    st->bytes += len;
    *out = node;
    return 0;
}

static void drop_chunk(struct sync_state *st, size_t chunk)
{
    free(st->chunks[chunk]);
    st->n_chunks--;
    memmove(st->chunks + chunk, st->chunks + chunk + 1,
            (st->n_chunks - chunk) * sizeof(struct chunk *));
}

/* A chunk and the one behind it become one if that leaves half of it free, so that many removals
 * leave no crowd of nearly empty chunks. */
static void join(struct sync_state *st, size_t chunk)
{
    struct chunk *c, *next;

    if (chunk + 1 >= st->n_chunks)
        return;
    c = st->chunks[chunk];
    next = st->chunks[chunk + 1];
    if (c->n + next->n > CHUNK / 2)
        return;
    memcpy(c->nodes + c->n, next->nodes, next->n * sizeof(struct sync_node *));
    c->n += next->n;
    drop_chunk(st, chunk + 1);
}

/* Remove n nodes of one chunk. */
static void cut(struct sync_state *st, size_t chunk, size_t at, size_t n)
{
    struct chunk *c = st->chunks[chunk];

    for (size_t i = at; i < at + n; i++) {
        st->bytes -= c->nodes[i]->len;
        free(c->nodes[i]);
    }
    st->n -= n;
    memmove(c->nodes + at, c->nodes + at + n, (c->n - at - n) * sizeof(struct sync_node *));
    c->n -= n;
    if (c->n == 0) {
        drop_chunk(st, chunk);
        return;
    }
    join(st, chunk);
    if (chunk > 0)
        join(st, chunk - 1);
}

void sync_state_remove(struct sync_state *st, const char *path, size_t len)
{
    size_t chunk, at;

    if (find(st, path, len, &chunk, &at))
        cut(st, chunk, at, 1);
}

void sync_state_remove_below(struct sync_state *st, const char *dir, size_t len)
{
    for (;;) { /* one chunk's share at a time */
        const struct chunk *c;
        size_t chunk, at, end;

        if (find(st, dir, len, &chunk, &at))
            at++;
        if (chunk < st->n_chunks && at == st->chunks[chunk]->n) {
            chunk++;
            at = 0;
        }
        if (chunk >= st->n_chunks)
            return;
        c = st->chunks[chunk];
        for (end = at; end < c->n; end++)
            if (!sync_path_is_below(c->nodes[end]->path, c->nodes[end]->len, dir, len))
                break;
        if (end == at)
            return;
        cut(st, chunk, at, end - at);
    }
}

void sync_cursor_start(struct sync_cursor *c, const struct sync_state *st, const char *path,
                       size_t len)
{
    c->state = st;
    c->chunk = c->at = 0;
    if (len > 0)
        (void)find(st, path, len, &c->chunk, &c->at);
}

struct sync_node *sync_cursor_get(const struct sync_cursor *c)
{
    const struct sync_state *st = c->state;

    if (c->chunk >= st->n_chunks || c->at >= st->chunks[c->chunk]->n)
        return NULL;
    return st->chunks[c->chunk]->nodes[c->at];
}

void sync_cursor_next(struct sync_cursor *c)
{
    const struct sync_state *st = c->state;

    if (c->chunk < st->n_chunks && ++c->at >= st->chunks[c->chunk]->n) {
        c->at = 0;
        c->chunk++;
    }
}
