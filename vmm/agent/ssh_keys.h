/* SPDX-License-Identifier: MIT */
/* Who may come in by SSH, and how the machine is known: public keys, each until its time is up, and
 * this instance's own host key, made when the first of them arrives. */
#ifndef VMM_AGENT_SSH_KEYS_H
#define VMM_AGENT_SSH_KEYS_H

#include <stdbool.h>
#include <stddef.h>

#include "vmm/agent/agent.h"
#include "vmm/agent/request.h"

#define AGENT_SSH_KEYS_MAX 64

struct agent_ssh_keys;

TR_MUST_CHECK int agent_ssh_keys_new(struct agent *a, struct agent_ssh_keys **out);
void agent_ssh_keys_stop(struct agent_ssh_keys *keys);
void agent_ssh_keys_free(struct agent_ssh_keys *keys);

/* POST /v1/ssh/keys {"public_key","expires_s"}: answered {"host_keys","user","expires_s"}. */
void agent_ssh_keys_handle_post(struct agent_request *req);

/* "ssh_keys" of hello, a list of objects as in the request above, or NULL: what is none is passed
 * over. */
void agent_ssh_keys_hello(struct agent_ssh_keys *keys, const json_t *list);
/* The machine has become another one: none of its keys is left. */
void agent_ssh_keys_renew(struct agent_ssh_keys *keys);
/* Is the host key being made? agent_ssh_host_key_made() follows. */
bool agent_ssh_keys_are_making(const struct agent_ssh_keys *keys);
/* The folder of host_key and authorized_keys. */
const char *agent_ssh_keys_dir(const struct agent_ssh_keys *keys);
/* Write authorized_keys with those that are still good. *n: how many these are; the host key is
 * there when it is more than 0. */
TR_MUST_CHECK int agent_ssh_keys_write(struct agent_ssh_keys *keys, size_t *n, struct err *err);

/* "TYPE BASE64", a comment left out, into out (of size bytes). False: it is no public key, or it
 * says more than one (RFC 4253 section 6.6; options before the key are refused). */
bool agent_ssh_key_line(const char *text, char *out, size_t size);

#endif
