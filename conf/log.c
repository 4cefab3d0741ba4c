/* SPDX-License-Identifier: MIT */
/* A line is built whole in one buffer, masked, then written with one write(2), so that lines of
 * several threads or processes on one descriptor do not mix. */
#include "transom/log.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define LINE_MAX_BYTES   4096
#define SECRET_MIN_BYTES 8

struct secret {
    struct secret *next;
    size_t len;
    char value[];
};

static const char *const level_names[] = {"error", "warn", "info", "debug"};
static const char *component_name = "transom";
static atomic_int current_level = TR_LOG_INFO;
static pthread_mutex_t secrets_lock = PTHREAD_MUTEX_INITIALIZER;
static struct secret *secrets;

void tr_log_init(const char *component, enum tr_log_level level)
{
    component_name = component;
    atomic_store(&current_level, (int)level);
}

int tr_log_parse_level(const char *name, enum tr_log_level *level)
{
    for (size_t i = 0; i < sizeof(level_names) / sizeof(level_names[0]); i++) {
        if (strcmp(name, level_names[i]) == 0) {
            *level = (enum tr_log_level)i;
            return 0;
        }
    }
    return -EINVAL;
}

void tr_log_set_level(enum tr_log_level level)
{
    atomic_store(&current_level, (int)level);
}

enum tr_log_level tr_log_get_level(void)
{
    return (enum tr_log_level)atomic_load(&current_level);
}

int tr_log_secret_add(const char *value, size_t len)
{
    struct secret *s;

    if (len < SECRET_MIN_BYTES)
        return 0;
    s = malloc(sizeof(*s) + len);
    if (s == NULL)
        return -ENOMEM;
    s->len = len;
    memcpy(s->value, value, len);
    pthread_mutex_lock(&secrets_lock);
    s->next = secrets;
    secrets = s;
    pthread_mutex_unlock(&secrets_lock);
    return 0;
}

void tr_log_secret_remove(const char *value, size_t len)
{
    pthread_mutex_lock(&secrets_lock);
    for (struct secret **p = &secrets; *p != NULL; p = &(*p)->next) {
        struct secret *s = *p;

        if (s->len == len && memcmp(s->value, value, len) == 0) {
            *p = s->next;
            explicit_bzero(s->value, s->len);
            free(s);
            break;
        }
    }
    pthread_mutex_unlock(&secrets_lock);
}

/* Does text end within the secret? Returns how many of its bytes stand there. */
static size_t begun(const char *text, size_t len, const struct secret *s)
{
    size_t n = s->len - 1 < len ? s->len - 1 : len;

    while (n > 0 && memcmp(text + len - n, s->value, n) != 0)
        n--;
    return n;
}

/* Replace each registered value in text[0..len) by "***", which is never longer. cut: the text goes
 * on, so what it ends with may be the first part of a value, and is dropped. */
static size_t mask(char *text, size_t len, bool cut)
{
    pthread_mutex_lock(&secrets_lock);
    for (const struct secret *s = secrets; s != NULL; s = s->next) {
        char *p = text;

        while ((p = memmem(p, len - (size_t)(p - text), s->value, s->len)) != NULL) {
            size_t tail = len - (size_t)(p - text) - s->len;

            memmove(p + 3, p + s->len, tail);
            memset(p, '*', 3);
            len -= s->len - 3;
            p += 3;
        }
        if (cut)
            len -= begun(text, len, s);
    }
    pthread_mutex_unlock(&secrets_lock);
    return len;
}

void tr_log(enum tr_log_level level, const char *ids, const char *fmt, ...)
{
    char line[LINE_MAX_BYTES];
    int saved = errno;
    struct timespec now;
    struct tm tm;
    size_t len, start;
    va_list ap;
    int n;

    if ((int)level > atomic_load(&current_level))
        return;
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &tm);
    n = snprintf(line, sizeof(line), "%04d-%02d-%02dT%02d:%02d:%02d.%03ldZ %s %s: %s%s",
                 tm.tm_year + 1900, tm.tm_mon + 1, tm.tm_mday, tm.tm_hour, tm.tm_min, tm.tm_sec,
                 now.tv_nsec / 1000000, level_names[level], component_name, ids, *ids ? ": " : "");
    len = n < 0 ? 0 : (size_t)n < sizeof(line) ? (size_t)n : sizeof(line) - 1;
    start = len;
    va_start(ap, fmt);
    n = vsnprintf(line + len, sizeof(line) - len, fmt, ap);
    va_end(ap);
    if (n > 0)
        len += (size_t)n < sizeof(line) - len ? (size_t)n : sizeof(line) - len - 1;
    len = mask(line, len, len == sizeof(line) - 1);
    for (size_t i = start; i < len; i++) {
        if ((unsigned char)line[i] < 0x20 || line[i] == 0x7f)
            line[i] = '?';
    }
    line[len++] = '\n'; /* there is room: vsnprintf kept one byte for its NUL */
    if (write(STDERR_FILENO, line, len) < 0) {
        /* Nobody to tell. */
    }
    errno = saved;
}
