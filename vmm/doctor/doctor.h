/* SPDX-License-Identifier: MIT */
/* transom doctor: looks at a host and says what is wrong with it and how to mend it. It changes
 * nothing. One file per part of the host; each check reports what it found, good or bad. */
#ifndef VMM_DOCTOR_DOCTOR_H
#define VMM_DOCTOR_DOCTOR_H

#include <jansson.h>
#include "transom/config.h"
#include "vmm/options.h"

enum doctor_verdict {
    DOCTOR_OK,
    DOCTOR_WARN, /* it works, less well or less safely than it could */
    DOCTOR_BAD,  /* something that Transom needs is broken */
};

struct doctor {
    const char *config_path;
    const struct tr_config *config;
    struct vmm_options options; /* of config */
    json_t *checks;             /* [{name, verdict, found, mend}], in order */
    unsigned n_bad, n_warn;
};

/* One finding of a check ("disk"). mend: what to do about it, a sentence or a command; "" when it
 * is good. */
void doctor_report(struct doctor *d, const char *name, enum doctor_verdict verdict,
                   const char *mend, const char *fmt, ...) TR_PRINTF(5, 6);

/* Run a program to its end, for some seconds at most, without input. Returns its exit status, 127
 * when it could not be run, or 128 and more when it was killed. out: the beginning of what it wrote
 * on both of its outputs; lines become blanks. */
int doctor_run(const char *const *argv, char *out, size_t size);
/* Is there such a program? name: in PATH, or a path. */
bool doctor_has_program(const char *name);

/* The checks. */
void doctor_check_programs(struct doctor *d); /* programs.c */
void doctor_check_users(struct doctor *d);
void doctor_check_kvm(struct doctor *d); /* host.c */
void doctor_check_cgroup(struct doctor *d);
void doctor_check_network(struct doctor *d); /* network.c */
void doctor_check_folders(struct doctor *d); /* disk.c */
void doctor_check_image(struct doctor *d);
void doctor_check_names(struct doctor *d);        /* names.c */
void doctor_check_certificates(struct doctor *d); /* certificates.c */
void doctor_check_redis(struct doctor *d);        /* services.c */
void doctor_check_manager(struct doctor *d);
void doctor_check_gateway(struct doctor *d);

#endif
