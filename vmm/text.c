/* SPDX-License-Identifier: MIT */
#include "vmm/text.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include "transom/hex.h"

static void fill(char *out, size_t len, const char *alphabet, size_t n)
{
    uint8_t bytes[64];
    size_t limit = 256 - 256 % n; /* values from here on would favour the first letters */

    for (size_t done = 0; done < len;) {
        ssize_t got = getrandom(bytes, sizeof(bytes), 0);

        assert(got > 0 || errno == EINTR);
        for (ssize_t i = 0; i < got && done < len; i++) {
            if (bytes[i] < limit)
                out[done++] = alphabet[bytes[i] % n];
        }
    }
    out[len] = '\0';
    explicit_bzero(bytes, sizeof(bytes));
}

void vmm_random_id(char *out, size_t len)
{
    fill(out, len, "abcdefghijklmnopqrstuvwxyz0123456789", 36);
}

void vmm_random_hex(char *out, size_t len)
{
    fill(out, len, "0123456789abcdef", 16);
}

void vmm_hex(const uint8_t *data, size_t len, char *out)
{
    for (size_t i = 0; i < len; i++) {
        out[2 * i] = "0123456789abcdef"[data[i] >> 4];
        out[2 * i + 1] = "0123456789abcdef"[data[i] & 15];
    }
    out[2 * len] = '\0';
}

int64_t vmm_wall_ms(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_REALTIME, &ts);
    return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

void vmm_time_text(int64_t wall_ms, char out[VMM_TIME_SIZE])
{
    time_t s = (time_t)(wall_ms / 1000);
    struct tm tm;
    size_t n;

    out[0] = '\0';
    if (wall_ms <= 0 || gmtime_r(&s, &tm) == NULL)
        return;
    n = strftime(out, VMM_TIME_SIZE, "%Y-%m-%dT%H:%M:%S", &tm);
    snprintf(out + n, VMM_TIME_SIZE - n, ".%03dZ", (int)(wall_ms % 1000));
}

/* Length of the sequence that starts at s, or 0: overlong forms, surrogates and more than U+10FFFF
 * are refused. */
static size_t utf8_sequence(const unsigned char *s, size_t len)
{
    if (s[0] < 0x80)
        return 1;
    if (s[0] >= 0xc2 && s[0] < 0xe0 && len >= 2 && (s[1] & 0xc0) == 0x80)
        return 2;
    if ((s[0] & 0xf0) == 0xe0 && len >= 3 && (s[1] & 0xc0) == 0x80 && (s[2] & 0xc0) == 0x80 &&
        !(s[0] == 0xe0 && s[1] < 0xa0) && !(s[0] == 0xed && s[1] >= 0xa0))
        return 3;
    if (s[0] >= 0xf0 && s[0] <= 0xf4 && len >= 4 && (s[1] & 0xc0) == 0x80 &&
        (s[2] & 0xc0) == 0x80 && (s[3] & 0xc0) == 0x80 && !(s[0] == 0xf0 && s[1] < 0x90) &&
        !(s[0] == 0xf4 && s[1] >= 0x90))
        return 4;
    return 0;
}

bool vmm_utf8_valid(const char *s, size_t len)
{
    while (len > 0) {
        size_t n = utf8_sequence((const unsigned char *)s, len);

        if (n == 0)
            return false;
        s += n;
        len -= n;
    }
    return true;
}

bool vmm_name_valid(const char *s, size_t max)
{
    size_t len = strlen(s);

    if (len == 0 || len > max || !vmm_utf8_valid(s, len))
        return false;
    for (size_t i = 0; i < len; i++) {
        if ((unsigned char)s[i] < 0x20 || s[i] == 0x7f)
            return false;
    }
    return true;
}

bool vmm_word_valid(const char *s, size_t max, const char *extra)
{
    size_t len = strlen(s);

    if (len == 0 || len > max || strcmp(s, ".") == 0 || strcmp(s, "..") == 0)
        return false;
    for (; *s; s++) {
        if (!((*s >= 'a' && *s <= 'z') || (*s >= 'A' && *s <= 'Z') || (*s >= '0' && *s <= '9') ||
              strchr("._-", *s) != NULL || strchr(extra, *s) != NULL))
            return false;
    }
    return true;
}

char *vmm_percent_decode(const char *s, size_t len)
{
    char *out = malloc(len + 1);
    size_t n = 0;

    if (out == NULL)
        return NULL;
    for (size_t i = 0; i < len; i++) {
        int hi, lo;

        if (s[i] != '%') {
            out[n++] = s[i];
            continue;
        }
        hi = i + 2 < len ? tr_hex_digit(s[i + 1]) : -1;
        lo = i + 2 < len ? tr_hex_digit(s[i + 2]) : -1;
        if (hi < 0 || lo < 0 || (hi == 0 && lo == 0)) {
            free(out);
            return NULL;
        }
        out[n++] = (char)(hi * 16 + lo);
        i += 2;
    }
    out[n] = '\0';
    return out;
}

char *vmm_query_get(const char *query, const char *name)
{
    size_t name_len = strlen(name);

    while (query != NULL && *query) {
        size_t len = strcspn(query, "&");

        if (len >= name_len && strncmp(query, name, name_len) == 0) {
            if (len == name_len)
                return strdup("");
            if (query[name_len] == '=')
                return vmm_percent_decode(query + name_len + 1, len - name_len - 1);
        }
        query += len;
        if (*query == '&')
            query++;
    }
    return NULL;
}
