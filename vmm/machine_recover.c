/* SPDX-License-Identifier: MIT */
/* After a restart: what runs is adopted, what belongs to nobody is removed.
 *
 * Path: network up -> each state_dir/machines/<label>: adopt (attach its address, driver, agent) or
 * remove (driver, disk) -> each run_dir/vm/<label> without one: remove -> taps of none: swept. */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "transom/log.h"
#include "vmm/file.h"
#include "vmm/live.h"
#include "vmm/machine_internal.h"

#define ADOPT_TIMEOUT_MS 10000
#define RECORD_MAX_BYTES 65536
#define FOLDERS_MAX      100000

/* Remains without a sandbox. */
struct orphan {
    struct vmm_machines *ms;
    char label[VMM_ID_LEN + 1];
    char run_dir[200], data_dir[528];
};

static void on_swept(int status, const struct err *err, void *arg)
{
    struct vmm_machines *ms = arg;
    struct err none = {0};

    if (status != 0)
        log_error("taps of an earlier manager may be left: %s", err->msg);
    ms->on_recovered(&none, ms->on_recovered_arg);
}

void machine_recovered(struct vmm_machines *ms)
{
    if (--ms->n_recovering > 0)
        return;
    if (ms->net != NULL)
        net_sweep(ms->net, on_swept, ms);
    else
        on_swept(0, NULL, ms);
}

/* ---- what nobody owns ---- */

static void on_orphan_removed(int status, const struct err *err, void *arg)
{
    struct orphan *o = arg;
    struct vmm_machines *ms = o->ms;
    struct err fault = {0};

    if (status != 0)
        log_error("vm=%s: remains of an earlier manager are left: %s", o->label, err->msg);
    else if (vmm_file_remove_tree(o->data_dir, &fault) != 0)
        log_error("vm=%s: %s", o->label, fault.msg);
    else
        log_info("vm=%s: remains of an earlier manager removed", o->label);
    free(o);
    machine_recovered(ms);
}

static void remove_orphan(struct vmm_machines *ms, const char *label)
{
    struct orphan *o = calloc(1, sizeof(*o));
    struct err err = {0};
    struct vm_spec spec;

    if (o == NULL) {
        log_error("vm=%s: out of memory for removing its remains", label);
        return;
    }
    o->ms = ms;
    snprintf(o->label, sizeof(o->label), "%s", label);
    snprintf(o->run_dir, sizeof(o->run_dir), "%s/%s", ms->vm_dir, label);
    snprintf(o->data_dir, sizeof(o->data_dir), "%s/%s", ms->machines_dir, label);
    spec = (struct vm_spec){
        .label = o->label, .run_dir = o->run_dir, .cgroup = ms->vmm->options->cgroup};
    if (ms->driver->remove(ms->vmm->loop, &spec, on_orphan_removed, o, &err) != 0) {
        log_error("vm=%s: remains of an earlier manager are left: %s", label, err.msg);
        free(o);
        return;
    }
    ms->n_recovering++;
}

/* ---- adoption ---- */

static void on_failed_removed(int status, const struct err *err, void *arg)
{
    struct vmm_machine *m = arg;

    m->removing = false;
    if (status != 0)
        log_error("vm=%s: %s", m->label, err->msg);
    machine_go_down(m);
}

/* It cannot be taken over: remove it whole; the sandbox stays asleep and says why. */
static void give_up(struct vmm_machine *m, bool remove, const char *why)
{
    struct err err = {0};
    struct vm_spec spec = machine_spec(m, NULL);

    log_warn("vm=%s: not adopted: %s", m->label, why);
    snprintf(m->sb->reason, sizeof(m->sb->reason), "%s", why);
    m->stopping = true;
    if (remove) {
        if (m->ms->driver->remove(m->ms->vmm->loop, &spec, on_failed_removed, m, &err) == 0) {
            m->removing = true;
            return;
        }
        log_error("vm=%s: %s", m->label, err.msg);
    }
    machine_go_down(m);
}

static void on_adopted(struct vm *vm, int status, const struct err *err, void *arg)
{
    struct vmm_machine *m = arg;
    struct vmm_machines *ms = m->ms;

    (void)vm;
    if (status != 0) {
        m->vm = NULL;
        give_up(m, status != UV_ESRCH,
                status == UV_ESRCH ? "the machine ended while no manager ran" : err->msg);
        return;
    }
    m->vm_running = true;
    if (machine_open_agent(m) != 0) { /* out of memory: let the usual way down clean up */
        m->stopping = true;
        ms->driver->kill(m->vm);
        return;
    }
    log_info("vm=%s: adopted, instance %llu", m->label, (unsigned long long)m->instance);
    m->adopting = false;
    m->up = true;
    m->idle.last_activity_ms = uv_now(ms->vmm->loop);
    vmm_sandbox_adopt(m->sb, m->attached ? m->port.address : "", m->sb->started_ms);
    machine_recovered(ms);
}

static void on_exit_(struct vm *vm, const struct vm_exit *ex, void *arg)
{
    machine_vm_cbs.on_exit(vm, ex, arg);
}

static void adopt(struct vmm_machine *m)
{
    static const struct vm_cbs cbs = {.on_start = on_adopted, .on_exit = on_exit_};
    struct vm_spec spec = machine_spec(m, NULL);
    struct err err = {0};

    if (m->ms->driver->adopt(m->ms->vmm->loop, &spec, ADOPT_TIMEOUT_MS, &cbs, m, &m->vm, &err) !=
        0) {
        m->vm = NULL;
        give_up(m, true, err.msg);
    }
}

static void on_attached(int status, const struct net_port *port, const struct err *err, void *arg)
{
    struct vmm_machine *m = arg;
    char why[VMM_REASON_SIZE];

    m->net_busy = false;
    if (status != 0) {
        snprintf(why, sizeof(why), "no network: %.200s", err->msg);
        give_up(m, true, why);
        return;
    }
    m->port = *port;
    m->attached = true;
    adopt(m);
}

/* ---- the records ---- */

/* Does this record name a machine that may be taken over? */
static struct vmm_sandbox *find_owner(struct vmm_machines *ms, const char *label,
                                      const json_t *record)
{
    struct vmm_sandbox *sb = vmm_sessions_by_label(&ms->vmm->sessions, label);
    const char *phase = json_string_value(json_object_get(record, "phase"));
    const json_t *instance = json_object_get(record, "instance");

    if (sb == NULL || sb->session->deleting || phase == NULL || strcmp(phase, "running") != 0 ||
        !json_is_integer(instance) || (uint64_t)json_integer_value(instance) != sb->instance)
        return NULL;
    return sb;
}

/* It may have come from the pool, and have kept the name of there. */
static void take_vm_label(struct vmm_machine *m, const char *label)
{
    if (label == NULL || strcmp(label, m->label) == 0 || !tr_label_valid(label, strlen(label)))
        return;
    memcpy(m->vm_label, label, sizeof(m->vm_label));
    m->pooled = true;
    snprintf(m->run_dir, sizeof(m->run_dir), "%s/%s", m->ms->vm_dir, label);
}

static void recover_one(struct vmm_machines *ms, const char *label)
{
    char path[VMM_PATH_SIZE];
    json_t *record = NULL;
    struct err err = {0};
    struct vmm_sandbox *sb = NULL;
    struct vmm_machine *m;
    const char *address;
    json_int_t port;

    snprintf(path, sizeof(path), "%s/%s/machine.json", ms->machines_dir, label);
    if (vmm_file_read_json(path, RECORD_MAX_BYTES, &record, &err) == 0)
        sb = find_owner(ms, label, record);
    else if (err.code != -ENOENT)
        log_error("%s", err.msg);
    m = sb == NULL ? NULL : machine_new(ms, sb);
    if (m == NULL) {
        remove_orphan(ms, label);
        json_decref(record);
        return;
    }
    ms->n_recovering++;
    m->adopting = true;
    take_vm_label(m, json_string_value(json_object_get(record, "vm")));
    sb->started_ms = json_integer_value(json_object_get(record, "started_ms"));
    port = json_integer_value(json_object_get(record, "agent_port"));
    sb->agent_port = port > 0 && port <= UINT16_MAX ? (uint16_t)port : 0;
    address = json_string_value(json_object_get(record, "address"));
    if (ms->net != NULL && address != NULL && *address) {
        m->net_busy = true;
        net_attach(ms->net, m->vm_label, address, on_attached, m);
    } else {
        adopt(m);
    }
    json_decref(record);
}

/* Call fn for each folder in dir whose name is a label. */
static void each_label(struct vmm_machines *ms, const char *dir,
                       void (*fn)(struct vmm_machines *ms, const char *label))
{
    DIR *d = opendir(dir);
    struct dirent *entry;
    int n = 0;

    while (d != NULL && n++ < FOLDERS_MAX && (entry = readdir(d)) != NULL) {
        if (tr_label_valid(entry->d_name, strlen(entry->d_name)))
            fn(ms, entry->d_name);
    }
    if (d != NULL)
        closedir(d);
}

static void recover_run_dir(struct vmm_machines *ms, const char *label)
{
    char path[VMM_PATH_SIZE];
    json_t *record = NULL;
    struct err err = {0};

    for (const struct vmm_machine *m = ms->machines; m != NULL; m = m->next)
        if (strcmp(m->vm_label, label) == 0)
            return; /* recover_one() has dealt with it */
    snprintf(path, sizeof(path), "%s/%s/machine.json", ms->machines_dir, label);
    if (vmm_file_read_json(path, RECORD_MAX_BYTES, &record, &err) != 0)
        remove_orphan(ms, label); /* else recover_one() has dealt with it */
    json_decref(record);
}

static void recover(struct vmm_machines *ms)
{
    ms->n_recovering = 1; /* until all have begun */
    each_label(ms, ms->machines_dir, recover_one);
    each_label(ms, ms->vm_dir, recover_run_dir);
    machine_recovered(ms);
}

static void on_net_up(int status, const struct err *err, void *arg)
{
    struct vmm_machines *ms = arg;
    struct err fault = {0};

    if (status == 0) {
        recover(ms);
        return;
    }
    (void)tr_err_set(&fault, status, "the machines' network cannot be set up: %s", err->msg);
    ms->on_recovered(&fault, ms->on_recovered_arg);
}

static void on_no_net(uv_work_t *work, int status)
{
    struct vmm_machines *ms = work->data;

    (void)status;
    free(work);
    recover(ms);
}

static void no_work(uv_work_t *work)
{
    (void)work;
}

void vmm_machines_recover(struct vmm_machines *ms, void (*cb)(const struct err *err, void *arg),
                          void *arg)
{
    uv_work_t *work;

    ms->on_recovered = cb;
    ms->on_recovered_arg = arg;
    if (ms->net != NULL) {
        net_up(ms->net, on_net_up, ms);
        return;
    }
    work = malloc(sizeof(*work));
    if (work == NULL)
        abort();
    work->data = ms;
    if (uv_queue_work(ms->vmm->loop, work, no_work, on_no_net) != 0)
        abort(); /* a callback is given */
}
