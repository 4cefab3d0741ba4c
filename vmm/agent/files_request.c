/* SPDX-License-Identifier: MIT */
#include "vmm/agent/files_request.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "vmm/agent/child.h"

bool agent_files_path_valid(struct agent_request *req, const char *path, size_t len)
{
    if (path != NULL && len > 0 && len < PATH_MAX && strlen(path) == len)
        return true;
    agent_request_error(req, 400, NULL, "path is needed: 1 to %d bytes without NUL", PATH_MAX - 1);
    return false;
}

const char *agent_files_query_path(struct agent_request *req, bool optional)
{
    const struct agent_text *path = agent_target_query(&req->target, "path");

    if (optional && (path == NULL || path->len == 0))
        return "";
    if (!agent_files_path_valid(req, path != NULL ? path->at : NULL, path != NULL ? path->len : 0))
        return NULL;
    return path->at;
}

bool agent_files_mode(struct agent_request *req, const char *text, mode_t *out)
{
    unsigned long v;
    char *end;

    *out = (mode_t)-1;
    if (text == NULL)
        return true;
    v = strtoul(text, &end, 8);
    if (text[0] < '0' || text[0] > '7' || *end != '\0' || v > 07777) {
        agent_request_error(req, 400, NULL, "mode must be octal, such as 0644");
        return false;
    }
    *out = (mode_t)v;
    return true;
}

static const char *query(struct agent_request *req, const char *name)
{
    const struct agent_text *text = agent_target_query(&req->target, name);

    return text != NULL ? text->at : NULL;
}

bool agent_files_query_mode(struct agent_request *req, mode_t *out)
{
    return agent_files_mode(req, query(req, "mode"), out);
}

static bool find(struct agent_request *req, const char *name, struct agent_child *child)
{
    struct err err = {0};

    if (agent_child_init(child, req->agent, name, NULL, &err) == 0)
        return true;
    agent_request_error(req, 500, NULL, "%s", err.msg);
    return false;
}

static bool parse_id(const char **p, unsigned *out)
{
    char *end;
    unsigned long v;

    if (**p < '0' || **p > '9')
        return false;
    v = strtoul(*p, &end, 10);
    *p = end;
    *out = (unsigned)v;
    return v < 0xffffffffUL; /* -1 means "unchanged" to the kernel */
}

/* sandbox: the account of that name. */
static bool set_owner(struct agent_request *req, const char *owner,
                      const struct agent_child *sandbox, struct agent_files *out)
{
    const char *p = owner;

    if (owner == NULL)
        return true;
    if (strcmp(owner, AGENT_SANDBOX_USER) == 0) {
        out->uid = sandbox->user.uid;
        out->gid = sandbox->user.gid;
    } else if (strcmp(owner, "root") == 0) {
        out->uid = 0;
        out->gid = 0;
    } else if (!parse_id(&p, &out->uid) || *p++ != ':' || !parse_id(&p, &out->gid) || *p != '\0') {
        agent_request_error(req, 400, NULL, "owner must be sandbox, root or UID:GID");
        return false;
    }
    out->own = true;
    return true;
}

bool agent_files_for(struct agent_request *req, const char *user, const char *owner,
                     struct agent_files *out)
{
    bool root = user != NULL && strcmp(user, "root") == 0;
    struct agent_child sandbox;
    bool ok;

    memset(out, 0, sizeof(*out));
    if (user != NULL && !root && strcmp(user, AGENT_SANDBOX_USER) != 0) {
        agent_request_error(req, 400, NULL, "user must be sandbox or root");
        return false;
    }
    if (owner != NULL && !root) {
        agent_request_error(req, 403, "forbidden", "only with user=root files can be given away");
        return false;
    }
    if (!find(req, AGENT_SANDBOX_USER, &sandbox))
        return false;
    snprintf(out->home, sizeof(out->home), "%s", sandbox.user.home);
    if (!root && sandbox.change_user) {
        out->act.change = true;
        out->act.uid = sandbox.user.uid;
        out->act.gid = sandbox.user.gid;
        out->act.n_groups = sandbox.user.n_groups;
        memcpy(out->act.groups, sandbox.user.groups, sizeof(out->act.groups));
    }
    ok = set_owner(req, owner, &sandbox, out);
    agent_child_fini(&sandbox);
    return ok;
}

bool agent_files_for_query(struct agent_request *req, struct agent_files *out)
{
    return agent_files_for(req, query(req, "user"), query(req, "owner"), out);
}
