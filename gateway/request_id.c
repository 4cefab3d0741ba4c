/* SPDX-License-Identifier: MIT */
#include "gateway/request_id.h"

#include <string.h>

#define ID_MAX 64

static bool is_plain(const struct gw_field *f)
{
    if (f->value_len == 0 || f->value_len > ID_MAX || f->hop_by_hop)
        return false;
    for (uint32_t i = 0; i < f->value_len; i++) {
        char c = f->value[i];

        if (!(c >= 'a' && c <= 'z') && !(c >= 'A' && c <= 'Z') && !(c >= '0' && c <= '9') &&
            (c == '\0' || strchr("-._~+/=:@", c) == NULL))
            return false;
    }
    return true;
}

/* Different each time, and not to be guessed from the last by eye; no secret. (splitmix64) */
static uint64_t next(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15ull;

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}

struct gw_str gw_request_id(struct gw_request *req, uint64_t *state,
                            char made[GW_REQUEST_ID_LEN + 1])
{
    struct gw_field *found = NULL;
    unsigned n = 0;
    uint64_t id;

    for (size_t i = 0; i < req->n_fields; i++) {
        if (req->fields[i].id != GW_FIELD_X_REQUEST_ID)
            continue;
        found = &req->fields[i];
        n++;
    }
    made[0] = '\0';
    if (n == 1 && is_plain(found))
        return (struct gw_str){found->value, found->value_len};
    for (size_t i = 0; n > 0 && i < req->n_fields; i++)
        if (req->fields[i].id == GW_FIELD_X_REQUEST_ID)
            req->fields[i].hop_by_hop = true;
    id = next(state);
    for (int i = GW_REQUEST_ID_LEN - 1; i >= 0; i--, id >>= 4)
        made[i] = "0123456789abcdef"[id & 15];
    made[GW_REQUEST_ID_LEN] = '\0';
    return (struct gw_str){made, GW_REQUEST_ID_LEN};
}
