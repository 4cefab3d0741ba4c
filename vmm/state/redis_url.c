/* SPDX-License-Identifier: MIT */
#include "vmm/state/redis_url.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>
#include "transom/hex.h"

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

static int parse_unix(const char *path, struct redis_url *u, struct err *err)
{
    const char *query = strstr(path, "?db=");
    size_t len = query != NULL ? (size_t)(query - path) : strlen(path);
    long db = 0;

    if (path[0] != '/')
        return tr_err_set(err, -EINVAL, "redis.url: unix: needs an absolute path");
    if (len >= sizeof(((struct sockaddr_un *)0)->sun_path))
        return tr_err_set(err, -EINVAL, "redis.url: the path of the socket is too long");
    if (query != NULL && !number(query + 4, strlen(query + 4), DB_MAX, &db))
        return tr_err_set(err, -EINVAL, "redis.url: db is not a number up to %d", DB_MAX);
    u->is_unix = true;
    memcpy(u->host, path, len);
    u->host[len] = '\0';
    u->db = (int)db;
    snprintf(u->shown, sizeof(u->shown), "unix:%s", u->host);
    return 0;
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
    const char *at = strrchr(s, '@'), *slash;
    long db = 0;
    int r;

    if (at != NULL) {
        r = parse_userinfo(s, (size_t)(at - s), u, err);
        if (r != 0)
            return r;
        s = at + 1;
    }
    slash = strchr(s, '/');
    r = parse_host(s, slash != NULL ? (size_t)(slash - s) : strlen(s), u, err);
    if (r != 0)
        return r;
    if (slash != NULL && slash[1] != '\0' && !number(slash + 1, strlen(slash + 1), DB_MAX, &db))
        return tr_err_set(err, -EINVAL, "redis.url: db is not a number up to %d", DB_MAX);
    u->db = (int)db;
    snprintf(u->shown, sizeof(u->shown), "redis://%s:%u", u->host, u->port);
    return 0;
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
