/* SPDX-License-Identifier: MIT */
/* Programs that the daemons run, and users that they become. */
#include <stdio.h>
#include <string.h>
#include "transom/daemon.h"
#include "vmm/doctor/doctor.h"

static const struct {
    const char *program, *package, *why;
    enum { ALWAYS, NETWORK, OWN_REDIS } when;
} needed[] = {
    {"mkfs.ext4", "e2fsprogs", "makes the machines' disks", ALWAYS},
    {"nft", "nftables", "keeps machines apart", NETWORK},
    {"ip", "iproute2", "makes the machines' network", NETWORK},
    {"dnsmasq", "dnsmasq-base", "answers the machines' name questions", NETWORK},
    {"redis-server", "redis-server", "holds the live state (or set redis.url)", OWN_REDIS},
};

static void check_program(struct doctor *d, const char *program, const char *package,
                          const char *why, unsigned *n_good)
{
    char mend[160];

    if (doctor_has_program(program)) {
        ++*n_good;
        return;
    }
    snprintf(mend, sizeof(mend), "apt-get install %s", package);
    doctor_report(d, "programs", DOCTOR_BAD, mend, "%s is not installed; it %s", program, why);
}

void doctor_check_programs(struct doctor *d)
{
    unsigned n_good = 0, n = 1;

    if (strchr(d->options.qemu, '/') != NULL && !doctor_has_program(d->options.qemu))
        doctor_report(d, "programs", DOCTOR_BAD, "apt-get install qemu-system-x86, or set vmm.qemu",
                      "%s (vmm.qemu) is no program that can be run", d->options.qemu);
    else
        check_program(d, d->options.qemu, "qemu-system-x86", "runs the machines", &n_good);
    for (size_t i = 0; i < sizeof(needed) / sizeof(needed[0]); i++) {
        if ((needed[i].when == NETWORK && !d->options.net_enabled) ||
            (needed[i].when == OWN_REDIS && *d->options.redis_url != '\0'))
            continue;
        n++;
        check_program(d, needed[i].program, needed[i].package, needed[i].why, &n_good);
    }
    if (n_good == n)
        doctor_report(d, "programs", DOCTOR_OK, "", "all %u that are needed are installed", n);
}

void doctor_check_users(struct doctor *d)
{
    struct err err = {0};
    const char *name = NULL;
    uid_t uid;
    gid_t gid;

    if (tr_daemon_gateway_user(d->options.gateway_user, &uid, &gid, &name, &err) != 0)
        doctor_report(d, "users", DOCTOR_BAD,
                      "create the user (useradd --system NAME), or name another in gateway.user",
                      "%s", err.msg);
    else if (uid == 0)
        doctor_report(d, "users", DOCTOR_WARN, "set gateway.user, or leave it empty",
                      "the gateway runs as root");
    else
        doctor_report(d, "users", DOCTOR_OK, "",
                      "the gateway runs as %s (uid %u), machines as uid %u",
                      name != NULL ? name : "a user without name", (unsigned)uid,
                      (unsigned)d->options.qemu_uid);
}
