/* SPDX-License-Identifier: MIT */
#include "vmm/agent/ssh_config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "vmm/agent/ssh_session.h"

/* No PAM: it would refuse logins until the boot is over (pam_nologin), and move what runs out of
 * our group (pam_systemd). The folder is ours, so that StrictModes has nothing to find in it. */
static const char fixed[] = "HostKey %1$s/host_key\n"
                            "AuthorizedKeysFile %1$s/authorized_keys\n"
                            "AllowUsers %2$s\n"
                            "PermitRootLogin %3$s\n"
                            "AuthenticationMethods publickey\n"
                            "PubkeyAuthentication yes\n"
                            "PasswordAuthentication no\n"
                            "KbdInteractiveAuthentication no\n"
                            "UsePAM no\n"
                            "StrictModes no\n"
                            "PidFile none\n"
                            "UseDNS no\n"
                            "PrintMotd no\n"
                            "PrintLastLog no\n"
                            "X11Forwarding no\n"
                            "GatewayPorts no\n"
                            "AllowTcpForwarding yes\n"
                            "AllowStreamLocalForwarding yes\n"
                            "AllowAgentForwarding yes\n"
                            "MaxSessions 64\n"
                            "ClientAliveInterval 60\n"
                            "ClientAliveCountMax 10\n"
                            "AcceptEnv COLORTERM NO_COLOR\n"
                            "Subsystem sftp internal-sftp\n";

/* One argument of a line: in quotes, in which a backslash keeps a quote or a backslash. */
static void put_quoted(FILE *out, const char *text)
{
    fputc('"', out);
    for (; *text != '\0'; text++) {
        if (*text == '"' || *text == '\\' || *text == '\'')
            fputc('\\', out);
        fputc(*text, out);
    }
    fputc('"', out);
}

char *agent_ssh_config_text(const char *dir, const struct agent_child *child, const char *env_file)
{
    bool any = false, good;
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);

    if (out == NULL)
        return NULL;
    fprintf(out, fixed, dir, child->user.name, child->user.uid == 0 ? "prohibit-password" : "no");
    /* The first SetEnv line is the only one that counts. */
    for (size_t i = 0; i < child->n_env; i++) {
        if (strchr(child->envp[i], '\n') != NULL)
            continue;
        fputs(any ? " " : "SetEnv ", out);
        put_quoted(out, child->envp[i]);
        any = true;
    }
    if (any)
        fputc('\n', out);
    if (env_file != NULL)
        fprintf(out, "ForceCommand exec %s/session " AGENT_SSH_SESSION_OPTION " %s\n", dir,
                env_file);
    good = !ferror(out);
    if (fclose(out) == 0 && good)
        return text;
    free(text);
    return NULL;
}
