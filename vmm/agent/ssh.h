/* SPDX-License-Identifier: MIT */
/* SSH connections: a stream of the channel is the connection, and an sshd of its own serves it.
 * Nothing listens anywhere for it. */
#ifndef VMM_AGENT_SSH_H
#define VMM_AGENT_SSH_H

#include "vmm/agent/agent.h"
#include "vmm/agent/request.h"

#define AGENT_SSHD     "/usr/sbin/sshd"
#define AGENT_SSH_PATH "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

struct agent_ssh;
struct agent_ssh_keys;

TR_MUST_CHECK int agent_ssh_new(struct agent *a, struct agent_ssh **out);
/* Connections are cut. */
void agent_ssh_stop(struct agent_ssh *ssh);
void agent_ssh_free(struct agent_ssh *ssh);

struct agent_ssh_keys *agent_ssh_get_keys(struct agent_ssh *ssh);

/* From ssh_keys.c: connections that waited for it can begin, or be refused. */
void agent_ssh_host_key_made(struct agent_ssh *ssh);

/* POST /v1/ssh: the body is what the client sends, the answer what sshd sends (RFC 4253 section
 * 4.2 on, both ways at once). 200 comes with sshd's first byte. */
void agent_ssh_handle_open(struct agent_request *req);
/* GET /v1/ssh: the connections there are. */
void agent_ssh_handle_list(struct agent_request *req);

#endif
