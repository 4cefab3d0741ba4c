/* SPDX-License-Identifier: MIT */
/* An exec as its parts see it: exec.c its life, exec_start.c how it begins, exec_output.c what it
 * writes, exec_input.c what it reads, exec_ring.c those who read a detached one, exec_api.c what is
 * asked about it. */
#ifndef VMM_AGENT_EXEC_INTERNAL_H
#define VMM_AGENT_EXEC_INTERNAL_H

#include <uv.h>

#include "transom/mask.h"
#include "vmm/agent/exec.h"
#include "vmm/agent/group.h"
#include "vmm/agent/reaper.h"
#include "vmm/agent/ring.h"

#define EXEC_MAX        256
#define EXEC_READ_BYTES 32768

/* Detached ones. Memory: the rings of those that run, and what is kept of those that ended. */
#define EXEC_RING_BYTES    (256 << 10) /* of each of two streams */
#define EXEC_DETACHED_MAX  64          /* that run */
#define EXEC_ENDED_MAX     256
#define EXEC_ENDED_BYTES   (16 << 20)
#define EXEC_ENDED_KEEP_MS 600000
#define EXEC_COMMAND_MAX   4096 /* bytes of it that are told */

struct exec;

struct exec_output {
    struct exec *exec;
    uv_poll_t poll;
    uv_timer_t hold; /* runs while bytes are held back, from the last that came */
    int fd;          /* -1: ended */
    enum agent_exec_frame type;
    bool empty;               /* nothing to read at the last try */
    struct tr_masker *masker; /* of the secrets that are active */
    struct agent_ring ring;   /* detached */
};

struct exec_input {
    uv_poll_t poll;
    int fd;                    /* -1: closed, or never open */
    struct agent_request *req; /* whose body is being written, or NULL */
    bool keep;                 /* its end does not close the pipe */
    uint8_t *queue;            /* its bytes that the pipe did not take */
    size_t queue_len;
};

struct exec {
    struct exec *next; /* newest first */
    struct agent_execs *execs;
    char id[24];
    char user[16];
    char *command;      /* as it is told; not masked yet */
    int64_t started_at; /* wall ms */
    pid_t pid;
    struct agent_group *group;
    struct agent_watch *watch; /* NULL once exited */
    struct agent_request *req; /* NULL once the reader is gone or served; always when detached */
    struct exec_output outs[2];
    struct exec_input in;
    uv_timer_t deadline, linger;
    int n_open;   /* handles not yet closed */
    bool full;    /* the reader's stream said stop */
    bool exited;  /* the process is gone, how says: */
    bool by_exit; /* code is an exit status, else a signal */
    int code;
    bool timed_out;
    bool finished; /* the exit was reported */

    bool detached; /* the rest is of these */
    bool kept;     /* outlives its handles */
    int64_t ended_at, ended_uptime;
    struct exec_reader *readers;
};

struct agent_execs {
    struct agent *agent;
    struct exec *list;
    size_t n; /* with open handles */
    unsigned long last_id;
    uint8_t buf[AGENT_FRAME_HEAD + EXEC_READ_BYTES];
};

/* exec.c */
void exec_close_handle(uv_handle_t *handle);
/* Look at where we are and do what is due. */
void exec_step(struct exec *x);
extern const struct agent_request_cbs exec_start_cbs;
void exec_on_exit(bool exited, int code, void *arg);
void exec_on_deadline(uv_timer_t *timer);
/* What is remembered of it is dropped; it goes when its handles are closed. May free x. */
void exec_forget(struct exec *x);

/* exec_output.c */
TR_MUST_CHECK int exec_output_init(struct exec *x, struct tr_mask *mask);
void exec_output_fini(struct exec *x);
void exec_output_close(struct exec_output *o);
/* Read what is there, up to a share, and pass it on. */
void exec_output_pump(struct exec_output *o);
void exec_output_watch(struct exec *x);
/* Is there nothing more in the pipe? */
bool exec_output_is_empty(struct exec_output *o);
/* Show what was held back because a secret might begin there. */
void exec_output_flush(struct exec *x);
/* A frame of JSON (stolen) to a request. */
void exec_send_json(struct agent_request *req, enum agent_exec_frame type, json_t *obj);
json_t *exec_exit_json(const struct exec *x);

/* exec_input.c */
void exec_input_close(struct exec *x);

/* exec_ring.c */
TR_MUST_CHECK int exec_ring_init(struct exec *x);
void exec_ring_fini(struct exec *x); /* readers are served what there is and let go */
void exec_ring_write(struct exec_output *o, const uint8_t *data, size_t len);
void exec_ring_end(struct exec *x); /* it finished: readers hear, the rings shrink */
size_t exec_ring_bytes(const struct exec *x);

/* exec_api.c */
/* The one the path names; running: none that ended. NULL: answered. */
struct exec *exec_find(struct agent_request *req, bool running);
/* Drop what was kept long enough, or is too much. */
void exec_trim(struct agent_execs *execs);

#endif
