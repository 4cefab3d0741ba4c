/* SPDX-License-Identifier: MIT */
/* The agent's parts and what they share. One thread, one loop; every part is reachable from here.
 */
#ifndef VMM_AGENT_AGENT_H
#define VMM_AGENT_AGENT_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "transom/err.h"
#include "vmm/agent/share.h"

#define AGENT_API             1
#define AGENT_JSON_LIMIT      (1u << 20) /* body of a request */
#define AGENT_RUN_JSON_LIMIT  (4u << 20) /* body of a run: commands may be long */
#define AGENT_DEFAULT_PORT    "transom.agent.0"
#define AGENT_DEFAULT_RUN_DIR "/run/transom-agent"
#define AGENT_DEFAULT_CGROUP  "/sys/fs/cgroup/vmagent"
#define AGENT_SANDBOX_USER    "sandbox"
#define AGENT_TERMINAL_READS  32 /* of all terminals together, in one turn of the loop */

struct agent_options {
    const char *port_name; /* virtio-serial port; NULL when another channel is chosen */
    const char *unix_path; /* listen here instead */
    bool stdio;            /* serve descriptors 0 and 1 instead */
    bool dry_run;          /* requests are judged, not carried out (for fuzzing) */
    bool host_test;        /* a developer's host: identity, clock, network, users are left alone */
    const char *run_dir;   /* side channels of windows */
    const char *cgroup;    /* parent group of all we start; "" or unusable: process walks */
    const char *home;      /* home of the sandbox user; NULL: from /etc/passwd */
};

/* Who this machine is, as told by hello. */
struct agent_identity {
    char *instance, *label, *hostname, *public_hostname, *public_url; /* never NULL once greeted */
    json_t *env; /* object of strings, or NULL */
};

struct agent {
    uv_loop_t *loop;
    struct agent_options options;
    struct agent_identity id;
    bool greeted;                 /* a hello was carried out */
    bool stopping;                /* the loop is being emptied */
    struct agent_share terminals; /* reads of each at its turn of the loop */
    struct agent_events *events;
    struct agent_reaper *reaper;
    struct agent_groups *groups;
    struct agent_deaths *deaths;
    struct agent_execs *execs;
    struct agent_windows *windows;
    struct agent_ports *ports;
    struct agent_splices *splices;
    struct agent_stats *stats;
    struct agent_secrets *secrets;
    struct agent_ssh *ssh;
    struct agent_systemd *systemd;
    struct agent_server *server;
};

/* Make all parts (not the server). On failure what was made stays for agent_fini(). */
TR_MUST_CHECK int agent_init(struct agent *a, uv_loop_t *loop, const struct agent_options *options,
                             struct err *err);
/* Kill what runs and close every handle; memory is freed by agent_free() once the loop is empty. */
void agent_stop(struct agent *a);
void agent_free(struct agent *a);

/* Milliseconds since boot, which neither hello nor suspend moves back. */
int64_t agent_uptime_ms(void);
/* Milliseconds of wall time. */
int64_t agent_wall_ms(void);
/* "2026-11-29T20:14:33.123Z", new. */
json_t *agent_time_json(int64_t wall_ms);

#endif
