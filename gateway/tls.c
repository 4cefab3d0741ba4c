/* SPDX-License-Identifier: MIT */
#include "gateway/tls.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include <openssl/err.h>
#include <openssl/ssl.h>

#include "gateway/runtime.h"

static const unsigned char alpn_http1[] = "\x08http/1.1";
static const unsigned char alpn_both[] = "\x02h2\x08http/1.1";

static const char *reason(char *buf, size_t len)
{
    unsigned long code = ERR_peek_last_error();

    if (code == 0)
        return "unknown reason";
    ERR_error_string_n(code, buf, len);
    if (ERR_reason_error_string(code) != NULL)
        return ERR_reason_error_string(code);
    return buf;
}

static int readable(const char *option, const char *path, struct err *err)
{
    if (access(path, R_OK) == 0)
        return 0;
    return tr_err_set(err, -errno, "%s: %s: %s", option, path,
                      errno == EACCES
                          ? "not readable by this user; start as root or change its mode"
                          : strerror(errno));
}

static int load(SSL_CTX *ctx, const char *certificate, const char *key, struct err *err)
{
    char buf[160];

    ERR_clear_error();
    if (SSL_CTX_use_certificate_chain_file(ctx, certificate) != 1)
        return tr_err_set(err, -EINVAL,
                          "gateway.tls_certificate: %s: no usable certificate (%s); a PEM file is "
                          "needed, certificate first, then its intermediates",
                          certificate, reason(buf, sizeof(buf)));
    /* The key is compared with the certificate as it is loaded. */
    if (SSL_CTX_use_PrivateKey_file(ctx, key, SSL_FILETYPE_PEM) != 1) {
        if (ERR_GET_REASON(ERR_peek_last_error()) == X509_R_KEY_VALUES_MISMATCH)
            return tr_err_set(err, -EINVAL,
                              "gateway.tls_key: %s does not belong to the certificate in %s; "
                              "configure the key that the certificate was made with",
                              key, certificate);
        return tr_err_set(err, -EINVAL,
                          "gateway.tls_key: %s: no usable private key (%s); an unencrypted PEM "
                          "file is needed",
                          key, reason(buf, sizeof(buf)));
    }
    if (SSL_CTX_check_private_key(ctx) != 1)
        return tr_err_set(err, -EINVAL,
                          "gateway.tls_key: %s does not belong to the certificate in %s; configure "
                          "the key that the certificate was made with",
                          key, certificate);
    return 0;
}

int gw_tls_new(const char *certificate, const char *key, bool http2, SSL_CTX **out, struct err *err)
{
    SSL_CTX *ctx;
    int r = readable("gateway.tls_certificate", certificate, err);

    if (r == 0)
        r = readable("gateway.tls_key", key, err);
    if (r != 0)
        return r;
    ctx = SSL_CTX_new(TLS_server_method());
    if (ctx == NULL)
        return tr_err_set(err, -ENOMEM, "out of memory");
    SSL_CTX_set_min_proto_version(ctx, TLS1_2_VERSION);
    /* Idle connections hold no record buffers. A renegotiation would let a client make us write
     * while reading. No early data is enabled: it could be replayed. */
    SSL_CTX_set_mode(ctx, SSL_MODE_RELEASE_BUFFERS);
    SSL_CTX_set_options(ctx, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION |
                                 SSL_OP_CIPHER_SERVER_PREFERENCE | SSL_OP_PRIORITIZE_CHACHA);
    /* Tickets (their key is shared by all workers, being the context's) instead of a cache. */
    SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_session_id_context(ctx, (const unsigned char *)"transom", 7);
    SSL_CTX_set_num_tickets(ctx, 1);
    gw_tls_ctx_prepare(ctx, http2 ? alpn_both : alpn_http1);
    r = load(ctx, certificate, key, err);
    if (r != 0) {
        SSL_CTX_free(ctx);
        return r;
    }
    *out = ctx;
    return 0;
}

void gw_tls_free(SSL_CTX *ctx)
{
    SSL_CTX_free(ctx);
}
