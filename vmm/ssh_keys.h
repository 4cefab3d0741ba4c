/* SPDX-License-Identifier: MIT */
/* Public keys that a sandbox lets in by SSH, kept as long as the manager runs, so that a new
 * instance knows them too. The agent judges what a key is. */
#ifndef VMM_SSH_KEYS_H
#define VMM_SSH_KEYS_H

#include <jansson.h>
#include "vmm/sandbox.h"

#define VMM_SSH_KEYS_MAX 64
#define VMM_SSH_KEY_SIZE 8192

/* now_ms: the loop's clock. Returns 0, or a negative errno with the reason. */
TR_MUST_CHECK int vmm_ssh_keys_add(struct vmm_sandbox *sb, const char *public_key,
                                   int64_t expires_s, uint64_t now_ms, struct err *err);
/* Those that are still good, as an agent is told at hello (new; NULL without memory). */
json_t *vmm_ssh_keys_json(struct vmm_sandbox *sb, uint64_t now_ms);
void vmm_ssh_keys_free(struct vmm_sandbox *sb);

#endif
