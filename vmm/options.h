/* SPDX-License-Identifier: MIT */
/* The manager's settings: one plain struct, filled once from the configuration. */
#ifndef VMM_OPTIONS_H
#define VMM_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include "transom/err.h"

struct tr_config;

/* Strings are borrowed from the configuration, which outlives this, or point into the struct. */
struct vmm_options {
    const struct tr_config *config;
    const char *state_dir, *run_dir, *cache_dir;
    char node[64];
    char preview_domain[256];
    char preview_scheme[8];
    uint16_t preview_port; /* 0: the scheme's own */
    const char *redis_url; /* "" : embedded */
    const char *gateway_user, *metrics;
    const char *accelerator, *qemu, *image_path, *cgroup;
    uid_t qemu_uid; /* only used when we are root */
    gid_t qemu_gid;
    int64_t vcpus, memory_mb, disk_mb, max_sandboxes, start_timeout_ms, max_json_bytes;
    int64_t requests_per_s, requests_burst; /* of one key; 0: no limit */
    int64_t audit_entries;
    int64_t quota_mb; /* of a session's files and checkpoints; 0: none */
    int64_t git_mb;
    int64_t repack_objects;
    int64_t idle_timeout_s, idle_persist_s, idle_warning_s, idle_max_run_s;
    bool stop_machines_on_exit, snapshots;
    bool net_enabled;
};

/* Fill from a configuration. A fault names the option. */
TR_MUST_CHECK int vmm_options_init(struct vmm_options *o, const struct tr_config *config,
                                   struct err *err);
/* What can be checked without starting anything: programs that must be there, folders. The message
 * says what to do. */
TR_MUST_CHECK int vmm_options_check_host(const struct vmm_options *o, struct err *err);

#endif
