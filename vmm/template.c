/* SPDX-License-Identifier: MIT */
/* Path: tick -> load (a worker: image, binding, what is on disk) -> ready, or else
 * tick, when no machine is starting -> prepare (a worker) -> network -> driver -> agent -> systemd
 * has started -> warm, one command after the other -> agent closed -> snapshot -> kill -> network
 * gone -> save (a worker) -> ready. Faults enter at fail(): everything is taken down the same way,
 * and the next attempt is due after a pause. */
#include "vmm/template.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>
#include "transom/log.h"
#include "vmm/agent_client.h"
#include "vmm/file.h"
#include "vmm/machine_internal.h"
#include "vmm/template_file.h"

#define BUILD_MS     300000 /* from the start of its process to the snapshot */
#define ASK_MS       300
#define STEP_MS      120000
#define RETRY_MIN_MS 60000
#define RETRY_MAX_MS 3600000
#define FAILURES_MAX 3   /* restores that fail in a row, then it is built anew */
#define SETTLE_MS    500 /* from the last command to the snapshot */

enum stage {
    IDLE,      /* next_ms tells when something is to be done */
    LOADING,   /* work runs */
    PREPARING, /* work runs */
    ATTACHING, /* net */
    BOOTING,   /* vm; agent once it has started */
    WARMING,   /* vm, agent; step counts */
    LEAVING,   /* vm; agent is being closed */
    SETTLING,  /* vm; timer */
    SAVED,     /* vm is being ended, its state is written; down() goes on */
    FAILING,   /* whatever is there is being taken down */
    SAVING,    /* work runs */
    READY,     /* file is valid */
};

struct vmm_template {
    struct vmm_machines *ms;
    enum stage stage;
    char root[540];
    uint64_t next_ms, deadline_ms, began_ms, pause_ms;
    bool absent;       /* load() found none: build */
    bool stale;        /* another image is there now */
    unsigned n_failed; /* restores in a row */
    unsigned generation;
    struct template_file file;
    /* Of the work and of the build. */
    uv_work_t work;
    struct vmm_image image;
    struct vm_spec spec; /* strings are here or in options and image */
    json_t *binding;
    struct err err;
    int work_status;
    char label[VMM_ID_LEN + 1], run_dir[200], disk[VMM_PATH_SIZE];
    char boot_id[TEMPLATE_BOOT_ID_SIZE];
    struct net_port port;
    bool attached, net_busy, agent_closing, timer_closed;
    int memory_fd, state_fd;
    struct vm *vm;
    bool vm_running;
    struct vmm_agent *agent;
    unsigned step;
    uv_timer_t timer;
    void (*on_closed)(void *arg);
    void *on_closed_arg;
};

/* What the first commands of a machine touch is in memory then. The user's home stays as it is. */
static const char warm_shell[] =
    "cd; type python3 node git pip npm >/dev/null; ls -la >/dev/null; "
    "python3 -B -c 'import json, os, re, subprocess, socket, ssl, http.server'; node -e 0; "
    "npm --version >/dev/null; git --version >/dev/null; : | grep x; : | sed p; uname -a "
    ">/dev/null; "
    "sudo -n true; rm -rf ~/.bash_history ~/.npm ~/.sudo_as_admin_successful";

/* The journal's service reads its ids when it starts: a restored machine starts it for its first
 * line. */
static const char leave_shell[] =
    "systemctl stop systemd-journald.service; rm -rf /run/log/journal/*; sync; "
    "echo 1 >/proc/sys/vm/compact_memory; true";

static void down(struct vmm_template *t);
static void next_step(struct vmm_template *t);

static uint64_t now(const struct vmm_template *t)
{
    return uv_now(t->ms->vmm->loop);
}

static void work_begin(struct vmm_template *t, enum stage stage, uv_work_cb work,
                       uv_after_work_cb after)
{
    t->stage = stage;
    t->err = (struct err){0};
    t->work.data = t;
    if (uv_queue_work(t->ms->vmm->loop, &t->work, work, after) != 0)
        abort(); /* fails only without a work function */
}

static void fail(struct vmm_template *t, const char *why)
{
    if (t->stage == FAILING)
        return;
    if (t->on_closed == NULL)
        log_warn("template: not built, machines boot cold: %s", why);
    t->stage = FAILING;
    t->pause_ms = t->pause_ms == 0                 ? RETRY_MIN_MS
                  : t->pause_ms * 2 > RETRY_MAX_MS ? RETRY_MAX_MS
                                                   : t->pause_ms * 2;
    down(t);
}

/* ---- what machines start from ---- */

static void become_ready(struct vmm_template *t, const char *how)
{
    t->stage = READY;
    t->stale = false;
    t->n_failed = 0;
    t->generation++;
    t->pause_ms = 0;
    log_info("template: ready, %s: %u vCPUs, %u MB of memory, %llu MB of them in use", how,
             t->spec.vcpus, t->spec.memory_mb, (unsigned long long)(t->file.memory_bytes >> 20));
}

/* It is used no more; another one is looked for at once. */
static void drop(struct vmm_template *t, bool remove)
{
    struct err err = {0};

    template_close(&t->file);
    if (remove && vmm_file_remove_tree(t->file.dir, &err) != 0)
        log_error("template: %s", err.msg);
    t->stage = IDLE;
    t->stale = t->absent = false;
    t->next_ms = 0;
}

/* Is this what it was built from? Cheap: called at each start. */
static bool is_of_image(const struct vmm_template *t, const struct vmm_image *image)
{
    return strcmp(image->dir, t->image.dir) == 0 &&
           json_equal(json_object_get(image->about, "id"), json_object_get(t->image.about, "id"));
}

bool vmm_template_fits(struct vmm_template *t, const struct vmm_image *image, unsigned vcpus,
                       unsigned memory_mb, unsigned disk_mb)
{
    if (t == NULL || t->stage != READY || t->stale)
        return false;
    if (!is_of_image(t, image)) {
        log_info("template: there is another image");
        t->stale = true;
        return false;
    }
    return vcpus == t->spec.vcpus && memory_mb == t->spec.memory_mb && disk_mb == t->spec.disk_mb;
}

unsigned vmm_template_generation(const struct vmm_template *t)
{
    return t != NULL && t->stage == READY && !t->stale ? t->generation : 0;
}

const char *vmm_template_label(const struct vmm_template *t)
{
    return t == NULL ? "" : t->file.label;
}

bool vmm_template_use(struct vmm_template *t, const struct vmm_image *image, struct vm_spec *spec,
                      char disk_from[VMM_TEMPLATE_PATH])
{
    char path[VMM_PATH_SIZE];
    int fd;

    if (!vmm_template_fits(t, image, spec->vcpus, spec->memory_mb, spec->disk_mb) ||
        spec->accel != t->spec.accel || (spec->tap != NULL) != (t->ms->net != NULL))
        return false;
    snprintf(path, sizeof(path), "%s/" TEMPLATE_STATE, t->file.dir);
    fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0) {
        log_warn("template: %s: %s", path, strerror(errno));
        t->stale = true;
        return false;
    }
    snprintf(disk_from, VMM_TEMPLATE_PATH, "%s/" TEMPLATE_DISK, t->file.dir);
    spec->memory = VM_MEMORY_CLONE;
    spec->memory_fd = t->file.memory_fd;
    spec->state_fd = fd;
    spec->disk_from = disk_from;
    return true;
}

void vmm_template_release(const struct vm_spec *spec)
{
    if (spec->memory == VM_MEMORY_CLONE)
        close(spec->state_fd);
}

const char *vmm_template_boot_id(const struct vmm_template *t)
{
    return t == NULL ? "" : t->file.boot_id;
}

void vmm_template_judge(struct vmm_template *t, bool good)
{
    if (t == NULL || t->stage != READY)
        return;
    t->n_failed = good ? 0 : t->n_failed + 1;
    if (t->n_failed < FAILURES_MAX)
        return;
    log_error("template: %u machines in a row could not be restored: it is built again",
              t->n_failed);
    drop(t, true);
    t->next_ms = now(t) + RETRY_MIN_MS;
}

/* ---- down ---- */

static void on_timer_closed(uv_handle_t *handle)
{
    struct vmm_template *t = handle->data;

    t->timer_closed = true;
    down(t);
}

static void on_agent_closed(void *arg)
{
    struct vmm_template *t = arg;

    t->agent = NULL;
    t->agent_closing = false;
    if (t->stage == LEAVING) {
        t->stage = SETTLING;
        next_step(t);
    } else {
        down(t);
    }
}

static void on_detached(int status, const struct err *err, void *arg)
{
    struct vmm_template *t = arg;

    t->net_busy = t->attached = false;
    if (status != 0)
        log_error("template: network not removed: %s", err->msg);
    down(t);
}

static void save_work(uv_work_t *work)
{
    struct vmm_template *t = work->data;

    t->work_status =
        template_save(t->root, t->binding, t->label, t->boot_id, t->memory_fd, &t->file, &t->err);
}

static void after_save(uv_work_t *work, int status)
{
    struct vmm_template *t = work->data;
    char how[64];

    (void)status;
    if (t->work_status != 0) {
        fail(t, t->err.msg);
        return;
    }
    t->memory_fd = -1; /* the file has it now */
    snprintf(how, sizeof(how), "built in %llu ms", (unsigned long long)(now(t) - t->began_ms));
    become_ready(t, how);
    if (t->on_closed != NULL)
        down(t);
}

static void end(struct vmm_template *t)
{
    void (*cb)(void *arg) = t->on_closed;
    void *arg = t->on_closed_arg;

    template_close(&t->file);
    vmm_image_fini(&t->image);
    json_decref(t->binding);
    free(t);
    cb(arg);
}

static void remove_new(uv_work_t *work)
{
    struct vmm_template *t = work->data;
    char path[VMM_PATH_SIZE];
    struct err err = {0};

    snprintf(path, sizeof(path), "%s/" TEMPLATE_NEW, t->root);
    if (vmm_file_remove_tree(path, &err) != 0)
        log_error("template: %s", err.msg);
}

static void after_remove_new(uv_work_t *work, int status)
{
    struct vmm_template *t = work->data;

    (void)status;
    t->stage = IDLE;
    t->next_ms = now(t) + t->pause_ms;
    if (t->on_closed != NULL)
        down(t);
}

static void close_fd(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

/* Take one step of taking down what a build has made, if none is under way; then save, or be idle,
 * or be closed. */
static void down(struct vmm_template *t)
{
    if (t->stage != SAVED && t->stage != FAILING && t->on_closed == NULL)
        return;
    if (t->stage == LOADING || t->stage == PREPARING || t->stage == SAVING || t->net_busy)
        return; /* its callback goes on */
    if (uv_is_active((uv_handle_t *)&t->timer))
        (void)uv_timer_stop(&t->timer);
    if (t->vm != NULL) {
        t->ms->driver->kill(t->vm); /* on_exit() or on_start() goes on */
        return;
    }
    if (t->agent != NULL) {
        if (!t->agent_closing) {
            t->agent_closing = true;
            vmm_agent_close(t->agent, on_agent_closed, t);
        }
        return;
    }
    if (t->attached) {
        t->net_busy = true;
        net_detach(t->ms->net, t->label, on_detached, t);
        return;
    }
    close_fd(&t->state_fd);
    if (t->stage == SAVED) {
        work_begin(t, SAVING, save_work, after_save);
        return;
    }
    close_fd(&t->memory_fd);
    if (t->stage != IDLE && t->stage != READY) {
        work_begin(t, SAVING, remove_new, after_remove_new);
        return;
    }
    if (t->on_closed == NULL)
        return;
    if (!uv_is_closing((uv_handle_t *)&t->timer))
        uv_close((uv_handle_t *)&t->timer, on_timer_closed);
    else if (t->timer_closed)
        end(t);
}

void vmm_template_close(struct vmm_template *t, void (*cb)(void *arg), void *arg)
{
    t->on_closed = cb;
    t->on_closed_arg = arg;
    down(t);
}

/* ---- the machine ---- */

static void on_snapshot(int status, const struct err *err, void *arg)
{
    struct vmm_template *t = arg;

    if (t->stage != SETTLING || t->on_closed != NULL)
        return;
    if (status != 0) {
        fail(t, err->msg);
        return;
    }
    t->stage = SAVED;
    down(t);
}

static void on_settled(uv_timer_t *timer)
{
    struct vmm_template *t = timer->data;
    char path[VMM_PATH_SIZE];
    int r;

    snprintf(path, sizeof(path), "%s/" TEMPLATE_NEW "/" TEMPLATE_STATE, t->root);
    t->state_fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    r = t->state_fd < 0 ? -errno : t->ms->driver->snapshot(t->vm, t->state_fd, on_snapshot, t);
    if (r != 0)
        fail(t, uv_strerror(r));
}

/* Frames of an exec are no JSON, so there is no reply to look at; what counts is that it ended. */
static void on_step(int status, const json_t *reply, void *arg)
{
    struct vmm_template *t = arg;
    char why[120];

    (void)reply;
    if (t->stage != WARMING || t->on_closed != NULL)
        return;
    if (status < 200 || status >= 300) {
        snprintf(why, sizeof(why), "its agent answered step %u of its preparation with %d", t->step,
                 status);
        fail(t, why);
        return;
    }
    t->step++;
    next_step(t);
}

/* Take the next step of making it ready. */
static void next_step(struct vmm_template *t)
{
    const char *method = "POST", *path = "/v1/exec";
    json_t *body = NULL;
    int r;

    if (t->stage == SETTLING) {
        (void)uv_timer_start(&t->timer, on_settled, SETTLE_MS, 0);
        return;
    }
    switch (t->step) {
    case 0:
        body = json_pack("{s[sss]}", "argv", "bash", "-lic", warm_shell);
        break;
    case 1:
        path = "/v1/windows/template/run";
        body = json_pack("{ss, si}", "command", "cd .; true", "wait_ms", 30000);
        break;
    case 2:
        method = "DELETE";
        path = "/v1/windows/template";
        break;
    case 3:
        body = json_pack("{s[sss], ss}", "argv", "sh", "-c", leave_shell, "user", "root");
        break;
    default: /* nobody may be connected in what clones start from */
        t->stage = LEAVING;
        t->agent_closing = true;
        vmm_agent_close(t->agent, on_agent_closed, t);
        return;
    }
    r = vmm_agent_call_within(t->agent, STEP_MS, method, path, body, on_step, t);
    json_decref(body);
    if (r != 0)
        fail(t, uv_strerror(r));
}

static void on_status(int status, const json_t *reply, void *arg)
{
    struct vmm_template *t = arg;
    const char *systemd = json_string_value(json_object_get(reply, "systemd"));

    if (t->stage != BOOTING || t->on_closed != NULL || status != 200 || systemd == NULL)
        return;
    if (strcmp(systemd, "running") != 0 && strcmp(systemd, "degraded") != 0)
        return;
    (void)uv_timer_stop(&t->timer);
    t->stage = WARMING;
    t->step = 0;
    next_step(t);
}

static void on_ask(uv_timer_t *timer)
{
    struct vmm_template *t = timer->data;

    if (vmm_agent_session(t->agent) != NULL)
        (void)!vmm_agent_call(t->agent, "GET", "/v1/status", NULL, on_status, t);
}

static void agent_ready(const json_t *answer, void *arg)
{
    struct vmm_template *t = arg;
    const char *boot_id = json_string_value(json_object_get(answer, "boot_id"));

    if (t->stage != BOOTING)
        return;
    snprintf(t->boot_id, sizeof(t->boot_id), "%s", boot_id != NULL ? boot_id : "");
    if (t->boot_id[0] == '\0')
        fail(t, "its agent tells no boot id");
    else
        (void)uv_timer_start(&t->timer, on_ask, 0, ASK_MS);
}

static void agent_refused(const char *why, void *arg)
{
    fail(arg, why);
}

static void agent_event(const json_t *event, void *arg)
{
    (void)event;
    (void)arg;
}

static int agent_connect(void *arg, struct err *err)
{
    struct vmm_template *t = arg;

    if (!t->vm_running)
        return tr_err_set(err, -ESRCH, "the machine has ended");
    return t->ms->driver->channel(t->vm, err);
}

static json_t *agent_hello(void *arg)
{
    struct vmm_template *t = arg;

    return machine_hello_json(t->label, 1, "template.invalid", "http://template.invalid/",
                              t->attached ? &t->port : NULL);
}

static json_t *agent_secrets(void *arg)
{
    (void)arg;
    return json_pack("{s[], si}", "secrets", "version", 0);
}

static const struct vmm_agent_cbs agent_cbs = {.connect = agent_connect,
                                               .hello = agent_hello,
                                               .secrets = agent_secrets,
                                               .on_ready = agent_ready,
                                               .on_refused = agent_refused,
                                               .on_event = agent_event};

static void on_start(struct vm *vm, int status, const struct err *err, void *arg)
{
    struct vmm_template *t = arg;

    (void)vm;
    if (status != 0) {
        t->vm = NULL;
        if (t->stage == BOOTING && t->on_closed == NULL)
            fail(t, err->msg);
        else
            down(t);
        return;
    }
    t->vm_running = true;
    if (t->stage != BOOTING || t->on_closed != NULL)
        down(t);
    else if (vmm_agent_open(t->ms->vmm->loop, t->label, &agent_cbs, t, &t->agent) != 0)
        fail(t, "out of memory");
}

static void on_exit_(struct vm *vm, const struct vm_exit *ex, void *arg)
{
    struct vmm_template *t = arg;

    (void)vm;
    t->vm = NULL;
    t->vm_running = false;
    if (t->stage == SAVED || t->stage == FAILING || t->on_closed != NULL)
        down(t);
    else
        fail(t, *ex->detail ? ex->detail : vm_exit_reason_name(ex->reason));
}

static void launch(struct vmm_template *t)
{
    static const struct vm_cbs cbs = {.on_start = on_start, .on_exit = on_exit_};
    int r;

    t->memory_fd = template_memory(t->spec.memory_mb, &t->err);
    r = t->memory_fd < 0 ? t->memory_fd : 0;
    if (r == 0) {
        t->spec.memory = VM_MEMORY_TEMPLATE;
        t->spec.memory_fd = t->memory_fd;
        t->stage = BOOTING;
        t->deadline_ms = now(t) + BUILD_MS;
        r = t->ms->driver->start(t->ms->vmm->loop, NULL, &t->spec, BUILD_MS, &cbs, t, &t->vm,
                                 &t->err);
    }
    if (r != 0) {
        t->vm = NULL;
        fail(t, t->err.msg);
    }
}

static void on_attached(int status, const struct net_port *port, const struct err *err, void *arg)
{
    struct vmm_template *t = arg;

    t->net_busy = false;
    if (status == 0) {
        t->port = *port;
        t->attached = true;
        machine_spec_port(&t->spec, &t->port);
    }
    if (t->on_closed != NULL)
        down(t);
    else if (status != 0)
        fail(t, err->msg);
    else
        launch(t);
}

static void prepare_work(uv_work_t *work)
{
    struct vmm_template *t = work->data;

    t->work_status = template_prepare(t->root, &t->err);
}

static void after_prepare(uv_work_t *work, int status)
{
    struct vmm_template *t = work->data;

    (void)status;
    t->stage = ATTACHING;
    if (t->on_closed != NULL) {
        down(t);
    } else if (t->work_status != 0) {
        fail(t, t->err.msg);
    } else if (t->ms->net == NULL) {
        launch(t);
    } else {
        t->net_busy = true;
        net_attach(t->ms->net, t->label, NULL, on_attached, t);
    }
}

/* ---- the beginning ---- */

static void begin_spec(struct vmm_template *t)
{
    vmm_random_id(t->label, VMM_ID_LEN);
    snprintf(t->run_dir, sizeof(t->run_dir), "%s/%s", t->ms->vm_dir, t->label);
    snprintf(t->disk, sizeof(t->disk), "%s/" TEMPLATE_NEW "/" TEMPLATE_DISK, t->root);
    t->spec = machine_usual_spec(t->ms, &t->image); /* whose strings come with the image */
    t->spec.label = t->label;
    t->spec.data_disk = t->disk;
    t->spec.run_dir = t->run_dir;
    if (t->ms->net != NULL)
        t->spec.netns = t->spec.tap = "later";
}

static void load_work(uv_work_t *work)
{
    struct vmm_template *t = work->data;

    t->work_status = vmm_image_find(t->ms->vmm->options, &t->image, &t->err);
    if (t->work_status == 0)
        t->work_status = vmm_file_mkdirs(t->root, 0700, &t->err);
    if (t->work_status == 0)
        t->work_status = template_binding(&t->spec, &t->image, &t->binding, &t->err);
    if (t->work_status == 0)
        t->work_status = template_load(t->root, t->binding, &t->file, &t->err);
}

static void after_load(uv_work_t *work, int status)
{
    struct vmm_template *t = work->data;

    (void)status;
    t->stage = IDLE;
    if (t->on_closed != NULL) {
        down(t);
    } else if (t->work_status == 0) {
        become_ready(t, "as it was kept");
    } else if (t->work_status == -ENOENT && t->binding != NULL) {
        t->absent = true;
    } else {
        fail(t, t->err.msg);
    }
}

void vmm_template_tick(struct vmm_template *t, uint64_t now_ms)
{
    if (t->on_closed != NULL)
        return;
    if (t->stage == READY && t->stale)
        drop(t, false);
    if (t->stage == BOOTING || t->stage == WARMING) {
        if (now_ms >= t->deadline_ms)
            fail(t, "it was not up in time");
    } else if (t->stage == IDLE && now_ms >= t->next_ms) {
        if (!t->absent) {
            vmm_image_fini(&t->image);
            json_decref(t->binding);
            t->binding = NULL;
            begin_spec(t);
            work_begin(t, LOADING, load_work, after_load);
        } else if (!machine_somebody_starts(t->ms)) {
            t->absent = false; /* after a fault it is looked for again */
            t->began_ms = now_ms;
            log_info("template: a machine is booted for it");
            work_begin(t, PREPARING, prepare_work, after_prepare);
        }
    }
}

int vmm_template_open(struct vmm_machines *ms, struct vmm_template **out, struct err *err)
{
    struct vmm_template *t = calloc(1, sizeof(*t));

    if (t == NULL)
        return tr_err_set(err, -ENOMEM, "out of memory");
    t->ms = ms;
    t->file.memory_fd = t->memory_fd = t->state_fd = -1;
    snprintf(t->root, sizeof(t->root), "%s/templates", ms->vmm->options->state_dir);
    if (uv_timer_init(ms->vmm->loop, &t->timer) != 0)
        abort(); /* cannot fail on Unix */
    t->timer.data = t;
    *out = t;
    return 0;
}
