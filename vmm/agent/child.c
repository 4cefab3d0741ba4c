/* SPDX-License-Identifier: MIT */
#include "vmm/agent/child.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "vmm/agent/secrets.h"

#define VENV "user_venv"

void agent_child_fini(struct agent_child *c)
{
    for (size_t i = 0; i < c->n_env; i++) {
        explicit_bzero(c->envp[i], strlen(c->envp[i])); /* may be a secret */
        free(c->envp[i]);
    }
    free(c->envp);
    memset(c, 0, sizeof(*c));
}

int agent_child_set(struct agent_child *c, const char *name, const char *value)
{
    size_t name_len = strlen(name), i = 0;
    char *entry = malloc(name_len + strlen(value) + 2);

    if (entry == NULL)
        return UV_ENOMEM;
    memcpy(entry, name, name_len);
    entry[name_len] = '=';
    memcpy(entry + name_len + 1, value, strlen(value) + 1);
    while (i < c->n_env && strncmp(c->envp[i], entry, name_len + 1) != 0)
        i++;
    if (i == c->n_env) {
        char **grown = realloc(c->envp, (c->n_env + 2) * sizeof(*grown));

        if (grown == NULL) {
            free(entry);
            return UV_ENOMEM;
        }
        c->envp = grown;
        c->envp[++c->n_env] = NULL;
    } else {
        free(c->envp[i]);
    }
    c->envp[i] = entry;
    return 0;
}

static int set_all(struct agent_child *c, const json_t *env)
{
    const char *name;
    json_t *value;
    int r = 0;

    json_object_foreach((json_t *)env, name, value)
    {
        r = agent_child_set(c, name, json_string_value(value));
        if (r != 0)
            break;
    }
    return r;
}

static int find_user(struct agent_child *c, const struct agent *a, const char *name,
                     struct err *err)
{
    bool test = a->options.host_test;
    int r = test ? agent_user_find_uid("/etc/passwd", "/etc/group", getuid(), &c->user)
                 : agent_user_find("/etc/passwd", "/etc/group", name, &c->user);

    if (r != 0)
        return tr_err_set(err, r, "account %s: %s", name, uv_strerror(r));
    if (a->options.home != NULL && strcmp(name, AGENT_SANDBOX_USER) == 0)
        snprintf(c->user.home, sizeof(c->user.home), "%s", a->options.home);
    c->change_user = !test && (c->user.uid != getuid() || c->user.uid == 0);
    return 0;
}

static int set_basics(struct agent_child *c, const struct agent *a)
{
    const struct agent_user *u = &c->user;
    char venv[sizeof(u->home) + 16], path[sizeof(venv) + 128];
    bool has_venv;

    snprintf(venv, sizeof(venv), "%s/" VENV, u->home);
    has_venv = access(venv, X_OK) == 0;
    snprintf(path, sizeof(path), "%s%s/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
             has_venv ? venv : "", has_venv ? "/bin:" : "");
    if (agent_child_set(c, "PATH", path) != 0 || agent_child_set(c, "HOME", u->home) != 0 ||
        agent_child_set(c, "USER", u->name) != 0 || agent_child_set(c, "LOGNAME", u->name) != 0 ||
        agent_child_set(c, "SHELL", u->shell) != 0 || agent_child_set(c, "LANG", "C.UTF-8") != 0)
        return UV_ENOMEM;
    if (has_venv && agent_child_set(c, "VIRTUAL_ENV", venv) != 0)
        return UV_ENOMEM;
    if (a->id.public_hostname != NULL && *a->id.public_hostname != '\0' &&
        agent_child_set(c, "PUBLIC_HOSTNAME", a->id.public_hostname) != 0)
        return UV_ENOMEM;
    if (a->id.public_url != NULL && *a->id.public_url != '\0' &&
        agent_child_set(c, "PUBLIC_URL", a->id.public_url) != 0)
        return UV_ENOMEM;
    return 0;
}

int agent_child_init(struct agent_child *c, const struct agent *a, const char *name,
                     const json_t *env, struct err *err)
{
    int r;

    memset(c, 0, sizeof(*c));
    r = find_user(c, a, name, err);
    if (r != 0)
        return r;
    r = set_basics(c, a);
    if (r == 0 && a->id.env != NULL)
        r = set_all(c, a->id.env);
    if (r == 0)
        r = agent_secrets_set_env(a->secrets, c);
    if (r == 0 && env != NULL)
        r = set_all(c, env);
    if (r != 0) {
        agent_child_fini(c);
        return tr_err_set(err, r, "environment: %s", uv_strerror(r));
    }
    return 0;
}
