/* SPDX-License-Identifier: MIT */
#include "vmm/audit.h"

#include <hiredis/hiredis.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "transom/log.h"
#include "transom/state.h"
#include "vmm/live.h"
#include "vmm/router.h"
#include "vmm/trace.h"
#include "vmm/vmm.h"

#define PATH_MAX_BYTES 512

struct vmm_audit_entry {
    struct vmm_audit_entry *next;
    char text[]; /* JSON */
};

/* More than looking, or denied. A request that was wrong did nothing. What nobody could be named
 * for is not worth a place in a bounded list that everybody could fill: that is in the gateway's
 * log. */
static bool is_worth_it(const struct vmm_request *req)
{
    const struct vmm_endpoint *e = req->endpoint;

    if (req->who.scope == VMM_SCOPE_NONE)
        return false;
    if (req->status == 403 || req->status == 429)
        return true;
    if (req->status / 100 == 4 && req->status != 499)
        return false;
    return e != NULL && e->scope >= VMM_SCOPE_SESSION && !e->quiet &&
           !(e->scope == VMM_SCOPE_ADMIN && strcmp(e->method, "GET") == 0);
}

/* JSON takes UTF-8 alone, and a path comes as it was sent: what is no ASCII is percent-encoded, so
 * that nobody stays out of the audit by sending something else. */
static void show_path(const char *path, char out[PATH_MAX_BYTES + 1])
{
    size_t n = 0;

    for (; *path != '\0' && n + 3 <= PATH_MAX_BYTES; path++) {
        if (*path > 0x20 && *path < 0x7f)
            out[n++] = *path;
        else
            n += (size_t)snprintf(out + n, 4, "%%%02X", (unsigned char)*path);
    }
    out[n] = '\0';
}

static char *entry_text(const struct vmm_request *req)
{
    const char *from = tr_h2_head_get(req->head, "x-forwarded-for");
    char time[VMM_TIME_SIZE], path[PATH_MAX_BYTES + 1];
    json_t *entry;
    char *text = NULL;
    int r;

    vmm_time_text(vmm_wall_ms(), time);
    show_path(req->path, path);
    entry = json_pack("{ss, ss, ss, ss, ss, ss, si, ss}", "time", time, "node",
                      req->vmm->options->node, "owner", req->who.owner, "key", req->who.key,
                      "method", req->websocket ? "GET" : req->head->method, "path", path, "status",
                      req->status, "request", req->id);
    if (entry == NULL)
        return NULL;
    r = *req->trace ? json_object_set_new(entry, "trace", json_string(req->trace)) : 0;
    if (r == 0 && from != NULL)
        r = json_object_set_new(entry, "from", json_stringn(from, strnlen(from, 128)));
    if (r == 0 && from == NULL && req->uid != (uid_t)-1)
        r = json_object_set_new(entry, "uid", json_integer(req->uid));
    if (r == 0)
        text = json_dumps(entry, JSON_COMPACT);
    json_decref(entry);
    return text;
}

static void on_reply(struct redisReply *reply, void *arg)
{
    (void)arg;
    if (reply != NULL && reply->type == REDIS_REPLY_ERROR)
        log_error("redis refused an entry of the audit: %s", reply->str);
}

static int send_entry(struct vmm *vmm, const char *text)
{
    char max[24];
    const char *argv[] = {"XADD", TR_KEY_AUDIT, "MAXLEN", "~", max, "*", "entry", text};

    snprintf(max, sizeof(max), "%" PRId64, vmm->options->audit_entries);
    return vmm_live_command(vmm, 8, argv, on_reply, NULL);
}

/* Redis is not there: keep it. The oldest makes room. */
static void keep(struct vmm_audit *audit, const char *text)
{
    size_t size = strlen(text) + 1;
    struct vmm_audit_entry *e = malloc(sizeof(*e) + size);

    if (e == NULL) {
        audit->lost++, audit->n_lost++;
        return;
    }
    e->next = NULL;
    memcpy(e->text, text, size);
    *(audit->last != NULL ? &audit->last->next : &audit->first) = e;
    audit->last = e;
    if (audit->n < VMM_AUDIT_WAITING) {
        audit->n++;
        return;
    }
    e = audit->first;
    audit->first = e->next;
    free(e);
    audit->lost++, audit->n_lost++;
}

void vmm_audit_answered(struct vmm_request *req)
{
    char ids[VMM_TRACE_IDS], path[PATH_MAX_BYTES + 1], *text;

    if (req->head == NULL || !is_worth_it(req))
        return;
    show_path(req->path, path);
    tr_log(TR_LOG_INFO, vmm_trace_ids(req, ids), "%s%s%s: %s %s: %d", req->who.owner,
           *req->who.key ? " by key " : "", req->who.key, req->head->method, path, req->status);
    if (req->vmm->options->audit_entries == 0)
        return;
    text = entry_text(req);
    if (text == NULL)
        req->vmm->audit.lost++, req->vmm->audit.n_lost++;
    else if (req->vmm->audit.first != NULL || send_entry(req->vmm, text) != 0)
        keep(&req->vmm->audit, text);
    free(text);
}

void vmm_audit_flush(struct vmm *vmm)
{
    struct vmm_audit *audit = &vmm->audit;
    struct vmm_audit_entry *e;

    while ((e = audit->first) != NULL && send_entry(vmm, e->text) == 0) {
        audit->first = e->next;
        audit->n--;
        free(e);
    }
    if (audit->first != NULL)
        return;
    audit->last = NULL;
    if (audit->lost > 0)
        log_warn("audit: %zu entries are in the log alone: redis was away for too long",
                 audit->lost);
    audit->lost = 0;
}

void vmm_audit_fini(struct vmm_audit *audit)
{
    for (struct vmm_audit_entry *e = audit->first, *next; e != NULL; e = next) {
        next = e->next;
        free(e);
    }
    *audit = (struct vmm_audit){0};
}
