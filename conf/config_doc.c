/* SPDX-License-Identifier: MIT */
/* transom-config-doc: prints the reference of the options, and checks configuration files without
 * starting anything. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "transom/config.h"

static int check(const char *path)
{
    struct tr_config *config;
    struct err err;

    if (tr_config_load(path, &config, &err) != 0) {
        printf("%s\n", err.msg);
        return EXIT_FAILURE;
    }
    printf("%s: ok\n", path);
    tr_config_free(config);
    return EXIT_SUCCESS;
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "--yaml") == 0) {
        tr_config_print_yaml(stdout);
        return EXIT_SUCCESS;
    }
    if (argc == 2 && strcmp(argv[1], "--man") == 0) {
        tr_config_print_man(stdout);
        return EXIT_SUCCESS;
    }
    if (argc == 2 && strcmp(argv[1], "--help") == 0) {
        printf("Usage: transom-config-doc --yaml | --man | --help | --check FILE\n\n");
        tr_config_print_help(stdout);
        return EXIT_SUCCESS;
    }
    if (argc == 3 && strcmp(argv[1], "--check") == 0)
        return check(argv[2]);
    fprintf(stderr, "Usage: transom-config-doc --yaml | --man | --help | --check FILE\n");
    return 2;
}
