/* SPDX-License-Identifier: MIT */
/* transom port-forward: ports of a sandbox's loopback on this computer, by way of its SSH. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "vmm/cli/cli.h"

#define N_FIXED 5

/* "3000" or "8000:3000" as "ADDRESS:8000:localhost:3000", new; NULL after saying what is wrong. */
static char *forwarding(const char *address, const char *text)
{
    char local[8] = "";
    const char *colon = strchr(text, ':'), *remote = colon != NULL ? colon + 1 : text;
    int from, to;

    if (colon != NULL && (size_t)(colon - text) < sizeof(local))
        snprintf(local, sizeof(local), "%.*s", (int)(colon - text), text);
    to = cli_port(remote);
    from = to < 0 || colon == NULL ? to : cli_port(local);
    if (from < 0)
        return NULL;
    /* sshd tries both of the guest's loopback addresses for "localhost". */
    fprintf(stderr, "transom: %s:%d leads to port %d of the sandbox\n", address, from, to);
    return cli_printf(strchr(address, ':') != NULL ? "[%s]:%d:localhost:%d" : "%s:%d:localhost:%d",
                      address, from, to);
}

int cmd_port_forward(struct cli *cli, int argc, char **argv)
{
    const char *address = cli->address != NULL ? cli->address : "127.0.0.1";
    char **words = calloc(2 * (size_t)argc + N_FIXED, sizeof(*words)), *session;
    int n = 0, n_own, status = 0;

    if (words == NULL)
        abort();
    words[n++] = "-N";
    words[n++] = "-T";
    words[n++] = "-o";
    words[n++] = "ExitOnForwardFailure=yes";
    n_own = n;
    for (int i = 0; i < argc && status == 0; i++) {
        char *text = forwarding(address, argv[i]);

        if (text == NULL)
            status = CLI_USAGE;
        words[n++] = "-L";
        words[n++] = text;
    }
    session = status == 0 ? cli_session_id(cli, NULL) : NULL;
    if (session != NULL)
        status = cli_ssh(cli, session, n, words);
    else if (status == 0)
        status = 1;
    for (int i = n_own + 1; i < n; i += 2)
        free(words[i]);
    free(words);
    free(session);
    return status;
}
