/* SPDX-License-Identifier: MIT */
/* Which files hold certificates and keys: gateway.tls_certificate with tls_key, and
 * gateway.certificates, whose items are files or folders. */
#ifndef GATEWAY_CERTIFICATES_H
#define GATEWAY_CERTIFICATES_H

#include "gateway/options.h"

/* One certificate with its key; both in one file, or not. option: whose it is, for messages. */
struct gw_certificate_file {
    const char *option;
    char *certificate, *key;
};

struct gw_certificate_files {
    struct gw_certificate_file *files;
    size_t n;
};

/* Look through the options and folders; in a folder, by name:
 *   NAME.crt or NAME.pem with NAME.key, NAME.pem alone with both inside, and a folder NAME with
 *   fullchain.pem and privkey.pem (as ACME clients lay them out). What begins with a dot and what
 *   looks like none of these is left alone. The order is the configuration's, then by name.
 * Returns 0 or a fault that names option and file. */
TR_MUST_CHECK int gw_certificate_files_find(const struct gw_options *opt,
                                            struct gw_certificate_files *out, struct err *err);
void gw_certificate_files_fini(struct gw_certificate_files *files);

#endif
