/* SPDX-License-Identifier: MIT */
/* Asks the sync filter for tests. Reads commands, each a line of words in hexadecimal ("-" is the
 * empty one): "reset", "rules LEVEL DIR BYTES" (level 0: .gitignore, 1: .transomignore), "ask D
 * PATH" (D 1: a folder). Prints one verdict a line for each "ask". "table": the filter's names. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "sync/filter.h"
#include "sync/path.h"

static size_t unhex(char *word)
{
    size_t n = 0;

    if (strcmp(word, "-") == 0)
        return 0;
    for (char *p = word; p[0] != '\0' && p[1] != '\0'; p += 2) {
        char pair[3] = {p[0], p[1], '\0'};

        word[n++] = (char)strtoul(pair, NULL, 16);
    }
    return n;
}

static struct sync_ignore *fresh(struct sync_ignore *old)
{
    struct sync_ignore *ig;

    sync_ignore_free(old);
    if (sync_ignore_new(&ig) != 0)
        exit(EXIT_FAILURE);
    return ig;
}

static void rules(struct sync_ignore *ig, char *level, char *dir, char *bytes)
{
    size_t dir_len = unhex(dir), len = unhex(bytes);
    struct err err = {0};

    if (sync_ignore_set(ig, *level == '1' ? SYNC_IGNORE_TRANSOM : SYNC_IGNORE_GIT, dir, dir_len,
                        bytes, len, &err) != 0)
        fprintf(stderr, "%s\n", err.msg);
}

static void ask(const struct sync_ignore *ig, const char *is_dir, char *path)
{
    static const char *const names[] = {"none", "keep", "ignored", "unsure"};
    size_t len = unhex(path);

    if (sync_path_check(path, len) != SYNC_PATH_OK)
        puts("bad");
    else
        puts(names[sync_ignore_check(ig, path, len, *is_dir == '1', NULL)]);
}

/* Of each rule: the reason, where it counts, its name, what must be beside it, what inside. */
static void table(void)
{
    struct sync_filter_rule rule;

    for (size_t i = 0; sync_filter_rule(i, &rule); i++)
        printf("%s\t%s\t%s\t%s\t%s\n", sync_why_name(rule.why),
               rule.is_top   ? "top"
               : rule.is_dir ? "folder"
                             : "file",
               rule.name, rule.beside != NULL ? rule.beside : "",
               rule.inside != NULL ? rule.inside : "");
}

int main(void)
{
    struct sync_ignore *ig = fresh(NULL);
    char *line = NULL;
    size_t room = 0;

    while (getline(&line, &room, stdin) > 0) {
        char *rest, *word[4] = {strtok_r(line, " \n", &rest)};

        for (int i = 1; i < 4; i++)
            word[i] = word[i - 1] != NULL ? strtok_r(NULL, " \n", &rest) : NULL;
        if (word[0] == NULL)
            continue;
        if (strcmp(word[0], "reset") == 0)
            ig = fresh(ig);
        else if (strcmp(word[0], "rules") == 0 && word[3] != NULL)
            rules(ig, word[1], word[2], word[3]);
        else if (strcmp(word[0], "ask") == 0 && word[2] != NULL)
            ask(ig, word[1], word[2]);
        else if (strcmp(word[0], "table") == 0)
            table();
        else
            return EXIT_FAILURE;
    }
    free(line);
    sync_ignore_free(ig);
    return EXIT_SUCCESS;
}
