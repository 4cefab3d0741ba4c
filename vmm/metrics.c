/* SPDX-License-Identifier: MIT */
#include "vmm/metrics.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "vmm/figures.h"
#include "vmm/live.h"
#include "vmm/machine.h"
#include "vmm/machine_internal.h"
#include "vmm/node.h"
#include "vmm/store.h"
#include "vmm/sync.h"
#include "vmm/vmm.h"

#define PREFIX "transom_vmm_"

const unsigned vmm_start_ms[VMM_START_TIMES] = {100,  250,   500,   1000,  2500,
                                                5000, 10000, 20000, 60000, 120000};

void vmm_figures_started(struct vmm_figures *figures, enum vmm_start_how how, uint64_t ms)
{
    size_t i = 0;

    while (i < VMM_START_TIMES && ms > vmm_start_ms[i])
        i++;
    figures->starts[how][i]++;
    figures->starts_ms[how] += ms;
}

static void head(FILE *f, const char *type, const char *name, const char *help)
{
    fprintf(f, "# HELP " PREFIX "%s %s\n# TYPE " PREFIX "%s %s\n", name, help, name, type);
}

static void print(FILE *f, const char *type, const char *name, const char *help, int64_t value)
{
    head(f, type, name, help);
    fprintf(f, PREFIX "%s %" PRId64 "\n", name, value);
}

static void print_requests(FILE *f, const struct vmm_figures *n)
{
    static const char *const classes[] = {"none", "1xx", "2xx", "3xx", "4xx", "5xx"};

    print(f, "counter", "requests_total", "API requests begun.", (int64_t)n->requests);
    head(f, "counter", "responses_total", "API requests answered, by class of status.");
    for (int c = 0; c < 6; c++)
        fprintf(f, PREFIX "responses_total{class=\"%s\"} %" PRIu64 "\n", classes[c],
                n->responses[c]);
    print(f, "counter", "requests_limited_total", "API requests refused for their key's rate.",
          (int64_t)n->limited);
    print(f, "counter", "requests_replayed_total",
          "Creations that were asked for again and got the first one's answer.",
          (int64_t)n->replayed);
}

static void print_starts(FILE *f, const struct vmm_figures *n)
{
    static const char *const hows[VMM_START_HOWS] = {"cold", "template"};
    static const char name[] = PREFIX "start_duration_seconds";

    head(f, "histogram", "start_duration_seconds",
         "From a machine's launch until it can be used, by how it started.");
    for (int how = 0; how < VMM_START_HOWS; how++) {
        uint64_t sum = 0;

        for (int i = 0; i <= VMM_START_TIMES; i++) {
            sum += n->starts[how][i];
            fprintf(f, "%s_bucket{how=\"%s\",le=\"", name, hows[how]);
            if (i < VMM_START_TIMES)
                fprintf(f, "%g\"} %" PRIu64 "\n", vmm_start_ms[i] / 1000.0, sum);
            else
                fprintf(f, "+Inf\"} %" PRIu64 "\n", sum);
        }
        fprintf(f, "%s_sum{how=\"%s\"} %.3f\n%s_count{how=\"%s\"} %" PRIu64 "\n", name, hows[how],
                (double)n->starts_ms[how] / 1000, name, hows[how], sum);
    }
    print(f, "counter", "sandboxes_failed_total",
          "Times that a sandbox failed, starting or running.", (int64_t)n->failed);
}

static void print_sandboxes(FILE *f, struct vmm *vmm)
{
    int64_t n[TR_SANDBOX_FAILED + 1] = {0}, n_sessions = 0, memory_mb = 0, vcpus = 0;

    for (const struct vmm_session *s = vmm->sessions.first; s != NULL; s = s->next) {
        n_sessions++;
        for (const struct vmm_sandbox *sb = s->sandboxes; sb != NULL; sb = sb->next) {
            n[sb->state]++;
            if (vmm_sandbox_is_active(sb)) {
                memory_mb += sb->memory_mb;
                vcpus += sb->vcpus;
            }
        }
    }
    print(f, "gauge", "sessions", "Sessions.", n_sessions);
    head(f, "gauge", "sandboxes", "Sandboxes, by state.");
    for (int i = TR_SANDBOX_ASLEEP; i <= TR_SANDBOX_FAILED; i++)
        fprintf(f, PREFIX "sandboxes{state=\"%s\"} %" PRId64 "\n",
                tr_sandbox_state_name((enum tr_sandbox_state)i), n[i]);
    print(f, "gauge", "sandboxes_max", "Most that may run (vmm.max_sandboxes).",
          vmm->options->max_sandboxes);
    print(f, "gauge", "machines_memory_bytes", "Memory promised to machines that are up.",
          memory_mb * 1024 * 1024);
    print(f, "gauge", "machines_cpus", "CPUs of machines that are up.", vcpus);
}

/* The machines' own figures: only sums, so that a node with many does not make many series. */
static void print_machines(FILE *f, struct vmm *vmm)
{
    static const struct {
        const char *key, *name, *help;
    } sums[] = {
        {"pending", "sync_pending", "Paths that are to be brought to the other side."},
        {"n_faults", "sync_faults", "Paths that could not be brought to the other side."},
        {"n_conflicts", "sync_conflicts", "Conflicts since the machines that run came up."},
        {"n_left_out", "sync_left_out", "Paths that are not kept in step."},
        {"bytes_to_store", "sync_bytes_to_store", "Bytes taken over since they came up."},
        {"bytes_to_sandbox", "sync_bytes_to_sandbox", "Bytes sent since they came up."},
    };
    int64_t total[sizeof(sums) / sizeof(sums[0])] = {0}, n = 0, n_in_step = 0, resident_kb = 0;

    for (const struct vmm_machine *m = vmm->machines != NULL ? vmm->machines->machines : NULL;
         m != NULL; m = m->next) {
        json_t *status = m->sync != NULL ? vmm_sync_json(m->sync) : NULL;

        resident_kb += json_integer_value(json_object_get(m->stats, "host_memory_kb"));
        if (status == NULL)
            continue;
        n++;
        n_in_step += json_is_true(json_object_get(status, "in_step"));
        for (size_t i = 0; i < sizeof(sums) / sizeof(sums[0]); i++)
            total[i] += json_integer_value(json_object_get(status, sums[i].key));
        json_decref(status);
    }
    print(f, "gauge", "machines_resident_bytes", "Memory that machines really take of the host.",
          resident_kb * 1024);
    print(f, "gauge", "sync_machines", "Machines whose files are kept in step.", n);
    print(f, "gauge", "sync_machines_in_step", "Those of them with nothing left to do.", n_in_step);
    for (size_t i = 0; i < sizeof(sums) / sizeof(sums[0]); i++)
        print(f, "gauge", sums[i].name, sums[i].help, total[i]);
}

static void print_all(FILE *f, struct vmm *vmm)
{
    const struct vmm_figures *n = &vmm->figures;

    head(f, "gauge", "info", "The program, and how it runs machines.");
    fprintf(f, PREFIX "info{version=\"%s\",accelerator=\"%s\"} 1\n", TRANSOM_VERSION,
            vm_accel_name(vmm->node->accel));
    print(f, "gauge", "start_time_seconds", "When the manager began, in seconds since 1970.",
          n->began_s);
    print_requests(f, n);
    print_sandboxes(f, vmm);
    print_starts(f, n);
    print_machines(f, vmm);
    print(f, "gauge", "keys", "API keys.", (int64_t)vmm_auth_n_keys(vmm->auth));
    print(f, "gauge", "redis_up", "Is Redis connected?", vmm_live_is_up(vmm->live));
    print(f, "counter", "redis_lost_total", "Connections to Redis that were lost.",
          (int64_t)n->redis_lost);
    print(f, "gauge", "audit_waiting", "Entries of the audit that wait for Redis.",
          (int64_t)vmm->audit.n);
    print(f, "counter", "audit_lost_total", "Entries of the audit that are in the log alone.",
          (int64_t)vmm->audit.n_lost);
}

char *vmm_metrics_text(struct vmm *vmm)
{
    char *text = NULL;
    size_t len;
    FILE *f = open_memstream(&text, &len);

    if (f == NULL)
        return NULL;
    print_all(f, vmm);
    if (fclose(f) != 0) {
        free(text);
        return NULL;
    }
    return text;
}
