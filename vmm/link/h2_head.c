/* SPDX-License-Identifier: MIT */
/* A received head: fields in order, pseudo-headers apart, text in nghttp2's counted buffers. */
#include "vmm/link/h2_internal.h"

#include <stdlib.h>
#include <string.h>

#define FIELD_OVERHEAD 32 /* RFC 9113 section 6.5.2 */
#define FIELDS_FIRST   16

void h2_head_clear(struct h2_head *head)
{
    for (size_t i = 0; i < head->n_bufs; i++)
        nghttp2_rcbuf_decref(head->bufs[i]);
    free(head->bufs);
    free(head->fields);
    memset(head, 0, sizeof(*head));
}

static int grow(void **array, size_t *cap, size_t need, size_t item)
{
    size_t n = *cap == 0 ? FIELDS_FIRST : *cap;
    void *p;

    if (need <= *cap)
        return 0;
    while (n < need)
        n *= 2;
    p = realloc(*array, n * item);
    if (p == NULL)
        return -ENOMEM;
    *array = p;
    *cap = n;
    return 0;
}

/* False when a value is none: of :status nghttp2 checks only that it has three digits. */
static bool set_pseudo(struct tr_h2_head *pub, const char *name, const char *value)
{
    if (strcmp(name, ":method") == 0)
        pub->method = value;
    else if (strcmp(name, ":scheme") == 0)
        pub->scheme = value;
    else if (strcmp(name, ":authority") == 0)
        pub->authority = value;
    else if (strcmp(name, ":path") == 0)
        pub->path = value;
    else if (strcmp(name, ":protocol") == 0)
        pub->protocol = value;
    else if (strcmp(name, ":status") == 0)
        return (pub->status = (int)strtol(value, NULL, 10)) >= 100;
    return true;
}

int h2_head_add(struct h2_head *head, nghttp2_rcbuf *name, nghttp2_rcbuf *value, size_t max)
{
    nghttp2_vec n = nghttp2_rcbuf_get_buf(name), v = nghttp2_rcbuf_get_buf(value);
    size_t bytes = head->bytes + n.len + v.len + FIELD_OVERHEAD;

    if (bytes > max)
        return -EMSGSIZE;
    if (grow((void **)&head->bufs, &head->bufs_cap, head->n_bufs + 2, sizeof(nghttp2_rcbuf *)) !=
            0 ||
        grow((void **)&head->fields, &head->fields_cap, head->n_fields + 1,
             sizeof(struct tr_h2_field)) != 0)
        return -ENOMEM;
    head->bytes = bytes;
    nghttp2_rcbuf_incref(name);
    nghttp2_rcbuf_incref(value);
    head->bufs[head->n_bufs++] = name;
    head->bufs[head->n_bufs++] = value;
    if (n.len > 0 && n.base[0] == ':') {
        if (!set_pseudo(&head->pub, (const char *)n.base, (const char *)v.base))
            return -EPROTO;
        return 0;
    }
    head->fields[head->n_fields++] = (struct tr_h2_field){
        .name = (const char *)n.base,
        .name_len = n.len,
        .value = (const char *)v.base,
        .value_len = v.len,
    };
    return 0;
}

const struct tr_h2_head *h2_head_finish(struct h2_head *head)
{
    head->pub.fields = head->fields;
    head->pub.n_fields = head->n_fields;
    return &head->pub;
}

const char *tr_h2_head_get(const struct tr_h2_head *head, const char *name)
{
    size_t len = strlen(name);

    for (size_t i = 0; i < head->n_fields; i++) {
        if (head->fields[i].name_len == len && memcmp(head->fields[i].name, name, len) == 0)
            return head->fields[i].value;
    }
    return NULL;
}
