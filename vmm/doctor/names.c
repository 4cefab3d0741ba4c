/* SPDX-License-Identifier: MIT */
/* Does the name service lead api., admin. and every preview here? */
#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include "vmm/doctor/doctor.h"
#include "vmm/text.h"

static bool is_localhost(const char *domain)
{
    size_t len = strlen(domain);

    return strcasecmp(domain, "localhost") == 0 ||
           (len > 10 && strcasecmp(domain + len - 10, ".localhost") == 0);
}

static bool is_ours(const struct sockaddr *wanted)
{
    struct ifaddrs *list = NULL;
    bool found = false;

    if (getifaddrs(&list) != 0)
        return true; /* not known */
    for (struct ifaddrs *a = list; a != NULL && !found; a = a->ifa_next) {
        if (a->ifa_addr == NULL || a->ifa_addr->sa_family != wanted->sa_family)
            continue;
        if (wanted->sa_family == AF_INET)
            found = ((const struct sockaddr_in *)wanted)->sin_addr.s_addr ==
                    ((struct sockaddr_in *)a->ifa_addr)->sin_addr.s_addr;
        else if (wanted->sa_family == AF_INET6)
            found = memcmp(&((const struct sockaddr_in6 *)wanted)->sin6_addr,
                           &((struct sockaddr_in6 *)a->ifa_addr)->sin6_addr, 16) == 0;
    }
    freeifaddrs(list);
    return found;
}

static void check_name(struct doctor *d, const char *name, const char *mend)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found = NULL;
    char text[INET6_ADDRSTRLEN] = "?";
    int r = getaddrinfo(name, NULL, &hints, &found);

    if (r != 0) {
        doctor_report(d, "dns", DOCTOR_BAD, mend, "%s has no address: %s", name, gai_strerror(r));
        return;
    }
    (void)getnameinfo(found->ai_addr, found->ai_addrlen, text, sizeof(text), NULL, 0,
                      NI_NUMERICHOST);
    if (is_ours(found->ai_addr))
        doctor_report(d, "dns", DOCTOR_OK, "", "%s is %s, this host", name, text);
    else
        doctor_report(d, "dns", DOCTOR_WARN,
                      "right if a load balancer or address translation stands before this host, "
                      "else correct the record",
                      "%s is %s, which is no address of this host", name, text);
    freeaddrinfo(found);
}

void doctor_check_names(struct doctor *d)
{
    const char *domain = tr_config_str(d->config, "domain"), *previews = d->options.preview_domain;
    char name[300], mend[600], label[VMM_ID_LEN + 1];

    if (is_localhost(domain) && is_localhost(previews)) {
        doctor_report(d, "dns", DOCTOR_OK, "",
                      "*.%s: browsers know it by themselves, and nobody else reaches it", previews);
        return;
    }
    snprintf(mend, sizeof(mend), "add records with this host's address: api.%s A, admin.%s A",
             domain, domain);
    snprintf(name, sizeof(name), "api.%s", domain);
    check_name(d, name, mend);
    /* Nobody made a record for a label of chance: only a wildcard answers. */
    vmm_random_id(label, VMM_ID_LEN);
    snprintf(mend, sizeof(mend),
             "add a wildcard record with this host's address: *.%s A (and AAAA)", previews);
    snprintf(name, sizeof(name), "%s.%s", label, previews);
    check_name(d, name, mend);
}
