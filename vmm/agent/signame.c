/* SPDX-License-Identifier: MIT */
#include "vmm/agent/signame.h"

#include <signal.h>
#include <stddef.h>
#include <string.h>

static const struct {
    int signum;
    const char *name;
} names[] = {
    {SIGHUP, "HUP"},       {SIGINT, "INT"},   {SIGQUIT, "QUIT"},   {SIGILL, "ILL"},
    {SIGTRAP, "TRAP"},     {SIGABRT, "ABRT"}, {SIGBUS, "BUS"},     {SIGFPE, "FPE"},
    {SIGKILL, "KILL"},     {SIGUSR1, "USR1"}, {SIGSEGV, "SEGV"},   {SIGUSR2, "USR2"},
    {SIGPIPE, "PIPE"},     {SIGALRM, "ALRM"}, {SIGTERM, "TERM"},   {SIGSTKFLT, "STKFLT"},
    {SIGCHLD, "CHLD"},     {SIGCONT, "CONT"}, {SIGSTOP, "STOP"},   {SIGTSTP, "TSTP"},
    {SIGTTIN, "TTIN"},     {SIGTTOU, "TTOU"}, {SIGURG, "URG"},     {SIGXCPU, "XCPU"},
    {SIGXFSZ, "XFSZ"},     {SIGPROF, "PROF"}, {SIGWINCH, "WINCH"}, {SIGIO, "IO"},
    {SIGVTALRM, "VTALRM"}, {SIGPWR, "PWR"},   {SIGSYS, "SYS"},
};

int agent_signal_number(const char *name)
{
    if (strncmp(name, "SIG", 3) == 0)
        name += 3;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (strcmp(names[i].name, name) == 0)
            return names[i].signum;
    }
    return -1;
}

const char *agent_signal_name(int signum)
{
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (names[i].signum == signum)
            return names[i].name;
    }
    return "?";
}

json_t *agent_exit_json(json_t *obj, bool exited, int code)
{
    if (obj == NULL)
        return NULL;
    json_object_set_new(obj, "exit_code", json_integer(exited ? code : 128 + code));
    if (!exited)
        json_object_set_new(obj, "signal", json_string(agent_signal_name(code)));
    return obj;
}
