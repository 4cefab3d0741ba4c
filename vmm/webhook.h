/* SPDX-License-Identifier: MIT */
/* Webhooks: events POSTed to a URL of their owner's choice, one after the other, signed, and tried
 * again until they are taken or too old. What connects is a process of its own without rights
 * (webhook_send.c). */
#ifndef VMM_WEBHOOK_H
#define VMM_WEBHOOK_H

#include <jansson.h>
#include <stdbool.h>
#include "vmm/auth.h"
#include "vmm/events.h"

#define VMM_WEBHOOKS_MAX        1000 /* of the node */
#define VMM_WEBHOOKS_OF_OWNER   20
#define VMM_WEBHOOK_URL_MAX     1000
#define VMM_WEBHOOK_EVENTS_MAX  20
#define VMM_WEBHOOK_PATTERN_MAX 40
#define VMM_WEBHOOK_SECRET_LEN  64 /* hexadecimal digits */

struct vmm;
struct vmm_webhook;
struct vmm_webhooks;

/* Load the records below state_dir; a broken one is set aside. */
TR_MUST_CHECK int vmm_webhooks_open(struct vmm *vmm, struct vmm_webhooks **out, struct err *err);
/* Deliveries under way end; cb runs once, perhaps before this returns. */
void vmm_webhooks_close(struct vmm_webhooks *all, void (*cb)(void *arg), void *arg);
/* Once a second: what is to be tried again. */
void vmm_webhooks_tick(struct vmm_webhooks *all);

/* Begin with the next event. patterns: types ("session.created") or beginnings of them
 * ("sandbox.*"); none: all. all_owners: of everybody. *out is borrowed until it is deleted; secret
 * is shown this once. -EINVAL with the reason, -EDQUOT. */
TR_MUST_CHECK int vmm_webhook_new(struct vmm_webhooks *all, const char *owner, const char *url,
                                  const json_t *patterns, bool all_owners, struct vmm_webhook **out,
                                  char secret[VMM_WEBHOOK_SECRET_LEN + 1], struct err *err);
TR_MUST_CHECK int vmm_webhook_delete(struct vmm_webhooks *all, const char *id, struct err *err);
/* Borrowed; NULL: there is none. */
struct vmm_webhook *vmm_webhook_find(const struct vmm_webhooks *all, const char *id);
struct vmm_webhook *vmm_webhook_first(const struct vmm_webhooks *all);
struct vmm_webhook *vmm_webhook_next(const struct vmm_webhook *hook);
const char *vmm_webhook_id(const struct vmm_webhook *hook);
const char *vmm_webhook_owner(const struct vmm_webhook *hook);
/* How it looks in answers (new; NULL: out of memory). */
json_t *vmm_webhook_view(const struct vmm_webhook *hook);

/* http:// or https://, a host, printable ASCII, no user name. */
bool vmm_webhook_url_valid(const char *url);
/* "session.created", "session.*" or "*". */
bool vmm_webhook_pattern_valid(const char *pattern);
bool vmm_webhook_matches(const char *pattern, const char *type);
/* Seconds until the next try after so many failed ones; 0: it is given up. */
unsigned vmm_webhook_delay(unsigned n_failed);
/* "t=TIME,v1=HEX": HMAC-SHA-256 (RFC 2104) by secret over "TIME.BODY". */
void vmm_webhook_sign(const char *secret, int64_t time_s, const char *body, char out[100]);

#endif
