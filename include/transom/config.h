/* SPDX-License-Identifier: MIT */
/* Configuration of both daemons, from one YAML file. One table (conf/options.def) gives each
 * option's dotted name, type, default, unit, range and help; parser, --check, --help and
 * conf/transom.yaml come from it. */
#ifndef TRANSOM_CONFIG_H
#define TRANSOM_CONFIG_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include "transom/err.h"

struct tr_config;

/* Defaults only. Returns 0 and *out, or -ENOMEM. */
TR_MUST_CHECK int tr_config_new(struct tr_config **out);
/* Defaults overlaid with a file. A fault names file, line, column and option in err. */
TR_MUST_CHECK int tr_config_load(const char *path, struct tr_config **out, struct err *err);
/* The same from memory (name stands for the file in messages). */
TR_MUST_CHECK int tr_config_parse(const char *name, const char *text, size_t len,
                                  struct tr_config **out, struct err *err);
void tr_config_free(struct tr_config *config);

/* Values by dotted name, e.g. "gateway.http". An unknown name or wrong type is a bug (assert).
 * Strings are borrowed from the configuration and never NULL ("" when unset). preview_domain and
 * node.name are never "": left empty, they are filled in from domain and from the host's name. */
const char *tr_config_str(const struct tr_config *config, const char *name);
int64_t tr_config_int(const struct tr_config *config, const char *name);
bool tr_config_bool(const struct tr_config *config, const char *name);
/* Lists of strings: count, and item i. */
size_t tr_config_list_len(const struct tr_config *config, const char *name);
const char *tr_config_list_get(const struct tr_config *config, const char *name, size_t i);

/* Has the option the same value in both? */
bool tr_config_same(const struct tr_config *a, const struct tr_config *b, const char *name);

/* Print every option as text for --help, or as the commented conf/transom.yaml. */
void tr_config_print_help(FILE *out);
void tr_config_print_yaml(FILE *out);
/* transom.yaml(5), as roff. */
void tr_config_print_man(FILE *out);

#endif
