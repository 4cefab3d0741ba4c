/* SPDX-License-Identifier: MIT */
#include "gateway/tls.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include "gateway/certificates.h"
#include "gateway/runtime.h"
#include "gateway/tickets.h"
#include "transom/log.h"

#define NAME_MAX_LEN 255

/* A name, lower case, perhaps beginning with "*.", and whose certificate it is. */
struct name {
    char *text;
    SSL_CTX *ctx; /* the set holds it */
    size_t order; /* of the configuration */
};

/* All certificates. Belongs to the first one's context, so that it lives as long as a handshake. */
struct set {
    SSL_CTX **others; /* all but the first */
    size_t n_others;
    struct name *names; /* sorted; the first of several equal ones counts */
    size_t n_names;
    int64_t ends_s; /* the earliest end of one */
};

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
    if (faccessat(AT_FDCWD, path, R_OK, AT_EACCESS) == 0)
        return 0;
    return tr_err_set(err, -errno, "%s: %s: %s", option, path,
                      errno == EACCES
                          ? "not readable by the gateway's user; change its owner or mode"
                          : strerror(errno));
}

static int load(SSL_CTX *ctx, const struct gw_certificate_file *file, struct err *err)
{
    bool pair = strcmp(file->option, "gateway.tls_certificate") == 0;
    const char *key_option = pair ? "gateway.tls_key" : file->option;
    char buf[160];

    ERR_clear_error();
    if (SSL_CTX_use_certificate_chain_file(ctx, file->certificate) != 1)
        return tr_err_set(err, -EINVAL,
                          "%s: %s: no usable certificate (%s); a PEM file is needed, certificate "
                          "first, then its intermediates",
                          file->option, file->certificate, reason(buf, sizeof(buf)));
    /* The key is compared with the certificate as it is loaded. */
    if (SSL_CTX_use_PrivateKey_file(ctx, file->key, SSL_FILETYPE_PEM) != 1 &&
        ERR_GET_REASON(ERR_peek_last_error()) != X509_R_KEY_VALUES_MISMATCH)
        return tr_err_set(err, -EINVAL,
                          "%s: %s: no usable private key (%s); an unencrypted PEM file is needed",
                          key_option, file->key, reason(buf, sizeof(buf)));
    if (SSL_CTX_check_private_key(ctx) != 1)
        return tr_err_set(err, -EINVAL,
                          "%s: %s does not belong to the certificate in %s; configure the key that "
                          "the certificate was made with",
                          key_option, file->key, file->certificate);
    return 0;
}

static SSL_CTX *new_context(bool http2)
{
    SSL_CTX *ctx = SSL_CTX_new(TLS_server_method());

    if (ctx == NULL)
        return NULL;
    SSL_CTX_set_min_proto_version(ctx, TLS1_2_VERSION);
    /* Idle connections hold no record buffers. A renegotiation would let a client make us write
     * while reading. No early data is enabled: it could be replayed. */
    SSL_CTX_set_mode(ctx, SSL_MODE_RELEASE_BUFFERS);
    SSL_CTX_set_options(ctx, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION |
                                 SSL_OP_CIPHER_SERVER_PREFERENCE | SSL_OP_PRIORITIZE_CHACHA);
    /* Tickets instead of a cache. */
    SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_session_id_context(ctx, (const unsigned char *)"transom", 7);
    SSL_CTX_set_num_tickets(ctx, 1);
    gw_tickets_use(ctx);
    gw_tls_ctx_prepare(ctx, http2 ? alpn_both : alpn_http1);
    return ctx;
}

static int load_file(const struct gw_certificate_file *file, bool http2, SSL_CTX **out,
                     struct err *err)
{
    bool pair = strcmp(file->option, "gateway.tls_certificate") == 0;
    int r = readable(file->option, file->certificate, err);
    SSL_CTX *ctx;

    if (r == 0)
        r = readable(pair ? "gateway.tls_key" : file->option, file->key, err);
    if (r != 0)
        return r;
    ctx = new_context(http2);
    if (ctx == NULL)
        return tr_err_set(err, -ENOMEM, "out of memory");
    r = load(ctx, file, err);
    if (r != 0) {
        SSL_CTX_free(ctx);
        return r;
    }
    *out = ctx;
    return 0;
}

static void lower(char *to, const char *from, size_t len)
{
    for (size_t i = 0; i < len; i++)
        to[i] = from[i] >= 'A' && from[i] <= 'Z' ? (char)(from[i] + ('a' - 'A')) : from[i];
    to[len] = '\0';
}

static int add_name(struct set *set, SSL_CTX *ctx, const char *text, size_t len)
{
    struct name *names;

    if (len == 0 || len > NAME_MAX_LEN || memchr(text, '\0', len) != NULL)
        return 0; /* nobody will ask for that */
    names = realloc(set->names, (set->n_names + 1) * sizeof(*names));
    if (names == NULL)
        return -ENOMEM;
    set->names = names;
    names += set->n_names;
    names->ctx = ctx;
    names->order = set->n_names;
    names->text = malloc(len + 1);
    if (names->text == NULL)
        return -ENOMEM;
    lower(names->text, text, len);
    set->n_names++;
    return 0;
}

/* The names of a certificate: its subjectAltName; its common name where there is none. */
static int add_names(struct set *set, SSL_CTX *ctx)
{
    X509 *x = SSL_CTX_get0_certificate(ctx);
    GENERAL_NAMES *alt = X509_get_ext_d2i(x, NID_subject_alt_name, NULL, NULL);
    char common[NAME_MAX_LEN + 1];
    int r = 0, n;

    for (int i = 0; r == 0 && i < sk_GENERAL_NAME_num(alt); i++) {
        const GENERAL_NAME *name = sk_GENERAL_NAME_value(alt, i);

        if (name->type == GEN_DNS)
            r = add_name(set, ctx, (const char *)ASN1_STRING_get0_data(name->d.dNSName),
                         (size_t)ASN1_STRING_length(name->d.dNSName));
    }
    if (alt == NULL) {
        n = X509_NAME_get_text_by_NID(X509_get_subject_name(x), NID_commonName, common,
                                      sizeof(common));
        if (n > 0)
            r = add_name(set, ctx, common, (size_t)n);
    }
    GENERAL_NAMES_free(alt);
    return r;
}

static void note_end(struct set *set, SSL_CTX *ctx, const char *file)
{
    struct tm tm;
    int64_t end;

    if (ASN1_TIME_to_tm(X509_get0_notAfter(SSL_CTX_get0_certificate(ctx)), &tm) != 1)
        return;
    end = (int64_t)timegm(&tm);
    if (end < (int64_t)time(NULL))
        log_warn("%s: this certificate has expired", file);
    if (set->ends_s == 0 || end < set->ends_s)
        set->ends_s = end;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(((const struct name *)a)->text, ((const struct name *)b)->text);
}

static int compare_all(const void *a, const void *b)
{
    size_t x = ((const struct name *)a)->order, y = ((const struct name *)b)->order;
    int r = compare_names(a, b);

    return r != 0 ? r : x < y ? -1 : x > y;
}

/* Sort; of equal names the certificate listed earlier wins. */
static void sort_names(struct set *set)
{
    size_t n = 0;

    if (set->n_names > 0)
        qsort(set->names, set->n_names, sizeof(*set->names), compare_all);
    for (size_t i = 0; i < set->n_names; i++) {
        if (n > 0 && compare_names(&set->names[n - 1], &set->names[i]) == 0)
            free(set->names[i].text);
        else
            set->names[n++] = set->names[i];
    }
    set->n_names = n;
}

static SSL_CTX *find(const struct set *set, const char *text)
{
    struct name key = {.text = (char *)text}, *found;

    found = set->n_names > 0 ? bsearch(&key, set->names, set->n_names, sizeof(key), compare_names)
                             : NULL;
    return found != NULL ? found->ctx : NULL;
}

/* servername callback: the context to go on with. */
static int on_name(SSL *ssl, int *alert, void *arg)
{
    const struct set *set = arg;
    const char *asked = SSL_get_servername(ssl, TLSEXT_NAMETYPE_host_name), *dot;
    char name[NAME_MAX_LEN + 1];
    SSL_CTX *ctx;

    (void)alert;
    if (asked == NULL || strlen(asked) > NAME_MAX_LEN)
        return SSL_TLSEXT_ERR_OK;
    lower(name, asked, strlen(asked));
    ctx = find(set, name);
    dot = strchr(name, '.');
    if (ctx == NULL && dot != NULL && dot > name) {
        name[dot - name - 1] = '*'; /* "*" takes the place of exactly one label */
        ctx = find(set, dot - 1);
    }
    if (ctx != NULL)
        SSL_set_SSL_CTX(ssl, ctx);
    return SSL_TLSEXT_ERR_OK;
}

static void free_set(struct set *set)
{
    if (set == NULL)
        return;
    for (size_t i = 0; i < set->n_names; i++)
        free(set->names[i].text);
    free(set->names);
    for (size_t i = 0; i < set->n_others; i++)
        SSL_CTX_free(set->others[i]);
    free(set->others);
    free(set);
}

static void on_context_freed(void *parent, void *ptr, CRYPTO_EX_DATA *ad, int idx, long argl,
                             void *argp)
{
    (void)parent;
    (void)ad;
    (void)idx;
    (void)argl;
    (void)argp;
    free_set(ptr);
}

static int set_index = -1;

static void make_index(void)
{
    set_index = SSL_CTX_get_ex_new_index(0, NULL, NULL, NULL, on_context_freed);
}

static int load_all(const struct gw_certificate_files *files, bool http2, struct set *set,
                    SSL_CTX **first, struct err *err)
{
    set->others = calloc(files->n, sizeof(SSL_CTX *));
    if (set->others == NULL)
        return tr_err_set(err, -ENOMEM, "out of memory");
    for (size_t i = 0; i < files->n; i++) {
        SSL_CTX *ctx = NULL;
        int r = load_file(&files->files[i], http2, &ctx, err);

        if (r != 0)
            return r;
        if (*first == NULL)
            *first = ctx;
        else
            set->others[set->n_others++] = ctx;
        if (add_names(set, ctx) != 0)
            return tr_err_set(err, -ENOMEM, "out of memory");
        note_end(set, ctx, files->files[i].certificate);
    }
    sort_names(set);
    return 0;
}

int gw_tls_new(const struct gw_options *opt, SSL_CTX **out, struct err *err)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    struct gw_certificate_files files;
    struct set *set = NULL;
    SSL_CTX *first = NULL;
    int r;

    *out = NULL;
    pthread_once(&once, make_index);
    r = gw_certificate_files_find(opt, &files, err);
    if (r != 0 || files.n == 0)
        return r;
    set = calloc(1, sizeof(*set));
    r = set != NULL ? load_all(&files, opt->http2, set, &first, err)
                    : tr_err_set(err, -ENOMEM, "out of memory");
    gw_certificate_files_fini(&files);
    if (r == 0 && SSL_CTX_set_ex_data(first, set_index, set) != 1)
        r = tr_err_set(err, -ENOMEM, "out of memory");
    if (r != 0) {
        free_set(set);
        SSL_CTX_free(first);
        return r;
    }
    SSL_CTX_set_tlsext_servername_callback(first, on_name);
    SSL_CTX_set_tlsext_servername_arg(first, set);
    *out = first;
    return 0;
}

SSL_CTX *gw_tls_ref(SSL_CTX *ctx)
{
    if (ctx != NULL)
        SSL_CTX_up_ref(ctx);
    return ctx;
}

void gw_tls_free(SSL_CTX *ctx)
{
    SSL_CTX_free(ctx);
}

size_t gw_tls_certificates(const SSL_CTX *ctx, int64_t *ends_s)
{
    const struct set *set = ctx != NULL ? SSL_CTX_get_ex_data(ctx, set_index) : NULL;

    *ends_s = set != NULL ? set->ends_s : 0;
    return set != NULL ? 1 + set->n_others : 0;
}
