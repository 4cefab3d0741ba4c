/* SPDX-License-Identifier: MIT */
/* Completion. `transom completion SHELL` prints what a shell needs; it asks `transom __complete --
 * WORD...`, of which the last is the one to be completed. That answers a candidate a line, with
 * what it means behind a tab; or ":files" or ":folders" when the shell knows better. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "vmm/cli/cli.h"
#include "vmm/cli/profile.h"

/* ---- the scripts ---- */

static const char bash_script[] =
    "# bash completion of transom; in ~/.bashrc: eval \"$(transom completion bash)\"\n"
    "_transom()\n"
    "{\n"
    "    local line value IFS=$'\\n'\n"
    "    COMPREPLY=()\n"
    "    while read -r line; do\n"
    "        value=${line%%$'\\t'*}\n"
    "        case $value in\n"
    "        :files) compopt -o filenames; COMPREPLY+=($(compgen -f -- \"$2\")) ;;\n"
    "        :folders) compopt -o filenames; COMPREPLY+=($(compgen -d -- \"$2\")) ;;\n"
    "        *) COMPREPLY+=(\"$(printf %q \"$value\")\") ;;\n"
    "        esac\n"
    "    done < <(\"$1\" __complete -- \"${COMP_WORDS[@]:1:COMP_CWORD}\" 2>/dev/null)\n"
    "}\n"
    "complete -F _transom transom\n";

static const char zsh_script[] =
    "#compdef transom\n"
    "# zsh completion of transom; as _transom in a folder of $fpath, or in ~/.zshrc behind "
    "compinit:\n"
    "# eval \"$(transom completion zsh)\"\n"
    "_transom()\n"
    "{\n"
    "    local line value\n"
    "    local -a values shown\n"
    "    while IFS= read -r line; do\n"
    "        value=${line%%$'\\t'*}\n"
    "        case $value in\n"
    "        :files) _files; return ;;\n"
    "        :folders) _files -/; return ;;\n"
    "        esac\n"
    "        values+=(\"$value\")\n"
    "        shown+=(\"${line//$'\\t'/  -- }\")\n"
    "    done < <(\"${words[1]}\" __complete -- \"${(@)words[2,CURRENT]}\" 2>/dev/null)\n"
    "    compadd -l -d shown -a values\n"
    "}\n"
    "if [ \"$funcstack[1]\" = _transom ]; then _transom; else compdef _transom transom; fi\n";

static const char fish_script[] =
    "# fish completion of transom; in ~/.config/fish/config.fish: transom completion fish | "
    "source\n"
    "function __transom_complete\n"
    "    set -l words (commandline -opc) (commandline -ct)\n"
    "    for line in ($words[1] __complete -- $words[2..-1] 2>/dev/null)\n"
    "        switch $line\n"
    "            case ':files*'\n"
    "                __fish_complete_path (commandline -ct)\n"
    "            case ':folders*'\n"
    "                __fish_complete_directories (commandline -ct)\n"
    "            case '*'\n"
    "                echo $line\n"
    "        end\n"
    "    end\n"
    "end\n"
    "complete -c transom -f -a '(__transom_complete)'\n";

int cmd_completion(struct cli *cli, int argc, char **argv)
{
    (void)cli;
    (void)argc;
    if (strcmp(argv[0], "bash") == 0)
        fputs(bash_script, stdout);
    else if (strcmp(argv[0], "zsh") == 0)
        fputs(zsh_script, stdout);
    else if (strcmp(argv[0], "fish") == 0)
        fputs(fish_script, stdout);
    else
        return cli_fail(CLI_USAGE, "there is completion for bash, zsh and fish, not for %s",
                        argv[0]);
    return 0;
}

/* ---- candidates ---- */

/* One, if it begins as the word does. */
static void offer(const char *word, const char *value, const char *about)
{
    if (strncmp(value, word, strlen(word)) != 0)
        return;
    cli_print_text(value);
    if (about != NULL && *about != '\0') {
        putchar('\t');
        cli_print_text(about);
    }
    putchar('\n');
}

/* Words that a value may be, separated by blanks, by its name in the table. */
static const struct {
    const char *name, *words;
} fixed[] = {
    {"SHELL", "bash zsh fish"},   {"SCOPE", "admin session read"},
    {"FORMAT", "list patch zip"}, {"USER", "sandbox root"},
    {"on|off", "on off"},         {"PROTOCOL", "http1 h2c"},
};

/* Lists that the manager knows. command: the first word of those commands, NULL: any. */
static const struct {
    const char *command, *name;
    enum { OF_NODE, OF_SESSION, OF_SANDBOX } where;
    const char *path, *list, *key, *about;
} lists[] = {
    {NULL, "SESSION", OF_NODE, "/v1/sessions", "sessions", "id", "name"},
    {NULL, "CHECKPOINT", OF_SESSION, "/checkpoints", "checkpoints", "id", "message"},
    {NULL, "WINDOW", OF_SANDBOX, "/windows", "windows", "name", NULL},
    {"job", "ID", OF_SANDBOX, "/exec", "execs", "id", "command"},
    {"key", "ID", OF_NODE, "/v1/keys", "keys", "id", "owner"},
    {"webhook", "ID", OF_NODE, "/v1/webhooks", "webhooks", "id", "url"},
    {"secret", "NAME", OF_NODE, "/v1/secrets", "secrets", "name", NULL},
    {"sandbox", "NAME", OF_SESSION, "/sandboxes", "sandboxes", "name", "state"},
};

static void offer_profiles(const char *word)
{
    json_t *all = profiles_read(), *profile;
    const char *name;

    offer(word, PROFILE_LOCAL, "this host's manager");
    json_object_foreach(json_object_get(all, "profiles"), name, profile)
    {
        offer(word, name, cli_text(profile, "api"));
    }
    json_decref(all);
}

static void offer_list(struct cli *cli, size_t i, const char *word)
{
    char *path = lists[i].where == OF_NODE      ? cli_printf("%s", lists[i].path)
                 : lists[i].where == OF_SESSION ? cli_session_path(cli, "%s", lists[i].path)
                                                : cli_sandbox_path(cli, "%s", lists[i].path);
    json_t *answer = path != NULL ? cli_call(cli, "GET", path, NULL) : NULL;
    const json_t *list = json_object_get(answer, lists[i].list);

    for (size_t n = 0; n < json_array_size(list); n++) {
        const json_t *item = json_array_get(list, n);

        offer(word, cli_text(item, lists[i].key),
              lists[i].about != NULL ? cli_text(item, lists[i].about) : NULL);
    }
    json_decref(answer);
    free(path);
}

/* What can stand where the table says name. */
static void offer_value(struct cli *cli, const struct cli_command *c, const char *name,
                        const char *word)
{
    /* Those of a session's store are not here. */
    bool is_remote = strncmp(c->name, "files ", 6) == 0 || strncmp(c->name, "checkpoint", 10) == 0;

    for (size_t i = 0; i < sizeof(fixed) / sizeof(fixed[0]); i++) {
        char words[64], *save, *w;

        if (strcmp(fixed[i].name, name) != 0)
            continue;
        snprintf(words, sizeof(words), "%s", fixed[i].words);
        for (w = strtok_r(words, " ", &save); w != NULL; w = strtok_r(NULL, " ", &save))
            offer(word, w, NULL);
        return;
    }
    for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++) {
        const char *first = lists[i].command;

        if (strcmp(lists[i].name, name) == 0 &&
            (first == NULL || strncmp(c->name, first, strlen(first)) == 0)) {
            offer_list(cli, i, word);
            return;
        }
    }
    if (strcmp(name, "PROFILE") == 0)
        offer_profiles(word);
    else if (strcmp(name, "LOCAL") == 0 || strcmp(name, "DIR") == 0 ||
             (strcmp(name, "FILE") == 0 && !is_remote))
        puts(":files");
}

/* The name of the n-th argument: "FROM TO", "[NAME]", "ID...". "" when there is none. */
static void argument_name(const struct cli_command *c, int n, char *out, size_t size)
{
    const char *at = c->args;

    out[0] = '\0';
    for (int i = 0; *at != '\0'; i++) {
        size_t blanks = strspn(at, " []"), len;

        at += blanks;
        len = strcspn(at, " []");
        if (len == 0)
            return;
        snprintf(out, size, "%.*s", (int)len, at);
        if (strlen(out) > 3 && strcmp(out + strlen(out) - 3, "...") == 0) {
            out[strlen(out) - 3] = '\0'; /* it repeats */
            return;
        }
        if (i == n)
            return;
        at += len;
        out[0] = '\0';
    }
}

/* The option that word is, or NULL. */
static const struct cli_option *find_option(const struct cli_command *c, const char *word)
{
    for (size_t t = 0; c->options[t] != NULL; t++) {
        for (const struct cli_option *o = c->options[t]; o->name != NULL; o++) {
            bool is_long = strncmp(word, "--", 2) == 0 && strcmp(word + 2, o->name) == 0;
            bool is_short =
                word[0] == '-' && word[1] == o->letter && word[1] != '\0' && word[2] == '\0';

            if (is_long || is_short)
                return o;
        }
    }
    return NULL;
}

static void offer_options(const struct cli_command *c, const char *word)
{
    for (size_t t = 0; c->options[t] != NULL; t++) {
        for (const struct cli_option *o = c->options[t]; o->name != NULL; o++) {
            char *text = cli_printf("--%s", o->name);

            offer(word, text, o->help);
            free(text);
        }
    }
}

/* words[0..n): what stands behind the command's name; words[n]: the word to be completed. */
static void complete_command(struct cli *cli, const struct cli_command *c, int n, char **words)
{
    const struct cli_option *waits = NULL; /* for its value */
    bool only_arguments = false;
    char name[64];
    int n_args = 0;

    for (int i = 0; i < n; i++) {
        const struct cli_option *o = only_arguments ? NULL : find_option(c, words[i]);

        if (waits != NULL) { /* its value: those that say where to look count here, too */
            if (waits->offset == offsetof(struct cli, session) ||
                waits->offset == offsetof(struct cli, sandbox))
                *(const char **)((char *)cli + waits->offset) = words[i];
            waits = NULL;
        } else if (!only_arguments && strcmp(words[i], "--") == 0) {
            only_arguments = true;
        } else if (o != NULL) {
            waits = o->type == CLI_FLAG ? NULL : o;
        } else if (only_arguments || words[i][0] != '-' || words[i][1] == '\0') {
            n_args++;
            only_arguments |= c->max_args < 0;
        }
    }
    if (waits != NULL && (waits->offset == offsetof(struct cli, socket) ||
                          waits->offset == offsetof(struct cli, key_file))) {
        puts(":files");
        return;
    }
    if (waits != NULL) {
        offer_value(cli, c, waits->value, words[n]);
        return;
    }
    if (!only_arguments && words[n][0] == '-') {
        offer_options(c, words[n]);
        return;
    }
    if (c->max_args >= 0 && n_args >= c->max_args)
        return;
    argument_name(c, n_args, name, sizeof(name));
    offer_value(cli, c, name, words[n]);
}

static bool is_hidden(const struct cli_command *c)
{
    return c->name[0] == '_';
}

/* The first words of all commands, each once. */
static void offer_first(const char *word)
{
    for (size_t i = 0; i < cli_n_commands; i++) {
        const struct cli_command *c = &cli_commands[i];
        size_t len = strcspn(c->name, " ");
        char *first = cli_printf("%.*s", (int)len, c->name);
        bool is_group = c->name[len] == ' ', known = is_hidden(c);

        for (size_t j = 0; j < i && !known; j++)
            known = strncmp(cli_commands[j].name, first, len) == 0 &&
                    (cli_commands[j].name[len] == ' ' || cli_commands[j].name[len] == '\0');
        if (!known)
            offer(word, first, is_group ? NULL : c->summary);
        free(first);
    }
    if (word[0] == '-') {
        offer(word, "--help", "an overview");
        offer(word, "--version", "the version of this command");
    }
}

int cmd_complete(struct cli *cli, int argc, char **argv)
{
    const struct cli_command *found = NULL;
    int used = 0;

    if (argc == 1) {
        offer_first(argv[0]);
        return 0;
    }
    for (size_t i = 0; i < cli_n_commands; i++) {
        const struct cli_command *c = &cli_commands[i];
        size_t len = strcspn(c->name, " ");
        bool is_group = c->name[len] == ' ';

        if (is_hidden(c) || strlen(argv[0]) != len || strncmp(c->name, argv[0], len) != 0)
            continue;
        if (is_group && argc == 2)
            offer(argv[1], c->name + len + 1, c->summary);
        if (!is_group && found == NULL) {
            found = c;
            used = 1;
        } else if (is_group && argc > 2 && strcmp(argv[1], c->name + len + 1) == 0) {
            found = c;
            used = 2;
        }
    }
    if (found != NULL)
        complete_command(cli, found, argc - 1 - used, argv + used);
    return 0;
}
