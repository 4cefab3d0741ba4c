/* SPDX-License-Identifier: MIT */
#include "vmm/send/address.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* As IPv6, IPv4 as ::ffff:0:0/96. Returns false for other families. */
static bool as_ipv6(const struct sockaddr *sa, uint8_t out[16])
{
    static const uint8_t mapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

    if (sa->sa_family == AF_INET6) {
        memcpy(out, &((const struct sockaddr_in6 *)sa)->sin6_addr, 16);
        return true;
    }
    if (sa->sa_family != AF_INET)
        return false;
    memcpy(out, mapped, 12);
    memcpy(out + 12, &((const struct sockaddr_in *)sa)->sin_addr, 4);
    return true;
}

static bool in_block(const uint8_t address[16], const char *text)
{
    uint8_t block[16];
    struct sockaddr_storage sa = {0};
    char host[64];
    const char *slash = strchr(text, '/');
    unsigned bits, most;

    snprintf(host, sizeof(host), "%.*s", (int)(slash != NULL ? slash - text : (long)strlen(text)),
             text);
    if (inet_pton(AF_INET, host, &((struct sockaddr_in *)&sa)->sin_addr) == 1)
        sa.ss_family = AF_INET;
    else if (inet_pton(AF_INET6, host, &((struct sockaddr_in6 *)&sa)->sin6_addr) == 1)
        sa.ss_family = AF_INET6;
    else
        return false;
    most = sa.ss_family == AF_INET ? 32 : 128;
    bits = slash != NULL ? (unsigned)strtoul(slash + 1, NULL, 10) : most;
    if (bits > most || !as_ipv6((struct sockaddr *)&sa, block))
        return false;
    bits += 128 - most;
    for (unsigned i = 0; i < bits; i += 8) {
        uint8_t mask = bits - i >= 8 ? 0xff : (uint8_t)(0xff << (8 - (bits - i)));

        if ((address[i / 8] & mask) != (block[i / 8] & mask))
            return false;
    }
    return true;
}

bool send_address_public(const struct sockaddr *sa)
{
    static const char *const special[] = {
        "0.0.0.0/8",     "10.0.0.0/8",      "100.64.0.0/10",  "127.0.0.0/8",    "169.254.0.0/16",
        "172.16.0.0/12", "192.0.0.0/24",    "192.0.2.0/24",   "192.88.99.0/24", "192.168.0.0/16",
        "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4",    "240.0.0.0/4",
        "2001::/23",     "2001:db8::/32",   "2002::/16",      "3fff::/20",
    };
    uint8_t address[16];

    if (!as_ipv6(sa, address))
        return false;
    for (size_t i = 0; i < sizeof(special) / sizeof(special[0]); i++) {
        if (in_block(address, special[i]))
            return false;
    }
    return in_block(address, "0.0.0.0/0") || in_block(address, "2000::/3");
}

static bool is_ours(const uint8_t address[16])
{
    struct ifaddrs *list = NULL;
    bool found = false;

    if (getifaddrs(&list) != 0)
        return true; /* not known: better not */
    for (const struct ifaddrs *a = list; a != NULL && !found; a = a->ifa_next) {
        uint8_t own[16];

        found = a->ifa_addr != NULL && as_ipv6(a->ifa_addr, own) && memcmp(own, address, 16) == 0;
    }
    freeifaddrs(list);
    return found;
}

bool send_address_allowed(const struct sockaddr *sa, const json_t *allow)
{
    uint8_t address[16];

    if (!as_ipv6(sa, address))
        return false;
    for (size_t i = 0; i < json_array_size(allow); i++) {
        const char *text = json_string_value(json_array_get(allow, i));

        if (text != NULL && in_block(address, text))
            return true;
    }
    return send_address_public(sa) && !is_ours(address);
}
