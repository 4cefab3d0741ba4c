/* SPDX-License-Identifier: MIT */
/* What requests about files have in common: path, user, owner and mode they name. */
#ifndef VMM_AGENT_FILES_REQUEST_H
#define VMM_AGENT_FILES_REQUEST_H

#include "vmm/agent/files.h"
#include "vmm/agent/request.h"

/* All of these answer the request when they fail (NULL, false). */

/* Is this 1 to PATH_MAX - 1 bytes without NUL? */
bool agent_files_path_valid(struct agent_request *req, const char *path, size_t len);
/* The path of the query, valid as long as the request. optional: "" when there is none. */
const char *agent_files_query_path(struct agent_request *req, bool optional);
/* Octal; NULL: (mode_t)-1. */
bool agent_files_mode(struct agent_request *req, const char *text, mode_t *out);
/* mode of the query. */
bool agent_files_query_mode(struct agent_request *req, mode_t *out);
/* Who acts: user (NULL: the sandbox user; or "root"), and for root owner, whom what is made goes
 * to: "sandbox", "root" or "UID:GID" (NULL: root, or whose it was). */
bool agent_files_for(struct agent_request *req, const char *user, const char *owner,
                     struct agent_files *out);
/* The same by user and owner of the query. */
bool agent_files_for_query(struct agent_request *req, struct agent_files *out);

#endif
