/* SPDX-License-Identifier: MIT */
#include "vmm/state/redis_url.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>
#include "transom/hex.h"
#include "transom/state.h"

#define DEFAULT_PORT 6379
#define DB_MAX       65535

/* Percent-decode s[0..len) into out; false when it does not fit, is malformed or holds a NUL. */
static bool decode(const char *s, size_t len, char *out, size_t cap)
{
    size_t n = 0;

    for (size_t i = 0; i < len; i++) {
        char c = s[i];

        if (c == '%') {
            int high = i + 2 < len ? tr_hex_digit(s[i + 1]) : -1;
            int low = i + 2 < len ? tr_hex_digit(s[i + 2]) : -1;

            if (high < 0 || low < 0 || (high == 0 && low == 0))
                return false;
            c = (char)(high * 16 + low);
            i += 2;
        }
        if (n + 1 >= cap)
            return false;
        out[n++] = c;
    }
    out[n] = '\0';
    return true;
}

static bool number(const char *s, size_t len, long max, long *out)
{
    long v = 0;

    if (len == 0 || len > 5)
        return false;
    for (size_t i = 0; i < len; i++) {
        if (s[i] < '0' || s[i] > '9')
            return false;
        v = v * 10 + (s[i] - '0');
    }
    *out = v;
    return v <= max;
}

/* One "name=value" of len bytes. */
static int parse_option(const char *s, size_t len, struct redis_url *u, struct err *err)
{
    const char *equals = memchr(s, '=', len), *value;
    size_t name_len, value_len;
    long db = 0;

    if (equals == NULL)
        return tr_err_set(err, -EINVAL, "redis.url: after ? stands name=value");
    value = equals + 1;
    name_len = (size_t)(equals - s);
    value_len = (size_t)(s + len - value);
    if (name_len == 2 && memcmp(s, "db", 2) == 0) {
        if (!number(value, value_len, DB_MAX, &db))
            return tr_err_set(err, -EINVAL, "redis.url: db is not a number up to %d", DB_MAX);
        u->db = (int)db;
        return 0;
    }
    if (name_len == 4 && memcmp(s, "user", 4) == 0) {
        if (!decode(value, value_len, u->user, sizeof(u->user)))
            return tr_err_set(err, -EINVAL, "redis.url: the user is malformed or too long");
        return 0;
    }
    if (name_len == 13 && memcmp(s, "password_file", 13) == 0) {
        if (!decode(value, value_len, u->password_file, sizeof(u->password_file)) ||
            u->password_file[0] != '/')
            return tr_err_set(err, -EINVAL, "redis.url: password_file needs an absolute path");
        return 0;
    }
    return tr_err_set(err, -EINVAL, "redis.url: after ? stand db, user or password_file");
}

/* What follows the question mark. */
static int parse_options(const char *s, struct redis_url *u, struct err *err)
{
    int r = 0;

    while (r == 0 && *s != '\0') {
        size_t len = strcspn(s, "&");

        r = parse_option(s, len, u, err);
        s += len + (s[len] == '&');
    }
    if (r == 0 && u->has_password && u->password_file[0] != '\0')
        r = tr_err_set(err, -EINVAL, "redis.url: a password or a password_file, not both");
    return r;
}

static int parse_unix(const char *path, struct redis_url *u, struct err *err)
{
    const char *query = strrchr(path, '?');
    size_t len = query != NULL ? (size_t)(query - path) : strlen(path);

    if (path[0] != '/')
        return tr_err_set(err, -EINVAL, "redis.url: unix: needs an absolute path");
    if (len >= sizeof(((struct sockaddr_un *)0)->sun_path))
        return tr_err_set(err, -EINVAL, "redis.url: the path of the socket is too long");
    u->is_unix = true;
    memcpy(u->host, path, len);
    u->host[len] = '\0';
    snprintf(u->shown, sizeof(u->shown), "unix:%s", u->host);
    return query == NULL ? 0 : parse_options(query + 1, u, err);
}

/* [user]:password, of len bytes. */
static int parse_userinfo(const char *s, size_t len, struct redis_url *u, struct err *err)
{
    const char *colon = memchr(s, ':', len);

    if (colon == NULL)
        return tr_err_set(err, -EINVAL, "redis.url: before @ stands [user]:password");
    if (!decode(s, (size_t)(colon - s), u->user, sizeof(u->user)))
        return tr_err_set(err, -EINVAL, "redis.url: the user is malformed or too long");
    if (!decode(colon + 1, len - (size_t)(colon - s) - 1, u->password, sizeof(u->password)))
        return tr_err_set(err, -EINVAL, "redis.url: the password is malformed or too long");
    u->has_password = true;
    return 0;
}

static int parse_host(const char *s, size_t len, struct redis_url *u, struct err *err)
{
    const char *end = s + len, *host = s, *host_end, *port;
    long p = DEFAULT_PORT;

    if (len > 0 && s[0] == '[') {
        host++;
        host_end = memchr(s, ']', len);
        if (host_end == NULL)
            return tr_err_set(err, -EINVAL, "redis.url: ] is missing");
        port = host_end + 1;
    } else {
        host_end = memchr(s, ':', len);
        if (host_end == NULL)
            host_end = end;
        port = host_end;
    }
    if (host_end == host || (size_t)(host_end - host) >= sizeof(u->host))
        return tr_err_set(err, -EINVAL, "redis.url: the host is missing or too long");
    memcpy(u->host, host, (size_t)(host_end - host));
    u->host[host_end - host] = '\0';
    if (port < end && (*port != ':' || !number(port + 1, (size_t)(end - port) - 1, 65535, &p)))
        return tr_err_set(err, -EINVAL, "redis.url: the port is not a number up to 65535");
    if (p == 0)
        return tr_err_set(err, -EINVAL, "redis.url: the port is 0");
    u->port = (uint16_t)p;
    return 0;
}

static int parse_tcp(const char *s, struct redis_url *u, struct err *err)
{
    const char *at = strrchr(s, '@'), *query, *slash;
    size_t len;
    long db = 0;
    int r;

    if (at != NULL) {
        r = parse_userinfo(s, (size_t)(at - s), u, err);
        if (r != 0)
            return r;
        s = at + 1;
    }
    query = strchr(s, '?');
    len = query != NULL ? (size_t)(query - s) : strlen(s);
    slash = memchr(s, '/', len);
    r = parse_host(s, slash != NULL ? (size_t)(slash - s) : len, u, err);
    if (r != 0)
        return r;
    if (slash != NULL && slash + 1 < s + len &&
        !number(slash + 1, (size_t)(s + len - slash) - 1, DB_MAX, &db))
        return tr_err_set(err, -EINVAL, "redis.url: db is not a number up to %d", DB_MAX);
    u->db = (int)db;
    snprintf(u->shown, sizeof(u->shown), "redis://%s:%u", u->host, u->port);
    return query == NULL ? 0 : parse_options(query + 1, u, err);
}

int redis_url_parse(const char *url, struct redis_url *out, struct err *err)
{
    struct redis_url u = {.port = 0};
    int r;

    if (strncmp(url, "unix:", 5) == 0)
        r = parse_unix(url + 5, &u, err);
    else if (strncmp(url, "redis://", 8) == 0)
        r = parse_tcp(url + 8, &u, err);
    else if (strncmp(url, "rediss://", 9) == 0)
        r = tr_err_set(err, -EINVAL, "redis.url: rediss:// (TLS) is not supported");
    else
        r = tr_err_set(err, -EINVAL, "redis.url: must begin with unix: or redis://");
    if (r == 0)
        *out = u;
    return r;
}

/* Percent-encode what has a meaning in our URLs. Returns the end, or NULL when it does not fit. */
static char *encode(const char *s, char *out, const char *end)
{
    for (; *s != '\0'; s++) {
        bool plain = strchr("%?&#@", *s) == NULL && (unsigned char)*s > ' ';

        if (end - out < 4)
            return NULL;
        out += plain ? snprintf(out, 2, "%c", *s)
                     : snprintf(out, 4, "%%%02x", (unsigned)(unsigned char)*s);
    }
    return out;
}

int tr_redis_embedded_url(const char *run_dir, const char *user, char *out, size_t size)
{
    int n =
        snprintf(out, size, "unix:%s/" TR_REDIS_SOCKET "?user=%s&password_file=", run_dir, user);
    char *p;

    if (n < 0 || (size_t)n >= size)
        return UV_ENAMETOOLONG;
    p = encode(run_dir, out + n, out + size);
    if (p == NULL)
        return UV_ENAMETOOLONG;
    n = snprintf(p, (size_t)(out + size - p), "/" TR_REDIS_PASSWORD_FILE, user);
    return n < 0 || n >= out + size - p ? UV_ENAMETOOLONG : 0;
}
