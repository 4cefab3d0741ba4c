/* SPDX-License-Identifier: MIT */
/* Who may see a private preview: tokens, where requests carry them, and their removal.
 *
 * A token is "PORT.EXPIRY.MAC": the port of the sandbox that it opens (8080 stands for the label's
 * own host name, whatever leads where from there), the Unix second from which on it is void, and
 *
 *     base64url(HMAC-SHA256(key, "v1" NUL label NUL PORT NUL EXPIRY))
 *
 * with the label's present key, which the route carries. There is one way to write a given token.
 * Links carry it as a query parameter, browsers then as a cookie, programs as a field.
 *
 * A label says nothing about itself before it was shown a token: not its state, not which ports are
 * opened. That it exists is no secret (an unknown one is answered 404, a private one 401): labels
 * are random, with 82 bits, and only who was told one can name it. */
#ifndef GATEWAY_ACCESS_H
#define GATEWAY_ACCESS_H

#include "gateway/buf.h"
#include "gateway/message.h"
#include "transom/err.h"
#include "transom/route.h"

#define GW_TOKEN_PARAM     "transom_token"
#define GW_TOKEN_MAX       64 /* bytes, and above the longest */
#define GW_TOKEN_MAIN_PORT 8080

/* What MACs are computed with: of one thread, and reused, since making it costs more than a MAC.
 * NULL: no memory. */
struct evp_mac_ctx_st *gw_token_mac_new(void);
void gw_token_mac_free(struct evp_mac_ctx_st *mac);

/* Is this a token for label and port under key, and not void at now (Unix seconds)? *expires is
 * set when it is. How long it takes says nothing about the MAC that was expected. */
bool gw_token_valid(struct evp_mac_ctx_st *mac, struct gw_str token,
                    const uint8_t key[TR_ROUTE_KEY_SIZE], const char *label, uint16_t port,
                    uint64_t now, uint64_t *expires);

enum gw_access_verdict {
    GW_ACCESS_DENIED,
    GW_ACCESS_GRANTED,
    GW_ACCESS_ENTER, /* by a link, in a browser: to be answered with the cookie */
};

struct gw_access {
    struct evp_mac_ctx_st *mac; /* borrowed */
    const uint8_t *key;         /* TR_ROUTE_KEY_SIZE */
    const char *label;
    uint16_t port; /* of the host name; GW_TOKEN_MAIN_PORT for the label alone */
    uint64_t now;  /* Unix seconds */
    bool secure;   /* the client speaks TLS, to us or to a trusted proxy */
    bool embed;    /* the cookie is for frames in other sites' pages, too */
};

/* Does a person see what is answered? Only then it may be a page or a redirect: never for a
 * WebSocket, a script's fetch or its preflight. html: Accept asks for it. */
bool gw_access_navigates(const struct gw_request *req, bool html);

/* A token is looked for in the query, in Transom-Token fields and in cookies, and the first valid
 * one of at most 8 counts. token, expires: set unless denied; token points into req. */
enum gw_access_verdict gw_access_check(const struct gw_access *a, const struct gw_request *req,
                                       bool navigates, struct gw_str *token, uint64_t *expires);

/* The Set-Cookie of an answer to GW_ACCESS_ENTER. */
#define GW_ACCESS_COOKIE_MAX 256
size_t gw_access_cookie(const struct gw_access *a, struct gw_str token, uint64_t expires,
                        char out[GW_ACCESS_COOKIE_MAX]);
/* Its Location: the target without the token, which begins with one slash. out has room for
 * target.len + 2. */
size_t gw_access_location(struct gw_str target, char *out);

/* Take everything that carries tokens out of a request, valid or not, of private and public
 * previews alike. Other bytes stay as they are. Changed strings live in *text until the caller
 * gives it back with gw_buf_put(); NULL: nothing had to be copied. Returns 0 or UV_ENOMEM. */
TR_MUST_CHECK int gw_access_clean(struct gw_bufs *bufs, struct gw_request *req,
                                  struct gw_buf **text);

/* The parts, for tests. Both return the new length; out has room for the old one. A target keeps
 * its path, and other parameters their order; an empty query loses its "?". */
size_t gw_access_clean_target(struct gw_str target, char *out);
size_t gw_access_clean_cookies(struct gw_str value, char *out);
/* The next occurrence of our parameter in a target, from *at on: where its value stands. */
bool gw_access_next_param(struct gw_str target, size_t *at, struct gw_str *value);

#endif
