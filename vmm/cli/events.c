/* SPDX-License-Identifier: MIT */
/* transom events: server-sent events as lines, or with --json each event's JSON on a line. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "vmm/cli/cli.h"
#include "vmm/cli/http.h"

#define LINE_MAX_BYTES 65536

struct events {
    bool json;
    bool cut;      /* the line is too long: dropped */
    char name[64]; /* of the event under way */
    size_t n;
    char line[LINE_MAX_BYTES + 1];
};

static void print_member(const char *key, const json_t *value)
{
    if (json_is_string(value) && json_string_length(value) > 0) {
        printf(" ");
        cli_print_text(key);
        printf("=");
        cli_print_text(json_string_value(value));
    } else if (json_is_integer(value)) {
        printf(" ");
        cli_print_text(key);
        printf("=%lld", (long long)json_integer_value(value));
    } else if (json_is_real(value)) {
        printf(" ");
        cli_print_text(key);
        printf("=%.2f", json_real_value(value));
    }
}

/* One line for a person: time, type, and the other members as they come, those of objects, too. */
static void print_event(const json_t *event)
{
    const char *key, *inner_key;
    json_t *value, *inner;

    cli_print_text(cli_text(event, "time"));
    printf("%s", *cli_text(event, "time") != '\0' ? " " : "");
    cli_print_text(cli_text(event, "type"));
    json_object_foreach((json_t *)event, key, value)
    {
        if (strcmp(key, "time") == 0 || strcmp(key, "type") == 0)
            continue;
        print_member(key, value);
        json_object_foreach(value, inner_key, inner)
        {
            if (strcmp(inner_key, "type") != 0) /* the same as the event's */
                print_member(inner_key, inner);
        }
    }
    putchar('\n');
}

/* The data of one event. The type of a gap (events that were lost) stands in its name alone. */
static void take_event(const struct events *e, const char *text)
{
    json_t *event = json_loads(text, 0, NULL);

    if (json_is_object(event)) {
        if (json_object_get(event, "type") == NULL)
            json_object_set_new(event, "type", json_string(e->name));
        if (e->json) {
            json_dumpf(event, stdout, JSON_COMPACT);
            putchar('\n');
        } else {
            print_event(event);
        }
        fflush(stdout);
    }
    json_decref(event);
}

static void take_line(struct events *e)
{
    const char *line = e->line;

    e->line[e->n] = '\0';
    if (e->n > 0 && e->line[e->n - 1] == '\r')
        e->line[e->n - 1] = '\0';
    if (*line == '\0')
        e->name[0] = '\0';
    else if (!e->cut && strncmp(line, "event:", 6) == 0)
        snprintf(e->name, sizeof(e->name), "%s", line + 6 + (line[6] == ' '));
    else if (!e->cut && strncmp(line, "data:", 5) == 0)
        take_event(e, line + 5 + (line[5] == ' '));
    e->n = 0;
    e->cut = false;
}

static bool on_data(struct http_req *req, const uint8_t *data, size_t len)
{
    struct events *e = req->arg;

    for (size_t i = 0; i < len; i++) {
        if (data[i] == '\n')
            take_line(e);
        else if (e->n < LINE_MAX_BYTES)
            e->line[e->n++] = (char)data[i];
        else
            e->cut = true;
    }
    return !ferror(stdout);
}

int cmd_events(struct cli *cli, int argc, char **argv)
{
    struct events *e = calloc(1, sizeof(*e));
    char *since = cli->since != NULL ? cli_encode(cli->since) : NULL;
    char *path =
        since != NULL ? cli_printf("/v1/events?since=%s", since) : cli_printf("/v1/events");
    struct http_req *req = http_req_new(cli->http, "GET", path);
    int status = 0;

    (void)argc;
    (void)argv;
    if (e == NULL)
        abort();
    e->json = cli->json;
    req->arg = e;
    req->on_data = on_data;
    http_start(req);
    http_wait(req);
    if (!http_ok(req) && !ferror(stdout))
        status = http_explain(req);
    http_req_free(req);
    free(path);
    free(since);
    free(e);
    return status;
}
