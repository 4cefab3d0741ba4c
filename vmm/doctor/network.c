/* SPDX-License-Identifier: MIT */
/* nftables, namespaces, and whether the machines' addresses are free. */
#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "vmm/doctor/doctor.h"

#define OUR_LINK "trm-" /* how the names of our links begin */

/* "100.64.0.0/10": the configuration's parser has judged it. */
static void parse_range(const char *text, uint32_t *base, uint32_t *mask)
{
    char address[INET_ADDRSTRLEN] = "";
    const char *slash = strchr(text, '/');
    int bits = slash != NULL ? atoi(slash + 1) : 32;
    struct in_addr in = {0};

    snprintf(address, sizeof(address), "%.*s", (int)strcspn(text, "/"), text);
    (void)inet_pton(AF_INET, address, &in);
    *mask = bits == 0 ? 0 : UINT32_MAX << (32 - bits);
    *base = ntohl(in.s_addr) & *mask;
}

static void check_range(struct doctor *d)
{
    const char *range = tr_config_str(d->config, "net.range");
    struct ifaddrs *list = NULL;
    uint32_t base, mask;

    parse_range(range, &base, &mask);
    if (getifaddrs(&list) != 0)
        return;
    for (struct ifaddrs *a = list; a != NULL; a = a->ifa_next) {
        char text[INET_ADDRSTRLEN];
        struct in_addr in;

        if (a->ifa_addr == NULL || a->ifa_addr->sa_family != AF_INET ||
            strncmp(a->ifa_name, OUR_LINK, strlen(OUR_LINK)) == 0)
            continue;
        in = ((struct sockaddr_in *)a->ifa_addr)->sin_addr;
        if ((ntohl(in.s_addr) & mask) != base)
            continue;
        inet_ntop(AF_INET, &in, text, sizeof(text));
        doctor_report(d, "network", DOCTOR_BAD,
                      "set net.range to private addresses that nothing here uses, such as "
                      "10.213.0.0/16",
                      "net.range %s holds an address of this host: %s on %s", range, text,
                      a->ifa_name);
        freeifaddrs(list);
        return;
    }
    freeifaddrs(list);
    doctor_report(d, "network", DOCTOR_OK, "", "no address of this host is in net.range %s", range);
}

static void check_nftables(struct doctor *d)
{
    static const char *const list[] = {"nft", "list", "tables", NULL};
    char text[256];
    int status;

    if (!doctor_has_program("nft"))
        return; /* said already */
    status = doctor_run(list, text, sizeof(text));
    if (status == 0)
        doctor_report(d, "nftables", DOCTOR_OK, "", "the kernel takes rules");
    else if (geteuid() != 0)
        doctor_report(d, "nftables", DOCTOR_WARN, "run transom doctor as root",
                      "only root can see whether the kernel takes rules");
    else
        doctor_report(d, "nftables", DOCTOR_BAD,
                      "modprobe nf_tables; in a container, give it CAP_NET_ADMIN",
                      "the kernel takes no rules: %s", text);
}

void doctor_check_network(struct doctor *d)
{
    if (!d->options.net_enabled) {
        doctor_report(d, "network", DOCTOR_WARN, "set net.enabled: true",
                      "machines have no network, and there are no previews (net.enabled: false)");
        return;
    }
    check_nftables(d);
    if (access("/dev/net/tun", R_OK | W_OK) != 0)
        doctor_report(d, "network", DOCTOR_BAD,
                      "modprobe tun; in a container, give it /dev/net/tun",
                      "/dev/net/tun cannot be opened: machines get no network card");
    check_range(d);
}
