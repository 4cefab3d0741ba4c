/* SPDX-License-Identifier: MIT */
#include "gateway/rewrite.h"

#include <arpa/inet.h>
#include <string.h>
#include <strings.h>
#include <uv.h>

#include "gateway/exchange.h"
#include "gateway/framing.h"
#include "gateway/http1.h"
#include "gateway/worker.h"

#define MAIN_PORT 8080

static bool is_blank(char c)
{
    return c == ' ' || c == '\t';
}

static struct gw_str trim(const char *p, const char *end)
{
    while (p < end && is_blank(*p))
        p++;
    while (p < end && is_blank(end[-1]))
        end--;
    return (struct gw_str){p, (size_t)(end - p)};
}

/* Is name the domain, or one that the domain lies below? */
static bool is_parent(struct gw_str name, const char *domain)
{
    size_t len = strlen(domain);

    if (name.len > len || strncasecmp(domain + len - name.len, name.p, name.len) != 0)
        return false;
    return name.len == len || domain[len - name.len - 1] == '.';
}

/* Browsers decode and map what is not plain ASCII before they compare, so that a parent could be
 * spelt in other ways. */
static bool is_plain_name(struct gw_str name)
{
    for (size_t i = 0; i < name.len; i++) {
        char c = name.p[i];

        if (!(c >= 'a' && c <= 'z') && !(c >= 'A' && c <= 'Z') && !(c >= '0' && c <= '9') &&
            c != '.' && c != '-' && c != '_')
            return false;
    }
    return true;
}

/* A Domain attribute that must go. p..end stands between two ";". */
static bool is_shared_domain(const char *p, const char *end, const char *domain,
                             const char *preview_domain)
{
    const char *eq = memchr(p, '=', (size_t)(end - p));
    struct gw_str name;

    if (eq == NULL || !gw_str_ieq(trim(p, eq), "domain", 6))
        return false;
    name = trim(eq + 1, end);
    if (name.len > 0 && *name.p == '.') { /* RFC 6265 section 5.2.3 */
        name.p++;
        name.len--;
    }
    if (name.len > 0 && name.p[name.len - 1] == '.')
        name.len--;
    return !is_plain_name(name) || gw_str_ieq(name, "localhost", 9) ||
           (name.len > 0 && (is_parent(name, domain) || is_parent(name, preview_domain)));
}

size_t gw_rewrite_cookie(struct gw_str value, const char *domain, const char *preview_domain,
                         char *out)
{
    const char *p = value.p, *end = value.p + value.len;
    size_t len = 0;

    while (p < end) {
        const char *stop = memchr(p + 1, ';', (size_t)(end - p) - 1);

        if (stop == NULL)
            stop = end;
        if (*p != ';' || !is_shared_domain(p + 1, stop, domain, preview_domain)) {
            memcpy(out + len, p, (size_t)(stop - p));
            len += (size_t)(stop - p);
        }
        p = stop;
    }
    return len < value.len ? len : 0;
}

static bool is_own_name(struct gw_str name, const char *address)
{
    static const char *const names[] = {"localhost", "127.0.0.1", "0.0.0.0", "[::1]", "[::]"};
    size_t len = strlen(address);

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (gw_str_ieq(name, names[i], strlen(names[i])))
            return true;
    if (len > 0 && strchr(address, ':') != NULL)
        return name.len == len + 2 && name.p[0] == '[' && name.p[len + 1] == ']' &&
               strncasecmp(name.p + 1, address, len) == 0;
    return len > 0 && gw_str_ieq(name, address, len);
}

/* The port of p..end, which is ":" digits or nothing; 0: malformed. */
static unsigned port_of(const char *p, const char *end, unsigned def)
{
    unsigned port = 0;

    if (p == end)
        return def;
    if (end - p < 2 || end - p > 6 || *p != ':' || p[1] == '0')
        return 0;
    for (p++; p < end; p++) {
        if (*p < '0' || *p > '9')
            return 0;
        port = port * 10 + (unsigned)(*p - '0');
    }
    return port;
}

size_t gw_rewrite_location(struct gw_str value, const struct gw_rewrite_own *own, char *out)
{
    const char *end = value.p + value.len, *p, *stop, *name_end;
    unsigned port, def = 80;
    size_t scheme, len = 0;

    if (value.len > 7 && strncasecmp(value.p, "http://", 7) == 0) {
        scheme = 5;
    } else if (value.len > 8 && strncasecmp(value.p, "https://", 8) == 0) {
        scheme = 6;
        def = 443;
    } else if (value.len > 2 && memcmp(value.p, "//", 2) == 0) {
        scheme = 0; /* relative to it: it stays so */
    } else {
        return 0;
    }
    p = value.p + scheme + 2;
    for (stop = p; stop < end && *stop != '/' && *stop != '?' && *stop != '#'; stop++)
        ;
    if (*p == '[') {
        name_end = memchr(p, ']', (size_t)(stop - p));
        name_end = name_end != NULL ? name_end + 1 : stop;
    } else {
        name_end = memchr(p, ':', (size_t)(stop - p));
        name_end = name_end != NULL ? name_end : stop;
    }
    port = port_of(name_end, stop, def);
    if (port == 0 || (port != own->port && port != own->port2) || own->host.len == 0 ||
        !is_own_name((struct gw_str){p, (size_t)(name_end - p)}, own->address))
        return 0;
    if (scheme > 0) {
        len = own->tls ? 6 : 5;
        memcpy(out, own->tls ? "https:" : "http:", len);
    }
    out[len++] = '/';
    out[len++] = '/';
    memcpy(out + len, own->host.p, own->host.len);
    len += own->host.len;
    memcpy(out + len, stop, (size_t)(end - stop));
    return len + (size_t)(end - stop);
}

/* The main host of a label stands for its port 8080 and for those that path rules lead to; a host
 * that begins with a port stands for that one alone. */
static void find_own(const struct gw_exchange *x, char *address, struct gw_rewrite_own *own)
{
    const struct gw_route *route = &x->route;

    address[0] = '\0';
    if (route->family != 0)
        (void)inet_ntop(route->family, &route->address, address, INET6_ADDRSTRLEN);
    own->host = x->host;
    own->tls = x->public_tls;
    own->address = address;
    own->port = route->port;
    own->port2 = 0;
    if (x->host.len > TR_LABEL_LEN && x->host.p[TR_LABEL_LEN] == '.' &&
        memchr(x->host.p, '-', TR_LABEL_LEN) == NULL)
        own->port2 = MAIN_PORT;
}

int gw_rewrite_response(const struct gw_exchange *x, struct gw_response *resp, struct gw_buf **text)
{
    const struct gw_options *opt = x->worker->opt;
    struct gw_rewrite_own own;
    char address[INET6_ADDRSTRLEN];
    size_t room = 0;
    char *p;

    *text = NULL;
    if (!resp->has_rewritable && !opt->allow_framing)
        return 0;
    if (opt->allow_framing)
        room += gw_framing_room(resp);
    for (size_t i = 0; i < resp->n_fields; i++)
        if (resp->fields[i].id == GW_FIELD_SET_COOKIE || resp->fields[i].id == GW_FIELD_LOCATION)
            room += resp->fields[i].value_len + x->host.len + GW_REWRITE_SCHEME;
    *text = gw_buf_get(&x->worker->bufs, room);
    if (*text == NULL)
        return UV_ENOMEM;
    find_own(x, address, &own);
    p = (*text)->data;
    if (opt->allow_framing)
        p += gw_framing_apply(resp, p);
    for (size_t i = 0; i < resp->n_fields; i++) {
        struct gw_field *f = &resp->fields[i];
        struct gw_str value = {f->value, f->value_len};
        size_t len = 0;

        if (f->id == GW_FIELD_SET_COOKIE)
            len = gw_rewrite_cookie(value, opt->domain, opt->preview_domain, p);
        else if (f->id == GW_FIELD_LOCATION)
            len = gw_rewrite_location(value, &own, p);
        if (len == 0)
            continue;
        f->value = p;
        f->value_len = (uint32_t)len;
        p += len;
    }
    return 0;
}
