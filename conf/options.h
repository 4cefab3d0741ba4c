/* SPDX-License-Identifier: MIT */
/* The table of options (conf/options.def) and the rules that a value must obey. */
#ifndef CONF_OPTIONS_H
#define CONF_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "transom/err.h"

enum opt_type {
    OPT_STRING,
    OPT_WORD, /* letters, digits, "_", "-", "." inside: safe as a file name */
    OPT_USER, /* user name or number */
    OPT_NAME, /* DNS name */
    OPT_PATH, /* absolute */
    OPT_URL,
    OPT_ENUM,
    OPT_ENDPOINT, /* numeric ADDRESS:PORT */
    OPT_CIDR4,    /* IPv4 ADDRESS/BITS with no host bits */
    OPT_INT,
    OPT_BOOL,
    OPT_LIST_ENDPOINT,
    OPT_LIST_CIDR, /* ADDRESS or ADDRESS/BITS, either family */
    OPT_LIST_ADDRESS,
    OPT_LIST_PATH, /* absolute */
};

struct opt {
    const char *name;
    enum opt_type type;
    const char *def;
    const char *unit;
    int64_t min, max;
    const char *allowed;
    const char *help;
    bool section; /* name is a section ("" for the top), only help holds besides */
};

extern const struct opt opt_table[];
extern const size_t opt_count; /* sections included */

/* Index of an option in opt_table, or -1. */
int opt_find(const char *name);
/* Is there a section of this name? */
bool opt_is_section(const char *name);
bool opt_is_list(const struct opt *opt);
/* Part after the last dot. */
const char *opt_leaf(const struct opt *opt);

/* What the option takes, for messages, e.g. "a whole number from 1 to 64 (CPUs)". */
void opt_describe(const struct opt *opt, char *buf, size_t size);

/* Does the text fit as the option's value (for a list: as one item)? Numbers and booleans are
 * stored in *number. Returns 0, or -EINVAL with the reason in why (no option name). */
TR_MUST_CHECK int opt_check(const struct opt *opt, const char *text, int64_t *number,
                            struct err *why);

/* The option or section whose name comes nearest, or NULL when none is near. */
const char *opt_nearest(const char *name);

#endif
