/* SPDX-License-Identifier: MIT */
#include "vmm/driver/exit_reason.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

static bool is(const struct exit_facts *f, const char *reason)
{
    return strcmp(f->shutdown, reason) == 0;
}

static void set(struct vm_exit *out, enum vm_exit_reason reason, const char *detail)
{
    out->reason = reason;
    (void)snprintf(out->detail, sizeof(out->detail), "%s", detail);
}

static void explain_killed(const struct exit_facts *f, struct vm_exit *out)
{
    char text[160];

    if (f->oom_kills > 0) {
        (void)snprintf(text, sizeof(text),
                       "the machine process (%u MB machine) outgrew its memory limit and was "
                       "killed by the host",
                       f->memory_mb);
        set(out, VM_EXIT_KILLED, text);
    } else if (f->we_kill) {
        set(out, VM_EXIT_KILLED, "killed on request");
    } else {
        set(out, VM_EXIT_KILLED, "the machine process was killed by something else on this host");
    }
}

static void explain_signal(const struct exit_facts *f, struct vm_exit *out)
{
    char text[400];

    (void)snprintf(text, sizeof(text), "the machine process ended by signal %d (%s)%s%.300s",
                   f->signal, strsignal(f->signal), f->stderr_tail[0] != '\0' ? ": " : "",
                   f->stderr_tail);
    set(out, VM_EXIT_HOST_ERROR, text);
}

void exit_explain(const struct exit_facts *f, struct vm_exit *out)
{
    char text[400];

    memset(out, 0, sizeof(*out));
    out->code = f->code;
    out->signal = f->signal;
    if (f->panic[0] != '\0' &&
        (is(f, "guest-reset") || is(f, "guest-panic") || is(f, "guest-shutdown") || f->off))
        set(out, VM_EXIT_PANIC, f->panic);
    else if (is(f, "guest-panic"))
        set(out, VM_EXIT_PANIC, "the guest's kernel panicked");
    else if (is(f, "guest-reset"))
        set(out, VM_EXIT_RESET, "the guest rebooted");
    else if (is(f, "guest-shutdown"))
        set(out, VM_EXIT_SHUTDOWN, "the guest powered off");
    else if (f->off)
        set(out, VM_EXIT_SHUTDOWN, "the guest ended while no manager ran");
    else if (f->signal == SIGKILL || (f->signal == 0 && f->oom_kills > 0))
        explain_killed(f, out);
    else if (f->signal != 0)
        explain_signal(f, out);
    else if (f->code > 0 || is(f, "host-error")) {
        (void)snprintf(text, sizeof(text), "the machine process failed with status %d%s%.300s",
                       f->code, f->stderr_tail[0] != '\0' ? ": " : "", f->stderr_tail);
        set(out, VM_EXIT_HOST_ERROR, text);
    } else if (f->we_quit || is(f, "host-qmp-quit") || is(f, "host-signal"))
        set(out, VM_EXIT_QUIT,
            f->we_quit ? "the guest did not power off in time" : "the machine process was ended");
    else
        explain_killed(f, out);
}

bool exit_find_panic(const char *console, size_t len, char *line, size_t size)
{
    static const char mark[] = "Kernel panic - ";
    const char *p = memmem(console, len, mark, sizeof(mark) - 1);
    size_t i;

    if (p == NULL)
        return false;
    for (i = 0; i < size - 1 && p + i < console + len && p[i] != '\n' && p[i] != '\r'; i++)
        line[i] = (unsigned char)p[i] >= ' ' && (unsigned char)p[i] < 0x7f ? p[i] : ' ';
    line[i] = '\0';
    return true;
}
