/* SPDX-License-Identifier: MIT */
/* The two sockets of the API, HTTP/2 with prior knowledge:
 *   admin.sock (0600): peers that are root or our own user act as admin of owner "local"
 *   edge.sock  (0666): every request needs a key, but the gateway's own (see api_wake.c) */
#ifndef VMM_SERVER_H
#define VMM_SERVER_H

#include "vmm/request.h"
#include "vmm/vmm.h"

#define VMM_CONNECTIONS_MAX 1024  /* per socket */
#define VMM_STREAMS_MAX     256   /* per connection */
#define VMM_RESET_RATE      10000 /* the gateway passes on the resets of all its clients */
#define VMM_STREAM_WINDOW   (128 * 1024)

/* Listen on both sockets below run_dir. The caller holds the lock on run_dir, so that a socket
 * that is there is a dead manager's. */
TR_MUST_CHECK int vmm_server_open(struct vmm *vmm, struct vmm_server **out, struct err *err);
/* No new connections; running requests get grace_ms to end; then cb (the server is freed). */
void vmm_server_close(struct vmm_server *server, uint64_t grace_ms, void (*cb)(void *arg),
                      void *arg);

/* A key is deleted: what streams with it ends. */
void vmm_server_key_gone(struct vmm_server *server, const char *id);

/* The part below HTTP/2, for tests: deal with a request whose head is complete. */
void vmm_server_dispatch(struct vmm_request *req);

#endif
