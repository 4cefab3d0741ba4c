/* SPDX-License-Identifier: MIT */
/* Lua scripts as commands: by text (EVAL) or by the text's hash (EVALSHA). */
#ifndef VMM_STATE_REDIS_SCRIPT_H
#define VMM_STATE_REDIS_SCRIPT_H

#include <stddef.h>
#include <stdint.h>

struct redis_script {
    struct redis_script *next;
    const char *text; /* borrowed, and the key: compared by address */
    char hash[41];
    uint64_t known_on; /* number of the connection that was sent the text */
};

struct redis_scripts {
    struct redis_script *first;
};

/* Find or add. NULL: no memory. Borrowed until redis_scripts_clear(). */
struct redis_script *redis_script_get(struct redis_scripts *scripts, const char *text);
void redis_scripts_clear(struct redis_scripts *scripts);

/* A command in one block of memory (free() ends it), its arguments copied. The first two depend on
 * how it is sent and are set by redis_eval_by_*(). */
struct redis_eval {
    const struct redis_script *script;
    int argc;
    const char **argv;
    size_t *argv_len;
};

/* argv_len may be NULL for C strings. NULL: no memory. */
struct redis_eval *redis_eval_new(const struct redis_script *script, int n_keys, int argc,
                                  const char **argv, const size_t *argv_len);
void redis_eval_by_text(struct redis_eval *eval);
void redis_eval_by_hash(struct redis_eval *eval);

#endif
