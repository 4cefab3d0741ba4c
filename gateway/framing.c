/* SPDX-License-Identifier: MIT */
#include "gateway/framing.h"

#include <string.h>

#include "gateway/http1.h"

#define DIRECTIVE "frame-ancestors"
#define N(text)   (sizeof(text) - 1)

static bool is_policy(const struct gw_field *f)
{
    return gw_str_ieq((struct gw_str){f->name, f->name_len}, "content-security-policy",
                      N("content-security-policy"));
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t';
}

/* Is p[0..n), between two separators, the directive? */
static bool is_directive(const char *p, size_t n)
{
    while (n > 0 && is_blank(*p)) {
        p++;
        n--;
    }
    return n >= N(DIRECTIVE) &&
           gw_str_ieq((struct gw_str){p, N(DIRECTIVE)}, DIRECTIVE, N(DIRECTIVE)) &&
           (n == N(DIRECTIVE) || is_blank(p[N(DIRECTIVE)]));
}

size_t gw_framing_policy(struct gw_str value, char *out)
{
    const char *p = value.p, *end = p + value.len;
    size_t n = 0;

    while (p < end) {
        const char *stop = p;
        size_t len;

        while (stop < end && *stop != ';' && *stop != ',')
            stop++;
        len = (size_t)(stop - p);
        if (!is_directive(p, len)) {
            if (stop < end)
                len++; /* its separator */
            memcpy(out + n, p, len);
            n += len;
        } else if (stop < end && *stop == ',') {
            out[n++] = ','; /* ends the policy, not only this directive */
        }
        p = stop < end ? stop + 1 : end;
    }
    return n;
}

size_t gw_framing_room(const struct gw_response *resp)
{
    size_t room = 0;

    for (size_t i = 0; i < resp->n_fields; i++)
        if (is_policy(&resp->fields[i]))
            room += resp->fields[i].value_len;
    return room;
}

size_t gw_framing_apply(struct gw_response *resp, char *out)
{
    size_t used = 0;

    for (size_t i = 0; i < resp->n_fields; i++) {
        struct gw_field *f = &resp->fields[i];
        bool empty = true;
        size_t n;

        if (gw_str_ieq((struct gw_str){f->name, f->name_len}, "x-frame-options",
                       N("x-frame-options")))
            f->hop_by_hop = true; /* does not go on */
        if (!is_policy(f))
            continue;
        n = gw_framing_policy((struct gw_str){f->value, f->value_len}, out + used);
        if (n == f->value_len)
            continue;
        for (size_t c = 0; c < n; c++)
            empty &= is_blank(out[used + c]) || out[used + c] == ',' || out[used + c] == ';';
        f->hop_by_hop |= empty;
        f->value = out + used;
        f->value_len = (uint32_t)n;
        used += n;
    }
    return used;
}
