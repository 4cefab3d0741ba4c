/* SPDX-License-Identifier: MIT */
/* Certificates: readable, with their keys, in time, and for all the names that are served. */
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include "gateway/certificates.h"
#include "vmm/doctor/doctor.h"

#define DAY        86400
#define SOON_DAYS  14
#define N_NAMES    3
#define MEND_RENEW "renew it (certbot renew), then systemctl reload transom-gateway"

/* Which of the names some good certificate covers. */
struct names {
    char name[N_NAMES][300];
    bool covered[N_NAMES];
};

static X509 *read_certificate(const char *path)
{
    FILE *file = fopen(path, "re");
    X509 *x = file == NULL ? NULL : PEM_read_X509(file, NULL, NULL, NULL);

    if (file != NULL)
        fclose(file);
    return x;
}

static EVP_PKEY *read_key(const char *path)
{
    FILE *file = fopen(path, "re");
    EVP_PKEY *key = file == NULL ? NULL : PEM_read_PrivateKey(file, NULL, NULL, NULL);

    if (file != NULL)
        fclose(file);
    return key;
}

static void check_times(struct doctor *d, const char *path, const X509 *x)
{
    time_t soon = time(NULL) + (time_t)SOON_DAYS * DAY;
    int days = 0, seconds = 0;

    if (X509_cmp_current_time(X509_get0_notBefore(x)) > 0)
        doctor_report(d, "certificate", DOCTOR_BAD,
                      "set the host's clock (timedatectl), or wait until it is good",
                      "%s is not good yet", path);
    else if (X509_cmp_current_time(X509_get0_notAfter(x)) < 0)
        doctor_report(d, "certificate", DOCTOR_BAD, MEND_RENEW, "%s has expired", path);
    else if (X509_cmp_time(X509_get0_notAfter(x), &soon) < 0 &&
             ASN1_TIME_diff(&days, &seconds, NULL, X509_get0_notAfter(x)) == 1)
        doctor_report(d, "certificate", DOCTOR_WARN, MEND_RENEW, "%s expires in %d days", path,
                      days);
    else
        doctor_report(d, "certificate", DOCTOR_OK, "", "%s has its key and is in time", path);
}

static void check_file(struct doctor *d, const struct gw_certificate_file *file,
                       struct names *names)
{
    X509 *x = read_certificate(file->certificate);
    EVP_PKEY *key = read_key(file->key);
    struct stat st;

    if (x == NULL) {
        doctor_report(d, "certificate", DOCTOR_BAD, "name a PEM file that can be read",
                      "%s: %s is no certificate that can be read", file->option, file->certificate);
    } else if (key == NULL) {
        doctor_report(d, "certificate", DOCTOR_BAD, "name the PEM file of the certificate's key",
                      "%s: %s is no key that can be read", file->option, file->key);
    } else if (X509_check_private_key(x, key) != 1) {
        doctor_report(d, "certificate", DOCTOR_BAD,
                      "name the key that this certificate was made for",
                      "%s: the key in %s is another one's", file->option, file->key);
    } else {
        check_times(d, file->certificate, x);
        for (int i = 0; i < N_NAMES; i++) {
            if (X509_check_host(x, names->name[i], 0, 0, NULL) == 1)
                names->covered[i] = true;
        }
        if (stat(file->key, &st) == 0 && (st.st_mode & 0007) != 0)
            doctor_report(d, "certificate", DOCTOR_WARN, "chmod o= on it",
                          "everybody on this host can read the key %s", file->key);
    }
    X509_free(x);
    EVP_PKEY_free(key);
}

static void check_files(struct doctor *d, const struct gw_options *o)
{
    struct gw_certificate_files files = {0};
    struct names names = {0};
    struct err err = {0};
    char mend[700];

    snprintf(names.name[0], sizeof(names.name[0]), "api.%s", o->domain);
    snprintf(names.name[1], sizeof(names.name[1]), "admin.%s", o->domain);
    snprintf(names.name[2], sizeof(names.name[2]), "aaaaaaaaaaaaaaaa.%s", o->preview_domain);
    if (gw_certificate_files_find(o, &files, &err) != 0) {
        doctor_report(d, "certificate", DOCTOR_BAD, "correct the option", "%s", err.msg);
        return;
    }
    for (size_t i = 0; i < files.n; i++)
        check_file(d, &files.files[i], &names);
    snprintf(mend, sizeof(mend),
             "get one for *.%s and *.%s, by a DNS challenge (README: certificates)", o->domain,
             o->preview_domain);
    if (files.n == 0)
        doctor_report(d, "certificate", DOCTOR_BAD, mend,
                      "gateway.https is set, but there is no certificate");
    for (int i = 0; i < N_NAMES && files.n > 0; i++) {
        if (!names.covered[i])
            doctor_report(d, "certificate", DOCTOR_BAD, mend, "no certificate covers %s",
                          names.name[i]);
    }
    gw_certificate_files_fini(&files);
}

void doctor_check_certificates(struct doctor *d)
{
    const char *domain = tr_config_str(d->config, "domain");
    struct gw_options o;
    struct err err = {0};

    if (gw_options_init(&o, d->config, &err) != 0) {
        doctor_report(d, "configuration", DOCTOR_BAD, "correct the option", "%s", err.msg);
        return;
    }
    if (o.n_https > 0)
        check_files(d, &o);
    else if (strcmp(domain, "localhost") == 0)
        doctor_report(d, "certificate", DOCTOR_OK, "", "none is needed on localhost");
    else
        doctor_report(d, "certificate", DOCTOR_WARN,
                      "set gateway.https and certificates, or have a proxy before it speak HTTPS",
                      "%s is served without HTTPS: keys travel in the clear", domain);
    gw_options_fini(&o);
}
