/* SPDX-License-Identifier: MIT */
/* What the gateway answers itself: a small HTML page for people, JSON for programs. */
#ifndef GATEWAY_PAGES_H
#define GATEWAY_PAGES_H

#include "gateway/exchange.h"
#include "gateway/out.h"

struct gw_page {
    int status;
    const char *code;    /* for programs, e.g. "asleep" */
    const char *message; /* for people; plain text, may come from outside */
    const char *command; /* what to type to change it, or NULL */
    int retry_after_s;   /* > 0: the condition passes; the page reloads itself */

    /* Further fields, NULL when absent. */
    const char *location, *set_cookie, *authenticate;
    bool no_referrer; /* the URL may hold a token */
};

const char *gw_status_reason(int status);

/* Does this Accept (all its lines) prefer HTML over JSON? No field: no. */
bool gw_accepts_html(const struct gw_field *fields, size_t n);

/* Build the body into a buffer. NULL: no memory. */
struct gw_buf *gw_page_body(struct gw_bufs *bufs, const struct gw_page *page, bool html);
/* Answer an exchange. Returns what the front returned. */
TR_MUST_CHECK int gw_page_send(struct gw_exchange *x, const struct gw_page *page);
/* Answer to a request that could not be read, closing, into out. */
TR_MUST_CHECK int gw_page_refusal(struct gw_bufs *bufs, struct gw_out *out, int status,
                                  const char *why);

#endif
