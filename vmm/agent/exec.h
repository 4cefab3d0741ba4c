/* SPDX-License-Identifier: MIT */
/* exec: one command without a terminal, attached to the request that started it. Output is lossless
 * (the command waits for its reader); when the reader leaves, the command's whole tree is killed.
 * A detached one is its own: its output goes into rings, from which readers take it as long as it
 * is there. */
#ifndef VMM_AGENT_EXEC_H
#define VMM_AGENT_EXEC_H

#include "vmm/agent/agent.h"
#include "vmm/agent/request.h"

/* Frame types of application/vnd.transom.exec. A frame: type, length (4 bytes, big endian), bytes.
 */
enum agent_exec_frame {
    AGENT_FRAME_STARTED = 0x00,
    AGENT_FRAME_STDOUT = 0x01,
    AGENT_FRAME_STDERR = 0x02,
    AGENT_FRAME_EXIT = 0x03,
    AGENT_FRAME_GAP = 0x04, /* {"stream","from","to"}: lost to a reader that came too late */
};
#define AGENT_FRAME_HEAD 5
void agent_exec_frame_head(uint8_t *out, enum agent_exec_frame type, uint32_t len);

struct agent_execs;
TR_MUST_CHECK int agent_execs_new(struct agent *a, struct agent_execs **out);
void agent_execs_stop(struct agent_execs *execs); /* kill all, close every handle */
void agent_execs_free(struct agent_execs *execs);
/* Output from here on hides the secrets that are active now. */
void agent_execs_secrets_changed(struct agent_execs *execs);

/* The id of the exec that a process belongs to, borrowed until that ends; NULL: none. */
const char *agent_execs_owner(const struct agent_execs *execs, pid_t pid);

void agent_exec_handle_start(struct agent_request *req);  /* POST /v1/exec */
void agent_exec_handle_list(struct agent_request *req);   /* GET /v1/exec */
void agent_exec_handle_stdin(struct agent_request *req);  /* POST /v1/exec/{id}/stdin */
void agent_exec_handle_signal(struct agent_request *req); /* POST /v1/exec/{id}/signal */
void agent_exec_handle_get(struct agent_request *req);    /* GET /v1/exec/{id} */
void agent_exec_handle_delete(struct agent_request *req); /* DELETE /v1/exec/{id} */
/* GET /v1/exec/{id}/output?stream=stdout|stderr[&from=N][&follow=1]: bytes of one stream. A reader
 * that is overtaken gets the end, and learns by transom-from where the next one begins. */
void agent_exec_handle_output(struct agent_request *req);
/* GET /v1/exec/{id}/attach[?stdout_from=N][&stderr_from=N]: frames, as of the start. */
void agent_exec_handle_attach(struct agent_request *req);

#endif
