/* SPDX-License-Identifier: MIT */
/* Path up: lock -> records -> KVM probe -> Redis -> network and machines -> live view -> sockets ->
 * ready. Path down (a signal, or a fault on the way up): sockets -> machines -> stores -> live view
 * -> Redis.
 * Machines are adopted before the live view opens, so that it never says "asleep" of one that
 * runs. */
#include "vmm/manager.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <unistd.h>
#include "transom/daemon.h"
#include "transom/log.h"
#include "transom/state.h"
#include "vmm/active.h"
#include "vmm/api.h"
#include "vmm/driver/qemu_version.h"
#include "vmm/bind.h"
#include "vmm/embedded_redis.h"
#include "vmm/file.h"
#include "vmm/image.h"
#include "vmm/live.h"
#include "vmm/machine.h"
#include "vmm/metrics.h"
#include "vmm/node.h"
#include "vmm/preview_key.h"
#include "vmm/server.h"
#include "vmm/store.h"
#include "vmm/webhook.h"

#define PROBE_TIMEOUT_MS 10000
#define BEAT_TICKS       15   /* between signs of life on event streams */
#define GRACE_MS         1000 /* for requests under way at the end */

enum stage {
    STAGE_RECORDS,
    STAGE_PROBE,
    STAGE_MACHINES,
    STAGE_SERVING,
    STAGE_CLOSE_SERVER,
    STAGE_CLOSE_MACHINES,
    STAGE_CLOSE_STORES,
    STAGE_CLOSE_WEBHOOKS,
    STAGE_CLOSE_LIVE,
    STAGE_CLOSE_REDIS,
    STAGE_OVER,
};

struct manager {
    uv_loop_t loop;
    struct vmm vmm;
    struct vmm_options options;
    struct vmm_node node;
    struct vmm_redis *redis;
    uv_signal_t term, interrupt;
    uv_timer_t tick; /* once a second */
    unsigned n_ticks;
    enum stage stage;
    int run_lock, state_lock; /* -1 when not held */
    int status;               /* exit status */
};

static void go_down(struct manager *m);

static void fail(struct manager *m, const struct err *err)
{
    log_error("%s", err->msg);
    m->status = EXIT_FAILURE;
    go_down(m);
}

/* ---- down ---- */

static void close_step(void *arg);

static void end_handles(struct manager *m)
{
    uv_close((uv_handle_t *)&m->term, NULL);
    uv_close((uv_handle_t *)&m->interrupt, NULL);
    uv_close((uv_handle_t *)&m->tick, NULL);
}

/* Each part calls back when it is closed; parts that were not opened are passed over. */
static void close_step(void *arg)
{
    struct manager *m = arg;
    bool stop = m->options.stop_machines_on_exit;

    for (;;) {
        switch (m->stage++) {
        case STAGE_CLOSE_SERVER:
            vmm_metrics_close(m->vmm.metrics);
            m->vmm.metrics = NULL;
            if (m->vmm.server == NULL)
                break;
            vmm_server_close(m->vmm.server, GRACE_MS, close_step, m);
            return;
        case STAGE_CLOSE_MACHINES:
            m->vmm.server = NULL;
            if (m->vmm.machines == NULL)
                break;
            vmm_machines_close(m->vmm.machines, stop, close_step, m);
            return;
        case STAGE_CLOSE_STORES:
            m->vmm.machines = NULL;
            if (m->vmm.stores == NULL)
                break;
            vmm_stores_close(m->vmm.stores, close_step, m);
            return;
        case STAGE_CLOSE_WEBHOOKS:
            m->vmm.stores = NULL;
            if (m->vmm.webhooks == NULL)
                break;
            vmm_webhooks_close(m->vmm.webhooks, close_step, m);
            return;
        case STAGE_CLOSE_LIVE:
            m->vmm.webhooks = NULL;
            if (m->vmm.live == NULL)
                break;
            vmm_live_close(m->vmm.live, stop, close_step, m);
            return;
        case STAGE_CLOSE_REDIS:
            m->vmm.live = NULL;
            if (m->redis == NULL)
                break;
            /* Machines that run on need their routes. */
            vmm_redis_close(m->redis, stop, close_step, m);
            return;
        default:
            m->stage = STAGE_OVER;
            end_handles(m);
            return;
        }
    }
}

static void go_down(struct manager *m)
{
    if (m->vmm.ending)
        return;
    m->vmm.ending = true;
    tr_daemon_notify("STOPPING=1");
    /* While the probe or the recovery is under way, its callback goes on. */
    if (m->stage == STAGE_PROBE || m->stage == STAGE_MACHINES)
        return;
    m->stage = STAGE_CLOSE_SERVER;
    close_step(m);
}

static void on_signal(uv_signal_t *handle, int number)
{
    struct manager *m = handle->data;

    if (!m->vmm.ending)
        log_info("signal %d: ending%s", number,
                 m->options.stop_machines_on_exit ? ", machines too" : "; machines run on");
    go_down(m);
}

/* ---- up ---- */

static void on_tick(uv_timer_t *timer)
{
    struct manager *m = timer->data;
    uint64_t now = uv_now(&m->loop);

    (void)tr_daemon_watchdog();
    for (struct vmm_session *s = m->vmm.sessions.first; s != NULL; s = s->next) {
        for (struct vmm_sandbox *sb = s->sandboxes; sb != NULL; sb = sb->next)
            vmm_sandbox_tick(sb, now);
    }
    if (m->vmm.machines != NULL)
        vmm_machines_tick(m->vmm.machines, now);
    if (m->vmm.stores != NULL)
        vmm_stores_tick(m->vmm.stores, now);
    vmm_binds_tick(&m->vmm, now);
    if (m->vmm.webhooks != NULL)
        vmm_webhooks_tick(m->vmm.webhooks);
    vmm_sessions_reap(&m->vmm.sessions);
    if (++m->n_ticks % BEAT_TICKS == 0)
        vmm_events_beat(&m->vmm.events);
}

/* A folder has one manager. Returns the descriptor that holds the lock. */
static int take_lock(const char *option, const char *dir, struct err *err)
{
    char path[VMM_PATH_SIZE], text[32] = "";
    int fd;

    snprintf(path, sizeof(path), "%s/transom-vmm.lock", dir);
    fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return tr_err_set(err, -errno, "%s: cannot open %s: %s", option, path, strerror(errno));
    if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        if (read(fd, text, sizeof(text) - 1) < 0)
            text[0] = '\0';
        close(fd);
        return tr_err_set(err, -EBUSY,
                          "another transom-vmm (pid %d) runs with %s %s: stop it, or give this one "
                          "folders of its own",
                          atoi(text), option, dir);
    }
    snprintf(text, sizeof(text), "%d\n", (int)getpid());
    if (ftruncate(fd, 0) != 0 || pwrite(fd, text, strlen(text), 0) < 0)
        log_warn("%s: %s", path, strerror(errno)); /* the pid is only for the message above */
    return fd;
}

static int open_records(struct manager *m, struct err *err)
{
    const struct vmm_options *o = &m->options;
    char dir[VMM_PATH_SIZE];
    int r = vmm_options_check_host(o, err);

    if (r != 0)
        return r;
    m->run_lock = take_lock("run_dir", o->run_dir, err);
    if (m->run_lock < 0)
        return m->run_lock;
    m->state_lock = take_lock("state_dir", o->state_dir, err);
    if (m->state_lock < 0)
        return m->state_lock;
    snprintf(dir, sizeof(dir), "%s/keys", o->state_dir);
    r = vmm_auth_open(dir, &m->vmm.auth, err);
    if (r != 0)
        return r;
    r = vmm_preview_master_open(o->state_dir, m->vmm.preview_master, err);
    if (r != 0)
        return r;
    snprintf(dir, sizeof(dir), "%s/secrets", o->state_dir);
    r = vmm_secrets_open(dir, o->state_dir, &m->vmm.secrets, err);
    if (r != 0)
        return r;
    m->vmm.sessions.ops = &vmm_machine_ops;
    m->vmm.sessions.ops_arg = &m->vmm;
    m->vmm.sessions.vcpus = o->vcpus;
    m->vmm.sessions.memory_mb = o->memory_mb;
    m->vmm.sessions.disk_mb = o->disk_mb;
    m->vmm.sessions.start_timeout_ms = o->start_timeout_ms;
    snprintf(dir, sizeof(dir), "%s/sessions", o->state_dir);
    r = vmm_sessions_open(&m->vmm.sessions, dir, err);
    if (r == 0)
        r = vmm_stores_open(&m->vmm, &m->vmm.stores, err);
    if (r == 0)
        r = vmm_webhooks_open(&m->vmm, &m->vmm.webhooks, err);
    if (r == 0)
        vmm_active_hide(&m->vmm);
    return r;
}

static void resume_deletions(struct manager *m)
{
    for (struct vmm_session *s = m->vmm.sessions.first, *next; s != NULL; s = next) {
        next = s->next;
        if (s->deleting)
            vmm_api_session_resume_delete(&m->vmm, s);
    }
}

static void report_image(const struct vmm_options *options)
{
    struct vmm_image image;
    struct err err = {0};

    if (vmm_image_find(options, &image, &err) != 0) {
        log_warn("no sandbox can start yet: %s", err.msg);
        return;
    }
    log_info("image %s", image.dir);
    vmm_image_fini(&image);
}

static void serve(struct manager *m)
{
    const struct vmm_options *o = &m->options;
    char url[VMM_PATH_SIZE];
    struct err err = {0};
    int r = tr_redis_embedded_url(o->run_dir, TR_REDIS_MANAGER, url, sizeof(url));

    if (r != 0) {
        (void)tr_err_set(&err, r, "run_dir: %s", uv_strerror(r));
        fail(m, &err);
        return;
    }
    r = vmm_live_open(&m->vmm, *o->redis_url ? o->redis_url : url, &m->vmm.live, &err);
    if (r == 0)
        r = vmm_server_open(&m->vmm, &m->vmm.server, &err);
    if (r != 0) {
        fail(m, &err);
        return;
    }
    if (*o->metrics && vmm_metrics_open(&m->vmm, o->metrics, &m->vmm.metrics, &err) != 0) {
        fail(m, &err);
        return;
    }
    resume_deletions(m);
    vmm_stores_sweep(&m->vmm);
    report_image(o);
    log_info("ready: node %s, %s, %s/admin.sock, %s/edge.sock, redis %s", o->node,
             vm_accel_name(m->node.accel), o->run_dir, o->run_dir, vmm_live_url(m->vmm.live));
    tr_daemon_notify("READY=1");
}

/* A signal came while something was under way: now it is not. Returns whether we go down. */
static bool resume_going_down(struct manager *m)
{
    m->stage = STAGE_SERVING;
    if (!m->vmm.ending)
        return false;
    m->vmm.ending = false;
    go_down(m);
    return true;
}

static void on_recovered(const struct err *err, void *arg)
{
    struct manager *m = arg;

    if (resume_going_down(m))
        return;
    if (err->code != 0)
        fail(m, err);
    else
        serve(m);
}

static void on_qemu_version(unsigned version, void *arg)
{
    struct manager *m = arg;
    struct err err = {0};
    int r = 0;

    if (resume_going_down(m))
        return;
    m->node.qemu_version = version;
    if (m->node.accel == VM_ACCEL_TCG && version < QEMU_VERSION_TCG_THREADS)
        log_info("qemu: %u.%u: the processors of a machine take turns (at once from %u.%u on)",
                 version / 100, version % 100, QEMU_VERSION_TCG_THREADS / 100,
                 QEMU_VERSION_TCG_THREADS % 100);
    if (!*m->options.redis_url)
        r = vmm_redis_open(&m->loop, &m->options, &m->redis, &err);
    if (r == 0)
        r = vmm_machines_open(&m->vmm, &m->vmm.machines, &err);
    if (r != 0) {
        fail(m, &err);
        return;
    }
    m->stage = STAGE_MACHINES;
    vmm_machines_recover(m->vmm.machines, on_recovered, m);
}

static void on_probed(const struct vm_kvm_result *result, void *arg)
{
    struct manager *m = arg;
    struct err err = {0};

    if (resume_going_down(m))
        return;
    log_info("kvm: %s: %s", vm_kvm_verdict_name(result->verdict), result->reason);
    if (vmm_node_init(&m->node, &m->options, result, &err) != 0) {
        fail(m, &err);
        return;
    }
    if (qemu_version_start(&m->loop, m->options.qemu, PROBE_TIMEOUT_MS, on_qemu_version, m, &err) ==
        0)
        m->stage = STAGE_PROBE;
    else
        on_qemu_version(0, m); /* no such program: that is told when a machine starts */
}

static void init_handles(struct manager *m)
{
    if (uv_loop_init(&m->loop) != 0 || uv_signal_init(&m->loop, &m->term) != 0 ||
        uv_signal_init(&m->loop, &m->interrupt) != 0 || uv_timer_init(&m->loop, &m->tick) != 0)
        abort(); /* no descriptors at the very start: nothing can be said either */
    m->term.data = m->interrupt.data = m->tick.data = m;
    if (uv_signal_start(&m->term, on_signal, SIGTERM) != 0 ||
        uv_signal_start(&m->interrupt, on_signal, SIGINT) != 0 ||
        uv_timer_start(&m->tick, on_tick, 1000, 1000) != 0)
        abort();
}

int vmm_manager_check(const struct tr_config *config, struct err *err)
{
    struct vmm_options options;

    return vmm_options_init(&options, config, err);
}

/* Keys and opened secrets pass through our memory, and keys through that of Redis, which inherits
 * this. */
static void forbid_core(void)
{
    const struct rlimit none = {0, 0};

    (void)setrlimit(RLIMIT_CORE, &none); /* lowering cannot fail */
}

int vmm_manager_run(const struct tr_config *config)
{
    struct manager *m = calloc(1, sizeof(*m));
    struct err err = {0};
    int r, status;

    if (m == NULL) {
        log_error("out of memory");
        return EXIT_FAILURE;
    }
    forbid_core();
    m->run_lock = m->state_lock = -1;
    init_handles(m);
    m->vmm.loop = &m->loop;
    m->vmm.options = &m->options;
    m->vmm.node = &m->node;
    r = vmm_options_init(&m->options, config, &err);
    if (r == 0) {
        snprintf(m->vmm.events.node, sizeof(m->vmm.events.node), "%s", m->options.node);
        m->vmm.figures.began_s = vmm_wall_ms() / 1000;
        m->vmm.events.last_id = (uint64_t)vmm_wall_ms() * 1000;
        r = open_records(m, &err);
    }
    if (r == 0)
        r = vm_kvm_probe_start(&m->loop, NULL, PROBE_TIMEOUT_MS, on_probed, m, &err);
    if (r != 0)
        fail(m, &err);
    else
        m->stage = STAGE_PROBE;

    uv_run(&m->loop, UV_RUN_DEFAULT);
    r = uv_loop_close(&m->loop);
    if (r != 0)
        log_error("handles are left open: a bug");
    status = m->status;
    vmm_sessions_close(&m->vmm.sessions);
    vmm_events_fini(&m->vmm.events);
    vmm_replays_fini(&m->vmm.replays);
    vmm_audit_fini(&m->vmm.audit);
    vmm_active_fini(&m->vmm);
    vmm_secrets_free(m->vmm.secrets);
    vmm_auth_free(m->vmm.auth);
    explicit_bzero(m->vmm.preview_master, sizeof(m->vmm.preview_master));
    if (m->run_lock >= 0)
        close(m->run_lock);
    if (m->state_lock >= 0)
        close(m->state_lock);
    free(m);
    return status;
}
