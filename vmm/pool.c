/* SPDX-License-Identifier: MIT */
/* Path of one: network -> driver, from the template -> agent has answered -> agent closed -> held
 * still -> waits -> taken. Anything else that happens to it ends it: down() takes one step after
 * each callback. */
#include "vmm/pool.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "transom/config.h"
#include "transom/log.h"
#include "vmm/agent_client.h"
#include "vmm/file.h"
#include "vmm/image.h"
#include "vmm/machine_internal.h"
#include "vmm/template.h"

#define READY_MS 30000 /* from its start to its rest */
#define PAUSE_MS 30000 /* after a fault */

enum stage {
    ATTACHING, /* net_busy */
    STARTING,  /* vm */
    GREETING,  /* vm, agent */
    LEAVING,   /* vm; agent is being closed */
    HOLDING,   /* vm */
    WAITING,   /* vm: may be taken */
    ENDING,    /* whatever is there is being taken down */
};

struct pooled {
    struct vmm_pool *pool;
    struct pooled *next;
    enum stage stage;
    unsigned generation; /* of the template */
    uint64_t deadline_ms;
    char label[VMM_ID_LEN + 1], run_dir[200], data_dir[528], disk[560];
    struct net_port port;
    bool attached, net_busy, agent_closing, removed;
    struct vm *vm;
    bool vm_running;
    struct vmm_agent *agent;
    uv_work_t work;
};

struct vmm_pool {
    struct vmm_machines *ms;
    struct pooled *first;
    int64_t size, memory_mb, refill_ms;
    uint64_t next_ms;
    void (*on_closed)(void *arg);
    void *on_closed_arg;
};

static void down(struct pooled *p);

static void end(struct pooled *p, const char *why)
{
    if (p->stage == ENDING)
        return;
    if (why != NULL) {
        log_warn("pool: vm=%s: %s", p->label, why);
        p->pool->next_ms = uv_now(p->pool->ms->vmm->loop) + PAUSE_MS;
    }
    p->stage = ENDING;
    down(p);
}

/* ---- down ---- */

static void forget(struct pooled *p)
{
    struct vmm_pool *pool = p->pool;
    struct pooled **at = &pool->first;

    while (*at != p)
        at = &(*at)->next;
    *at = p->next;
    free(p);
}

static void maybe_closed(struct vmm_pool *pool)
{
    void (*cb)(void *arg) = pool->on_closed;
    void *arg = pool->on_closed_arg;

    if (cb == NULL || pool->first != NULL)
        return;
    free(pool);
    cb(arg);
}

static void on_agent_closed(void *arg);

static void on_detached(int status, const struct err *err, void *arg)
{
    struct pooled *p = arg;

    p->net_busy = p->attached = false;
    if (status != 0)
        log_error("pool: vm=%s: network not removed: %s", p->label, err->msg);
    down(p);
}

static void remove_data(uv_work_t *work)
{
    struct pooled *p = work->data;
    struct err err = {0};

    if (vmm_file_remove_tree(p->data_dir, &err) != 0)
        log_error("pool: vm=%s: %s", p->label, err.msg);
}

static void on_data_removed(uv_work_t *work, int status)
{
    struct pooled *p = work->data;
    struct vmm_pool *pool = p->pool;

    (void)status;
    forget(p);
    maybe_closed(pool);
}

static void down(struct pooled *p)
{
    if (p->stage != ENDING || p->net_busy)
        return;
    if (p->vm != NULL) {
        p->pool->ms->driver->kill(p->vm); /* on_exit() or on_start() goes on */
        return;
    }
    if (p->agent != NULL) {
        if (!p->agent_closing) {
            p->agent_closing = true;
            vmm_agent_close(p->agent, on_agent_closed, p);
        }
        return;
    }
    if (p->attached) {
        p->net_busy = true;
        net_detach(p->pool->ms->net, p->label, on_detached, p);
        return;
    }
    if (p->removed)
        return;
    p->removed = true;
    p->work.data = p;
    if (uv_queue_work(p->pool->ms->vmm->loop, &p->work, remove_data, on_data_removed) != 0)
        abort(); /* fails only without a work function */
}

/* ---- up ---- */

static void on_held(int status, const struct err *err, void *arg)
{
    struct pooled *p = arg;

    if (p->stage != HOLDING)
        return;
    if (status != 0) {
        end(p, err->msg);
        return;
    }
    p->stage = WAITING;
    log_info("pool: vm=%s is ready to be taken", p->label);
}

static void on_agent_closed(void *arg)
{
    struct pooled *p = arg;
    int r;

    p->agent = NULL;
    p->agent_closing = false;
    if (p->stage != LEAVING) {
        down(p);
        return;
    }
    p->stage = HOLDING;
    r = p->pool->ms->driver->pause(p->vm, on_held, p);
    if (r != 0)
        end(p, uv_strerror(r));
}

static void agent_ready(const json_t *answer, void *arg)
{
    struct pooled *p = arg;

    (void)answer;
    if (p->stage != GREETING)
        return;
    p->stage = LEAVING;
    p->agent_closing = true;
    vmm_agent_close(p->agent, on_agent_closed, p);
}

static void agent_refused(const char *why, void *arg)
{
    end(arg, why);
}

static void agent_event(const json_t *event, void *arg)
{
    (void)event;
    (void)arg;
}

static int agent_connect(void *arg, struct err *err)
{
    struct pooled *p = arg;

    if (!p->vm_running)
        return tr_err_set(err, -ESRCH, "the machine has ended");
    return p->pool->ms->driver->channel(p->vm, err);
}

/* As the template, so that it becomes another machine only once, when it is taken. */
static json_t *agent_hello(void *arg)
{
    struct pooled *p = arg;

    return machine_hello_json(vmm_template_label(p->pool->ms->template), 1, "template.invalid",
                              "http://template.invalid/", p->attached ? &p->port : NULL);
}

static json_t *agent_secrets(void *arg)
{
    (void)arg;
    return json_pack("{s[], si}", "secrets", "version", 0);
}

static void on_start(struct vm *vm, int status, const struct err *err, void *arg)
{
    static const struct vmm_agent_cbs cbs = {.connect = agent_connect,
                                             .hello = agent_hello,
                                             .secrets = agent_secrets,
                                             .on_ready = agent_ready,
                                             .on_refused = agent_refused,
                                             .on_event = agent_event};
    struct pooled *p = arg;

    (void)vm;
    if (status != 0) {
        p->vm = NULL;
        if (p->stage == STARTING) {
            vmm_template_judge(p->pool->ms->template, false);
            end(p, err->msg);
        } else {
            down(p);
        }
        return;
    }
    p->vm_running = true;
    if (p->stage != STARTING) {
        down(p);
        return;
    }
    p->stage = GREETING;
    if (vmm_agent_open(p->pool->ms->vmm->loop, p->label, &cbs, p, &p->agent) != 0)
        end(p, "out of memory");
}

static void on_exit_(struct vm *vm, const struct vm_exit *ex, void *arg)
{
    struct pooled *p = arg;

    (void)vm;
    p->vm = NULL;
    p->vm_running = false;
    if (p->stage == ENDING)
        down(p);
    else
        end(p, *ex->detail ? ex->detail : vm_exit_reason_name(ex->reason));
}

/* Says only that nobody's data is here: another manager removes it. */
static int save_record(struct pooled *p, struct err *err)
{
    json_t *record = json_pack("{si, ss, ss}", "v", 1, "label", p->label, "phase", "pool");
    int r = record == NULL ? tr_err_set(err, -ENOMEM, "out of memory") : 0;

    if (r == 0)
        r = vmm_file_mkdirs(p->data_dir, 0700, err);
    if (r == 0)
        r = vmm_file_write_json(p->data_dir, "machine.json", record, err);
    json_decref(record);
    return r;
}

static void launch(struct pooled *p)
{
    static const struct vm_cbs cbs = {.on_start = on_start, .on_exit = on_exit_};
    struct vmm_machines *ms = p->pool->ms;
    char disk_from[VMM_TEMPLATE_PATH];
    struct vmm_image image;
    struct err err = {0};
    struct vm_spec spec;
    int r = vmm_image_find(ms->vmm->options, &image, &err);

    if (r != 0) {
        end(p, err.msg);
        return;
    }
    spec = machine_usual_spec(ms, &image);
    spec.label = p->label;
    spec.run_dir = p->run_dir;
    spec.data_disk = p->disk;
    if (p->attached)
        machine_spec_port(&spec, &p->port);
    if (!vmm_template_use(ms->template, &image, &spec, disk_from)) {
        end(p, NULL);
    } else {
        p->stage = STARTING;
        r = save_record(p, &err);
        if (r == 0)
            r = ms->driver->start(ms->vmm->loop, NULL, &spec, READY_MS, &cbs, p, &p->vm, &err);
        vmm_template_release(&spec);
        if (r != 0) {
            p->vm = NULL;
            end(p, err.msg);
        }
    }
    vmm_image_fini(&image);
}

static void on_attached(int status, const struct net_port *port, const struct err *err, void *arg)
{
    struct pooled *p = arg;

    p->net_busy = false;
    if (status == 0) {
        p->port = *port;
        p->attached = true;
    }
    if (p->stage != ATTACHING)
        down(p);
    else if (status != 0)
        end(p, err->msg);
    else
        launch(p);
}

static void add(struct vmm_pool *pool)
{
    struct pooled *p = calloc(1, sizeof(*p)), **last = &pool->first;

    if (p == NULL)
        return;
    p->pool = pool;
    p->generation = vmm_template_generation(pool->ms->template);
    p->deadline_ms = uv_now(pool->ms->vmm->loop) + READY_MS;
    vmm_random_id(p->label, VMM_ID_LEN);
    snprintf(p->run_dir, sizeof(p->run_dir), "%s/%s", pool->ms->vm_dir, p->label);
    snprintf(p->data_dir, sizeof(p->data_dir), "%s/%s", pool->ms->machines_dir, p->label);
    snprintf(p->disk, sizeof(p->disk), "%s/disk.img", p->data_dir);
    while (*last != NULL) /* the oldest is taken first */
        last = &(*last)->next;
    *last = p;
    if (pool->ms->net == NULL) {
        launch(p);
        return;
    }
    p->net_busy = true;
    net_attach(pool->ms->net, p->label, NULL, on_attached, p);
}

/* ---- what sandboxes see of it ---- */

bool vmm_pool_take(struct vmm_pool *pool, struct vmm_machine *m, vm_done_cb on_running)
{
    struct pooled *p = pool != NULL && pool->on_closed == NULL ? pool->first : NULL;
    struct vmm_image image;
    struct err err = {0};
    bool fits = false;

    while (p != NULL &&
           (p->stage != WAITING || p->generation != vmm_template_generation(pool->ms->template)))
        p = p->next;
    if (p == NULL || vmm_image_find(pool->ms->vmm->options, &image, &err) != 0)
        return false;
    fits = vmm_template_fits(pool->ms->template, &image, (unsigned)m->sb->vcpus,
                             (unsigned)m->sb->memory_mb, (unsigned)m->sb->disk_mb);
    vmm_image_fini(&image);
    if (!fits)
        return false;
    if (vmm_file_mkdirs(m->data_dir, 0700, &err) != 0 || rename(p->disk, m->disk) != 0) {
        log_warn("pool: vm=%s: its disk cannot be moved: %s", p->label,
                 err.code != 0 ? err.msg : strerror(errno));
        end(p, NULL);
        return false;
    }
    memcpy(m->vm_label, p->label, sizeof(m->vm_label));
    memcpy(m->run_dir, p->run_dir, sizeof(m->run_dir));
    m->port = p->port;
    m->attached = p->attached;
    m->vm = p->vm;
    m->vm_running = m->restored = m->pooled = true;
    snprintf(m->not_boot_id, sizeof(m->not_boot_id), "%s",
             vmm_template_boot_id(pool->ms->template));
    pool->ms->driver->hand_over(m->vm, &machine_vm_cbs, m);
    if (vmm_file_remove_tree(p->data_dir, &err) != 0)
        log_error("pool: vm=%s: %s", p->label, err.msg);
    log_info("vm=%s: takes vm=%s of the pool", m->label, p->label);
    forget(p);
    if (pool->ms->driver->resume(m->vm, on_running, m) != 0)
        pool->ms->driver->kill(m->vm); /* it boots instead */
    return true;
}

/* What its machines take for themselves, in MB: without what they share with the template. */
static int64_t memory_of(const struct pooled *p)
{
    char path[64], line[128];
    long long kb = 0;
    FILE *f;

    if (p->vm == NULL)
        return 0;
    snprintf(path, sizeof(path), "/proc/%d/status", (int)vm_pid(p->vm));
    f = fopen(path, "re");
    while (f != NULL && fgets(line, sizeof(line), f) != NULL)
        if (sscanf(line, "RssAnon: %lld kB", &kb) == 1)
            break;
    if (f != NULL)
        fclose(f);
    return kb / 1024;
}

/* Of real starts none may be under way, and one more must be within the budget: it will be like the
 * largest so far. */
static bool may_add(const struct vmm_pool *pool, uint64_t now_ms)
{
    int64_t n = 0, sum = 0, largest = 0;

    if (now_ms < pool->next_ms || vmm_template_generation(pool->ms->template) == 0 ||
        machine_somebody_starts(pool->ms))
        return false;
    for (const struct pooled *p = pool->first; p != NULL; p = p->next) {
        int64_t mb = memory_of(p);

        if (p->stage != WAITING)
            return false; /* one after the other */
        n++;
        sum += mb;
        largest = mb > largest ? mb : largest;
    }
    return n < pool->size && sum + largest <= pool->memory_mb;
}

void vmm_pool_tick(struct vmm_pool *pool, uint64_t now_ms)
{
    unsigned generation = vmm_template_generation(pool->ms->template);

    if (pool->on_closed != NULL)
        return;
    for (struct pooled *p = pool->first, *next; p != NULL; p = next) {
        next = p->next;
        if (p->generation != generation)
            end(p, NULL);
        else if (p->stage != WAITING && now_ms >= p->deadline_ms)
            end(p, "it did not come up in time");
    }
    if (may_add(pool, now_ms)) {
        pool->next_ms = now_ms + (uint64_t)pool->refill_ms;
        add(pool);
    }
}

int vmm_pool_open(struct vmm_machines *ms, struct vmm_pool **out, struct err *err)
{
    const struct tr_config *config = ms->vmm->options->config;
    struct vmm_pool *pool = calloc(1, sizeof(*pool));

    if (pool == NULL)
        return tr_err_set(err, -ENOMEM, "out of memory");
    pool->ms = ms;
    pool->size = tr_config_int(config, "vmm.pool_size");
    pool->memory_mb = tr_config_int(config, "vmm.pool_memory_mb");
    pool->refill_ms = tr_config_int(config, "vmm.pool_refill_ms");
    *out = pool;
    return 0;
}

void vmm_pool_close(struct vmm_pool *pool, void (*cb)(void *arg), void *arg)
{
    struct pooled *next;

    pool->on_closed = cb;
    pool->on_closed_arg = arg;
    for (struct pooled *p = pool->first; p != NULL; p = next) {
        next = p->next;
        end(p, NULL);
    }
    maybe_closed(pool);
}
