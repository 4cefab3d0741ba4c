/* SPDX-License-Identifier: MIT */
/* HTTP messages between the halves of an exchange, whatever protocol they came in. */
#ifndef GATEWAY_MESSAGE_H
#define GATEWAY_MESSAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Borrowed bytes, not terminated. */
struct gw_str {
    const char *p;
    size_t len;
};
#define GW_STR(literal)                                                                            \
    (struct gw_str)                                                                                \
    {                                                                                              \
        (literal), sizeof(literal) - 1                                                             \
    }

/* Fields that the gateway itself acts upon. */
enum gw_field_id {
    GW_FIELD_OTHER,
    GW_FIELD_ACCEPT,
    GW_FIELD_CONNECTION,
    GW_FIELD_CONTENT_LENGTH,
    GW_FIELD_COOKIE,
    GW_FIELD_EXPECT,
    GW_FIELD_FORWARDED,
    GW_FIELD_HOST,
    GW_FIELD_HTTP2_SETTINGS,
    GW_FIELD_KEEP_ALIVE,
    GW_FIELD_LOCATION,
    GW_FIELD_PROXY_CONNECTION,
    GW_FIELD_SEC_FETCH_MODE,
    GW_FIELD_SEC_WEBSOCKET_KEY,
    GW_FIELD_SEC_WEBSOCKET_VERSION,
    GW_FIELD_SET_COOKIE,
    GW_FIELD_TE,
    GW_FIELD_TRANSFER_ENCODING,
    GW_FIELD_TRANSOM_TOKEN,
    GW_FIELD_UPGRADE,
    GW_FIELD_X_FORWARDED, /* any that begin so, but for the three below */
    GW_FIELD_X_FORWARDED_FOR,
    GW_FIELD_X_FORWARDED_HOST,
    GW_FIELD_X_FORWARDED_PROTO,
    GW_FIELD_X_REAL_IP,
    GW_FIELD_X_REQUEST_ID,
};

struct gw_field {
    const char *name, *value;
    uint32_t name_len, value_len;
    uint8_t id;      /* enum gw_field_id */
    bool hop_by_hop; /* named by Connection: ends here */
};

enum gw_framing {
    GW_BODY_NONE,
    GW_BODY_LENGTH,
    GW_BODY_CHUNKED, /* of unknown length */
    GW_BODY_CLOSE,   /* response only: until the connection ends */
};

enum gw_method {
    GW_METHOD_OTHER,
    GW_METHOD_GET,
    GW_METHOD_HEAD,
    GW_METHOD_OPTIONS,
    GW_METHOD_TRACE,
};

struct gw_request {
    struct gw_str method, target; /* target: origin-form, or "*" */
    struct gw_str host;           /* as sent; empty when there was none (HTTP/1.0) */
    enum gw_method method_id;
    uint8_t minor;                  /* HTTP/1.minor: 0 or 1 */
    bool http2;                     /* came over HTTP/2 (minor is 1) */
    bool keep_alive;                /* the client wants to go on afterwards */
    bool has_connection_keep_alive; /* said so in so many words (HTTP/1.0) */
    bool upgrade;                   /* a complete WebSocket handshake (RFC 6455 section 4.2.1) */
    bool expect_continue;
    bool te_trailers;
    enum gw_framing framing;
    uint64_t length;
    struct gw_field *fields;
    size_t n_fields;
};

/* What a front adds to a request's fields, beyond the limit for those received. */
#define GW_FIELDS_EXTRA ((size_t)4)

struct gw_response {
    int status;
    struct gw_str reason;
    uint8_t minor;
    bool keep_alive;
    bool upgrade_websocket; /* Connection: upgrade, Upgrade: websocket */
    enum gw_framing framing;
    uint64_t length;
    bool has_length;     /* Content-Length was given, whether or not a body follows */
    bool has_rewritable; /* a Set-Cookie or Location is among the fields */
    struct gw_field *fields;
    size_t n_fields;
};

/* Does a response field go on to the client? Not if it ends at the connection that it came over, or
 * is written anew. */
static inline bool gw_response_passes(const struct gw_field *f)
{
    switch (f->id) {
    case GW_FIELD_CONNECTION:
    case GW_FIELD_CONTENT_LENGTH:
    case GW_FIELD_KEEP_ALIVE:
    case GW_FIELD_PROXY_CONNECTION:
    case GW_FIELD_TE:
    case GW_FIELD_TRANSFER_ENCODING:
    case GW_FIELD_UPGRADE:
        return false;
    default:
        return !f->hop_by_hop;
    }
}

#endif
