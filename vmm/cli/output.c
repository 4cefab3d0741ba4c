/* SPDX-License-Identifier: MIT */
/* What is shown: messages, tables, JSON. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "vmm/cli/cli.h"

#define N_COLUMNS 12

/* Names and messages can hold what a guest or a stranger put there; a terminal must not obey it. */
static void clean(char *text)
{
    for (unsigned char *s = (unsigned char *)text; *s != '\0'; s++) {
        if (*s < 0x20 || *s == 0x7f)
            *s = '?';
        else if (*s == 0xc2 && s[1] >= 0x80 && s[1] < 0xa0) /* C1 controls in UTF-8 */
            s[0] = s[1] = '?';
    }
}

int cli_fail(int status, const char *fmt, ...)
{
    char *text = NULL;
    va_list ap;
    int n;

    va_start(ap, fmt);
    n = vasprintf(&text, fmt, ap);
    va_end(ap);
    if (n < 0)
        abort();
    clean(text);
    fflush(stdout);
    fprintf(stderr, "transom: %s\n", text);
    free(text);
    return status;
}

char *cli_printf(const char *fmt, ...)
{
    char *text = NULL;
    va_list ap;
    int n;

    va_start(ap, fmt);
    n = vasprintf(&text, fmt, ap);
    va_end(ap);
    if (n < 0)
        abort();
    return text;
}

void cli_print_json(const json_t *value)
{
    json_dumpf(value, stdout, JSON_INDENT(2) | JSON_ENCODE_ANY);
    putchar('\n');
}

void cli_print_text(const char *text)
{
    char *copy = cli_printf("%s", text);

    clean(copy);
    fputs(copy, stdout);
    free(copy);
}

int cli_print_answer(const struct cli *cli, json_t *answer, const char *member)
{
    if (answer == NULL)
        return 1;
    if (cli->json) {
        cli_print_json(answer);
    } else {
        cli_print_text(cli_text(answer, member));
        putchar('\n');
    }
    json_decref(answer);
    return 0;
}

const char *cli_text(const json_t *object, const char *key)
{
    const char *s = json_string_value(json_object_get(object, key));

    return s != NULL ? s : "";
}

/* Any JSON value as a cell. */
static char *cell_text(const json_t *row, const char *key)
{
    const json_t *v = json_object_get(row, key);
    char *text;

    if (json_is_string(v))
        text = cli_printf("%s", json_string_value(v));
    else if (json_is_integer(v))
        text = cli_printf("%lld", (long long)json_integer_value(v));
    else if (json_is_boolean(v))
        text = cli_printf("%s", json_is_true(v) ? "yes" : "no");
    else
        text = cli_printf("%s", "");
    clean(text);
    if (*text == '\0') {
        free(text);
        text = cli_printf("-");
    }
    return text;
}

/* Characters, not bytes, of UTF-8. */
static int text_width(const char *s)
{
    int n = 0;

    for (; *s != '\0'; s++)
        n += ((unsigned char)*s & 0xc0) != 0x80;
    return n;
}

void cli_print_table(const json_t *rows, const char *const *keys, const char *const *headers)
{
    int width[N_COLUMNS] = {0};
    size_t n = 0;

    for (; keys[n] != NULL && n < N_COLUMNS; n++)
        width[n] = text_width(headers[n]);
    for (size_t r = 0; r < json_array_size(rows); r++) {
        for (size_t c = 0; c < n; c++) {
            char *text = cell_text(json_array_get(rows, r), keys[c]);

            if (text_width(text) > width[c])
                width[c] = text_width(text);
            free(text);
        }
    }
    for (size_t c = 0; c < n; c++)
        printf("%s%-*s", c > 0 ? "  " : "", c + 1 < n ? width[c] : 0, headers[c]);
    putchar('\n');
    for (size_t r = 0; r < json_array_size(rows); r++) {
        for (size_t c = 0; c < n; c++) {
            char *text = cell_text(json_array_get(rows, r), keys[c]);
            int pad = c + 1 < n ? width[c] - text_width(text) : 0;

            printf("%s%s%*s", c > 0 ? "  " : "", text, pad, "");
            free(text);
        }
        putchar('\n');
    }
}

static const struct {
    const char *name;
    int number;
} signals[] = {
    {"HUP", SIGHUP},   {"INT", SIGINT},   {"QUIT", SIGQUIT}, {"ILL", SIGILL},   {"TRAP", SIGTRAP},
    {"ABRT", SIGABRT}, {"BUS", SIGBUS},   {"FPE", SIGFPE},   {"KILL", SIGKILL}, {"USR1", SIGUSR1},
    {"SEGV", SIGSEGV}, {"USR2", SIGUSR2}, {"PIPE", SIGPIPE}, {"ALRM", SIGALRM}, {"TERM", SIGTERM},
    {"XCPU", SIGXCPU}, {"XFSZ", SIGXFSZ}, {"SYS", SIGSYS},
};

int cli_signal_number(const json_t *value)
{
    const char *name = json_string_value(value);

    if (json_is_integer(value))
        return (int)json_integer_value(value);
    if (name == NULL)
        return 0;
    if (strncmp(name, "SIG", 3) == 0)
        name += 3;
    for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++) {
        if (strcmp(signals[i].name, name) == 0)
            return signals[i].number;
    }
    return 0;
}

const char *cli_signal_name(int number)
{
    for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++) {
        if (signals[i].number == number)
            return signals[i].name;
    }
    return NULL;
}

int cli_exit_status(const json_t *object, int fallback)
{
    const json_t *code = json_object_get(object, "exit_code");
    const json_t *signal_value = json_object_get(object, "signal");
    int number = cli_signal_number(signal_value);

    if (json_is_integer(code))
        return (int)(json_integer_value(code) & 0xff);
    if (number > 0 && number < 128)
        return 128 + number;
    return json_is_string(signal_value) ? 255 : fallback;
}

int cli_write_all(int fd, const void *data, size_t len)
{
    const char *p = data;

    while (len > 0) {
        ssize_t n = write(fd, p, len);

        if (n < 0 && errno == EAGAIN) { /* somebody shares the terminal and set O_NONBLOCK */
            struct pollfd pfd = {.fd = fd, .events = POLLOUT};

            if (poll(&pfd, 1, -1) < 0 && errno != EINTR)
                return -errno;
            continue;
        }
        if (n < 0 && errno != EINTR)
            return -errno;
        if (n > 0) {
            p += n;
            len -= (size_t)n;
        }
    }
    return 0;
}
