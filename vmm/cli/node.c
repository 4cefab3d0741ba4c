/* SPDX-License-Identifier: MIT */
/* transom node, version. */
#include <stdio.h>
#include <string.h>
#include "vmm/cli/cli.h"
#include "vmm/cli/http.h"

static void print_line(const char *label, const char *text)
{
    printf("%-12s ", label);
    cli_print_text(text);
    putchar('\n');
}

/* "running 1, asleep 2" */
static void print_counts(const json_t *counts)
{
    const char *key;
    json_t *value;
    bool first = true;

    printf("%-12s ", "sandboxes");
    json_object_foreach((json_t *)counts, key, value)
    {
        if (!json_is_integer(value))
            continue;
        printf("%s", first ? "" : ", ");
        cli_print_text(key);
        printf(" %lld", (long long)json_integer_value(value));
        first = false;
    }
    printf("%s\n", first ? "none" : "");
}

int cmd_node(struct cli *cli, int argc, char **argv)
{
    json_t *node = cli_call(cli, "GET", "/v1/node", NULL);
    const json_t *kvm, *redis, *image;

    (void)argc;
    (void)argv;
    if (node == NULL)
        return 1;
    if (cli->json) {
        cli_print_json(node);
        json_decref(node);
        return 0;
    }
    kvm = json_object_get(node, "kvm");
    redis = json_object_get(node, "redis");
    image = json_object_get(node, "image");
    print_line("node", cli_text(node, "name"));
    print_line("version", cli_text(node, "version"));
    print_line("accelerator", cli_text(node, "accelerator"));
    printf("%-12s %s", "kvm",
           json_is_true(json_object_get(kvm, "usable")) ? "usable" : "not usable");
    if (*cli_text(kvm, "reason") != '\0') {
        printf(": ");
        cli_print_text(cli_text(kvm, "reason"));
    }
    printf("\n%-12s %lld\n", "cpus", (long long)json_integer_value(json_object_get(node, "cpus")));
    printf("%-12s %lld MiB\n", "memory",
           (long long)json_integer_value(json_object_get(node, "memory_mb")));
    print_counts(json_object_get(node, "sandboxes"));
    if (json_is_object(image))
        print_line("image", *cli_text(image, "path") != '\0' ? cli_text(image, "path")
                                                             : cli_text(image, "hash"));
    printf("%-12s %s ", "redis", json_is_true(json_object_get(redis, "up")) ? "up" : "down");
    cli_print_text(cli_text(redis, "url"));
    putchar('\n');
    json_decref(node);
    return 0;
}

/* A bug report needs our own version even when the manager cannot be reached. */
int cmd_version(struct cli *cli, int argc, char **argv)
{
    struct http_req *req = http_req_new(cli->http, "GET", "/v1/version");
    json_t *answer = NULL, *all;

    (void)argc;
    (void)argv;
    http_start(req);
    http_wait(req);
    if (http_ok(req) && req->body != NULL)
        answer = json_loadb(req->body, req->body_len, 0, NULL);
    if (cli->json) {
        all = json_pack("{s:s, s:o}", "transom", TRANSOM_VERSION, "manager",
                        answer != NULL ? json_incref(answer) : json_null());
        cli_print_json(all);
        json_decref(all);
    } else {
        printf("transom %s\n", TRANSOM_VERSION);
        if (answer != NULL) {
            printf("manager ");
            cli_print_text(cli_text(answer, "version"));
            printf(" (API ");
            cli_print_text(cli_text(answer, "api"));
            printf(")\n");
        }
    }
    if (answer == NULL)
        http_explain(req);
    http_req_free(req);
    json_decref(answer);
    return 0;
}
