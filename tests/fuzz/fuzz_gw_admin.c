/* SPDX-License-Identifier: MIT */
/* Fields that decide who is signed in to the dashboard. The input is lines, each the value of one
 * of them, chosen by its first byte. Without the secret nothing opens. */
#include <assert.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "gateway/admin.h"
#include "gateway/admin_cookie.h"
#include "gateway/asset.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void add(struct gw_request *req, char which, const char *value, size_t len)
{
    static const struct {
        const char *name;
        enum gw_field_id id;
    } known[] = {{"cookie", GW_FIELD_COOKIE},
                 {"origin", GW_FIELD_OTHER},
                 {"sec-fetch-site", GW_FIELD_OTHER},
                 {"sec-fetch-dest", GW_FIELD_SEC_FETCH_MODE},
                 {"accept-encoding", GW_FIELD_OTHER}};
    size_t i = (unsigned char)which % (sizeof(known) / sizeof(known[0]));

    req->fields[req->n_fields++] = (struct gw_field){.name = known[i].name,
                                                     .name_len = (uint32_t)strlen(known[i].name),
                                                     .value = value,
                                                     .value_len = (uint32_t)len,
                                                     .id = (uint8_t)known[i].id};
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct gw_field fields[16];
    struct gw_request req = {.fields = fields, .host = GW_STR("admin.test")};
    char key[GW_ADMIN_KEY_MAX + 1], *text = malloc(size > 0 ? size : 1);
    size_t at = 0;

    if (text == NULL)
        return 0;
    if (size > 0)
        memcpy(text, data, size);
    while (at < size && req.n_fields < sizeof(fields) / sizeof(fields[0])) {
        const char *lf = memchr(text + at, '\n', size - at);
        size_t end = lf != NULL ? (size_t)(lf - text) : size;

        if (end > at)
            add(&req, text[at], text + at + 1, end - at - 1);
        at = end + 1;
    }
    for (int secure = 0; secure < 2; secure++) {
        assert(gw_admin_signed_in(&req, secure, 1, key) != GW_ADMIN_SIGNED_IN);
        (void)gw_admin_same_origin(&req, secure);
    }
    (void)gw_admin_is_foreign(&req);
    assert(gw_asset_coding(&req) < GW_CODINGS);
    (void)gw_asset_find((struct gw_str){text, size});
    free(text);
    return 0;
}
