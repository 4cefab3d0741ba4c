/* SPDX-License-Identifier: MIT */
#include "vmm/auth.h"

#include <dirent.h>
#include <errno.h>
#include <openssl/sha.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include "transom/log.h"
#include "vmm/file.h"
#include "vmm/table.h"

#define KEY_PREFIX       "transom_"
#define KEY_RANDOM       40
#define HASH_LEN         VMM_KEY_HASH_LEN
#define RECORD_MAX_BYTES 4096
#define NAME_MAX_BYTES   VMM_KEY_NAME_MAX

struct vmm_auth {
    char *dir;
    struct vmm_table by_hash;
    struct vmm_key *keys;
};

static const char *const scope_names[] = {"", "read", "session", "admin"};

static void hash_key(const char *key, char out[HASH_LEN + 1])
{
    uint8_t digest[SHA256_DIGEST_LENGTH];

    SHA256((const unsigned char *)key, strlen(key), digest);
    vmm_hex(digest, sizeof(digest), out);
}

bool vmm_owner_valid(const char *owner)
{
    return vmm_word_valid(owner, VMM_OWNER_MAX, "@+");
}

int vmm_scopes_parse(const json_t *list, enum vmm_scope *out, struct err *err)
{
    enum vmm_scope widest = VMM_SCOPE_NONE;
    size_t i;
    json_t *item;

    if (!json_is_array(list) || json_array_size(list) == 0 || json_array_size(list) > 3)
        return tr_err_set(err, -EINVAL, "scopes: a list of \"admin\", \"session\" or \"read\"");
    json_array_foreach(list, i, item)
    {
        enum vmm_scope scope = VMM_SCOPE_NONE;

        for (int s = VMM_SCOPE_READ; s <= VMM_SCOPE_ADMIN; s++) {
            if (json_is_string(item) && strcmp(json_string_value(item), scope_names[s]) == 0)
                scope = (enum vmm_scope)s;
        }
        if (scope == VMM_SCOPE_NONE)
            return tr_err_set(err, -EINVAL,
                              "scopes[%zu]: must be \"admin\", \"session\" or \"read\"", i);
        if (scope > widest)
            widest = scope;
    }
    *out = widest;
    return 0;
}

json_t *vmm_key_view(const struct vmm_key *k)
{
    char time[VMM_TIME_SIZE];

    vmm_time_text(k->created_ms, time);
    return json_pack("{ss, ss, ss, s[s], ss}", "id", k->id, "owner", k->owner, "name", k->name,
                     "scopes", scope_names[k->scope], "created_at", time);
}

static int add(struct vmm_auth *auth, struct vmm_key *k)
{
    int r = vmm_table_set(&auth->by_hash, k->hash, k);

    if (r != 0)
        return r;
    k->next = auth->keys;
    auth->keys = k;
    return 0;
}

static int parse_record(const char *hash, const json_t *record, struct vmm_key *k, struct err *err)
{
    const char *id = json_string_value(json_object_get(record, "id"));
    const char *owner = json_string_value(json_object_get(record, "owner"));
    const char *name = json_string_value(json_object_get(record, "name"));
    const json_t *created = json_object_get(record, "created_ms");

    if (id == NULL || strlen(id) != VMM_ID_LEN || owner == NULL || !vmm_owner_valid(owner) ||
        name == NULL || strlen(name) > NAME_MAX_BYTES || !json_is_integer(created))
        return tr_err_set(err, -EBADMSG, "key record %.16s: a member is missing or wrong", hash);
    snprintf(k->hash, sizeof(k->hash), "%s", hash);
    snprintf(k->id, sizeof(k->id), "%s", id);
    snprintf(k->owner, sizeof(k->owner), "%s", owner);
    snprintf(k->name, sizeof(k->name), "%s", name);
    k->created_ms = json_integer_value(created);
    return vmm_scopes_parse(json_object_get(record, "scopes"), &k->scope, err);
}

/* Load dir/<hash>.json; a broken one is set aside, only lack of memory is a fault. */
static int load_record(struct vmm_auth *auth, const char *file, struct err *err)
{
    char path[VMM_PATH_SIZE], hash[HASH_LEN + 1];
    struct vmm_key *k = calloc(1, sizeof(*k));
    json_t *record = NULL;
    struct err why = {0};
    int r;

    if (k == NULL)
        return tr_err_set(err, -ENOMEM, "out of memory");
    snprintf(path, sizeof(path), "%s/%s", auth->dir, file);
    snprintf(hash, sizeof(hash), "%.*s", HASH_LEN, file);
    r = vmm_file_read_json(path, RECORD_MAX_BYTES, &record, &why);
    if (r == 0)
        r = parse_record(hash, record, k, &why);
    json_decref(record);
    if (r == 0)
        r = add(auth, k);
    if (r == 0)
        return 0;
    free(k);
    if (r == -ENOMEM)
        return tr_err_set(err, r, "out of memory");
    vmm_file_set_aside(path, &why);
    return 0;
}

int vmm_auth_open(const char *dir, struct vmm_auth **out, struct err *err)
{
    struct vmm_auth *auth;
    struct dirent *entry;
    int r = vmm_file_mkdirs(dir, 0700, err);
    DIR *d;

    if (r != 0)
        return r;
    auth = calloc(1, sizeof(*auth));
    if (auth == NULL || (auth->dir = strdup(dir)) == NULL) {
        free(auth);
        return tr_err_set(err, -ENOMEM, "out of memory");
    }
    d = opendir(dir);
    if (d == NULL) {
        r = tr_err_set(err, -errno, "cannot read %s: %s", dir, strerror(errno));
        vmm_auth_free(auth);
        return r;
    }
    while (r == 0 && (entry = readdir(d)) != NULL) {
        size_t len = strlen(entry->d_name);

        if (entry->d_name[0] != '.' && len == HASH_LEN + 5 &&
            strcmp(entry->d_name + HASH_LEN, ".json") == 0)
            r = load_record(auth, entry->d_name, err);
    }
    closedir(d);
    if (r != 0) {
        vmm_auth_free(auth);
        return r;
    }
    *out = auth;
    return 0;
}

void vmm_auth_free(struct vmm_auth *auth)
{
    struct vmm_key *next;

    if (auth == NULL)
        return;
    for (struct vmm_key *k = auth->keys; k != NULL; k = next) {
        next = k->next;
        free(k);
    }
    vmm_table_fini(&auth->by_hash);
    free(auth->dir);
    free(auth);
}

int vmm_auth_check(const struct vmm_auth *auth, const char *key, struct vmm_identity *out)
{
    char hash[HASH_LEN + 1];
    struct vmm_key *k;

    if (strlen(key) >= VMM_KEY_SIZE)
        return -EACCES;
    hash_key(key, hash);
    k = vmm_table_get(&auth->by_hash, hash);
    if (k == NULL)
        return -EACCES;
    snprintf(out->owner, sizeof(out->owner), "%s", k->owner);
    out->scope = k->scope;
    snprintf(out->key, sizeof(out->key), "%s", k->id);
    out->rate = &k->rate;
    return 0;
}

const char *vmm_auth_bearer(const char *field)
{
    if (field == NULL || strncasecmp(field, "Bearer ", 7) != 0)
        return NULL;
    field += 7;
    while (*field == ' ')
        field++;
    return field;
}

int vmm_auth_create(struct vmm_auth *auth, const char *owner, const char *name,
                    enum vmm_scope scope, json_t **out, struct err *err)
{
    char key[VMM_KEY_SIZE] = KEY_PREFIX, file[HASH_LEN + 6];
    json_t *record = NULL, *view = NULL;
    struct vmm_key *k;
    int r = -ENOMEM;

    if (auth->by_hash.n_entries >= VMM_KEY_MAX)
        return tr_err_set(err, -EDQUOT, "there are %d keys already; delete some", VMM_KEY_MAX);
    k = calloc(1, sizeof(*k));
    if (k == NULL)
        return tr_err_set(err, -ENOMEM, "out of memory");
    vmm_random_hex(key + strlen(KEY_PREFIX), KEY_RANDOM);
    hash_key(key, k->hash);
    vmm_random_id(k->id, VMM_ID_LEN);
    snprintf(k->owner, sizeof(k->owner), "%s", owner);
    snprintf(k->name, sizeof(k->name), "%s", name);
    k->scope = scope;
    k->created_ms = vmm_wall_ms();
    view = vmm_key_view(k);
    record = json_deep_copy(view);
    if (record == NULL || json_object_set_new(view, "key", json_string(key)) != 0 ||
        json_object_del(record, "created_at") != 0 ||
        json_object_set_new(record, "created_ms", json_integer(k->created_ms)) != 0) {
        (void)tr_err_set(err, -ENOMEM, "out of memory");
        goto out;
    }
    snprintf(file, sizeof(file), "%s.json", k->hash);
    r = vmm_file_write_json(auth->dir, file, record, err);
    if (r == 0) {
        r = add(auth, k);
        if (r != 0)
            (void)tr_err_set(err, r, "out of memory");
    }
    if (r == 0) {
        *out = json_incref(view);
        k = NULL;
    }
out:
    explicit_bzero(key, sizeof(key));
    json_decref(record);
    json_decref(view);
    free(k);
    return r;
}

const char *vmm_scope_name(enum vmm_scope scope)
{
    return scope_names[scope];
}

const struct vmm_key *vmm_auth_keys(const struct vmm_auth *auth)
{
    return auth->keys;
}

const struct vmm_key *vmm_auth_by_hash(const struct vmm_auth *auth, const char *hash)
{
    return vmm_table_get(&auth->by_hash, hash);
}

const struct vmm_key *vmm_auth_by_id(const struct vmm_auth *auth, const char *id)
{
    for (const struct vmm_key *k = auth->keys; k != NULL; k = k->next) {
        if (strcmp(k->id, id) == 0)
            return k;
    }
    return NULL;
}

size_t vmm_auth_n_keys(const struct vmm_auth *auth)
{
    return auth->by_hash.n_entries;
}

int vmm_auth_delete(struct vmm_auth *auth, const char *id, struct err *err)
{
    for (struct vmm_key **p = &auth->keys; *p != NULL; p = &(*p)->next) {
        struct vmm_key *k = *p;
        char file[HASH_LEN + 6];
        int r;

        if (strcmp(k->id, id) != 0)
            continue;
        snprintf(file, sizeof(file), "%s.json", k->hash);
        r = vmm_file_remove(auth->dir, file, err);
        if (r != 0)
            return r;
        *p = k->next;
        (void)vmm_table_take(&auth->by_hash, k->hash);
        free(k);
        return 0;
    }
    return -ENOENT;
}
