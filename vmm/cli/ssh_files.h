/* SPDX-License-Identifier: MIT */
/* The folder that one way in by SSH needs: a key of its own, the machine's host keys and a Host
 * block of OpenSSH's configuration. */
#ifndef VMM_CLI_SSH_FILES_H
#define VMM_CLI_SSH_FILES_H

#include <stdio.h>
#include "vmm/cli/cli.h"

#define SSH_KEY_EXPIRES_S 86400 /* told again at each connection */

/* The host name by which OpenSSH knows a sandbox: "transom-ID", "transom-ID-NAME". New. */
char *ssh_alias(const struct cli *cli, const char *session);
/* Make the folder's key if there is none. Returns 0, or 1 after saying why. */
int ssh_files_key(const char *dir);
/* The text of its public half, new; NULL after saying why. */
char *ssh_files_public_key(const char *dir);
/* Pin the host keys that the API told (an array of strings). Returns as ssh_files_key(). */
int ssh_files_known_hosts(const char *dir, const char *alias, const json_t *host_keys);
/* The Host block; connections go by way of this program's ssh-proxy. Returns as above. */
int ssh_files_block(FILE *out, const struct cli *cli, const char *session, const char *dir);

#endif
