/* SPDX-License-Identifier: MIT */
/* For tests of sync/engine: two folders of this host as guest and store, a vault in memory, faults
 * and edits at chosen moments, and the means to edit and compare. All of it fails the test that
 * calls. */
#ifndef TESTS_UNIT_SYNC_RIG_H
#define TESTS_UNIT_SYNC_RIG_H

#include "sync/engine.h"
#include "sync/side_tree.h"

struct rig_side {
    struct sync_side_tree tree; /* first */
    char dir[128];
    /* Faults: this path's changes fail with that. */
    char fail_path[64];
    int fail_status;
    int n_failed;   /* how often it came to that */
    int fail_call;  /* every call fails with this: the side is gone */
    bool is_writer; /* every file has a writer */
    bool is_fresh;  /* every file has just changed */
    int n_watched;
    uint64_t n_calls;
};

struct rig_conflict {
    char path[64];
    enum sync_conflict_kind kind;
    enum sync_side winner;
};

struct rig {
    char dir[64];
    struct rig_side sides[SYNC_N_SIDES];
    struct sync_engine *engine;
    struct sync_secrets secrets; /* none at first */
    uint64_t instance;
    int64_t now_ms;
    struct rig_conflict conflicts[4096];
    size_t n_conflicts;
    int room; /* what the vault's room() says */
    int vault_fault;
    /* Called within the engine's work, each time it has asked a side for something. */
    void (*on_moment)(struct rig *rig);
};

void rig_init(struct rig *rig); /* the engine, too */
void rig_fini(struct rig *rig);
/* End the engine and start another; with another instance, too, if that was changed before. */
void rig_restart(struct rig *rig, bool save);

/* One round in which everything is looked at, two seconds after the last. */
int rig_try(struct rig *rig);
/* As many as there is something to do; fails if that does not end. */
void rig_sync(struct rig *rig);
/* Both folders are the same, but for what begins with one of these names ("" at the end). */
void rig_check_same(struct rig *rig, const char *const *but, const char *what);

void rig_write(struct rig *rig, enum sync_side side, const char *path, const char *text);
void rig_mkdir(struct rig *rig, enum sync_side side, const char *path);
void rig_link(struct rig *rig, enum sync_side side, const char *path, const char *target);
void rig_chmod(struct rig *rig, enum sync_side side, const char *path, unsigned mode);
void rig_move(struct rig *rig, enum sync_side side, const char *from, const char *to);
void rig_remove(struct rig *rig, enum sync_side side, const char *path); /* with all below */
/* The file's text, "->target", "/" for a folder, or "" for nothing; static. */
const char *rig_read(struct rig *rig, enum sync_side side, const char *path);
bool rig_is_exec(struct rig *rig, enum sync_side side, const char *path);
void rig_path(struct rig *rig, enum sync_side side, const char *path, char out[512]);

/* Does the vault hold this text, and was it told to hold on to it for that path? path NULL: any. */
bool rig_has_kept(struct rig *rig, const char *path, const char *text);
/* Was that ever written to the store or its vault, be it for a moment? Counted anew by rig_init().
 */
bool rig_was_written(const char *bytes, size_t len);
/* Why the guest's path is left out; "" if it is not. */
const char *rig_left_out(struct rig *rig, const char *path);
/* The fault of a path, with its side, or 0. */
int rig_fault(struct rig *rig, const char *path, enum sync_side *side);
bool rig_has_conflict(struct rig *rig, const char *path, enum sync_conflict_kind kind);

#endif
