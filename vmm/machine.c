/* SPDX-License-Identifier: MIT */
/* Path up: start -> network -> record -> driver -> agent -> hello -> up.
 * Path down, from wherever it is: machine_go_down() takes one step after each callback: machine
 * process, agent, network, disk; then the sandbox is told. */
#include "vmm/machine.h"

#include <errno.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>
#include "transom/config.h"
#include "transom/log.h"
#include "vmm/active.h"
#include "vmm/api.h"
#include "vmm/file.h"
#include "vmm/image.h"
#include "vmm/live.h"
#include "vmm/machine_internal.h"
#include "vmm/ssh_keys.h"
#include "vmm/node.h"
#include "vmm/pool.h"
#include "vmm/template.h"

#define SHUTDOWN_GRACE_MS 5000
#define SYNC_LAST_MS      10000
#define AGENT_LOST_MS     120000 /* an agent that is away for longer is not coming back */
#define AGENT_SILENT_MS   10000  /* since its loss, then the log tells of the machine's state */
#define DNS_MAX           4
#define CONSOLE_LOGGED    3000 /* bytes of a failed start's console */

/* ---- helpers ---- */

struct vmm_machine *machine_new(struct vmm_machines *ms, struct vmm_sandbox *sb)
{
    struct vmm_machine *m = calloc(1, sizeof(*m));

    if (m == NULL)
        return NULL;
    m->ms = ms;
    m->sb = sb;
    memcpy(m->label, sb->label, sizeof(m->label));
    memcpy(m->vm_label, sb->label, sizeof(m->vm_label));
    m->instance = sb->instance;
    snprintf(m->run_dir, sizeof(m->run_dir), "%s/%s", ms->vm_dir, sb->label);
    snprintf(m->data_dir, sizeof(m->data_dir), "%s/%s", ms->machines_dir, sb->label);
    snprintf(m->disk, sizeof(m->disk), "%s/disk.img", m->data_dir);
    m->next = ms->machines;
    if (m->next != NULL)
        m->next->prev = m;
    ms->machines = m;
    sb->machine = m;
    return m;
}

static void maybe_closed(struct vmm_machines *ms);

/* Out of the list and out of memory. */
static void forget(struct vmm_machine *m)
{
    struct vmm_machines *ms = m->ms;

    if (m->prev != NULL)
        m->prev->next = m->next;
    else
        ms->machines = m->next;
    if (m->next != NULL)
        m->next->prev = m->prev;
    m->sb->machine = NULL;
    machine_idle_fini(m);
    machine_events_fini(m);
    json_decref(m->stats);
    free(m);
}

struct vm_spec machine_usual_spec(const struct vmm_machines *ms, const struct vmm_image *image)
{
    const struct vmm_options *o = ms->vmm->options;
    const struct vmm_node *node = ms->vmm->node;
    struct vm_spec spec = {
        .instance = 1,
        .accel = node->accel,
        .vcpus = (unsigned)o->vcpus,
        .memory_mb = (unsigned)o->memory_mb,
        .tsc_khz = node->kvm.tsc_khz,
        .disk_mb = (unsigned)o->disk_mb,
        .cgroup = o->cgroup,
        .qemu = o->qemu,
        .qemu_version = node->qemu_version,
        .uid = getuid() == 0 ? o->qemu_uid : 0,
        .gid = getuid() == 0 ? o->qemu_gid : 0,
    };

    if (image != NULL) {
        spec.kernel = image->kernel;
        spec.initrd = image->initrd;
        spec.root_image = image->root;
    }
    return spec;
}

void machine_spec_port(struct vm_spec *spec, const struct net_port *port)
{
    spec->netns = port->netns;
    spec->tap = port->tap;
    memcpy(spec->mac, port->mac, sizeof(spec->mac));
    spec->mtu = port->mtu;
}

struct vm_spec machine_spec(struct vmm_machine *m, const struct vmm_image *image)
{
    struct vm_spec spec = machine_usual_spec(m->ms, image);

    spec.label = m->vm_label;
    if (!m->pooled) /* there each is the first of its name */
        spec.instance = m->instance;
    spec.vcpus = (unsigned)m->sb->vcpus;
    spec.memory_mb = (unsigned)m->sb->memory_mb;
    spec.data_disk = m->disk;
    spec.disk_mb = (unsigned)m->sb->disk_mb;
    spec.run_dir = m->run_dir;
    if (m->attached)
        machine_spec_port(&spec, &m->port);
    return spec;
}

bool machine_somebody_starts(const struct vmm_machines *ms)
{
    for (const struct vmm_machine *m = ms->machines; m != NULL; m = m->next)
        if (!m->up || m->stopping)
            return true;
    return false;
}

/* What a later manager must know; see machine_recover.c. */
static int save_record(struct vmm_machine *m, const char *phase, struct err *err)
{
    json_t *record = json_pack("{si, ss, ss, ss, ss, sI, ss, ss, sI, si}", "v", 1, "label",
                               m->label, "vm", m->vm_label, "session", m->sb->session->id,
                               "sandbox", m->sb->name, "instance", (json_int_t)m->instance, "phase",
                               phase, "address", m->attached ? m->port.address : "", "started_ms",
                               (json_int_t)m->sb->started_ms, "agent_port", (int)m->sb->agent_port);
    int r;

    if (record == NULL)
        return tr_err_set(err, -ENOMEM, "out of memory");
    r = vmm_file_write_json(m->data_dir, "machine.json", record, err);
    json_decref(record);
    return r;
}

/* ---- down ---- */

static void on_detached(int status, const struct err *err, void *arg)
{
    struct vmm_machine *m = arg;

    m->net_busy = false;
    m->attached = false;
    if (status != 0)
        log_error("vm=%s: network not removed: %s", m->label, err->msg);
    machine_go_down(m);
}

static void on_sync_closed(void *arg)
{
    struct vmm_machine *m = arg;

    m->sync = NULL;
    m->sync_closing = false;
    machine_go_down(m);
}

static void on_agent_closed(void *arg)
{
    struct vmm_machine *m = arg;

    m->agent = NULL;
    m->agent_closing = false;
    machine_go_down(m);
}

static void on_released(void *arg)
{
    struct vmm_machine *m = arg;
    struct vmm_machines *ms = m->ms;

    forget(m);
    maybe_closed(ms);
}

/* A sparse disk of many gigabytes takes its time to be removed. */
static void remove_data(uv_work_t *work)
{
    struct vmm_machine *m = work->data;
    struct err err = {0};

    if (vmm_file_remove_tree(m->data_dir, &err) != 0)
        log_error("vm=%s: %s", m->label, err.msg);
}

static void on_data_removed(uv_work_t *work, int status)
{
    struct vmm_machine *m = work->data;

    (void)status;
    m->data_removed = true;
    machine_go_down(m);
}

static void end(struct vmm_machine *m)
{
    struct vmm_machines *ms = m->ms;
    struct vmm_sandbox *sb = m->sb;
    bool adopting = m->adopting;

    forget(m);
    if (adopting)
        machine_recovered(ms); /* the sandbox never knew of it */
    else
        vmm_sandbox_on_down(sb);
    maybe_closed(ms);
}

void machine_go_down(struct vmm_machine *m)
{
    if ((!m->stopping && !m->releasing) || m->net_busy || m->removing)
        return;
    if (m->vm != NULL && !m->releasing)
        return; /* on_exit() goes on */
    if (m->sync != NULL) {
        if (!m->sync_closing) {
            m->sync_closing = true;
            vmm_sync_close(m->sync, on_sync_closed, m);
        }
        return;
    }
    if (m->agent != NULL) {
        if (!m->agent_closing) {
            m->agent_closing = true;
            vmm_agent_close(m->agent, on_agent_closed, m);
        }
        return;
    }
    if (m->releasing) {
        m->ms->driver->release(m->vm, on_released, m);
        return;
    }
    if (m->attached) {
        m->net_busy = true;
        net_detach(m->ms->net, m->vm_label, on_detached, m);
        return;
    }
    if (!m->data_removed) {
        m->work.data = m;
        if (uv_queue_work(m->ms->vmm->loop, &m->work, remove_data, on_data_removed) == 0)
            return;
        remove_data(&m->work);
    }
    end(m);
}

/* A machine that did not come up, or no longer answers: what its console said last, and where its
 * processors stand, tell why. */
struct last_words {
    struct vmm_machines *ms;
    char label[VMM_ID_LEN + 1];
    uint64_t instance;
    unsigned n_boots;
    bool kill; /* when all is said */
};

/* The machine, unless it has ended meanwhile. */
static struct vm *last_words_vm(const struct last_words *w)
{
    const struct vmm_sandbox *sb = vmm_sessions_by_label(&w->ms->vmm->sessions, w->label);
    const struct vmm_machine *m = sb != NULL ? sb->machine : NULL;

    return m != NULL && m->instance == w->instance && m->n_boots == w->n_boots ? m->vm : NULL;
}

static void last_words_end(struct last_words *w)
{
    struct vm *vm = last_words_vm(w);

    if (vm != NULL && w->kill)
        w->ms->driver->kill(vm);
    free(w);
}

/* One line for each of the lines that tell something: which processor, where it is, does it wait.
 */
static void on_processors(int status, const char *text, size_t len, void *arg)
{
    struct last_words *w = arg;
    const char *end = text + len;

    for (const char *line = text; status == 0 && line < end; line += strcspn(line, "\n") + 1) {
        int n = (int)strcspn(line, "\r\n");

        if (strncmp(line, "CPU#", 4) == 0 || strncmp(line, "RIP=", 4) == 0)
            log_warn("vm=%s: %.*s", w->label, n, line);
    }
    last_words_end(w);
}

static void on_last_words(int status, const char *text, size_t len, void *arg)
{
    struct last_words *w = arg;
    struct vm *vm = last_words_vm(w);
    size_t skip = len > CONSOLE_LOGGED ? len - CONSOLE_LOGGED : 0;

    if (status == 0 && len > 0)
        log_warn("vm=%s: its console said last: %.*s", w->label, (int)(len - skip), text + skip);
    else
        log_warn("vm=%s: its console said nothing", w->label);
    if (vm == NULL || w->ms->driver->processors(vm, on_processors, w) != 0)
        last_words_end(w);
}

/* Returns whether on_last_words() comes. */
static bool ask_last_words(struct vmm_machine *m, bool kill)
{
    struct last_words *w;

    if (!m->vm_running || m->asked_console)
        return false;
    if (m->up && m->agent != NULL && vmm_agent_lost_since(m->agent) == 0)
        return false; /* nothing is wrong with it */
    if ((w = calloc(1, sizeof(*w))) == NULL)
        return false;
    m->asked_console = true;
    w->kill = kill;
    w->ms = m->ms;
    memcpy(w->label, m->label, sizeof(w->label));
    w->instance = m->instance;
    w->n_boots = m->n_boots;
    if (m->ms->driver->console(m->vm, on_last_words, w) == 0)
        return true;
    free(w);
    return false;
}

static void stop_now(struct vmm_machine *m, bool force)
{
    struct err err = {0};

    if (m->vm == NULL) {
        machine_go_down(m);
    } else if (force) {
        if (!ask_last_words(m, true))
            m->ms->driver->kill(m->vm);
    } else {
        /* First: once told, it goes down also without us, and the next manager must not adopt it.
         */
        if (save_record(m, "stopping", &err) != 0)
            log_error("vm=%s: %s", m->label, err.msg);
        if (m->agent != NULL)
            (void)!vmm_agent_call(m->agent, "POST", "/v1/shutdown", NULL, NULL, NULL);
        m->ms->driver->stop(m->vm, SHUTDOWN_GRACE_MS);
    }
}

static void on_synced_last(void *arg)
{
    struct vmm_machine *m = arg;

    m->syncing_last = false;
    stop_now(m, m->force);
}

/* A stop or a reset that the machine is fit for waits for its files. */
static bool sync_last(struct vmm_machine *m, bool force)
{
    bool is_reset = strcmp(m->sb->reason, "reset") == 0;

    if (m->sync == NULL || m->sync_closing || !m->up || m->stopping || (force && !is_reset) ||
        m->agent == NULL || vmm_agent_lost_since(m->agent) != 0)
        return false;
    m->syncing_last = true;
    m->force = force;
    if (!is_reset)
        vmm_sandbox_on_progress(m->sb, SYNC_LAST_MS + VMM_SYNC_GITS_MS + 30000);
    vmm_sync_finish(m->sync, SYNC_LAST_MS,
                    is_reset                                              ? SYNC_CAUSE_RESET
                    : strncmp(m->sb->reason, "idle", strlen("idle")) == 0 ? SYNC_CAUSE_IDLE
                                                                          : SYNC_CAUSE_STOP,
                    on_synced_last, m);
    return true;
}

static void stop(struct vmm_sandbox *sb, bool force)
{
    struct vmm_machine *m = sb->machine;
    bool waits = sync_last(m, force);

    m->stopping = true;
    if (!waits && (force || !m->syncing_last)) /* again with force: no more waiting */
        stop_now(m, force);
}

/* ---- the driver ---- */

static void on_start(struct vm *vm, int status, const struct err *err, void *arg)
{
    struct vmm_machine *m = arg;
    char reason[VMM_REASON_SIZE];

    (void)vm;
    if (status != 0) {
        m->vm = NULL;
        if (m->stopping) {
            machine_go_down(m);
            return;
        }
        if (machine_boots_instead(m, err->msg))
            return;
        snprintf(reason, sizeof(reason), "%s", err->msg);
        vmm_sandbox_on_lost(m->sb, true, reason); /* calls stop() */
        return;
    }
    m->vm_running = true;
    if (m->stopping)
        return; /* stop() told the driver */
    status = m->agent != NULL ? 0 : machine_open_agent(m);
    if (status != 0)
        vmm_sandbox_on_lost(m->sb, true, "out of memory for its agent");
}

/* Why it ended, for people. Returns whether that is a failure. */
static bool explain_exit(const struct vm_exit *ex, char *out, size_t size)
{
    static const char *const text[] = {
        [VM_EXIT_SHUTDOWN] = "the machine powered itself off",
        [VM_EXIT_RESET] = "the machine rebooted, which ends it",
        [VM_EXIT_PANIC] = "the machine's kernel panicked",
        [VM_EXIT_QUIT] = "the machine was ended",
        [VM_EXIT_KILLED] = "the machine's process was killed",
        [VM_EXIT_HOST_ERROR] = "the machine's process failed",
    };

    bool failed = ex->reason == VM_EXIT_PANIC || ex->reason == VM_EXIT_KILLED ||
                  ex->reason == VM_EXIT_HOST_ERROR;

    /* The detail of an orderly end says the same once more; that of another says more. */
    if (ex->reason == VM_EXIT_PANIC)
        snprintf(out, size, "%s: %.180s", text[ex->reason], ex->detail);
    else
        snprintf(out, size, "%.200s", failed && *ex->detail ? ex->detail : text[ex->reason]);
    return failed;
}

static void on_exit_(struct vm *vm, const struct vm_exit *ex, void *arg)
{
    struct vmm_machine *m = arg;
    char reason[VMM_REASON_SIZE];
    bool failed = explain_exit(ex, reason, sizeof(reason));

    (void)vm;
    m->vm = NULL;
    m->vm_running = false;
    tr_log(TR_LOG_DEBUG, "", "vm=%s: %s", m->label, reason);
    if (m->stopping)
        machine_go_down(m);
    else if (!machine_boots_again(m, ex))
        vmm_sandbox_on_lost(m->sb, failed, reason); /* calls stop() */
}

const struct vm_cbs machine_vm_cbs = {.on_start = on_start, .on_exit = on_exit_};

/* ---- the agent ---- */

static int agent_connect(void *arg, struct err *err)
{
    struct vmm_machine *m = arg;

    if (!m->vm_running)
        return tr_err_set(err, -ESRCH, "the machine has ended");
    return m->ms->driver->channel(m->vm, err);
}

static void no_more(void *arg)
{
    (void)arg;
}

static json_t *net_json(const struct net_port *port)
{
    char mac[18];

    if (port == NULL)
        return json_null();
    snprintf(mac, sizeof(mac), "%02x:%02x:%02x:%02x:%02x:%02x", port->mac[0], port->mac[1],
             port->mac[2], port->mac[3], port->mac[4], port->mac[5]);
    return json_pack("{ss, ss, s[s], si, ss, ss}", "address", port->address, "gateway",
                     port->gateway, "dns", port->dns, "mtu", port->mtu, "edge", port->edge, "mac",
                     mac);
}

json_t *machine_hello_json(const char *label, uint64_t instance, const char *host, const char *url,
                           const struct net_port *port)
{
    unsigned char seed[48], text[sizeof(seed) * 4 / 3 + 4];
    struct timespec now;
    json_t *out;

    if (getrandom(seed, sizeof(seed), 0) != (ssize_t)sizeof(seed))
        return NULL;
    EVP_EncodeBlock(text, seed, sizeof(seed));
    clock_gettime(CLOCK_REALTIME, &now);
    out = json_pack("{si, sI, ss, ss, ss, sI, ss, so, s{}, ss}", "api", 1, "instance",
                    (json_int_t)instance, "label", label, "hostname", label, "public_hostname",
                    host, "time_ns", (json_int_t)now.tv_sec * 1000000000 + now.tv_nsec,
                    "entropy_b64", (char *)text, "net", net_json(port), "env", "public_url", url);
    explicit_bzero(seed, sizeof(seed));
    explicit_bzero(text, sizeof(text));
    return out;
}

static json_t *agent_hello(void *arg)
{
    struct vmm_machine *m = arg;
    const struct vmm *vmm = m->ms->vmm;
    char host[300], url[512];
    json_t *out;

    vmm_view_host(vmm, m->label, host, sizeof(host));
    vmm_view_url(vmm, m->label, url, sizeof(url));
    out = machine_hello_json(m->label, m->instance, host, url, m->attached ? &m->port : NULL);
    if (out != NULL &&
        json_object_set_new(out, "ssh_keys", vmm_ssh_keys_json(m->sb, uv_now(vmm->loop))) != 0)
        log_warn("vm=%s: SSH keys are not told: out of memory", m->label);
    return out;
}

static json_t *agent_secrets(void *arg)
{
    struct vmm_machine *m = arg;

    m->secrets_version = m->sb->session->secrets_version;
    return vmm_active_body(m->ms->vmm, m->sb->session);
}

/* Everything is there that was waited for. */
static void is_up(struct vmm_machine *m)
{
    struct err err = {0};

    m->waits = false;
    m->up = true;
    m->idle.last_activity_ms = uv_now(m->ms->vmm->loop);
    if (m->n_boots > 0) /* not adopted */
        vmm_figures_started(&m->ms->vmm->figures, m->restored ? VMM_START_TEMPLATE : VMM_START_COLD,
                            m->idle.last_activity_ms - m->launched_ms);
    vmm_sandbox_on_up(m->sb, m->attached ? m->port.address : "");
    /* Without this record the next manager ends the machine instead of adopting it. */
    if (save_record(m, "running", &err) != 0)
        log_error("vm=%s: %s; it will not survive the manager", m->label, err.msg);
}

static void on_files(int status, const char *why, void *arg)
{
    struct vmm_machine *m = arg;

    char reason[VMM_REASON_SIZE];

    if (status != 0)
        log_warn("vm=%s: sync: %s", m->label, why);
    if (!m->waits || m->stopping || m->releasing)
        return;
    if (status != UV_ETIMEDOUT) {
        is_up(m);
        return;
    }
    snprintf(reason, sizeof(reason), "the session's files: %.200s", why);
    vmm_sandbox_on_lost(m->sb, true, reason); /* calls stop() */
}

static struct tr_h2 *agent_h2(void *arg)
{
    const struct vmm_machine *m = arg;

    return m->agent != NULL ? vmm_agent_session(m->agent) : NULL;
}

static void on_conflict(json_t *told, void *arg)
{
    const struct vmm_machine *m = arg;

    vmm_live_event(m->ms->vmm, "sandbox.sync_conflict", m->sb->session->owner,
                   json_pack("{ss, ss, ss, sO}", "session", m->sb->session->id, "sandbox",
                             m->sb->name, "label", m->label, "conflict", told));
}

/* Whose ancestor it is (sync/ancestor.h): a boot's. The number of an instance is not enough, since
 * a machine that does not come up boots again with an empty disk. FNV-1a. */
static uint64_t epoch_of(const struct vmm_machine *m)
{
    uint64_t hash = UINT64_C(14695981039346656037) ^ m->instance;

    for (const char *c = m->boot_id; *c != '\0'; c++)
        hash = (hash ^ (unsigned char)*c) * UINT64_C(1099511628211);
    return hash;
}

/* The session's files, of its first sandbox. */
static void open_sync(struct vmm_machine *m)
{
    static const struct vmm_sync_cbs cbs = {
        .h2 = agent_h2, .on_files = on_files, .on_conflict = on_conflict};
    char label[VMM_ID_LEN + 4], ancestor[VMM_PATH_SIZE];
    const struct vmm_sync_options options = {.vmm = m->ms->vmm,
                                             .session = m->sb->session,
                                             .label = label,
                                             .side = "sandbox",
                                             .ancestor = ancestor,
                                             .instance = epoch_of(m),
                                             .gits_dir = m->data_dir};
    struct err err = {0};

    if (m->ms->vmm->stores == NULL || m->stopping || m->releasing ||
        strcmp(m->sb->name, "primary") != 0)
        return;
    snprintf(label, sizeof(label), "vm=%s", m->label);
    snprintf(ancestor, sizeof(ancestor), "%s/ancestor", m->data_dir);
    if (vmm_sync_open(&options, &cbs, m, &m->sync, &err) != 0) {
        m->sync = NULL;
        log_warn("vm=%s: sync: %s", m->label, err.msg);
    }
}

static void agent_ready(const json_t *answer, void *arg)
{
    struct vmm_machine *m = arg;
    const char *version = json_string_value(json_object_get(answer, "version"));
    json_int_t port = json_integer_value(json_object_get(answer, "loopback_port"));
    const char *boot_id;

    boot_id = json_string_value(json_object_get(answer, "boot_id"));
    if (m->restored && !m->up && !m->waits && !m->stopping && m->vm != NULL) {
        if (boot_id == NULL || strcmp(boot_id, m->not_boot_id) == 0) {
            log_error("vm=%s: its agent has not made it another machine than the template",
                      m->label);
            m->ms->driver->kill(m->vm); /* it boots instead */
            return;
        }
        vmm_template_judge(m->ms->template, true);
    }
    log_info("vm=%s: agent %.40s is ready", m->label, version == NULL ? "?" : version);
    if (!m->up && !m->waits)
        log_info("vm=%s: %s %llu ms ago", m->label,
                 !m->restored                  ? "booted"
                 : m->pooled && !m->no_restore ? "taken from the pool"
                                               : "restored",
                 (unsigned long long)(uv_now(m->ms->vmm->loop) - m->launched_ms));
    if (m->secrets_version != m->sb->session->secrets_version) /* while they were under way */
        vmm_active_push(m->ms->vmm, m->sb->session, no_more, NULL);
    if (m->sync == NULL) {
        snprintf(m->boot_id, sizeof(m->boot_id), "%s", boot_id != NULL ? boot_id : "");
        open_sync(m);
    } else if (!m->sync_closing && boot_id != NULL && strcmp(boot_id, m->boot_id) == 0) {
        vmm_sync_ready(m->sync);
    } else if (!m->sync_closing) { /* what is there now is not what was kept in step */
        log_error("vm=%s: sync has ended: the machine was booted anew", m->label);
        m->sync_closing = true;
        vmm_sync_close(m->sync, on_sync_closed, m);
    }
    if (m->up || m->stopping || m->waits)
        return;
    if (port > 0 && port <= UINT16_MAX)
        m->sb->agent_port = (uint16_t)port;
    m->waits = m->sync != NULL;
    if (m->waits)
        vmm_sandbox_on_progress(m->sb, VMM_SYNC_FILES_MS + 30000);
    else
        is_up(m);
}

static void agent_refused(const char *why, void *arg)
{
    struct vmm_machine *m = arg;
    char reason[VMM_REASON_SIZE];

    snprintf(reason, sizeof(reason), "the agent refuses to work with this manager: %s", why);
    vmm_sandbox_on_lost(m->sb, true, reason);
}

static void agent_event(const json_t *event, void *arg)
{
    struct vmm_machine *m = arg;
    const char *type = json_string_value(json_object_get(event, "type"));

    if (type == NULL || m->stopping || !vmm_word_valid(type, 20, ""))
        return;
    if (strcmp(type, "run_end") == 0 || strcmp(type, "exec_end") == 0 ||
        strcmp(type, "ssh_end") == 0) {
        vmm_machine_touch(m->sb);
        if (m->sync != NULL)
            vmm_sync_run_ended(m->sync);
    }
    if (strcmp(type, "stats") == 0)
        machine_stats_take(m, event);
    else
        machine_events_pass_on(m, type, event);
    machine_events_took(m, event);
}

int machine_open_agent(struct vmm_machine *m)
{
    static const struct vmm_agent_cbs cbs = {.connect = agent_connect,
                                             .hello = agent_hello,
                                             .secrets = agent_secrets,
                                             .on_ready = agent_ready,
                                             .on_refused = agent_refused,
                                             .on_event = agent_event,
                                             .events_since = machine_events_since};

    return vmm_agent_open(m->ms->vmm->loop, m->label, &cbs, m, &m->agent);
}

/* ---- up ---- */

int machine_launch(struct vmm_machine *m, struct err *err)
{
    struct vmm_machines *ms = m->ms;
    char disk_from[VMM_TEMPLATE_PATH];
    struct vmm_image image;
    struct vm_spec spec;
    int r = vmm_image_find(ms->vmm->options, &image, err);

    m->restored = false;
    if (r != 0)
        return r;
    r = vmm_file_mkdirs(m->data_dir, 0700, err);
    if (r == 0)
        r = save_record(m, "starting", err);
    if (r == 0) {
        spec = machine_spec(m, &image);
        m->launched_ms = uv_now(ms->vmm->loop);
        m->restored = !m->no_restore && vmm_template_use(ms->template, &image, &spec, disk_from);
        snprintf(m->not_boot_id, sizeof(m->not_boot_id), "%s", vmm_template_boot_id(ms->template));
        r = ms->driver->start(ms->vmm->loop, NULL, &spec,
                              (uint64_t)ms->vmm->options->start_timeout_ms, &machine_vm_cbs, m,
                              &m->vm, err);
        vmm_template_release(&spec);
    }
    vmm_image_fini(&image);
    if (r == 0) {
        m->n_boots++;
        m->boot_until_ms = 0;
        m->boot_over = m->asked_console = false;
    }
    return r;
}

static void on_attached(int status, const struct net_port *port, const struct err *err, void *arg)
{
    struct vmm_machine *m = arg;
    struct err fault = {0};

    m->net_busy = false;
    if (status == 0) {
        m->port = *port;
        m->attached = true;
    }
    if (m->stopping) {
        machine_go_down(m);
        return;
    }
    if (status != 0)
        (void)tr_err_set(&fault, status, "no network: %s", err->msg);
    else if (machine_launch(m, &fault) == 0)
        return;
    vmm_sandbox_on_lost(m->sb, true, fault.msg); /* calls stop() */
}

/* One of the pool goes on. */
static void on_taken(int status, const struct err *err, void *arg)
{
    struct vmm_machine *m = arg;

    if (m->stopping || m->vm == NULL)
        return; /* on its way down */
    if (status == 0)
        status = machine_open_agent(m);
    else
        log_warn("vm=%s: %s", m->label, err->msg);
    if (status != 0)
        m->ms->driver->kill(m->vm); /* it boots instead */
}

static int start(struct vmm_sandbox *sb, struct err *err)
{
    struct vmm *vmm = sb->ops_arg;
    struct vmm_machines *ms = vmm->machines;
    struct vmm_machine *m;
    struct vmm_image image;
    struct err ignored = {0};

    if (vmm_image_find(vmm->options, &image, err) != 0)
        return err->code = -EIO; /* no fault of the request's: 503 */
    vmm_image_fini(&image);
    m = machine_new(ms, sb);
    if (m == NULL)
        return tr_err_set(err, -EIO, "out of memory");
    if (vmm_pool_take(ms->pool, m, on_taken)) {
        m->n_boots = 1;
        m->launched_ms = uv_now(vmm->loop);
        if (save_record(m, "starting", &ignored) != 0)
            log_error("vm=%s: %s", m->label, ignored.msg);
        return 0;
    }
    if (ms->net != NULL) {
        m->net_busy = true;
        net_attach(ms->net, m->vm_label, NULL, on_attached, m);
        return 0;
    }
    if (machine_launch(m, err) == 0)
        return 0;
    if (vmm_file_remove_tree(m->data_dir, &ignored) != 0)
        log_error("vm=%s: %s", m->label, ignored.msg);
    forget(m);
    return err->code = -EIO;
}

static int admit(struct vmm_sandbox *sb, struct err *err)
{
    const struct vmm *vmm = sb->ops_arg;
    int64_t n = 0;

    if (vmm->ending)
        return tr_err_set(err, -EIO, "the manager is ending");
    for (const struct vmm_machine *m = vmm->machines->machines; m != NULL; m = m->next)
        n++;
    if (n >= vmm->options->max_sandboxes)
        return tr_err_set(err, -ENOSPC,
                          "this node runs %lld sandboxes already, its limit (vmm.max_sandboxes)",
                          (long long)n);
    return 0;
}

static int save(struct vmm_sandbox *sb, struct err *err)
{
    struct vmm *vmm = sb->ops_arg;

    return vmm_sandbox_save(&vmm->sessions, sb, err);
}

static void changed(struct vmm_sandbox *sb)
{
    vmm_live_sandbox(sb->ops_arg, sb);
}

const struct vmm_sandbox_ops vmm_machine_ops = {
    .admit = admit, .save = save, .start = start, .stop = stop, .changed = changed};

/* ---- all of them ---- */

static int open_net(struct vmm_machines *ms, struct err *err)
{
    const struct vmm_options *o = ms->vmm->options;
    const char *dns[DNS_MAX];
    struct net_options options = {
        .name = tr_config_str(o->config, "net.namespace"),
        .range = tr_config_str(o->config, "net.range"),
        .dns = dns,
        .run_dir = o->run_dir,
    };

    for (; options.n_dns < DNS_MAX && options.n_dns < tr_config_list_len(o->config, "net.dns");
         options.n_dns++)
        dns[options.n_dns] = tr_config_list_get(o->config, "net.dns", options.n_dns);
    return net_open(ms->vmm->loop, &options, &ms->net, err);
}

/* Somebody changed a session's files. */
static void on_store_changed(struct vmm *vmm, struct vmm_session *session, void *arg)
{
    (void)vmm;
    (void)arg;
    for (struct vmm_sandbox *sb = session->sandboxes; sb != NULL; sb = sb->next)
        if (sb->machine != NULL && sb->machine->sync != NULL && !sb->machine->sync_closing)
            vmm_sync_look(sb->machine->sync);
}

int vmm_machines_open(struct vmm *vmm, struct vmm_machines **out, struct err *err)
{
    struct vmm_machines *ms = calloc(1, sizeof(*ms));
    int r;

    if (ms == NULL)
        return tr_err_set(err, -ENOMEM, "out of memory");
    ms->vmm = vmm;
    if (vmm->stores != NULL)
        vmm_stores_watch(vmm, on_store_changed, NULL);
    ms->driver = &vm_qemu;
    snprintf(ms->machines_dir, sizeof(ms->machines_dir), "%s/machines", vmm->options->state_dir);
    snprintf(ms->vm_dir, sizeof(ms->vm_dir), "%s/vm", vmm->options->run_dir);
    r = vmm_file_mkdirs(ms->machines_dir, 0700, err);
    if (r == 0)
        r = vmm_file_mkdirs(ms->vm_dir, 0755, err);
    if (r == 0 && vmm->options->net_enabled)
        r = open_net(ms, err);
    if (r == 0 && vmm->options->snapshots)
        r = vmm_template_open(ms, &ms->template, err);
    if (r == 0 && ms->template != NULL)
        r = vmm_pool_open(ms, &ms->pool, err);
    if (r != 0) {
        free(ms);
        return r;
    }
    *out = ms;
    return 0;
}

static void on_net_closed(void *arg)
{
    struct vmm_machines *ms = arg;

    if (ms->stop)
        (void)rmdir(ms->vm_dir);
    ms->on_closed(ms->on_closed_arg);
    free(ms);
}

static void on_net_down(int status, const struct err *err, void *arg)
{
    struct vmm_machines *ms = arg;

    if (status != 0)
        log_error("the network was not removed: %s", err->msg);
    net_close(ms->net, on_net_closed, ms);
}

/* When the last machine is gone or let go of: the network. */
static void maybe_closed(struct vmm_machines *ms)
{
    if (!ms->closing || ms->machines != NULL || ms->template != NULL || ms->pool != NULL)
        return;
    ms->closing = false; /* once */
    if (ms->net == NULL)
        on_net_closed(ms);
    else if (ms->stop)
        net_down(ms->net, on_net_down, ms);
    else
        net_close(ms->net, on_net_closed, ms);
}

static void on_template_closed(void *arg)
{
    struct vmm_machines *ms = arg;

    ms->template = NULL;
    maybe_closed(ms);
}

static void on_pool_closed(void *arg)
{
    struct vmm_machines *ms = arg;

    ms->pool = NULL;
    if (ms->template != NULL) /* what its machines were made from */
        vmm_template_close(ms->template, on_template_closed, ms);
}

static void on_deferred_close(uv_work_t *work, int status)
{
    struct vmm_machines *ms = work->data;

    (void)status;
    free(work);
    maybe_closed(ms);
}

static void no_work(uv_work_t *work)
{
    (void)work;
}

void vmm_machines_close(struct vmm_machines *ms, bool stop_all, void (*cb)(void *arg), void *arg)
{
    uv_work_t *work;

    ms->closing = true;
    ms->stop = stop_all;
    ms->on_closed = cb;
    ms->on_closed_arg = arg;
    for (struct vmm_machine *m = ms->machines, *next; m != NULL; m = next) {
        struct err err = {0};

        next = m->next;
        m->sb->closed = true; /* no restart for callers that wait */
        if (!stop_all && m->up && !m->stopping) {
            m->releasing = true;
            machine_go_down(m);
        } else if (vmm_sandbox_stop(m->sb, "the manager ended", false, NULL, NULL, &err) < 0) {
            log_error("vm=%s: %s", m->label, err.msg);
        }
    }
    if (ms->pool != NULL)
        vmm_pool_close(ms->pool, on_pool_closed, ms);
    if (ms->machines != NULL || ms->template != NULL)
        return;
    /* Never before this returns. */
    work = malloc(sizeof(*work));
    if (work == NULL)
        abort();
    work->data = ms;
    if (uv_queue_work(ms->vmm->loop, work, no_work, on_deferred_close) != 0)
        abort(); /* a callback is given */
}

void vmm_machines_tick(struct vmm_machines *ms, uint64_t now_ms)
{
    for (struct vmm_machine *m = ms->machines, *next; m != NULL; m = next) {
        uint64_t lost = m->agent == NULL ? 0 : vmm_agent_lost_since(m->agent);

        next = m->next;
        machine_events_tick(m);
        if (machine_boot_is_late(m, now_ms) && !ask_last_words(m, true))
            ms->driver->kill(m->vm);
        if (!m->up || m->stopping || m->releasing)
            continue;
        if (lost == 0)
            m->asked_console = false;
        else if (now_ms >= lost + AGENT_SILENT_MS)
            (void)ask_last_words(m, false); /* while it still shows what is wrong */
        if (lost != 0 && now_ms >= lost + AGENT_LOST_MS)
            vmm_sandbox_on_lost(m->sb, true, "its agent has not answered for two minutes");
        else
            machine_idle_tick(m, now_ms);
        if (m->sync != NULL && !m->stopping)
            vmm_sync_tick(m->sync, now_ms);
    }
    if (ms->template != NULL)
        vmm_template_tick(ms->template, now_ms);
    if (ms->pool != NULL)
        vmm_pool_tick(ms->pool, now_ms);
}

void vmm_machine_sync_secrets(const struct vmm_sandbox *sb, struct tr_mask *mask)
{
    if (sb->machine != NULL && sb->machine->sync != NULL)
        vmm_sync_secrets(sb->machine->sync, mask);
}

json_t *vmm_machine_sync_json(const struct vmm_sandbox *sb)
{
    return sb->machine != NULL && sb->machine->sync != NULL ? vmm_sync_json(sb->machine->sync)
                                                            : NULL;
}

bool vmm_machines_network(const struct vmm *vmm, char netns[33], char dns[16])
{
    if (vmm->machines == NULL || vmm->machines->net == NULL)
        return false;
    net_inside(vmm->machines->net, netns, dns);
    return true;
}

struct vmm_agent *vmm_machine_agent(const struct vmm_sandbox *sb)
{
    return sb->machine == NULL ? NULL : sb->machine->agent;
}
