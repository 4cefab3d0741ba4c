/* SPDX-License-Identifier: MIT */
/* What conf/config.c (values) and conf/config_parse.c (YAML) share. */
#ifndef CONF_CONFIG_INTERNAL_H
#define CONF_CONFIG_INTERNAL_H

#include "conf/options.h"
#include "transom/config.h"

#define CONFIG_MAX_BYTES (1024 * 1024)

struct config_value {
    char *text; /* scalar types, number as written; NULL for lists */
    char **items;
    size_t n_items;
    int64_t number;
    size_t line; /* where it was given; 0: default */
};

struct tr_config {
    struct config_value *values; /* parallel to opt_table */
};

/* Replace the value of option i. Returns 0, -EINVAL with the reason, or -ENOMEM. */
TR_MUST_CHECK int config_set(struct tr_config *config, size_t i, const char *text, struct err *why);
/* Empty the list of option i, or add an item to it. */
void config_list_clear(struct tr_config *config, size_t i);
TR_MUST_CHECK int config_list_add(struct tr_config *config, size_t i, const char *text,
                                  struct err *why);

/* Overlay config with the options in text. A fault is FILE:LINE:COLUMN: ... in err. */
TR_MUST_CHECK int config_overlay(struct tr_config *config, const char *name, const char *text,
                                 size_t len, struct err *err);

#endif
