/* SPDX-License-Identifier: MIT */
/* agentctl's commands for a tree in step; they go by sync/remote.h, as the manager's do:
 *   {"id":N,"op":"sync","kind":"list|hash|read|apply|watch"}
 *   {"id":N,"op":"ask","what":"dir|want|watch|unwatch","path":B64,"sig":SIG?}
 *   {"id":N,"op":"ask","what":"op","kind":K,"path":B64,"expected":SIG?,"exec":BOOL,"target":B64?,
 *    "replaces":B64?,"content":B64?,"drop":BOOL?}
 *   {"id":N,"op":"sync-end"}  "sync-cancel"  "sync-hold"  "sync-let-go"
 *   {"id":N,"ev":"listing|entry|listed|hashed|reading|piece|read|applied|dirty|lost|overflow",...}
 *   {"id":N,"ev":"done","status":S,"why":TEXT}
 * SIG is [ino, mtime_ns, ctime_ns, size, mode, fresh]; without `expected` nothing must be there;
 * replaces: the content that must be there. */
#ifndef TESTS_AGENTCTL_SYNC_H
#define TESTS_AGENTCTL_SYNC_H

#include <jansson.h>
#include <stdbool.h>
#include <uv.h>
#include "transom/h2.h"

/* Is it one of these? Then it was carried out. say takes its event. */
bool agentctl_sync(uv_loop_t *loop, struct tr_h2 *h2, json_t *cmd, void (*say)(json_t *event));

#endif
