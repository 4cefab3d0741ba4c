/* SPDX-License-Identifier: MIT */
/* Path: find_end (once per arrival of bytes) -> parse lines -> check what the fields say together.
 * Every line is known to end in CRLF when it is parsed. */
#include "gateway/http1.h"

#include <string.h>
#include <strings.h>
#include <uv.h>

/* Classes of bytes. */
enum { TOKEN = 1, VALUE = 2, TARGET = 4, DIGIT = 8, LOWER_TOKEN = 16 };

static uint8_t class_of[256];

__attribute__((constructor)) static void fill_classes(void)
{
    for (int c = '!'; c < 256; c++)
        if (c != 0x7f)
            class_of[c] |= VALUE | TARGET;
    class_of[' '] |= VALUE;
    class_of['\t'] |= VALUE;
    /* Not in any URI, and a fragment is never sent (RFC 9112 section 3.2); '|', '^' and the like
     * are no URI characters either, but browsers send them as they are. */
    class_of['#'] &= (uint8_t)~TARGET;
    class_of['<'] &= (uint8_t)~TARGET;
    class_of['>'] &= (uint8_t)~TARGET;
    for (const char *p = "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyz"
                         "ABCDEFGHIJKLMNOPQRSTUVWXYZ";
         *p != '\0'; p++)
        class_of[(unsigned char)*p] |= *p >= 'A' && *p <= 'Z' ? TOKEN : TOKEN | LOWER_TOKEN;
    for (int c = '0'; c <= '9'; c++)
        class_of[c] |= DIGIT;
}

static inline bool is(char c, uint8_t class)
{
    return (class_of[(unsigned char)c] & class) != 0;
}

static bool all_are(const char *p, size_t len, uint8_t class)
{
    uint8_t common = class;

    for (size_t i = 0; i < len; i++)
        common &= class_of[(unsigned char)p[i]];
    return common != 0;
}

bool gw_http1_is_token(const char *p, size_t len)
{
    return len > 0 && all_are(p, len, TOKEN);
}

bool gw_http1_is_lower_token(const char *p, size_t len)
{
    return len > 0 && all_are(p, len, LOWER_TOKEN);
}

bool gw_http1_is_target(const char *p, size_t len)
{
    return len > 0 && all_are(p, len, TARGET);
}

bool gw_http1_is_value(const char *p, size_t len)
{
    return len == 0 || (all_are(p, len, VALUE) && p[0] != ' ' && p[0] != '\t' &&
                        p[len - 1] != ' ' && p[len - 1] != '\t');
}

bool gw_str_ieq(struct gw_str a, const char *b, size_t b_len)
{
    return a.len == b_len && strncasecmp(a.p, b, b_len) == 0;
}

long gw_http1_find_end(struct gw_http1_scan *scan, const char *buf, size_t len)
{
    while (scan->at < len) {
        const char *lf = memchr(buf + scan->at, '\n', len - scan->at);
        size_t end;

        if (lf == NULL) {
            scan->at = len;
            return 0;
        }
        end = (size_t)(lf - buf);
        if (end == scan->line || buf[end - 1] != '\r')
            return UV_EPROTO;
        scan->at = end + 1;
        if (end == scan->line + 1)
            return (long)(end + 1);
        scan->line = end + 1;
    }
    return 0;
}

struct known {
    const char *name;
    uint8_t id;
};

/* By length of the name; each row ends with a NULL. */
static const struct known known_2[] = {{"te", GW_FIELD_TE}, {NULL, 0}};
static const struct known known_4[] = {{"host", GW_FIELD_HOST}, {NULL, 0}};
static const struct known known_6[] = {{"accept", GW_FIELD_ACCEPT},
                                       {"cookie", GW_FIELD_COOKIE},
                                       {"expect", GW_FIELD_EXPECT},
                                       {NULL, 0}};
static const struct known known_7[] = {{"upgrade", GW_FIELD_UPGRADE}, {NULL, 0}};
static const struct known known_8[] = {{"location", GW_FIELD_LOCATION}, {NULL, 0}};
static const struct known known_9[] = {
    {"forwarded", GW_FIELD_FORWARDED}, {"x-real-ip", GW_FIELD_X_REAL_IP}, {NULL, 0}};
static const struct known known_10[] = {{"connection", GW_FIELD_CONNECTION},
                                        {"keep-alive", GW_FIELD_KEEP_ALIVE},
                                        {"set-cookie", GW_FIELD_SET_COOKIE},
                                        {NULL, 0}};
static const struct known known_12[] = {{"x-request-id", GW_FIELD_X_REQUEST_ID}, {NULL, 0}};
static const struct known known_13[] = {{"transom-token", GW_FIELD_TRANSOM_TOKEN}, {NULL, 0}};
static const struct known known_14[] = {{"content-length", GW_FIELD_CONTENT_LENGTH},
                                        {"http2-settings", GW_FIELD_HTTP2_SETTINGS},
                                        {"sec-fetch-mode", GW_FIELD_SEC_FETCH_MODE},
                                        {NULL, 0}};
static const struct known known_15[] = {{"x-forwarded-for", GW_FIELD_X_FORWARDED_FOR}, {NULL, 0}};
static const struct known known_16[] = {{"proxy-connection", GW_FIELD_PROXY_CONNECTION},
                                        {"x-forwarded-host", GW_FIELD_X_FORWARDED_HOST},
                                        {NULL, 0}};
static const struct known known_17[] = {{"transfer-encoding", GW_FIELD_TRANSFER_ENCODING},
                                        {"x-forwarded-proto", GW_FIELD_X_FORWARDED_PROTO},
                                        {"sec-websocket-key", GW_FIELD_SEC_WEBSOCKET_KEY},
                                        {NULL, 0}};
static const struct known known_21[] = {{"sec-websocket-version", GW_FIELD_SEC_WEBSOCKET_VERSION},
                                        {NULL, 0}};
static const struct known *const known_by_len[22] = {
    [2] = known_2,   [4] = known_4,   [6] = known_6,   [7] = known_7,   [8] = known_8,
    [9] = known_9,   [10] = known_10, [12] = known_12, [13] = known_13, [14] = known_14,
    [15] = known_15, [16] = known_16, [17] = known_17, [21] = known_21,
};

/* '_' counts as '-': many applications cannot tell X_Forwarded_For from X-Forwarded-For. Only the
 * names of what the edge vouches for are compared so. */
static bool same_name(const char *name, const char *known, size_t len, bool underscores)
{
    for (size_t i = 0; i < len; i++) {
        char c = name[i];

        if (c >= 'A' && c <= 'Z')
            c = (char)(c + ('a' - 'A'));
        if (c == '_' && underscores)
            c = '-';
        if (c != known[i])
            return false;
    }
    return true;
}

uint8_t gw_http1_classify(const char *name, size_t len)
{
    const struct known *k = len < 22 ? known_by_len[len] : NULL;

    for (; k != NULL && k->name != NULL; k++)
        if (same_name(name, k->name, len, k->name[0] == 'x'))
            return k->id;
    if (len > 12 && (name[0] == 'x' || name[0] == 'X') && same_name(name, "x-forwarded-", 12, true))
        return GW_FIELD_X_FORWARDED;
    return GW_FIELD_OTHER;
}

/* Parse one field line p..end (without CRLF). */
static const char *parse_field(const char *p, const char *end, struct gw_field *out)
{
    const char *name = p, *value;

    while (p < end && is(*p, TOKEN))
        p++;
    if (p == name)
        return *name == ' ' || *name == '\t' ? "folded header line" : "malformed header name";
    if (p == end || *p != ':')
        return "malformed header name";
    out->name = name;
    out->name_len = (uint32_t)(p - name);
    p++;
    while (p < end && (*p == ' ' || *p == '\t'))
        p++;
    value = p;
    while (p < end && is(*p, VALUE))
        p++;
    if (p != end)
        return "control character in a header value";
    while (end > value && (end[-1] == ' ' || end[-1] == '\t'))
        end--;
    out->value = value;
    out->value_len = (uint32_t)(end - value);
    out->id = gw_http1_classify(name, out->name_len);
    out->hop_by_hop = false;
    return NULL;
}

/* Parse field lines from p to the empty line that ends at end. Returns NULL or what is wrong. */
static const char *parse_fields(const char *p, const char *end, size_t max, struct gw_field *fields,
                                size_t *n_out, bool *too_many)
{
    size_t n = 0;

    *too_many = false;
    while (end - p > 2) {
        const char *lf = memchr(p, '\n', (size_t)(end - p));
        const char *why;

        if (n == max) {
            *too_many = true;
            return "too many header fields";
        }
        why = parse_field(p, lf - 1, &fields[n]);
        if (why != NULL)
            return why;
        n++;
        p = lf + 1;
    }
    *n_out = n;
    return NULL;
}

/* Next element of a comma-separated list; false at its end. Empty elements are skipped. */
static bool next_element(const char **p, const char *end, struct gw_str *out)
{
    const char *q = *p, *stop;

    while (q < end && (*q == ',' || *q == ' ' || *q == '\t'))
        q++;
    if (q == end)
        return false;
    stop = memchr(q, ',', (size_t)(end - q));
    if (stop == NULL)
        stop = end;
    *p = stop;
    while (stop > q && (stop[-1] == ' ' || stop[-1] == '\t'))
        stop--;
    out->p = q;
    out->len = (size_t)(stop - q);
    return true;
}

/* What all fields of a head say together. */
struct summary {
    bool close, keep_alive, connection_upgrade, upgrade_websocket;
    bool te_chunked, te_other, te_bad;
    bool has_length, length_bad, length_repeated;
    uint64_t length;
    bool te_trailers, expect_continue, has_key, version_13, has_rewritable;
    size_t n_host;
    struct gw_str host;
};

/* Connection's options: what concerns us, and which other fields end here. */
static void read_connection(const struct gw_field *f, struct gw_field *fields, size_t n,
                            struct summary *s)
{
    const char *p = f->value, *end = f->value + f->value_len;
    struct gw_str option;

    while (next_element(&p, end, &option)) {
        if (gw_str_ieq(option, "close", 5))
            s->close = true;
        else if (gw_str_ieq(option, "keep-alive", 10))
            s->keep_alive = true;
        else if (gw_str_ieq(option, "upgrade", 7))
            s->connection_upgrade = true;
        else
            for (size_t i = 0; i < n; i++)
                if (fields[i].name_len == option.len && fields[i].id != GW_FIELD_HOST &&
                    fields[i].id != GW_FIELD_CONTENT_LENGTH &&
                    strncasecmp(fields[i].name, option.p, option.len) == 0)
                    fields[i].hop_by_hop = true;
    }
}

/* Transfer-Encoding: "chunked" alone is understood; a list is unknown codings when chunked comes
 * last, and unreadable when it does not. */
static void read_transfer_encoding(const struct gw_field *f, struct summary *s)
{
    const char *p = f->value, *end = f->value + f->value_len;
    struct gw_str coding;
    size_t n = 0;

    while (next_element(&p, end, &coding)) {
        n++;
        if (s->te_chunked)
            s->te_bad = true; /* something after chunked */
        if (gw_str_ieq(coding, "chunked", 7))
            s->te_chunked = true;
        else
            s->te_other = true;
    }
    if (n == 0)
        s->te_bad = true;
}

static void read_content_length(const struct gw_field *f, struct summary *s)
{
    uint64_t n = 0;

    if (f->value_len == 0 || f->value_len > 18)
        s->length_bad = true;
    for (uint32_t i = 0; i < f->value_len; i++) {
        if (!is(f->value[i], DIGIT))
            s->length_bad = true;
        n = n * 10 + (uint64_t)(f->value[i] - '0');
    }
    if (s->has_length) {
        s->length_repeated = true;
        if (n != s->length)
            s->length_bad = true;
    }
    s->has_length = true;
    s->length = n;
}

static void read_lists(const struct gw_field *f, struct summary *s)
{
    const char *p = f->value, *end = f->value + f->value_len;
    struct gw_str item;

    while (next_element(&p, end, &item)) {
        if (f->id == GW_FIELD_UPGRADE && gw_str_ieq(item, "websocket", 9))
            s->upgrade_websocket = true;
        if (f->id == GW_FIELD_TE && gw_str_ieq(item, "trailers", 8))
            s->te_trailers = true;
    }
}

static void summarize(struct gw_field *fields, size_t n, struct summary *s)
{
    memset(s, 0, sizeof(*s));
    for (size_t i = 0; i < n; i++) {
        const struct gw_field *f = &fields[i];
        struct gw_str value = {f->value, f->value_len};

        switch (f->id) {
        case GW_FIELD_CONNECTION:
            read_connection(f, fields, n, s);
            break;
        case GW_FIELD_TRANSFER_ENCODING:
            read_transfer_encoding(f, s);
            break;
        case GW_FIELD_CONTENT_LENGTH:
            read_content_length(f, s);
            break;
        case GW_FIELD_UPGRADE:
        case GW_FIELD_TE:
            read_lists(f, s);
            break;
        case GW_FIELD_HOST:
            s->n_host++;
            s->host = value;
            break;
        case GW_FIELD_EXPECT:
            s->expect_continue = gw_str_ieq(value, "100-continue", 12);
            break;
        case GW_FIELD_LOCATION:
        case GW_FIELD_SET_COOKIE:
            s->has_rewritable = true;
            break;
        case GW_FIELD_SEC_WEBSOCKET_KEY:
            s->has_key = f->value_len > 0;
            break;
        case GW_FIELD_SEC_WEBSOCKET_VERSION:
            s->version_13 = gw_str_ieq(value, "13", 2);
            break;
        default:
            break;
        }
    }
}

static enum gw_method method_of(struct gw_str m)
{
    if (m.len == 3 && memcmp(m.p, "GET", 3) == 0)
        return GW_METHOD_GET;
    if (m.len == 4 && memcmp(m.p, "HEAD", 4) == 0)
        return GW_METHOD_HEAD;
    if (m.len == 7 && memcmp(m.p, "OPTIONS", 7) == 0)
        return GW_METHOD_OPTIONS;
    if (m.len == 5 && memcmp(m.p, "TRACE", 5) == 0)
        return GW_METHOD_TRACE;
    return GW_METHOD_OTHER;
}

/* absolute-form: its authority must be the Host, and what goes on is origin-form. */
static const char *reduce_target(struct gw_request *r)
{
    const char *p = r->target.p, *end = p + r->target.len, *path;
    size_t scheme;

    if (*p == '/')
        return NULL;
    if (r->target.len == 1 && *p == '*')
        return r->method_id == GW_METHOD_OPTIONS ? NULL : "target * without OPTIONS";
    if (r->target.len > 7 && strncasecmp(p, "http://", 7) == 0)
        scheme = 7;
    else if (r->target.len > 8 && strncasecmp(p, "https://", 8) == 0)
        scheme = 8;
    else
        return "request target is neither a path nor a URL";
    p += scheme;
    for (path = p; path < end && *path != '/' && *path != '?'; path++)
        ;
    if (path == p || !gw_str_ieq((struct gw_str){p, (size_t)(path - p)}, r->host.p, r->host.len))
        return "the target's authority is not the Host";
    if (path == end) {
        r->target = r->method_id == GW_METHOD_OPTIONS ? GW_STR("*") : GW_STR("/");
        return NULL;
    }
    if (*path == '?')
        return "request target without a path";
    r->target.p = path;
    r->target.len = (size_t)(end - path);
    return NULL;
}

/* "METHOD SP target SP HTTP/1.x". Returns 0 or a status. */
static int parse_request_line(const char *p, const char *end, struct gw_request *out,
                              const char **why)
{
    const char *q = p;

    while (q < end && is(*q, TOKEN))
        q++;
    *why = "malformed request line";
    if (q == p || q == end || *q != ' ')
        return 400;
    out->method = (struct gw_str){p, (size_t)(q - p)};
    out->method_id = method_of(out->method);
    p = ++q;
    while (q < end && is(*q, TARGET))
        q++;
    if (q == p || end - q != 9 || memcmp(q, " HTTP/", 6) != 0 || !is(q[6], DIGIT) || q[7] != '.' ||
        !is(q[8], DIGIT))
        return 400;
    out->target = (struct gw_str){p, (size_t)(q - p)};
    if (q[6] != '1' || q[8] > '1') {
        *why = "this HTTP version is not supported";
        return q[6] == '1' ? 400 : 505;
    }
    out->minor = (uint8_t)(q[8] - '0');
    return 0;
}

/* How the request's body is delimited (RFC 9112 section 6). */
static int request_framing(const struct summary *s, struct gw_request *out, const char **why)
{
    if (s->te_chunked || s->te_other || s->te_bad) {
        *why = "malformed Transfer-Encoding";
        if (s->te_bad || !s->te_chunked || out->minor == 0)
            return 400;
        if (s->has_length) {
            *why = "both Transfer-Encoding and Content-Length";
            return 400;
        }
        if (s->te_other) {
            *why = "transfer coding not supported";
            return 501;
        }
        out->framing = GW_BODY_CHUNKED;
        return 0;
    }
    if (s->has_length) {
        *why = "malformed Content-Length";
        if (s->length_bad || s->length_repeated)
            return 400;
        out->length = s->length;
        out->framing = s->length > 0 ? GW_BODY_LENGTH : GW_BODY_NONE;
    }
    return 0;
}

int gw_http1_parse_request(const char *buf, size_t len, const struct gw_http1_limits *limits,
                           struct gw_field *fields, struct gw_request *out, const char **why)
{
    const char *lf = memchr(buf, '\n', len);
    struct summary s;
    bool too_many;
    int r;

    memset(out, 0, sizeof(*out));
    r = parse_request_line(buf, lf - 1, out, why);
    if (r != 0)
        return r;
    *why = parse_fields(lf + 1, buf + len, limits->n_fields, fields, &out->n_fields, &too_many);
    if (*why != NULL)
        return too_many ? 431 : 400;
    out->fields = fields;
    summarize(fields, out->n_fields, &s);
    *why = "exactly one Host is needed";
    if (s.n_host > 1 || (s.n_host == 0 && out->minor > 0))
        return 400;
    out->host = s.host;
    if (out->method.len == 7 && memcmp(out->method.p, "CONNECT", 7) == 0) {
        *why = "CONNECT is not supported";
        return 400;
    }
    r = request_framing(&s, out, why);
    if (r != 0)
        return r;
    *why = reduce_target(out);
    if (*why != NULL)
        return 400;
    out->keep_alive = out->minor > 0 ? !s.close : s.keep_alive && !s.close;
    out->has_connection_keep_alive = s.keep_alive;
    out->expect_continue = s.expect_continue && out->minor > 0;
    out->te_trailers = s.te_trailers;
    out->upgrade = out->method_id == GW_METHOD_GET && out->minor > 0 && s.connection_upgrade &&
                   !s.close && s.upgrade_websocket && s.has_key && s.version_13 &&
                   out->framing == GW_BODY_NONE;
    return 0;
}

/* "HTTP/1.x SP 3DIGIT [SP reason]". */
static const char *parse_status_line(const char *p, const char *end, struct gw_response *out)
{
    if (end - p < 12 || memcmp(p, "HTTP/1.", 7) != 0 || !is(p[7], DIGIT) || p[8] != ' ' ||
        !is(p[9], DIGIT) || !is(p[10], DIGIT) || !is(p[11], DIGIT))
        return "malformed status line";
    out->minor = p[7] == '0' ? 0 : 1;
    out->status = (p[9] - '0') * 100 + (p[10] - '0') * 10 + (p[11] - '0');
    if (out->status < 100 || out->status > 599)
        return "status out of range";
    p += 12;
    if (p < end && *p != ' ')
        return "malformed status line";
    if (p < end)
        p++;
    out->reason = (struct gw_str){p, (size_t)(end - p)};
    for (; p < end; p++)
        if (!is(*p, VALUE))
            return "control character in the reason phrase";
    return NULL;
}

/* How the response's body is delimited (RFC 9112 section 6.3). */
static const char *response_framing(const struct summary *s, enum gw_method method,
                                    struct gw_response *out)
{
    bool te = s->te_chunked || s->te_other || s->te_bad;

    if (s->has_length && s->length_bad)
        return "malformed Content-Length";
    out->has_length = s->has_length;
    out->length = s->length;
    if (out->status < 200 || out->status == 204) {
        out->has_length = false; /* RFC 9110 section 8.6: must not be there, says nothing */
        out->framing = GW_BODY_NONE;
        if (te || (s->has_length && s->length > 0))
            out->keep_alive = false; /* whatever follows is not the next response */
        return NULL;
    }
    if (te && s->has_length)
        return "both Transfer-Encoding and Content-Length";
    if (te && (s->te_bad || s->te_other || !s->te_chunked || out->minor == 0))
        return "transfer coding not supported";
    if (method == GW_METHOD_HEAD || out->status == 304)
        out->framing = GW_BODY_NONE;
    else if (te)
        out->framing = GW_BODY_CHUNKED;
    else if (s->has_length)
        out->framing = s->length > 0 ? GW_BODY_LENGTH : GW_BODY_NONE;
    else
        out->framing = GW_BODY_CLOSE;
    return NULL;
}

int gw_http1_parse_response(const char *buf, size_t len, const struct gw_http1_limits *limits,
                            enum gw_method method, struct gw_field *fields, struct gw_response *out,
                            const char **why)
{
    const char *lf = memchr(buf, '\n', len);
    struct summary s;
    bool too_many;

    memset(out, 0, sizeof(*out));
    *why = parse_status_line(buf, lf - 1, out);
    if (*why == NULL)
        *why = parse_fields(lf + 1, buf + len, limits->n_fields, fields, &out->n_fields, &too_many);
    if (*why != NULL)
        return UV_EPROTO;
    out->fields = fields;
    summarize(fields, out->n_fields, &s);
    out->keep_alive = !s.close && (out->minor > 0 || s.keep_alive);
    out->upgrade_websocket = s.connection_upgrade && s.upgrade_websocket;
    out->has_rewritable = s.has_rewritable;
    *why = response_framing(&s, method, out);
    if (*why != NULL)
        return UV_EPROTO;
    if (out->framing == GW_BODY_CLOSE)
        out->keep_alive = false;
    return 0;
}

int gw_http1_parse_trailers(const char *buf, size_t len, const struct gw_http1_limits *limits,
                            struct gw_field *fields, size_t *n_fields)
{
    bool too_many;
    size_t n = 0;

    if (parse_fields(buf, buf + len, limits->n_fields, fields, n_fields, &too_many) != NULL)
        return UV_EPROTO;
    for (size_t i = 0; i < *n_fields; i++)
        if (fields[i].id == GW_FIELD_OTHER || fields[i].id == GW_FIELD_ACCEPT)
            fields[n++] = fields[i];
    *n_fields = n;
    return 0;
}
