/* SPDX-License-Identifier: MIT */
/* transom ssh-proxy, OpenSSH's ProxyCommand: tells the sandbox the key, writes down the host keys
 * of the machine as it is now, then carries bytes: standard input to its sshd and back. ssh looks
 * into known_hosts only after sshd's first bytes, so what is written here is what it finds. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "vmm/cli/cli.h"
#include "vmm/cli/http.h"
#include "vmm/cli/ssh_files.h"

struct proxy {
    struct http_req *req;
    int write_error;
    bool input_ended;
};

static bool on_output(struct http_req *req, const uint8_t *data, size_t len)
{
    struct proxy *p = req->arg;

    p->write_error = cli_write_all(STDOUT_FILENO, data, len);
    return p->write_error == 0;
}

static long on_input(struct http_req *req, uint8_t *buf, size_t size)
{
    struct proxy *p = req->arg;
    struct pollfd fd = {.fd = STDIN_FILENO, .events = POLLIN};
    ssize_t n;

    if (p->input_ended)
        return 0;
    if (poll(&fd, 1, 0) <= 0)
        return -1;
    n = read(STDIN_FILENO, buf, size);
    if (n < 0 && (errno == EINTR || errno == EAGAIN))
        return -1;
    p->input_ended = n <= 0;
    return n > 0 ? (long)n : 0;
}

static int carry(struct cli *cli, const char *path)
{
    struct pollfd fd = {.fd = STDIN_FILENO, .events = POLLIN};
    struct proxy p = {0};
    int status = 0;

    p.req = http_req_new(cli->http, "POST", path);
    p.req->arg = &p;
    p.req->on_data = on_output;
    p.req->on_read = on_input;
    http_req_stream_body(p.req, -1);
    http_start(p.req);
    while (!p.req->done) {
        http_step(cli->http, &fd, p.input_ended ? 0 : 1, 1000);
        if (!p.input_ended && fd.revents != 0)
            http_req_resume(p.req);
        fd.revents = 0;
    }
    /* ssh has gone: nothing is left to say, whatever came of the rest. */
    if (p.write_error == 0 && !p.input_ended && !http_ok(p.req))
        status = http_explain(p.req);
    http_req_free(p.req);
    return status;
}

static int tell_key(struct cli *cli, const char *path, const char *session)
{
    char *keys_path = cli_printf("%s/keys", path), *alias = ssh_alias(cli, session);
    char *key = ssh_files_public_key(cli->files);
    json_t *body = key == NULL
                       ? NULL
                       : json_pack("{s:s, s:i}", "public_key", key, "expires_s", SSH_KEY_EXPIRES_S);
    json_t *answer = body == NULL ? NULL : cli_call(cli, "POST", keys_path, body);
    int status = 1;

    if (answer != NULL)
        status = ssh_files_known_hosts(cli->files, alias, json_object_get(answer, "host_keys"));
    json_decref(answer);
    json_decref(body);
    free(key);
    free(alias);
    free(keys_path);
    return status;
}

int cmd_ssh_proxy(struct cli *cli, int argc, char **argv)
{
    char *session = cli_session_id(cli, argc > 0 ? argv[0] : NULL), *path;
    int status = 0;

    if (session == NULL)
        return 1;
    cli->session = session;
    path = cli_sandbox_path(cli, "/ssh");
    if (path == NULL)
        status = 1;
    if (status == 0 && cli->files != NULL)
        status = tell_key(cli, path, session);
    if (status == 0)
        status = carry(cli, path);
    free(path);
    cli->session = NULL;
    free(session);
    return status;
}
