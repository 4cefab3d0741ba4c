/* SPDX-License-Identifier: MIT */
/* What machine.c (life), machine_recover.c (after a restart) and machine_idle.c share. */
#ifndef VMM_MACHINE_INTERNAL_H
#define VMM_MACHINE_INTERNAL_H

#include "vmm/agent_client.h"
#include "vmm/driver/driver.h"
#include "vmm/image.h"
#include "vmm/machine.h"
#include "vmm/net/net.h"
#include "vmm/sync.h"

#define MACHINE_ASKERS_MAX 16

/* What the idle rule needs to know of a machine. Times are the loop's. */
struct machine_idle {
    uint64_t last_activity_ms;
    uint64_t next_check_ms;
    uint64_t held_since_ms; /* 0: nothing was seen to hold it */
    uint64_t held_seen_ms;  /* when something last was: its end may have been missed */
    unsigned n_pending;     /* answers of the agent awaited */
    unsigned n_holds;
    bool serving; /* something listens on the preview port */
    bool failed;  /* an answer did not come: judge later */
    uint64_t deadline_ms, published_ms;
    uint64_t warned_ms; /* the deadline of which an event told */
    const char *why;
    json_t *holders; /* while answers are awaited */
    struct machine_idle_asker {
        vmm_idle_cb cb;
        void *arg;
    } askers[MACHINE_ASKERS_MAX];
    unsigned n_askers;
};

/* The guest's events; see machine_events.c. */
struct machine_events {
    int fd;                         /* of the file that says how far we are; 0: not open */
    char boot[64];                  /* whose numbers these are; "": nobody's yet */
    int64_t seq;                    /* of the last one that was taken */
    unsigned n;                     /* passed on lately */
    int64_t missed_from, missed_to; /* 0: none */
};

struct vmm_machine {
    struct vmm_machines *ms;
    struct vmm_sandbox *sb;
    struct vmm_machine *prev, *next;
    char label[VMM_ID_LEN + 1];
    uint64_t instance;
    /* Name of its process, network and run_dir: its own, or the one that it had in the pool. */
    char vm_label[VMM_ID_LEN + 1];
    bool pooled;
    char run_dir[200], data_dir[512];
    char disk[544];
    struct net_port port; /* valid while attached */
    bool attached;
    bool net_busy;   /* an attach or detach is under way */
    struct vm *vm;   /* from start until on_start failed, on_exit or release */
    bool vm_running; /* on_start was good */
    struct vmm_agent *agent;
    uint64_t secrets_version; /* of what the agent was sent last at its hello */
    bool agent_closing;
    struct vmm_sync *sync; /* NULL: its files are not kept in step */
    bool sync_closing;
    bool syncing_last;    /* stopping: the last sync is under way; then stop_now() */
    bool force;           /* ... with this */
    char boot_id[64];     /* of the guest's kernel, as the agent tells it; "" before */
    bool waits;           /* ready, but for the session's files */
    bool up;              /* the sandbox was told */
    bool stopping;        /* on the way down: go_down() after each callback */
    bool adopting;        /* found after a restart; the sandbox is told once it is taken over */
    bool asked_console;   /* of a boot that failed, or since the agent is lost */
    bool boot_over;       /* it took too long: when the process has ended, the next begins */
    bool restored;        /* it started, or is to, from the template */
    char not_boot_id[64]; /* restored: of the template, which it must have given up */
    bool no_restore;      /* that has failed once: it boots cold */
    unsigned n_boots;     /* of this instance; 0: adopted */
    unsigned n_late;      /* of them took too long */
    uint64_t boot_until_ms, launched_ms;
    bool removing;  /* the driver removes what is left of it */
    bool releasing; /* the manager ends and lets go of it */
    bool data_removed;
    uv_work_t work;
    struct machine_idle idle;
    struct machine_events events;
    json_t *stats;     /* the last sample, or NULL */
    uint64_t stats_ms; /* its time, of the loop */
};

struct vmm_machines {
    struct vmm *vmm;
    const struct vm_driver *driver;
    struct net *net; /* NULL: no network */
    char machines_dir[500], vm_dir[180];
    struct vmm_machine *machines;
    struct vmm_template *template; /* NULL: machines boot */
    struct vmm_pool *pool;         /* NULL: none waits for them */
    /* Recovery. */
    unsigned n_recovering;
    void (*on_recovered)(const struct err *err, void *arg);
    void *on_recovered_arg;
    /* Closing. */
    bool closing, stop;
    void (*on_closed)(void *arg);
    void *on_closed_arg;
};

/* A machine for this instance of the sandbox, in the list, nothing begun. NULL: no memory. */
struct vmm_machine *machine_new(struct vmm_machines *ms, struct vmm_sandbox *sb);
/* What the driver is to be told. Strings point into m, the options and the image. */
struct vm_spec machine_spec(struct vmm_machine *m, const struct vmm_image *image);
/* The same for a machine of the node's usual size, but for what is its own. image NULL: it is not
 * to be started. */
struct vm_spec machine_usual_spec(const struct vmm_machines *ms, const struct vmm_image *image);
void machine_spec_port(struct vm_spec *spec, const struct net_port *port);
/* Is a sandbox's machine on its way up or down? What is done beforehand waits then. */
bool machine_somebody_starts(const struct vmm_machines *ms);
extern const struct vm_cbs machine_vm_cbs;
/* The body of hello (new), or NULL. port NULL: no network. */
json_t *machine_hello_json(const char *label, uint64_t instance, const char *host, const char *url,
                           const struct net_port *port);
/* Begin a boot. Ends in machine_vm_cbs. */
TR_MUST_CHECK int machine_launch(struct vmm_machine *m, struct err *err);
/* machine_boot.c: is the boot that just ended (never up) followed by another, which has begun? */
bool machine_boots_again(struct vmm_machine *m, const struct vm_exit *ex);
/* The start from the template has failed, for that reason: a boot follows, when this returns true.
 */
bool machine_boots_instead(struct vmm_machine *m, const char *why);
/* Has this boot taken too long? The machine is to be ended then. */
bool machine_boot_is_late(struct vmm_machine *m, uint64_t now_ms);
/* The agent's channel is to be opened. */
TR_MUST_CHECK int machine_open_agent(struct vmm_machine *m);
/* Take the next step of cleaning up, if none is under way. */
void machine_go_down(struct vmm_machine *m);
/* machine_recover.c: an adoption ended, one way or the other. */
void machine_recovered(struct vmm_machines *ms);
/* machine_stats.c: a "stats" event of the agent (borrowed). */
void machine_stats_take(struct vmm_machine *m, const json_t *told);
/* Of what an agent tells, what can be true (new; NULL: out of memory). */
json_t *machine_stats_check(const json_t *told);
/* machine_events.c: the number of the last event that was taken from this boot, which hello tells
 * of; -1: none, begin with what comes. */
int64_t machine_events_since(const json_t *hello, void *arg);
/* Pass an event on, unless there are too many. */
void machine_events_pass_on(struct vmm_machine *m, const char *type, const json_t *event);
/* It was taken: the next conversation goes on behind it. */
void machine_events_took(struct vmm_machine *m, const json_t *event);
void machine_events_tick(struct vmm_machine *m); /* about once a second */
void machine_events_fini(struct vmm_machine *m);
/* machine_idle.c */
void machine_idle_tick(struct vmm_machine *m, uint64_t now_ms);
void machine_idle_fini(struct vmm_machine *m);

#endif
