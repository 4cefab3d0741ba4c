/* SPDX-License-Identifier: MIT */
#include "vmm/state/redis_script.h"

#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct redis_script *redis_script_get(struct redis_scripts *scripts, const char *text)
{
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned len = 0;
    struct redis_script *s;

    for (s = scripts->first; s != NULL; s = s->next) {
        if (s->text == text)
            return s;
    }
    s = calloc(1, sizeof(*s));
    if (s == NULL)
        return NULL;
    if (EVP_Digest(text, strlen(text), digest, &len, EVP_sha1(), NULL) != 1 ||
        (size_t)len * 2 >= sizeof(s->hash)) {
        free(s);
        return NULL;
    }
    for (size_t i = 0; i < len; i++)
        snprintf(s->hash + 2 * i, 3, "%02x", digest[i]);
    s->text = text;
    s->next = scripts->first;
    scripts->first = s;
    return s;
}

void redis_scripts_clear(struct redis_scripts *scripts)
{
    struct redis_script *s;

    while ((s = scripts->first) != NULL) {
        scripts->first = s->next;
        free(s);
    }
}

static void set(struct redis_eval *e, int i, const char *text)
{
    e->argv[i] = text;
    e->argv_len[i] = strlen(text);
}

struct redis_eval *redis_eval_new(const struct redis_script *script, int n_keys, int argc,
                                  const char **argv, const size_t *argv_len)
{
    size_t total, n = (size_t)argc + 3;
    struct redis_eval *e;
    char count[12], *p;

    total = (size_t)snprintf(count, sizeof(count), "%d", n_keys) + 1;
    for (int i = 0; i < argc; i++)
        total += argv_len != NULL ? argv_len[i] : strlen(argv[i]);
    e = malloc(sizeof(*e) + n * (sizeof(char *) + sizeof(size_t)) + total);
    if (e == NULL)
        return NULL;
    e->script = script;
    e->argc = argc + 3;
    e->argv = (const char **)(e + 1);
    e->argv_len = (size_t *)(e->argv + n);
    p = (char *)(e->argv_len + n);
    memcpy(p, count, strlen(count) + 1);
    set(e, 2, p);
    p += strlen(count) + 1;
    for (int i = 0; i < argc; i++) {
        size_t len = argv_len != NULL ? argv_len[i] : strlen(argv[i]);

        e->argv[i + 3] = memcpy(p, argv[i], len);
        e->argv_len[i + 3] = len;
        p += len;
    }
    return e;
}

void redis_eval_by_text(struct redis_eval *e)
{
    set(e, 0, "EVAL");
    set(e, 1, e->script->text);
}

void redis_eval_by_hash(struct redis_eval *e)
{
    set(e, 0, "EVALSHA");
    set(e, 1, e->script->hash);
}
