/* SPDX-License-Identifier: MIT */
/* Keys and tokens of private previews. A node has one master key; each sandbox has a key made from
 * it, its label and its generation; a token is good for one port of one label until it expires. The
 * gateway checks tokens with the sandbox's key, which comes to it by way of the route record. */
#ifndef VMM_PREVIEW_KEY_H
#define VMM_PREVIEW_KEY_H

#include <stdint.h>
#include "transom/route.h"

#define VMM_PREVIEW_KEY_FILE   "preview.key" /* in state_dir, 0600 */
/* "<port>.<expiry, Unix s>.<43 characters of base64url>" */
#define VMM_PREVIEW_TOKEN_SIZE 80

/* Read the master key from state_dir, or make it when there is none. A file that others may read,
 * that is not ours, or of another size is refused with a reason that names it. */
TR_MUST_CHECK int vmm_preview_master_open(const char *state_dir, uint8_t master[TR_ROUTE_KEY_SIZE],
                                          struct err *err);

/* HMAC-SHA256(master, "transom-preview" 0 label 0 generation in decimal). Returns 0 or UV_ENOMEM.
 */
TR_MUST_CHECK int vmm_preview_key(const uint8_t master[TR_ROUTE_KEY_SIZE], const char *label,
                                  int64_t generation, uint8_t key[TR_ROUTE_KEY_SIZE]);

/* HMAC-SHA256(key, "v1" 0 label 0 port 0 expiry), numbers in decimal, as text with port and expiry
 * before it. Returns 0 or UV_ENOMEM. */
TR_MUST_CHECK int vmm_preview_token(const uint8_t key[TR_ROUTE_KEY_SIZE], const char *label,
                                    uint16_t port, int64_t expires_s,
                                    char token[VMM_PREVIEW_TOKEN_SIZE]);

#endif
