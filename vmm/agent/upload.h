/* SPDX-License-Identifier: MIT */
/* A file on its way: written under another name beside its place, and put there whole. A resumable
 * one keeps that other name, made from the caller's id, from request to request. */
#ifndef VMM_AGENT_UPLOAD_H
#define VMM_AGENT_UPLOAD_H

#include "vmm/agent/files.h"

#define AGENT_UPLOAD_ID_MAX 64

struct agent_upload {
    int dir, fd; /* -1: nothing is held */
    char name[256], temp[128];
    bool existed;
    mode_t mode;
    uid_t uid; /* to become its owner, and gid; -1: as it is */
    gid_t gid;
    bool must_own; /* without that it fails */
    bool keep;     /* resumable: what was written stays when it is cut short */
    int64_t size;  /* bytes that are there already */
};

/* Letters, digits, "-" and "_", at most AGENT_UPLOAD_ID_MAX. */
bool agent_upload_id_valid(const char *id, size_t len);
/* mode (mode_t)-1: that of the file replaced, or 0644. The owner is f's, else with root's rights
 * that of the file replaced. id: NULL for one that is not resumable. Missing folders are made.
 * Returns 0, UV_EBUSY (another request is at the same upload) or the errno; nothing is held then.
 */
TR_MUST_CHECK int agent_upload_begin(const struct agent_files *f, const char *path, mode_t mode,
                                     const char *id, struct agent_upload *u, struct err *err);
/* Put it in its place. Either way nothing is held afterwards. */
TR_MUST_CHECK int agent_upload_commit(struct agent_upload *u, struct err *err);
/* Let go; what was written goes, unless it is to be kept. */
void agent_upload_abort(struct agent_upload *u);
/* Remove what a resumable one wrote so far. */
TR_MUST_CHECK int agent_upload_discard(const struct agent_files *f, const char *path,
                                       const char *id, struct err *err);

#endif
