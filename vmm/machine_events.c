/* SPDX-License-Identifier: MIT */
/* How far a guest's events have been taken, so that each is passed on once: also over a lost
 * channel and over the end of this process, which the machine outlives. The number of the last one
 * stands in a small file beside the machine's record. It is not synced: the host's end is the
 * machine's, too.
 *
 * A guest that tells too much is not listened to for a while, and what was not heard is named. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "transom/log.h"
#include "vmm/file.h"
#include "vmm/live.h"
#include "vmm/machine_internal.h"
#include "vmm/text.h"

#define BURST      500 /* events passed on at once, after a time without any */
#define PER_SECOND 50

enum { BOOT_LEN = sizeof(((struct vmm_machine *)NULL)->events.boot) - 1, LINE_LEN = 90 };

static void open_file(struct vmm_machine *m)
{
    char path[VMM_PATH_SIZE], line[LINE_LEN + 1] = "", *end;
    ssize_t n;

    if (m->events.fd > 0)
        return;
    snprintf(path, sizeof(path), "%s/events", m->data_dir);
    m->events.fd = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (m->events.fd < 0) {
        log_warn("vm=%s: %s: %s", m->label, path, strerror(errno));
        m->events.fd = 0;
        return;
    }
    n = pread(m->events.fd, line, LINE_LEN, 0);
    end = n > 0 ? strchr(line, ' ') : NULL;
    if (end == NULL || end - line > BOOT_LEN)
        return;
    *end = '\0';
    snprintf(m->events.boot, sizeof(m->events.boot), "%s", line);
    m->events.seq = strtoll(end + 1, NULL, 10);
}

static void note(struct vmm_machine *m, int64_t seq)
{
    char line[LINE_LEN + 1];
    int n;

    m->events.seq = seq;
    if (m->events.fd <= 0)
        return;
    n = snprintf(line, sizeof(line), "%s %020" PRId64 "\n", m->events.boot, seq);
    if (pwrite(m->events.fd, line, (size_t)n, 0) != n)
        log_warn("vm=%s: events: %s", m->label, strerror(errno));
}

int64_t machine_events_since(const json_t *hello, void *arg)
{
    struct vmm_machine *m = arg;
    const char *boot = json_string_value(json_object_get(hello, "boot_id"));

    open_file(m);
    if (boot == NULL || !vmm_word_valid(boot, BOOT_LEN, "-"))
        return -1;
    if (strcmp(boot, m->events.boot) == 0)
        return m->events.seq;
    if (m->events.fd > 0 && ftruncate(m->events.fd, 0) != 0)
        log_warn("vm=%s: events: %s", m->label, strerror(errno));
    snprintf(m->events.boot, sizeof(m->events.boot), "%s", boot);
    note(m, 0);
    return -1;
}

static void tell(struct vmm_machine *m, const char *type, json_t *event)
{
    char name[40];

    snprintf(name, sizeof(name), "sandbox.%s", type);
    vmm_live_event(m->ms->vmm, name, m->sb->session->owner,
                   json_pack("{ss, ss, ss, sI, so}", "session", m->sb->session->id, "sandbox",
                             m->sb->name, "label", m->label, "instance", (json_int_t)m->instance,
                             "agent", event));
}

/* What was not passed on. */
static void tell_missed(struct vmm_machine *m)
{
    if (m->events.missed_from == 0)
        return;
    tell(m, "gap",
         json_pack("{ss, sI, sI}", "type", "gap", "from", (json_int_t)m->events.missed_from, "to",
                   (json_int_t)m->events.missed_to));
    m->events.missed_from = 0;
}

void machine_events_pass_on(struct vmm_machine *m, const char *type, const json_t *event)
{
    int64_t seq = json_integer_value(json_object_get(event, "seq"));

    if (m->events.n < BURST) {
        tell_missed(m);
        tell(m, type, json_incref((json_t *)event));
        m->events.n++;
    } else if (seq > 0) {
        if (m->events.missed_from == 0)
            m->events.missed_from = seq;
        m->events.missed_to = seq;
    }
}

void machine_events_took(struct vmm_machine *m, const json_t *event)
{
    int64_t seq = json_integer_value(json_object_get(event, "seq"));

    if (seq > 0)
        note(m, seq);
}

void machine_events_tick(struct vmm_machine *m)
{
    m->events.n -= m->events.n < PER_SECOND ? m->events.n : PER_SECOND;
    if (m->events.n < BURST)
        tell_missed(m);
}

void machine_events_fini(struct vmm_machine *m)
{
    if (m->events.fd > 0)
        close(m->events.fd);
    m->events.fd = 0;
}
