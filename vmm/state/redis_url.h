/* SPDX-License-Identifier: MIT */
/* Where a Redis server is, taken from its URL. */
#ifndef VMM_STATE_REDIS_URL_H
#define VMM_STATE_REDIS_URL_H

#include <stdbool.h>
#include <stdint.h>
#include "transom/err.h"

struct redis_url {
    bool is_unix;
    char host[256]; /* host name, address, or path of a unix socket */
    uint16_t port;
    bool has_password;
    char password[256];
    char user[65];           /* "": the default user */
    char password_file[256]; /* read at each connection; "": none */
    int db;
    char shown[320]; /* for messages: without the password */
};

/* "unix:/path[?db=N]", "redis://[[user]:password@]host[:port][/db]", to both of which
 * "?user=USER&password_file=/path" may be added; user, password and the file are percent decoded,
 * an IPv6 host stands in brackets. Returns 0, or UV_EINVAL with a reason that does not
 * show the password. */
TR_MUST_CHECK int redis_url_parse(const char *url, struct redis_url *out, struct err *err);

#endif
