/* SPDX-License-Identifier: MIT */
/* The nftables rules of a node, as text for "nft -f -". Pure. */
#ifndef VMM_RULES_H
#define VMM_RULES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "vmm/net/range.h"

#define RULES_UPLINK    "uplink" /* the veth's end inside the namespace */
#define RULES_TABLE     "transom"
#define RULES_GATEWAY   "169.254.1.1"
#define RULES_DNS_PORT  53053 /* of the name server outside, on the veth's host end */
/* Who fetches on a session's behalf, in the namespace itself: what holds for machines holds for
 * this user. Nobody else on the host is him. */
#define RULES_FETCH_UID 65533
#define RULES_WAS_OFF   "forwarding_was_off"

/* A machine's tap and its address. */
struct rules_pair {
    char tap[16];
    uint32_t address;
};

/* The namespace's table, replaced as a whole: sources pinned to taps, machines may reach the name
 * server and the world but nothing private. Returns malloc'ed text, NULL when out of memory. */
char *rules_namespace(const struct range *range, const struct rules_pair *pairs, size_t n_pairs);

/* Add or remove one machine. */
char *rules_add(const struct rules_pair *pair);
char *rules_remove(const struct rules_pair *pair);

/* The table in the manager's own namespace, replaced as a whole: masquerade, nothing into the host.
 * table: its name; veth: the host's end; was_off: leave the mark that says forwarding was off
 * before. */
char *rules_host(const struct range *range, const char *table, const char *veth, bool was_off);
/* Remove that table; no fault when it is not there. */
char *rules_host_remove(const char *table);

/* From the output of "nft list chains": does our table, does any other node's table carry the mark,
 * are there other nodes at all, and does a chain of somebody else's drop by default what machines
 * need (Docker, ufw and firewalld make such)? */
struct rules_survey {
    bool ours_was_off, other_was_off, others;
    char blocker[128]; /* "ip filter FORWARD", "" none */
};
void rules_read_survey(const char *text, const char *table, struct rules_survey *out);

#endif
