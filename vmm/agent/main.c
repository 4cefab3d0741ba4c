/* SPDX-License-Identifier: MIT */
/* transom-agent: as the first process it mounts the machine's root (agent_init_stage()) and goes on
 * as a daemon beside systemd; it serves the agent protocol on the machine's channel. */
#include <stdio.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "transom/log.h"
#ifdef AGENT_HAVE_INIT
#include "vmm/agent/init.h"
#endif

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "--version") == 0) {
        printf("transom-agent %s\n", TRANSOM_VERSION);
        return 0;
    }
    tr_log_init("agent", TR_LOG_INFO);
    signal(SIGPIPE, SIG_IGN);
#ifdef AGENT_HAVE_INIT
    if (getpid() == 1 && agent_init_stage() < 0) {
        log_error("the initrd stage failed");
        return 1;
    }
#endif
    log_info("started");
    for (;;)
        pause();
}
