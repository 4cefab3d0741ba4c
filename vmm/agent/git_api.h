/* SPDX-License-Identifier: MIT */
/* Requests about the .git folders below the home folder (sync/gitdir.h), which are no part of what
 * is kept in step but go as a whole. All act with the sandbox user's rights. */
#ifndef VMM_AGENT_GIT_API_H
#define VMM_AGENT_GIT_API_H

#include "vmm/agent/request.h"

#define AGENT_GIT_FOLDERS_LIMIT (8u << 20) /* bytes of a body of paths */
#define AGENT_GIT_FOUND_MAX     1000       /* of one answer */

/* POST /v1/git/look: the body is paths of folders, each with a NUL behind it; "" is home. Answers
 * {"found":[{"index","bytes","print"} or {"index","error"}],"truncated"?}. */
void agent_git_handle_look(struct agent_request *req);
/* GET /v1/git?path=FOLDER: the stream. It is reset when something was changed meanwhile. */
void agent_git_handle_get(struct agent_request *req);
/* PUT /v1/git?path=FOLDER: 201; 409: there is one already. */
void agent_git_handle_put(struct agent_request *req);

#endif
