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
static atomic_bool json_lines;
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

void tr_log_set_json(bool json)
{
    atomic_store(&json_lines, json);
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

/* Bytes of the UTF-8 sequence that text begins with (RFC 3629 section 4), or 0. */
static size_t utf8_len(const unsigned char *p, size_t n)
{
    size_t len = p[0] >= 0xf0 ? 4 : p[0] >= 0xe0 ? 3 : 2;

    if (p[0] < 0xc2 || p[0] > 0xf4 || n < len)
        return 0;
    if ((p[0] == 0xe0 && p[1] < 0xa0) || (p[0] == 0xed && p[1] > 0x9f) ||
        (p[0] == 0xf0 && p[1] < 0x90) || (p[0] == 0xf4 && p[1] > 0x8f))
        return 0;
    for (size_t i = 1; i < len; i++)
        if ((p[i] & 0xc0) != 0x80)
            return 0;
    return len;
}

/* Text as the inside of a JSON string, as much as has room. */
static size_t put_json(char *out, size_t room, const char *text, size_t len)
{
    const unsigned char *p = (const unsigned char *)text;
    size_t n = 0;

    for (size_t i = 0; i < len && room - n > 6;) {
        size_t bytes = p[i] < 0x80 ? 1 : utf8_len(p + i, len - i);

        if (p[i] == '"' || p[i] == '\\') {
            out[n++] = '\\';
            out[n++] = (char)p[i];
        } else if (bytes == 0 || p[i] < 0x20 || p[i] == 0x7f) {
            n += (size_t)snprintf(out + n, room - n, "\\u%04x", bytes == 0 ? 0xfffd : p[i]);
        } else {
            memcpy(out + n, p + i, bytes);
            n += bytes;
        }
        i += bytes > 0 ? bytes : 1;
    }
    return n;
}

/* "vm=3f req=17" as further members; a word without "=" is a member "id". */
static size_t put_ids(char *out, size_t room, const char *ids)
{
    size_t n = 0;

    while (*ids != '\0' && room - n > 64) {
        size_t word = strcspn(ids, " "), name = strcspn(ids, "= ");
        bool pair = name < word;

        n += (size_t)snprintf(out + n, room - n, ",\"");
        n += pair ? put_json(out + n, (room - n) / 2, ids, name) : put_json(out + n, 16, "id", 2);
        n += (size_t)snprintf(out + n, room - n, "\":\"");
        n += put_json(out + n, (room - n) / 2, pair ? ids + name + 1 : ids,
                      pair ? word - name - 1 : word);
        out[n++] = '"';
        ids += word;
        ids += strspn(ids, " ");
    }
    return n;
}

/* The line as one JSON object, its end included. text is masked already. */
static size_t format_json(char *line, size_t size, const char *time, const char *level,
                          const char *ids, const char *text, size_t len)
{
    size_t n =
        (size_t)snprintf(line, size, "{\"time\":\"%s\",\"level\":\"%s\",\"component\":\"%s\"", time,
                         level, component_name);

    n += put_ids(line + n, size / 4, ids);
    n += (size_t)snprintf(line + n, size - n, ",\"message\":\"");
    n += put_json(line + n, size - n - 4, text, len);
    line[n++] = '"';
    line[n++] = '}';
    line[n++] = '\n';
    return n;
}

static size_t format_text(char *line, size_t size, const char *time, const char *level,
                          const char *ids, const char *text, size_t len)
{
    size_t n = (size_t)snprintf(line, size, "%s %s %s: %s%s", time, level, component_name, ids,
                                *ids ? ": " : "");

    if (n > size / 2) /* ids as long as that are none */
        n = size / 2;
    if (len > size - n - 1)
        len = size - n - 1;
    for (size_t i = 0; i < len; i++)
        line[n++] = (unsigned char)text[i] < 0x20 || text[i] == 0x7f ? '?' : text[i];
    line[n++] = '\n';
    return n;
}

void tr_log(enum tr_log_level level, const char *ids, const char *fmt, ...)
{
    char line[LINE_MAX_BYTES], text[LINE_MAX_BYTES], names[512], stamp[48];
    int saved = errno;
    struct timespec now;
    struct tm tm;
    size_t len;
    va_list ap;
    int n;

    if ((int)level > atomic_load(&current_level))
        return;
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &tm);
    snprintf(stamp, sizeof(stamp), "%04d-%02d-%02dT%02d:%02d:%02d.%03ldZ", tm.tm_year + 1900,
             tm.tm_mon + 1, tm.tm_mday, tm.tm_hour, tm.tm_min, tm.tm_sec, now.tv_nsec / 1000000);
    va_start(ap, fmt);
    n = vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    len = n < 0 ? 0 : (size_t)n < sizeof(text) ? (size_t)n : sizeof(text) - 1;
    len = mask(text, len, len == sizeof(text) - 1);
    n = snprintf(names, sizeof(names), "%s", ids);
    names[mask(names, strlen(names), n >= (int)sizeof(names))] = '\0';
    len = (atomic_load(&json_lines) ? format_json : format_text)(
        line, sizeof(line), stamp, level_names[level], names, text, len);
    if (write(STDERR_FILENO, line, len) < 0) {
        /* Nobody to tell. */
    }
    errno = saved;
}
