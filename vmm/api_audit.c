/* SPDX-License-Identifier: MIT */
/* /v1/audit: who did what, newest first, out of Redis; admin only (the router sees to it). */
#include <hiredis/hiredis.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "transom/log.h"
#include "transom/state.h"
#include "vmm/api.h"
#include "vmm/live.h"
#include "vmm/store_api.h"
#include "vmm/vmm.h"

#define LIST_MAX 1000

struct asking {
    struct vmm_request *req; /* with a reference */
    size_t limit;
};

/* [ID, [field, value, ...]] -> the entry with its id (new), or NULL for what is none of ours. */
static json_t *read_entry(const struct redisReply *item)
{
    const struct redisReply *fields;
    json_t *entry = NULL;

    if (item->type != REDIS_REPLY_ARRAY || item->elements != 2 ||
        item->element[0]->type != REDIS_REPLY_STRING)
        return NULL;
    fields = item->element[1];
    for (size_t i = 0; fields->type == REDIS_REPLY_ARRAY && i + 1 < fields->elements; i += 2) {
        if (strcmp(fields->element[i]->str, "entry") == 0 && entry == NULL)
            entry = json_loadb(fields->element[i + 1]->str, fields->element[i + 1]->len, 0, NULL);
    }
    if (!json_is_object(entry) ||
        json_object_set_new(entry, "id", json_string(item->element[0]->str)) != 0) {
        json_decref(entry);
        return NULL;
    }
    return entry;
}

static void on_reply(struct redisReply *reply, void *arg)
{
    struct asking *a = arg;
    json_t *list = json_array(), *body;
    const char *last = NULL;
    size_t n = 0;

    if (reply == NULL || reply->type != REDIS_REPLY_ARRAY) {
        if (reply != NULL && reply->type == REDIS_REPLY_ERROR)
            log_error("redis did not give the audit: %s", reply->str);
        vmm_reply_error(a->req, 503, "redis is not there, and the audit is in it");
        json_decref(list);
        goto out;
    }
    for (n = 0; n < reply->elements && n < a->limit; n++) {
        json_t *entry = read_entry(reply->element[n]);

        if (entry != NULL)
            json_array_append_new(list, entry);
        if (reply->element[n]->elements > 0)
            last = reply->element[n]->element[0]->str;
    }
    body = json_pack("{so}", "entries", list);
    if (body != NULL && n < reply->elements && last != NULL)
        json_object_set_new(body, "next", json_string(last));
    vmm_reply_json(a->req, 200, body);
out:
    vmm_request_unref(a->req);
    free(a);
}

/* "1764517503123-0", as a Redis stream names its entries. */
static bool id_valid(const char *id)
{
    size_t first = strspn(id, "0123456789"), second;

    if (first == 0 || first > 20 || id[first] != '-')
        return false;
    second = strspn(id + first + 1, "0123456789");
    return second > 0 && second <= 20 && id[first + 1 + second] == '\0';
}

void vmm_api_audit(struct vmm_request *req)
{
    int64_t limit = vmm_store_query_limit(req, LIST_MAX, 100);
    char *before = limit < 0 ? NULL : vmm_query_get(req->query, "before");
    char end[64] = "+", count[24];
    const char *argv[] = {"XREVRANGE", TR_KEY_AUDIT, end, "-", "COUNT", count};
    struct asking *a;

    if (limit < 0)
        return;
    if (before != NULL && *before && !id_valid(before)) {
        vmm_reply_error(req, 400, "\"before\" must be the id of an entry");
        free(before);
        return;
    }
    if (before != NULL && *before)
        snprintf(end, sizeof(end), "(%s", before);
    free(before);
    a = calloc(1, sizeof(*a));
    if (a == NULL) {
        vmm_reply_error(req, 503, "out of memory");
        return;
    }
    a->req = vmm_request_ref(req);
    a->limit = (size_t)limit;
    snprintf(count, sizeof(count), "%" PRId64, limit + 1);
    if (vmm_live_command(req->vmm, 6, argv, on_reply, a) != 0) {
        vmm_reply_error(req, 503, "redis is not there, and the audit is in it");
        vmm_request_unref(a->req);
        free(a);
    }
}
