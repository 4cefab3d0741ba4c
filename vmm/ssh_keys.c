/* SPDX-License-Identifier: MIT */
#include "vmm/ssh_keys.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct vmm_ssh_key {
    struct vmm_ssh_key *next;
    uint64_t until_ms;
    char text[];
};

static void forget_expired(struct vmm_sandbox *sb, uint64_t now_ms)
{
    for (struct vmm_ssh_key **p = &sb->ssh_keys; *p != NULL;) {
        struct vmm_ssh_key *key = *p;

        if (key->until_ms > now_ms) {
            p = &key->next;
            continue;
        }
        *p = key->next;
        free(key);
    }
}

int vmm_ssh_keys_add(struct vmm_sandbox *sb, const char *public_key, int64_t expires_s,
                     uint64_t now_ms, struct err *err)
{
    uint64_t until = now_ms + (uint64_t)expires_s * 1000;
    size_t len = strcspn(public_key, "\r\n"), n = 0;
    struct vmm_ssh_key *key;

    if (len == 0 || len >= VMM_SSH_KEY_SIZE)
        return tr_err_set(err, -EINVAL, "member \"public_key\" must be an OpenSSH public key");
    forget_expired(sb, now_ms);
    for (key = sb->ssh_keys; key != NULL; key = key->next) {
        if (strlen(key->text) == len && strncmp(key->text, public_key, len) == 0) {
            key->until_ms = until > key->until_ms ? until : key->until_ms;
            return 0;
        }
        n++;
    }
    if (n >= VMM_SSH_KEYS_MAX)
        return tr_err_set(err, -EDQUOT, "the sandbox has %d SSH keys already", VMM_SSH_KEYS_MAX);
    key = malloc(sizeof(*key) + len + 1);
    if (key == NULL)
        return tr_err_set(err, -ENOMEM, "out of memory");
    memcpy(key->text, public_key, len);
    key->text[len] = '\0';
    key->until_ms = until;
    key->next = sb->ssh_keys;
    sb->ssh_keys = key;
    return 0;
}

json_t *vmm_ssh_keys_json(struct vmm_sandbox *sb, uint64_t now_ms)
{
    json_t *list = json_array();

    forget_expired(sb, now_ms);
    for (const struct vmm_ssh_key *key = sb->ssh_keys; list != NULL && key != NULL;
         key = key->next) {
        if (json_array_append_new(
                list, json_pack("{ss, sI}", "public_key", key->text, "expires_s",
                                (json_int_t)((key->until_ms - now_ms + 999) / 1000))) != 0) {
            json_decref(list);
            list = NULL;
        }
    }
    return list;
}

void vmm_ssh_keys_free(struct vmm_sandbox *sb)
{
    while (sb->ssh_keys != NULL) {
        struct vmm_ssh_key *key = sb->ssh_keys;

        sb->ssh_keys = key->next;
        free(key);
    }
}
