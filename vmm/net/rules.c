/* SPDX-License-Identifier: MIT */
#include "vmm/net/rules.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TABLE_PREFIX "transom_"

struct text {
    FILE *f;
    char *data;
    size_t len;
};

static bool text_open(struct text *t)
{
    t->data = NULL;
    t->f = open_memstream(&t->data, &t->len);
    return t->f != NULL;
}

static char *text_take(struct text *t)
{
    bool bad = ferror(t->f) != 0;

    if (fclose(t->f) != 0 || bad) {
        free(t->data);
        return NULL;
    }
    return t->data;
}

/* What no machine may reach: the node's own range, private, shared, link-local and reserved
 * networks. Documentation and benchmark networks are left out: there are hosts whose real peers
 * live there. */
static const char *const denied[] = {
    "0.0.0.0/8",      "10.0.0.0/8",    "100.64.0.0/10",  "127.0.0.0/8",
    "169.254.0.0/16", "172.16.0.0/12", "192.168.0.0/16", "224.0.0.0/3",
};

static void put_denied(FILE *f, const struct range *range)
{
    char base[RANGE_TEXT];
    size_t i;

    /* auto-merge: the range may lie inside of one of the others. */
    (void)fprintf(f,
                  "  set denied {\n    type ipv4_addr; flags interval; auto-merge\n"
                  "    elements = { %s/%u",
                  range_text(range->base, base), range->prefix);
    for (i = 0; i < sizeof(denied) / sizeof(denied[0]); i++)
        (void)fprintf(f, ", %s", denied[i]);
    (void)fputs(" }\n  }\n", f);
}

static void put_machines(FILE *f, const struct rules_pair *pairs, size_t n_pairs)
{
    char address[RANGE_TEXT];
    size_t i;

    (void)fputs("  set machines {\n    type ifname . ipv4_addr\n", f);
    for (i = 0; i < n_pairs; i++)
        (void)fprintf(f, "%s\"%s\" . %s", i == 0 ? "    elements = { " : ", ", pairs[i].tap,
                      range_text(pairs[i].address, address));
    if (n_pairs > 0)
        (void)fputs(" }\n", f);
    (void)fputs("  }\n", f);
}

char *rules_namespace(const struct range *range, const struct rules_pair *pairs, size_t n_pairs)
{
    char host[RANGE_TEXT], ns[RANGE_TEXT];
    struct text t;

    if (!text_open(&t))
        return NULL;
    (void)range_text(range->host, host);
    (void)range_text(range->ns, ns);
    (void)fputs("table inet " RULES_TABLE "\ndelete table inet " RULES_TABLE
                "\ntable inet " RULES_TABLE " {\n",
                t.f);
    put_denied(t.f, range);
    put_machines(t.f, pairs, n_pairs);
    (void)fprintf(t.f,
                  /* Everything that is neither the uplink nor loopback is a tap. */
                  "  chain pin {\n"
                  "    type filter hook prerouting priority raw; policy accept;\n"
                  "    iifname { \"lo\", \"" RULES_UPLINK "\" } accept\n"
                  "    meta nfproto ipv6 drop\n"
                  "    iifname . ip saddr != @machines drop\n"
                  "  }\n"
                  "  chain refuse {\n"
                  "    meta l4proto tcp reject with tcp reset\n"
                  "    reject with icmpx type admin-prohibited\n"
                  "  }\n"
                  "  chain input {\n"
                  "    type filter hook input priority filter; policy drop;\n"
                  "    iifname \"lo\" accept\n"
                  "    ct state invalid drop\n"
                  "    ct state established,related accept\n"
                  "    iifname \"" RULES_UPLINK "\" ip saddr %s icmp type echo-request accept\n"
                  "    iifname \"" RULES_UPLINK "\" drop\n"
                  "    ip daddr %s meta l4proto { tcp, udp } th dport 53 accept\n"
                  "    ip daddr " RULES_GATEWAY " icmp type echo-request accept\n"
                  "    jump refuse\n"
                  "  }\n"
                  "  chain forward {\n"
                  "    type filter hook forward priority filter; policy drop;\n"
                  "    ct state invalid drop\n"
                  "    ct state established,related accept\n"
                  "    iifname \"" RULES_UPLINK "\" ip saddr %s accept\n"
                  "    iifname \"" RULES_UPLINK "\" drop\n"
                  "    oifname != \"" RULES_UPLINK "\" jump refuse\n"
                  "    ip daddr @denied jump refuse\n"
                  "    accept\n"
                  "  }\n"
                  "  chain fetch {\n"
                  "    ip daddr %s meta l4proto { tcp, udp } th dport 53 accept\n"
                  "    ip daddr @denied jump refuse\n"
                  "    oifname \"lo\" jump refuse\n"
                  "  }\n"
                  /* What the kernel sends by itself, such as a refusal, is nobody's. */
                  "  chain output {\n"
                  "    type filter hook output priority filter; policy accept;\n"
                  "    meta skuid %d jump fetch\n"
                  "  }\n"
                  "}\n",
                  host, ns, host, ns, RULES_FETCH_UID);
    return text_take(&t);
}

static char *one_element(const char *verb, const struct rules_pair *pair)
{
    char address[RANGE_TEXT];
    char *text;

    if (asprintf(&text, "%s element inet " RULES_TABLE " machines { \"%s\" . %s }\n", verb,
                 pair->tap, range_text(pair->address, address)) < 0)
        return NULL;
    return text;
}

char *rules_add(const struct rules_pair *pair)
{
    return one_element("add", pair);
}

char *rules_remove(const struct rules_pair *pair)
{
    return one_element("delete", pair);
}

char *rules_host(const struct range *range, const char *table, const char *veth, bool was_off)
{
    char base[RANGE_TEXT], host[RANGE_TEXT], ns[RANGE_TEXT];
    struct text t;

    if (!text_open(&t))
        return NULL;
    (void)range_text(range->base, base);
    (void)range_text(range->host, host);
    (void)range_text(range->ns, ns);
    (void)fprintf(t.f, "table ip %s\ndelete table ip %s\ntable ip %s {\n", table, table, table);
    if (was_off)
        (void)fputs("  chain " RULES_WAS_OFF " {\n  }\n", t.f);
    (void)fprintf(t.f,
                  "  chain input {\n"
                  "    type filter hook input priority filter; policy accept;\n"
                  "    iifname != \"%s\" accept\n"
                  "    ct state established,related accept\n"
                  "    ip saddr %s ip daddr %s meta l4proto { tcp, udp } th dport %d accept\n"
                  "    meta l4proto tcp reject with tcp reset\n"
                  "    reject with icmp type admin-prohibited\n"
                  "  }\n",
                  veth, ns, host, RULES_DNS_PORT);
    (void)fprintf(t.f,
                  "  chain forward {\n"
                  "    type filter hook forward priority filter; policy accept;\n"
                  /* An uplink with a smaller MTU than the machines' 1500. */
                  "    iifname \"%s\" tcp flags & (syn | rst) == syn tcp option maxseg size set "
                  "rt mtu\n"
                  "    oifname \"%s\" tcp flags & (syn | rst) == syn tcp option maxseg size set "
                  "rt mtu\n"
                  "    iifname \"%s\" oifname \"%s\" drop\n"
                  "    iifname \"%s\" ip saddr != %s/%u drop\n"
                  "    oifname \"%s\" ct state established,related accept\n"
                  "    oifname \"%s\" drop\n"
                  "  }\n"
                  "  chain postrouting {\n"
                  "    type nat hook postrouting priority srcnat; policy accept;\n"
                  "    ip saddr %s/%u oifname != \"%s\" masquerade\n"
                  "  }\n"
                  "}\n",
                  veth, veth, veth, veth, veth, base, range->prefix, veth, veth, base,
                  range->prefix, veth);
    return text_take(&t);
}

char *rules_host_remove(const char *table)
{
    char *text;

    if (asprintf(&text, "table ip %s\ndelete table ip %s\n", table, table) < 0)
        return NULL;
    return text;
}

/* Where in the listing a line stands. */
struct place {
    char family[8], table[64], chain[64];
};

static bool is_node(const struct place *at)
{
    return strcmp(at->family, "ip") == 0 &&
           strncmp(at->table, TABLE_PREFIX, sizeof(TABLE_PREFIX) - 1) == 0;
}

static void read_chain(const struct place *at, const char *table, struct rules_survey *out)
{
    if (!is_node(at) || strcmp(at->chain, RULES_WAS_OFF) != 0)
        return;
    if (strcmp(at->table, table) == 0)
        out->ours_was_off = true;
    else
        out->other_was_off = true;
}

static void read_hook(const struct place *at, const char *line, struct rules_survey *out)
{
    bool passes_us = strncmp(line, "type filter hook forward ", 25) == 0 ||
                     strncmp(line, "type filter hook input ", 23) == 0;

    if (passes_us && strstr(line, "policy drop") != NULL && !is_node(at) &&
        out->blocker[0] == '\0' &&
        (strcmp(at->family, "ip") == 0 || strcmp(at->family, "inet") == 0))
        (void)snprintf(out->blocker, sizeof(out->blocker), "%s %s %s", at->family, at->table,
                       at->chain);
}

void rules_read_survey(const char *text, const char *table, struct rules_survey *out)
{
    struct place at = {"", "", ""};
    char line[256];

    memset(out, 0, sizeof(*out));
    while (*text != '\0') {
        size_t n = strcspn(text, "\n");

        (void)snprintf(line, sizeof(line), "%.*s", (int)n, text + strspn(text, " \t"));
        line[strcspn(line, "\n")] = '\0';
        if (sscanf(line, "table %7s %63s", at.family, at.table) == 2) {
            if (is_node(&at) && strcmp(at.table, table) != 0)
                out->others = true;
        } else if (sscanf(line, "chain %63s", at.chain) == 1) {
            read_chain(&at, table, out);
        } else {
            read_hook(&at, line, out);
        }
        text += n + (text[n] == '\n');
    }
}
