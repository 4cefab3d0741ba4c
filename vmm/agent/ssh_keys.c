/* SPDX-License-Identifier: MIT */
/* Path of the first key: checked -> the host key is made by ssh-keygen -> every request that waits
 * for it is answered. Faults of ssh-keygen are answered, and the next request tries again. */
#include "vmm/agent/ssh_keys.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "transom/log.h"
#include "vmm/agent/child.h"
#include "vmm/agent/reaper.h"
#include "vmm/agent/spawn.h"
#include "vmm/agent/ssh.h"

#define KEY_SIZE        8192 /* a line of ours, NUL included */
#define HOST_KEY_SIZE   512
#define WAITING_MAX     32
#define EXPIRES_MAX_S   (30 * 86400)
#define EXPIRES_DEFAULT 86400

/* An account without a password is locked for sshd unless the field says that none fits: "!" would
 * be taken for a ban. */
static const char prepare[] =
    "set -e; umask 077; rm -f \"$1/host_key\" \"$1/host_key.pub\"\n"
    "ssh-keygen -q -t ed25519 -N '' -C '' -f \"$1/host_key\" </dev/null >&2\n"
    "[ -z \"$2\" ] || case $(getent shadow \"$2\") in \"$2:!\"*) usermod -p '*' \"$2\" ;; esac\n";

struct key {
    char line[KEY_SIZE];
    int64_t until_ms; /* uptime */
};

struct waiting {
    struct agent_request *req;
    int64_t expires_s;
};

struct agent_ssh_keys {
    struct agent *agent;
    char dir[256];
    struct key *list[AGENT_SSH_KEYS_MAX];
    size_t n;
    char host_key[HOST_KEY_SIZE]; /* public half; "": not made yet */
    struct agent_watch *making;   /* ssh-keygen runs */
    struct waiting waiting[WAITING_MAX];
    size_t n_waiting;
};

int agent_ssh_keys_new(struct agent *a, struct agent_ssh_keys **out)
{
    struct agent_ssh_keys *keys = calloc(1, sizeof(*keys));

    if (keys == NULL)
        return UV_ENOMEM;
    keys->agent = a;
    if (a->options.run_dir != NULL)
        snprintf(keys->dir, sizeof(keys->dir), "%s/ssh", a->options.run_dir);
    *out = keys;
    return 0;
}

void agent_ssh_keys_stop(struct agent_ssh_keys *keys)
{
    if (keys->making != NULL)
        agent_watch_forget(keys->making);
    keys->making = NULL;
    keys->n_waiting = 0;
}

void agent_ssh_keys_free(struct agent_ssh_keys *keys)
{
    for (size_t i = 0; i < keys->n; i++)
        free(keys->list[i]);
    free(keys);
}

const char *agent_ssh_keys_dir(const struct agent_ssh_keys *keys)
{
    return keys->dir;
}

bool agent_ssh_keys_are_making(const struct agent_ssh_keys *keys)
{
    return keys->making != NULL;
}

/* ---- keys ---- */

bool agent_ssh_key_line(const char *text, char *out, size_t size)
{
    static const char *const types[] = {"ssh-ed25519",
                                        "ecdsa-sha2-nistp256",
                                        "ecdsa-sha2-nistp384",
                                        "ecdsa-sha2-nistp521",
                                        "ssh-rsa",
                                        "sk-ssh-ed25519@openssh.com",
                                        "sk-ecdsa-sha2-nistp256@openssh.com",
                                        NULL};
    static const char base64[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    size_t type_len = strcspn(text, " "), data_len, i = 0;
    const char *data;

    while (types[i] != NULL &&
           (strlen(types[i]) != type_len || strncmp(types[i], text, type_len) != 0))
        i++;
    if (types[i] == NULL || text[type_len] != ' ')
        return false;
    data = text + type_len + 1;
    data_len = strspn(data, base64);
    if (data_len < 32)
        return false;
    data_len += strspn(data + data_len, "=");
    if (data[data_len] != '\0' && strchr(" \r\n", data[data_len]) == NULL)
        return false;
    text = data + data_len + strcspn(data + data_len, "\r\n"); /* the comment */
    if (text[strspn(text, "\r\n")] != '\0')
        return false; /* a second line */
    return (size_t)snprintf(out, size, "%s %.*s", types[i], (int)data_len, data) < size;
}

static void forget_expired(struct agent_ssh_keys *keys)
{
    int64_t now = agent_uptime_ms();
    size_t kept = 0;

    for (size_t i = 0; i < keys->n; i++) {
        if (keys->list[i]->until_ms > now)
            keys->list[kept++] = keys->list[i];
        else
            free(keys->list[i]);
    }
    keys->n = kept;
}

/* A key that is there already is good for the longer of both times. */
static int add(struct agent_ssh_keys *keys, const char *line, int64_t expires_s)
{
    int64_t until = agent_uptime_ms() + expires_s * 1000;
    struct key *key;

    forget_expired(keys);
    for (size_t i = 0; i < keys->n; i++) {
        if (strcmp(keys->list[i]->line, line) != 0)
            continue;
        if (keys->list[i]->until_ms < until)
            keys->list[i]->until_ms = until;
        return 0;
    }
    if (keys->n == AGENT_SSH_KEYS_MAX)
        return UV_E2BIG;
    key = malloc(sizeof(*key));
    if (key == NULL)
        return UV_ENOMEM;
    snprintf(key->line, sizeof(key->line), "%s", line);
    key->until_ms = until;
    keys->list[keys->n++] = key;
    return 0;
}

int agent_ssh_keys_write(struct agent_ssh_keys *keys, size_t *n, struct err *err)
{
    char path[300], fresh[320];
    FILE *file;
    bool good;
    int fd;

    forget_expired(keys);
    *n = keys->host_key[0] != '\0' ? keys->n : 0;
    if (*n == 0)
        return 0;
    snprintf(path, sizeof(path), "%s/authorized_keys", keys->dir);
    snprintf(fresh, sizeof(fresh), "%s.new", path);
    unlink(fresh);
    /* sshd reads it with the user's rights. */
    fd = open(fresh, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    file = fd >= 0 ? fdopen(fd, "w") : NULL;
    if (file == NULL) {
        int r = -errno;

        if (fd >= 0)
            close(fd);
        return tr_err_set(err, r, "%s: %s", fresh, strerror(-r));
    }
    for (size_t i = 0; i < keys->n; i++)
        fprintf(file, "%s\n", keys->list[i]->line);
    good = !ferror(file);
    good = fclose(file) == 0 && good;
    if (!good || rename(fresh, path) != 0)
        return tr_err_set(err, UV_EIO, "%s cannot be written", path);
    return 0;
}

/* ---- the host key ---- */

static void answer(struct agent_ssh_keys *keys, struct agent_request *req, int64_t expires_s)
{
    struct agent_child child;
    struct err err = {0};
    int r = agent_child_init(&child, keys->agent, AGENT_SANDBOX_USER, NULL, &err);

    if (r != 0) {
        agent_request_fail(req, UV_EIO, &err);
        return;
    }
    agent_request_answer(req, 200,
                         json_pack("{s:[s],s:s,s:I}", "host_keys", keys->host_key, "user",
                                   child.user.name, "expires_s", (json_int_t)expires_s));
    agent_child_fini(&child);
}

static bool read_host_key(struct agent_ssh_keys *keys)
{
    char path[300], text[HOST_KEY_SIZE] = "";
    FILE *file;
    bool good;

    snprintf(path, sizeof(path), "%s/host_key.pub", keys->dir);
    file = fopen(path, "re");
    if (file == NULL)
        return false;
    good = fgets(text, sizeof(text), file) != NULL &&
           agent_ssh_key_line(text, keys->host_key, sizeof(keys->host_key));
    fclose(file);
    return good;
}

static void on_made(bool exited, int code, void *arg)
{
    struct agent_ssh_keys *keys = arg;
    bool good = exited && code == 0 && read_host_key(keys);

    keys->making = NULL;
    if (!good)
        log_error("ssh: the host key was not made (%s %d)", exited ? "status" : "signal", code);
    for (size_t i = 0; i < keys->n_waiting; i++) {
        struct waiting *w = &keys->waiting[i];

        w->req->cbs = NULL;
        if (good)
            answer(keys, w->req, w->expires_s);
        else
            agent_request_error(w->req, 500, NULL, "the machine's host key cannot be made");
    }
    keys->n_waiting = 0;
    agent_ssh_host_key_made(keys->agent->ssh);
}

static int make_host_key(struct agent_ssh_keys *keys, struct err *err)
{
    struct agent *a = keys->agent;
    char *argv[] = {"sh", "-c",      (char *)prepare,
                    "sh", keys->dir, a->options.host_test ? "" : AGENT_SANDBOX_USER,
                    NULL};
    char *envp[] = {AGENT_SSH_PATH, "LC_ALL=C", NULL};
    struct agent_spawn sp = {
        .path = "/bin/sh", .argv = argv, .envp = envp, .fds = {-1, -1, -1}, .procs_fd = -1};
    pid_t pid;
    int r;

    mkdir(a->options.run_dir, 0755);
    if (mkdir(keys->dir, 0755) != 0 && errno != EEXIST)
        return tr_err_set(err, -errno, "%s: %s", keys->dir, strerror(errno));
    r = agent_spawn(&sp, &pid, err);
    if (r != 0)
        return r;
    return agent_reaper_watch(a->reaper, pid, on_made, keys, &keys->making);
}

void agent_ssh_keys_hello(struct agent_ssh_keys *keys, const json_t *list)
{
    struct err err = {0};
    char line[KEY_SIZE];
    const json_t *item;
    size_t i;

    if (keys->agent->options.dry_run)
        return;
    json_array_foreach((json_t *)list, i, item)
    {
        const char *text = json_string_value(json_object_get(item, "public_key"));
        json_int_t expires_s = json_integer_value(json_object_get(item, "expires_s"));

        if (text == NULL || expires_s < 1 || expires_s > EXPIRES_MAX_S ||
            !agent_ssh_key_line(text, line, sizeof(line)) || add(keys, line, expires_s) != 0)
            log_warn("ssh: a key of hello is not taken");
    }
    if (keys->n > 0 && keys->host_key[0] == '\0' && keys->making == NULL &&
        access(AGENT_SSHD, X_OK) == 0 && make_host_key(keys, &err) != 0)
        log_error("ssh: host key: %s", err.msg);
}

void agent_ssh_keys_renew(struct agent_ssh_keys *keys)
{
    char path[300];

    for (size_t i = 0; i < keys->n; i++)
        free(keys->list[i]);
    keys->n = 0;
    keys->host_key[0] = '\0';
    snprintf(path, sizeof(path), "%s/host_key", keys->dir);
    if (unlink(path) != 0 && errno != ENOENT)
        log_error("ssh: %s: %s", path, strerror(errno));
}

static void on_waiting_close(struct agent_request *req, uint32_t code)
{
    struct agent_ssh_keys *keys = req->ctx;

    (void)code;
    for (size_t i = 0; i < keys->n_waiting; i++) {
        if (keys->waiting[i].req == req) {
            keys->waiting[i] = keys->waiting[--keys->n_waiting];
            return;
        }
    }
}

static const struct agent_request_cbs waiting_cbs = {.on_close = on_waiting_close};

static void answer_when_made(struct agent_ssh_keys *keys, struct agent_request *req,
                             int64_t expires_s)
{
    struct err err = {0};
    int r;

    if (keys->n_waiting == WAITING_MAX) {
        agent_request_error(req, 429, "too_many", "too many requests wait for the host key");
        return;
    }
    if (keys->making == NULL) {
        r = make_host_key(keys, &err);
        if (r != 0) {
            agent_request_fail(req, UV_EIO, &err);
            return;
        }
    }
    keys->waiting[keys->n_waiting++] = (struct waiting){req, expires_s};
    req->ctx = keys;
    req->cbs = &waiting_cbs;
}

void agent_ssh_keys_handle_post(struct agent_request *req)
{
    struct agent_ssh_keys *keys = agent_ssh_get_keys(req->agent->ssh);
    json_t *body = agent_request_json(req);
    int64_t expires_s = EXPIRES_DEFAULT;
    const char *text = NULL;
    char line[KEY_SIZE];
    int r;

    if (body == NULL)
        return;
    if (!agent_json_string(req, body, "public_key", &text) ||
        !agent_json_int(req, body, "expires_s", 1, EXPIRES_MAX_S, &expires_s)) {
        json_decref(body);
        return;
    }
    if (text == NULL || !agent_ssh_key_line(text, line, sizeof(line))) {
        agent_request_error(req, 400, NULL,
                            "public_key must be one OpenSSH public key, without options");
    } else if (agent_request_may_act(req)) {
        r = access(AGENT_SSHD, X_OK) == 0 ? add(keys, line, expires_s) : UV_ENOSYS;
        if (r == UV_ENOSYS)
            agent_request_error(req, 501, "no_sshd", "this machine has no OpenSSH server");
        else if (r == UV_E2BIG)
            agent_request_error(req, 429, "too_many", "there are %d keys", AGENT_SSH_KEYS_MAX);
        else if (r != 0)
            agent_request_error(req, 500, NULL, "out of memory");
        else if (keys->host_key[0] != '\0')
            answer(keys, req, expires_s);
        else
            answer_when_made(keys, req, expires_s);
    }
    json_decref(body);
}
