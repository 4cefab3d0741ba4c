/* SPDX-License-Identifier: MIT */
/* One line to standard error per entry: time, level, component, ids, text. Calls keep errno. */
#ifndef TRANSOM_LOG_H
#define TRANSOM_LOG_H

#include <stdbool.h>
#include <stddef.h>
#include "transom/err.h"

enum tr_log_level { TR_LOG_ERROR, TR_LOG_WARN, TR_LOG_INFO, TR_LOG_DEBUG };

/* Name of the program part that writes, e.g. "gateway" (borrowed for the process's life). */
void tr_log_init(const char *component, enum tr_log_level level);

/* One JSON object per line, {"time","level","component","message"} and one member for each of the
 * ids (which are words NAME=VALUE), instead of text. */
void tr_log_set_json(bool json);

/* "error", "warn", "info" or "debug". Returns 0, or -EINVAL and *level is untouched. */
TR_MUST_CHECK int tr_log_parse_level(const char *name, enum tr_log_level *level);

void tr_log_set_level(enum tr_log_level level);
enum tr_log_level tr_log_get_level(void);

/* Register a value that must never reach a log line: it is printed as "***" from now on. The value
 * is copied; values shorter than 8 bytes are ignored (they would blank out ordinary text).
 * Returns 0 or -ENOMEM. Any thread may call. */
TR_MUST_CHECK int tr_log_secret_add(const char *value, size_t len);
void tr_log_secret_remove(const char *value, size_t len);

/* ids is "" or text such as "vm=3f.. req=17"; control characters in the text become '?'. */
void tr_log(enum tr_log_level level, const char *ids, const char *fmt, ...) TR_PRINTF(3, 4);

#define log_error(...) tr_log(TR_LOG_ERROR, "", __VA_ARGS__)
#define log_warn(...)  tr_log(TR_LOG_WARN, "", __VA_ARGS__)
#define log_info(...)  tr_log(TR_LOG_INFO, "", __VA_ARGS__)
#define log_debug(...)                                                                             \
    do {                                                                                           \
        if (tr_log_get_level() >= TR_LOG_DEBUG)                                                    \
            tr_log(TR_LOG_DEBUG, "", __VA_ARGS__);                                                 \
    } while (0)

#endif
