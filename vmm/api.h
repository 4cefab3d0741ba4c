/* SPDX-License-Identifier: MIT */
/* Handlers of the API, one file per subject. See the table in router.c. */
#ifndef VMM_API_H
#define VMM_API_H

#include <jansson.h>
#include "vmm/request.h"

/* api_node.c */
void vmm_api_version(struct vmm_request *req);
void vmm_api_openapi(struct vmm_request *req);
void vmm_api_node(struct vmm_request *req);

/* api_keys.c */
void vmm_api_key_new(struct vmm_request *req);
void vmm_api_key_list(struct vmm_request *req);
void vmm_api_key_delete(struct vmm_request *req);

/* api_list.c */
void vmm_api_sandbox_search(struct vmm_request *req);
void vmm_api_whoami(struct vmm_request *req);

/* api_stats.c */
void vmm_api_stats(struct vmm_request *req);
void vmm_api_traffic(struct vmm_request *req);

/* api_secrets.c */
void vmm_api_secret_list(struct vmm_request *req);
void vmm_api_secret_put(struct vmm_request *req);
void vmm_api_secret_delete(struct vmm_request *req);
void vmm_api_secret_rotate(struct vmm_request *req);
void vmm_api_active_list(struct vmm_request *req);
void vmm_api_active_put(struct vmm_request *req);
void vmm_api_active_delete(struct vmm_request *req);

/* api_sessions.c */
void vmm_api_session_new(struct vmm_request *req);
void vmm_api_session_list(struct vmm_request *req);
void vmm_api_session_get(struct vmm_request *req);
void vmm_api_session_change(struct vmm_request *req);
void vmm_api_session_delete(struct vmm_request *req);
void vmm_api_idle(struct vmm_request *req);
void vmm_api_sync(struct vmm_request *req);
/* Go on with a deletion that a crash cut off. */
void vmm_api_session_resume_delete(struct vmm *vmm, struct vmm_session *session);

/* api_sandboxes.c */
void vmm_api_sandbox_list(struct vmm_request *req);
void vmm_api_sandbox_get(struct vmm_request *req);
void vmm_api_sandbox_start(struct vmm_request *req);
void vmm_api_sandbox_stop(struct vmm_request *req);
void vmm_api_sandbox_reset(struct vmm_request *req);

/* api_preview.c */
void vmm_api_routes_get(struct vmm_request *req);
void vmm_api_routes_put(struct vmm_request *req);
void vmm_api_ports_get(struct vmm_request *req);
void vmm_api_ports_put(struct vmm_request *req);
void vmm_api_access_get(struct vmm_request *req);
void vmm_api_access_put(struct vmm_request *req);
void vmm_api_access_revoke(struct vmm_request *req);
void vmm_api_link_new(struct vmm_request *req);

/* api_files.c, api_file_get.c, api_file_put.c: the session's store */
void vmm_api_store_list(struct vmm_request *req);
void vmm_api_store_get(struct vmm_request *req);
void vmm_api_store_git(struct vmm_request *req);
void vmm_api_content_get(struct vmm_request *req);
void vmm_api_store_put(struct vmm_request *req);
void vmm_api_store_clone(struct vmm_request *req);
void vmm_api_store_unpack(struct vmm_request *req);
void vmm_api_store_delete(struct vmm_request *req);
void vmm_api_store_move(struct vmm_request *req);

/* api_checkpoints.c, api_changes.c */
void vmm_api_checkpoint_list(struct vmm_request *req);
void vmm_api_checkpoint_new(struct vmm_request *req);
void vmm_api_checkpoint_get(struct vmm_request *req);
void vmm_api_checkpoint_restore(struct vmm_request *req);
void vmm_api_kept_list(struct vmm_request *req);
void vmm_api_changes(struct vmm_request *req);

/* api_ssh.c */
void vmm_api_ssh_key(struct vmm_request *req);

/* api_webhooks.c */
void vmm_api_webhook_new(struct vmm_request *req);
void vmm_api_webhook_list(struct vmm_request *req);
void vmm_api_webhook_get(struct vmm_request *req);
void vmm_api_webhook_delete(struct vmm_request *req);

/* api_wake.c */
void vmm_api_wake(struct vmm_request *req);

/* api_audit.c */
void vmm_api_audit(struct vmm_request *req);

/* api_events.c */
void vmm_api_events(struct vmm_request *req);

/* forward.c: endpoints that the sandbox's agent answers */
void vmm_api_forward(struct vmm_request *req);

/* api_attach.c: a window as a WebSocket */
void vmm_api_attach(struct vmm_request *req);

/* view.c: how things look in answers (new references; NULL when out of memory) */
json_t *vmm_view_sandbox(const struct vmm *vmm, const struct vmm_sandbox *sb);
json_t *vmm_view_session(const struct vmm *vmm, const struct vmm_session *session);
/* "http://<label>.preview.localhost:8080" */
void vmm_view_host(const struct vmm *vmm, const char *label, char *out, size_t size);
void vmm_view_url(const struct vmm *vmm, const char *label, char *out, size_t size);

#endif
