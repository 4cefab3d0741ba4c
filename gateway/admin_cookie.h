/* SPDX-License-Identifier: MIT */
/* Who is signed in to the dashboard: a cookie that holds the API key, sealed.
 *
 * The cookie's value is the hexadecimal form of nonce, ciphertext and tag of AES-256-GCM (NIST SP
 * 800-38D) over the time from which on it is void and the key. What seals it was made by this
 * gateway at random, lies in memory alone and outlives reloads and upgrades, not the gateway: after
 * a restart everybody signs in again. Who gets hold of a cookie has no key for the API, and nothing
 * at all once the key is deleted, which the manager checks with each request.
 *
 * Over TLS it is called __Host-transom-admin, so that no neighbour (a preview of the same site) can
 * set one; where there is no TLS there is another one, for "localhost" alone. */
#ifndef GATEWAY_ADMIN_COOKIE_H
#define GATEWAY_ADMIN_COOKIE_H

#include "gateway/message.h"
#include "transom/err.h"

#define GW_ADMIN_KEY_MAX    128         /* bytes of an API key */
#define GW_ADMIN_LIFE_S     (12 * 3600) /* of a sign-in */
#define GW_ADMIN_SEALED_MAX (2 * (12 + 8 + GW_ADMIN_KEY_MAX + 16))
#define GW_ADMIN_COOKIE_MAX (GW_ADMIN_SEALED_MAX + 128)

/* Seal with what is in this descriptor (of gw_admin_secret_create() in an earlier process). 0, or
 * -EPROTO when that is something else. Before any thread is started. */
TR_MUST_CHECK int gw_admin_secret_open(int fd);
/* A descriptor with a fresh secret, the caller's, or a negative errno. */
TR_MUST_CHECK int gw_admin_secret_create(void);

/* May this be an API key: token68 (RFC 9110 section 11.2) of a bounded length? */
bool gw_admin_key_valid(struct gw_str key);

/* Set-Cookie for a valid key, or, for an empty one, to forget it. secure: the client speaks TLS.
 * now: Unix seconds. Returns 0 or a negative errno. */
TR_MUST_CHECK int gw_admin_cookie(struct gw_str key, bool secure, uint64_t now,
                                  char out[GW_ADMIN_COOKIE_MAX]);

enum gw_admin_sign { GW_ADMIN_SIGNED_IN, GW_ADMIN_SIGNED_OUT, GW_ADMIN_DOUBLED };

/* The key of the request's cookie, terminated; set when it says GW_ADMIN_SIGNED_IN. Two cookies of
 * the name are none: one of them is not ours (RFC 6265 section 4.2.2 gives no order to rely on). */
enum gw_admin_sign gw_admin_signed_in(const struct gw_request *req, bool secure, uint64_t now,
                                      char key[GW_ADMIN_KEY_MAX + 1]);

#endif
