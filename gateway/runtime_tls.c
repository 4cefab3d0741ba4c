/* SPDX-License-Identifier: MIT */
/* TLS records between OpenSSL and the descriptor. Reads take what the caller has room for. A write
 * seals what it is given, up to 144 KiB, and sends all records with one system call; what the
 * kernel does not take is kept (one write's worth) and nothing more is accepted until it has left.
 */
#include "gateway/runtime_tls.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <openssl/err.h>
#include <pthread.h>
#include <uv.h>
#include <h2o/memory.h>
#include <h2o/socket.h>

#if H2O_USE_LIBUV
#error "compile with -DH2O_USE_LIBUV=0"
#endif

/* Keep sealed bytes that the kernel did not take. */
static int keep(struct gw_tls *tls, const unsigned char *data, size_t len)
{
    if (tls->out_off > 0) {
        memmove(tls->out, tls->out + tls->out_off, tls->out_len);
        tls->out_off = 0;
    }
    if (tls->out_len + len > 2 * GW_SEALED_LEN)
        return UV_ENOBUFS; /* a peer that makes us answer without reading */
    if (tls->out_len + len > tls->out_cap) {
        unsigned char *out = realloc(tls->out, tls->out_len + len);

        if (out == NULL)
            return UV_ENOMEM;
        tls->out = out;
        tls->out_cap = tls->out_len + len;
    }
    memcpy(tls->out + tls->out_len, data, len);
    tls->out_len += len;
    return 0;
}

static int put(struct gw_tls *tls, const unsigned char *data, size_t len)
{
    ssize_t n = 0;

    if (tls->broken)
        return UV_EPIPE;
    if (tls->out_len == 0) {
        do {
            n = write(h2o_socket_get_fd(tls->sock->impl), data, len);
        } while (n < 0 && errno == EINTR);
        if (n < 0 && errno != EAGAIN) {
            tls->broken = true;
            return -errno;
        }
        if (n < 0)
            n = 0;
    }
    return (size_t)n < len ? keep(tls, data + n, len - (size_t)n) : 0;
}

static int bio_write(BIO *bio, const char *data, int len)
{
    struct gw_tls *tls = BIO_get_data(bio);
    struct gw_loop *loop = tls->loop;

    BIO_clear_retry_flags(bio);
    if (tls->sock == NULL || tls->sock->impl == NULL)
        return -1;
    if (loop->corked == tls) {
        if (loop->sealed_len + (size_t)len > GW_SEALED_LEN)
            return -1; /* cannot be: see the sizes */
        memcpy(loop->sealed + loop->sealed_len, data, (size_t)len);
        loop->sealed_len += (size_t)len;
        return len;
    }
    return put(tls, (const unsigned char *)data, (size_t)len) == 0 ? len : -1;
}

static int bio_read(BIO *bio, char *buf, int len)
{
    struct gw_tls *tls = BIO_get_data(bio);
    ssize_t n;

    BIO_clear_retry_flags(bio);
    if (tls->sock == NULL || tls->sock->impl == NULL)
        return -1;
    do {
        n = read(h2o_socket_get_fd(tls->sock->impl), buf, (size_t)len);
    } while (n < 0 && errno == EINTR);
    if (n < 0 && errno == EAGAIN)
        BIO_set_retry_read(bio);
    return (int)n;
}

static long bio_ctrl(BIO *bio, int cmd, long num, void *ptr)
{
    (void)ptr;
    switch (cmd) {
    case BIO_CTRL_GET_CLOSE:
        return BIO_get_shutdown(bio);
    case BIO_CTRL_SET_CLOSE:
        BIO_set_shutdown(bio, (int)num);
        return 1;
    case BIO_CTRL_FLUSH:
        return 1;
    default:
        return 0;
    }
}

static BIO_METHOD *bio_method;

static void make_bio_method(void)
{
    bio_method = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "transom descriptor");
    if (bio_method == NULL)
        abort(); /* at start */
    BIO_meth_set_write(bio_method, bio_write);
    BIO_meth_set_read(bio_method, bio_read);
    BIO_meth_set_ctrl(bio_method, bio_ctrl);
}

/* libh2o does not give its SSL object away; the first handshake event tells it, by way of
 * libh2o's BIO, whose data is its socket. */
static void on_info(const SSL *ssl, int where, int value)
{
    BIO *bio = SSL_get_rbio(ssl);
    h2o_socket_t *impl;
    struct gw_sock *sock;

    (void)value;
    if ((where & SSL_CB_HANDSHAKE_START) == 0 || bio == NULL || BIO_method_type(bio) != BIO_TYPE_FD)
        return;
    impl = BIO_get_data(bio);
    sock = impl->data;
    if (sock != NULL && sock->tls != NULL)
        sock->tls->ssl = (SSL *)ssl;
}

static int on_alpn(SSL *ssl, const unsigned char **out, unsigned char *out_len,
                   const unsigned char *in, unsigned int in_len, void *arg)
{
    const unsigned char *ours = arg;
    unsigned char *chosen;

    (void)ssl;
    if (SSL_select_next_proto(&chosen, out_len, ours, (unsigned int)strlen((const char *)ours), in,
                              in_len) != OPENSSL_NPN_NEGOTIATED)
        return SSL_TLSEXT_ERR_NOACK; /* no common protocol: HTTP/1.1 without a word */
    *out = chosen;
    return SSL_TLSEXT_ERR_OK;
}

void gw_tls_ctx_prepare(SSL_CTX *ctx, const unsigned char *alpn)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, make_bio_method);
    SSL_CTX_set_info_callback(ctx, on_info);
    SSL_CTX_set_alpn_select_cb(ctx, on_alpn, (void *)alpn);
}

int gw_tls_take_over(struct gw_tls *tls, h2o_socket_t *impl)
{
    BIO *bio = BIO_new(bio_method);

    if (bio == NULL)
        return UV_ENOMEM;
    BIO_set_data(bio, tls);
    BIO_set_init(bio, 1);
    SSL_set_read_ahead(tls->ssl, 1);
    SSL_set_bio(tls->ssl, bio, bio); /* frees libh2o's, which holds no bytes any more */
    tls->up = true;
    tls->pending = impl->input->size > 0 || SSL_has_pending(tls->ssl);
    return 0;
}

static void set_ready(struct gw_tls *tls, bool on)
{
    if (on == (tls->ready_link != NULL))
        return;
    if (on) {
        tls->ready_next = tls->loop->ready;
        tls->ready_link = &tls->loop->ready;
        if (tls->ready_next != NULL)
            tls->ready_next->ready_link = &tls->ready_next;
        tls->loop->ready = tls;
    } else {
        *tls->ready_link = tls->ready_next;
        if (tls->ready_next != NULL)
            tls->ready_next->ready_link = tls->ready_link;
        tls->ready_link = NULL;
    }
}

void gw_tls_read_started(struct gw_tls *tls)
{
    if (tls->pending)
        set_ready(tls, true);
}

void gw_tls_run_ready(struct gw_loop *loop)
{
    struct gw_tls *list = loop->ready;

    /* Those that become ready while these run wait for the next turn. */
    loop->ready = NULL;
    if (list != NULL)
        list->ready_link = &list;
    while (list != NULL) {
        struct gw_tls *tls = list;

        set_ready(tls, false);
        if (tls->pending && gw_sock_is_reading(tls->sock))
            tls->sock->on_read(tls->sock);
    }
}

ssize_t gw_tls_read(struct gw_tls *tls, void *buf, size_t len)
{
    h2o_socket_t *impl = tls->sock->impl;
    size_t have = 0;
    int n = 1;

    if (impl->input->size > 0) { /* came with the handshake's last flight */
        have = impl->input->size < len ? impl->input->size : len;
        memcpy(buf, impl->input->bytes, have);
        h2o_buffer_consume(&impl->input, have);
        tls->pending = impl->input->size > 0 || SSL_has_pending(tls->ssl);
        if (tls->pending && gw_sock_is_reading(tls->sock))
            set_ready(tls, true);
        return (ssize_t)have;
    }
    while (have < len) {
        ERR_clear_error();
        n = SSL_read(tls->ssl, (char *)buf + have, (int)(len - have));
        if (n <= 0)
            break;
        have += (size_t)n;
        if (!SSL_has_pending(tls->ssl))
            break;
    }
    /* An incomplete record also counts as pending: only a read that moved bytes may come again
     * without the kernel's word. */
    tls->pending = n > 0 && SSL_has_pending(tls->ssl);
    if (tls->pending && gw_sock_is_reading(tls->sock))
        set_ready(tls, true);
    if (have > 0)
        return (ssize_t)have;
    switch (SSL_get_error(tls->ssl, n)) {
    case SSL_ERROR_WANT_READ:
    case SSL_ERROR_WANT_WRITE:
        return UV_EAGAIN;
    case SSL_ERROR_ZERO_RETURN:
        return 0;
    default:
        tls->broken = true;
        return UV_ECONNRESET; /* also the end without close_notify: bytes may be missing */
    }
}

/* Seal one piece; false on a fault. */
static bool seal(struct gw_tls *tls, const void *data, size_t len)
{
    ERR_clear_error();
    return SSL_write(tls->ssl, data, (int)len) == (int)len; /* the BIO takes all or breaks */
}

ssize_t gw_tls_writev(struct gw_tls *tls, const struct iovec *iov, int n)
{
    struct gw_loop *loop = tls->loop;
    size_t taken = 0, merged = 0, limit = GW_WRITE_MAX;
    bool ok = true;
    int r;

    if (!gw_tls_flush(tls))
        return 0;
    if (tls->broken || tls->shut)
        return UV_EPIPE;
    loop->corked = tls;
    loop->sealed_len = 0;
    for (int i = 0; ok && i < n && taken < limit; i++) {
        const char *p = iov[i].iov_base;
        size_t left = iov[i].iov_len < limit - taken ? iov[i].iov_len : limit - taken;

        taken += left;
        while (ok && left > 0) {
            size_t room = GW_RECORD_LEN - merged;
            size_t part = left < room ? left : room;

            if (merged == 0 && part == GW_RECORD_LEN) {
                ok = seal(tls, p, part);
            } else {
                memcpy(loop->merge + merged, p, part);
                merged += part;
                if (merged == GW_RECORD_LEN) {
                    ok = seal(tls, loop->merge, merged);
                    merged = 0;
                }
            }
            p += part;
            left -= part;
        }
    }
    if (ok && merged > 0)
        ok = seal(tls, loop->merge, merged);
    loop->corked = NULL;
    r = ok && loop->sealed_len > 0 ? put(tls, loop->sealed, loop->sealed_len) : 0;
    loop->sealed_len = 0;
    if (!ok || r != 0) {
        tls->broken = true;
        return r != 0 ? r : UV_EPIPE;
    }
    return (ssize_t)taken;
}

bool gw_tls_flush(struct gw_tls *tls)
{
    while (tls->out_len > 0 && !tls->broken) {
        ssize_t n =
            write(h2o_socket_get_fd(tls->sock->impl), tls->out + tls->out_off, tls->out_len);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            return false;
        if (n < 0) {
            tls->broken = true;
            break;
        }
        tls->out_off += (size_t)n;
        tls->out_len -= (size_t)n;
    }
    free(tls->out);
    tls->out = NULL;
    tls->out_len = tls->out_off = tls->out_cap = 0;
    if (tls->shut_due) {
        tls->shut_due = false;
        shutdown(h2o_socket_get_fd(tls->sock->impl), SHUT_WR);
    }
    return true;
}

bool gw_tls_shutdown(struct gw_tls *tls)
{
    if (!tls->shut && !tls->broken && tls->up) {
        tls->shut = true;
        ERR_clear_error();
        SSL_shutdown(tls->ssl);
    }
    if (tls->out_len == 0)
        return true;
    tls->shut_due = true;
    return false;
}

void gw_tls_closing(struct gw_tls *tls)
{
    set_ready(tls, false);
    /* A close_notify behind a torn record, or on purpose not sent, would be a lie. */
    if (tls->up && !tls->abort && tls->out_len == 0)
        (void)gw_tls_shutdown(tls);
    if (tls->ssl != NULL)
        SSL_set_quiet_shutdown(tls->ssl, 1); /* libh2o has nothing to add */
    free(tls->out);
    tls->out = NULL;
    tls->out_len = tls->out_off = 0;
}

const char *gw_sock_tls_alpn(const struct gw_sock *sock, size_t *len)
{
    const unsigned char *name = NULL;
    unsigned int n = 0;

    if (sock->tls != NULL && sock->tls->ssl != NULL)
        SSL_get0_alpn_selected(sock->tls->ssl, &name, &n);
    *len = n;
    return name != NULL ? (const char *)name : "";
}

bool gw_sock_tls_resumed(const struct gw_sock *sock)
{
    return sock->tls != NULL && sock->tls->ssl != NULL && SSL_session_reused(sock->tls->ssl) == 1;
}
