/* SPDX-License-Identifier: MIT */
/* /v1/sandboxes: those of all sessions, searched and in pages, for lists that people look at; and
 * /v1/whoami. */
#include <stdlib.h>
#include <string.h>
#include "vmm/api.h"
#include "vmm/vmm.h"

#define LIMIT_DEFAULT 50
#define LIMIT_MAX     200
#define SEARCH_MAX    200 /* bytes */

struct wanted {
    char *search, *state, *after;
    size_t limit;
};

static void wanted_fini(struct wanted *w)
{
    free(w->search);
    free(w->state);
    free(w->after);
}

static bool is_state(const char *name)
{
    for (int i = TR_SANDBOX_ASLEEP; i <= TR_SANDBOX_FAILED; i++)
        if (strcmp(name, tr_sandbox_state_name((enum tr_sandbox_state)i)) == 0)
            return true;
    return false;
}

/* Returns false after answering. */
static bool read_wanted(struct vmm_request *req, struct wanted *w)
{
    char *limit = vmm_query_get(req->query, "limit"), *end = NULL;
    long n = LIMIT_DEFAULT;

    w->search = vmm_query_get(req->query, "search");
    w->state = vmm_query_get(req->query, "state");
    w->after = vmm_query_get(req->query, "after");
    if (limit != NULL && *limit)
        n = strtol(limit, &end, 10);
    if (end != NULL && *end)
        n = 0;
    free(limit);
    if (n < 1 || n > LIMIT_MAX) {
        vmm_reply_error(req, 400, "\"limit\" must be from 1 to %d", LIMIT_MAX);
        return false;
    }
    if (w->search != NULL && strlen(w->search) > SEARCH_MAX) {
        vmm_reply_error(req, 400, "\"search\" must be at most %d bytes", SEARCH_MAX);
        return false;
    }
    if (w->state != NULL && *w->state && !is_state(w->state)) {
        vmm_reply_error(req, 400,
                        "\"state\" must be asleep, starting, running, stopping or failed");
        return false;
    }
    w->limit = (size_t)n;
    return true;
}

static bool is_visible(const struct vmm_request *req, const struct vmm_session *session)
{
    return req->who.scope == VMM_SCOPE_ADMIN || strcmp(req->who.owner, session->owner) == 0;
}

static bool fits(const struct wanted *w, const struct vmm_sandbox *sb)
{
    const struct vmm_session *s = sb->session;

    if (w->state != NULL && *w->state && strcmp(w->state, tr_sandbox_state_name(sb->state)) != 0)
        return false;
    if (w->search == NULL || *w->search == '\0')
        return true;
    return strcasestr(s->name, w->search) != NULL || strcasestr(s->owner, w->search) != NULL ||
           strcasestr(s->id, w->search) != NULL || strcasestr(sb->label, w->search) != NULL ||
           strcasestr(sb->name, w->search) != NULL;
}

/* New reference; NULL: out of memory. */
static json_t *describe(const struct vmm *vmm, const struct vmm_sandbox *sb)
{
    const struct vmm_session *s = sb->session;
    json_t *out = vmm_view_sandbox(vmm, sb);

    if (out != NULL &&
        json_object_set_new(out, "session",
                            json_pack("{ss, ss, ss, sb}", "id", s->id, "name", s->name, "owner",
                                      s->owner, "persist", (int)s->persist)) != 0) {
        json_decref(out);
        out = NULL;
    }
    return out;
}

/* What has been listed so far. */
struct page {
    json_t *list;
    const char *last; /* label of the last one in list */
    size_t n_found;   /* also those that are on other pages */
    bool started;     /* the one to continue after has been seen */
    bool more;
};

/* Returns false when out of memory. */
static bool take(struct page *p, const struct vmm *vmm, const struct wanted *w,
                 const struct vmm_sandbox *sb)
{
    if (fits(w, sb)) {
        p->n_found++;
        if (p->started && json_array_size(p->list) < w->limit) {
            if (json_array_append_new(p->list, describe(vmm, sb)) != 0)
                return false;
            p->last = sb->label;
        } else if (p->started) {
            p->more = true;
        }
    }
    if (!p->started && strcmp(sb->label, w->after) == 0)
        p->started = true;
    return true;
}

void vmm_api_sandbox_search(struct vmm_request *req)
{
    const struct vmm_sandbox *from = NULL;
    struct wanted w = {0};
    struct page p = {.list = NULL};
    json_t *body = NULL;
    bool ok = true;

    if (!read_wanted(req, &w)) {
        wanted_fini(&w);
        return;
    }
    p.started = w.after == NULL || *w.after == '\0';
    if (!p.started) {
        from = vmm_sessions_by_label(&req->vmm->sessions, w.after);
        if (from == NULL || !is_visible(req, from->session)) {
            vmm_reply_error(req, 400, "there is no such sandbox to continue after");
            wanted_fini(&w);
            return;
        }
    }
    p.list = json_array();
    ok = p.list != NULL;
    for (const struct vmm_session *s = req->vmm->sessions.last; s != NULL && ok; s = s->prev) {
        if (!is_visible(req, s) || (s->deleting && (from == NULL || from->session != s)))
            continue;
        for (const struct vmm_sandbox *sb = s->sandboxes; sb != NULL && ok; sb = sb->next)
            ok = take(&p, req->vmm, &w, sb);
    }
    if (ok)
        body = json_pack("{sO, sI, ss*}", "sandboxes", p.list, "total", (json_int_t)p.n_found,
                         "next", p.more ? p.last : NULL);
    json_decref(p.list);
    wanted_fini(&w);
    vmm_reply_json(req, 200, body);
}

void vmm_api_whoami(struct vmm_request *req)
{
    vmm_reply_json(req, 200,
                   json_pack("{ss, ss, ss*}", "owner", req->who.owner, "scope",
                             vmm_scope_name(req->who.scope), "key",
                             *req->who.key ? req->who.key : NULL));
}
