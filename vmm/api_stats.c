/* SPDX-License-Identifier: MIT */
/* Samples over time, out of Redis: a sandbox's figures, and the traffic of the node's gateway. */
#include <errno.h>
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

/* A number as it stands in Redis (new reference), or NULL for what is none. */
static json_t *read_number(const struct redisReply *text)
{
    char *end;
    long long whole;
    double real;

    if (text->type != REDIS_REPLY_STRING || text->len == 0 || text->len > 24)
        return NULL;
    errno = 0;
    whole = strtoll(text->str, &end, 10);
    if (*end == '\0' && errno == 0)
        return json_integer(whole);
    real = strtod(text->str, &end);
    return *end == '\0' ? json_real(real) : NULL; /* NULL also for what JSON has no number for */
}

/* [ID, [field, value, ...]] -> the sample (new), or NULL for what is none of ours. */
static json_t *read_sample(const struct redisReply *item)
{
    const struct redisReply *fields;
    char at[VMM_TIME_SIZE];
    json_t *sample;

    if (item->type != REDIS_REPLY_ARRAY || item->elements != 2 ||
        item->element[0]->type != REDIS_REPLY_STRING || item->element[1]->type != REDIS_REPLY_ARRAY)
        return NULL;
    sample = json_object();
    vmm_time_text(strtoll(item->element[0]->str, NULL, 10), at);
    (void)json_object_set_new(sample, "at", json_string(at));
    fields = item->element[1];
    for (size_t i = 0; i + 1 < fields->elements; i += 2) {
        json_t *value = read_number(fields->element[i + 1]);

        if (value != NULL && fields->element[i]->type == REDIS_REPLY_STRING)
            (void)json_object_set_new(sample, fields->element[i]->str, value);
        else
            json_decref(value);
    }
    return sample;
}

static void on_reply(struct redisReply *reply, void *arg)
{
    struct vmm_request *req = arg;
    json_t *list;

    if (reply == NULL || reply->type != REDIS_REPLY_ARRAY) {
        if (reply != NULL && reply->type == REDIS_REPLY_ERROR)
            log_error("redis did not give the samples: %s", reply->str);
        vmm_reply_error(req, 503, "redis is not there, and the samples are in it");
        vmm_request_unref(req);
        return;
    }
    list = json_array();
    for (size_t i = reply->elements; i-- > 0;) { /* asked for from the newest on */
        json_t *sample = read_sample(reply->element[i]);

        if (sample != NULL)
            (void)json_array_append_new(list, sample);
    }
    vmm_reply_json(req, 200, json_pack("{so}", "samples", list));
    vmm_request_unref(req);
}

static void ask(struct vmm_request *req, const char *prefix, const char *name)
{
    int64_t limit = vmm_store_query_limit(req, TR_STATS_MAX, TR_STATS_MAX);
    char key[256], count[24];
    const char *argv[] = {"XREVRANGE", key, "+", "-", "COUNT", count};

    if (limit < 0)
        return;
    snprintf(key, sizeof(key), "%s%s", prefix, name);
    snprintf(count, sizeof(count), "%" PRId64, limit);
    if (vmm_live_command(req->vmm, 6, argv, on_reply, vmm_request_ref(req)) != 0) {
        vmm_reply_error(req, 503, "redis is not there, and the samples are in it");
        vmm_request_unref(req);
    }
}

void vmm_api_stats(struct vmm_request *req)
{
    ask(req, TR_KEY_STATS, req->sandbox->label);
}

void vmm_api_traffic(struct vmm_request *req)
{
    ask(req, TR_KEY_GATEWAY_STATS, req->vmm->options->node);
}
