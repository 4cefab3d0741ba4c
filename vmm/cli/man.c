/* SPDX-License-Identifier: MIT */
/* transom(1), as roff: from the same table as --help. */
#include <stdio.h>
#include <string.h>
#include "vmm/cli/cli.h"

/* Text in which nothing is a request or an escape. */
static void put(const char *text)
{
    bool at_start = true;

    for (; *text != '\0'; text++) {
        if (at_start && (*text == '.' || *text == '\''))
            fputs("\\&", stdout);
        if (*text == '\\')
            fputs("\\e", stdout);
        else if (*text == '-')
            fputs("\\-", stdout);
        else
            putchar(*text);
        at_start = *text == '\n';
    }
}

static void put_options(const struct cli_option *options)
{
    for (const struct cli_option *o = options; o->name != NULL; o++) {
        fputs(".TP\n", stdout);
        if (o->letter != 0)
            printf("\\fB\\-%c\\fR, ", o->letter);
        fputs("\\fB\\-\\-", stdout);
        put(o->name);
        fputs("\\fR", stdout);
        if (o->value != NULL) {
            fputs(" \\fI", stdout);
            put(o->value);
            fputs("\\fR", stdout);
        }
        putchar('\n');
        put(o->help);
        putchar('\n');
    }
}

static void put_command(const struct cli_command *c)
{
    fputs(".SS \"transom ", stdout);
    put(c->name);
    if (*c->args != '\0') {
        putchar(' ');
        put(c->args);
    }
    printf("\"\n%c", c->summary[0] - 'a' + 'A');
    put(c->summary + 1);
    fputs(".\n", stdout);
    if (c->details != NULL) {
        fputs(".PP\n", stdout);
        put(c->details);
        putchar('\n');
    }
    for (size_t t = 0; c->options[t] != NULL; t++) {
        if (c->options[t] != cli_common_options)
            put_options(c->options[t]);
    }
}

int cmd_man(struct cli *cli, int argc, char **argv)
{
    static const struct {
        const char *name, *what;
    } variables[] = {
        {"TRANSOM_SESSION", "The session that commands mean when \\-s does not say."},
        {"TRANSOM_PROFILE", "The profile to use, as \\-\\-profile."},
        {"TRANSOM_SOCKET", "The manager's socket, as \\-\\-socket."},
        {"TRANSOM_API_KEY", "The API key."},
    };

    (void)cli;
    (void)argc;
    (void)argv;
    printf(".TH TRANSOM 1 \"\" \"transom " TRANSOM_VERSION "\" \"User Commands\"\n"
           ".nh\n.ad l\n"
           ".SH NAME\n"
           "transom \\- disposable Linux machines with terminals in them and a preview URL in "
           "front\n"
           ".SH SYNOPSIS\n"
           ".B transom\n"
           "\\fICOMMAND\\fR [\\fIOPTION\\fR...] [\\fIARGUMENT\\fR...]\n"
           ".SH OPTIONS OF EVERY COMMAND\n");
    put_options(cli_common_options);
    printf(".SH COMMANDS\n");
    for (size_t i = 0; i < cli_n_commands; i++) {
        if (cli_commands[i].name[0] != '_')
            put_command(&cli_commands[i]);
    }
    printf(".SH EXIT STATUS\n"
           "That of the command run (run, exec, ssh), else 0, 1 for a failure, 2 for wrong "
           "usage.\n"
           ".SH ENVIRONMENT\n");
    for (size_t i = 0; i < sizeof(variables) / sizeof(variables[0]); i++)
        printf(".TP\n.B %s\n%s\n", variables[i].name, variables[i].what);
    printf(".SH FILES\n"
           ".TP\n.I ~/.config/transom/profiles.json\n"
           "APIs and their keys, of transom login. For its owner's eyes alone.\n"
           ".TP\n.I /etc/transom/transom.yaml\n"
           "The node's configuration, which tells where the manager's socket is.\n"
           ".SH SEE ALSO\n"
           ".BR transom.yaml (5),\n.BR transom\\-vmm (8),\n.BR transom\\-gateway (8)\n");
    return 0;
}
