/* SPDX-License-Identifier: MIT */
/* A run as a stream of events, as lines of JSON (NDJSON), as server-sent events (HTML living
 * standard, section 9.2; "event" is the type, "id" the offset to resume from), or as frames:
 *   {"type":"start","run_id","window","from"}      once it has begun
 *   {"type":"output","from","to","data"[,"data_b64"]}
 *   {"type":"gap","from","to"}                     bytes that were overtaken in the ring
 *   {"type":"listen","port"[,"preview_url"]}       a process of the run listens
 *   {"type":"end", members of the run's JSON}      last event
 * Characters are not torn: data_b64 holds the bytes of data, which may end up to three bytes before
 * the newest until the rest of a character comes.
 *
 * A frame (AGENT_RUN_TYPE) is one byte of its kind, four of the length (big endian), and an event
 * as JSON; but output is its bytes alone, for those who want them fast: they follow on what came
 * before, from "from" of the start or of the request, whichever is later, and from "to" of a gap.
 */
#ifndef VMM_AGENT_WINDOW_STREAM_H
#define VMM_AGENT_WINDOW_STREAM_H

#include "vmm/agent/request.h"
#include "vmm/agent/window.h"

enum agent_run_frame {
    AGENT_RUN_FRAME_START = 0x00,
    AGENT_RUN_FRAME_OUTPUT = 0x01,
    AGENT_RUN_FRAME_END = 0x03,
    AGENT_RUN_FRAME_GAP = 0x04,
    AGENT_RUN_FRAME_LISTEN = 0x05,
};

/* Answer req with the events of run (referenced here) from offset from on, or from where it begins
 * when that is later. req->form is not JSON. A client that leaves does not end the run. */
void agent_window_stream_start(struct agent_request *req, struct agent_window *w,
                               struct agent_run *run, uint64_t from, bool b64);

/* How many of the bytes are whole characters: all but an unfinished one at the end. */
size_t agent_whole_characters(const uint8_t *bytes, size_t len);

#endif
