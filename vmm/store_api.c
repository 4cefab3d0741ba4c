/* SPDX-License-Identifier: MIT */
#include "vmm/store_api.h"

#include <errno.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "vmm/text.h"

/* ---- calls ---- */

void vmm_store_call_free(struct vmm_store_call *call)
{
    json_decref(call->answer);
    free(call->path);
    free(call->to);
    free(call->text);
    vmm_request_unref(call->req);
    free(call);
}

static void on_done(struct vmm_store_job *job)
{
    struct vmm_store_call *call = (struct vmm_store_call *)job;
    json_t *answer = call->answer;

    if (job->err.code == 0 && call->then != NULL)
        call->then(call);
    if (call->changes_files) /* also when it came only half-way */
        vmm_store_changed(call->req->vmm, call->session);
    call->answer = NULL;
    if (job->err.code != 0) {
        vmm_store_reply_err(call->req, &job->err);
        json_decref(answer);
    } else if (call->status == 204) {
        vmm_reply_empty(call->req, 204);
        json_decref(answer);
    } else {
        vmm_reply_json(call->req, call->status, answer);
    }
    vmm_store_call_free(call);
}

struct vmm_store_call *vmm_store_call_new(struct vmm_request *req,
                                          void (*run)(struct vmm_store_job *job,
                                                      struct sync_store *store))
{
    struct vmm_store_call *call = calloc(1, sizeof(*call));

    if (call == NULL) {
        vmm_reply_error(req, 503, "out of memory");
        return NULL;
    }
    call->job.run = run;
    call->job.done = on_done;
    call->req = vmm_request_ref(req);
    call->status = 200;
    memcpy(call->session, req->session->id, sizeof(call->session));
    snprintf(call->author, sizeof(call->author), "%s", req->who.owner);
    return call;
}

void vmm_store_call_start(struct vmm_store_call *call)
{
    struct err err = {0};

    if (vmm_store_submit(call->req->vmm, call->req->session, &call->job, &err) == 0)
        return;
    vmm_store_reply_err(call->req, &err);
    vmm_store_call_free(call);
}

void vmm_store_reply_err(struct vmm_request *req, const struct err *err)
{
    switch (err->code) {
    case -EISDIR:
    case -ENOTDIR:
    case -ELOOP:
    case -ENOTEMPTY:
        vmm_reply_error(req, 409, "%s", err->msg);
        return;
    case -ESTALE:
        vmm_reply_error(req, 412, "%s", err->msg);
        return;
    case -EDQUOT:
        vmm_reply_fault(req, 507, "quota_exceeded", "%s", err->msg);
        return;
    case -ENOSPC:
        vmm_reply_fault(req, 507, "disk_full", "%s", err->msg);
        return;
    case -EIO:
        vmm_reply_error(req, 500, "%s", err->msg);
        return;
    default:
        vmm_reply_err(req, err);
        return;
    }
}

/* ---- bytes ---- */

/* Length of the UTF-8 character at s, or 0. */
static size_t character(const char *s, size_t len)
{
    for (size_t n = 1; n <= 4 && n <= len; n++) {
        if (vmm_utf8_valid(s, n))
            return n;
    }
    return 0;
}

int vmm_store_set_bytes(json_t *object, const char *key, const char *bytes, size_t len)
{
    char name[64], *text;
    unsigned char *b64;
    size_t n = 0;
    int r;

    if (vmm_utf8_valid(bytes, len))
        return json_object_set_new(object, key, json_stringn(bytes, len)) == 0 ? 0 : -ENOMEM;
    text = malloc(3 * len + 1);
    b64 = malloc((len + 2) / 3 * 4 + 1);
    if (text == NULL || b64 == NULL) {
        free(text);
        free(b64);
        return -ENOMEM;
    }
    for (size_t i = 0; i < len;) {
        size_t c = character(bytes + i, len - i);

        memcpy(text + n, c > 0 ? bytes + i : "\xef\xbf\xbd", c > 0 ? c : 3);
        n += c > 0 ? c : 3;
        i += c > 0 ? c : 1;
    }
    EVP_EncodeBlock(b64, (const unsigned char *)bytes, (int)len);
    snprintf(name, sizeof(name), "%s_b64", key);
    r = json_object_set_new(object, key, json_stringn(text, n)) == 0 &&
                json_object_set_new(object, name, json_string((const char *)b64)) == 0
            ? 0
            : -ENOMEM;
    free(text);
    free(b64);
    return r;
}

static int decode(const char *key, const char *text, size_t text_len, char **out, size_t *len,
                  struct err *err)
{
    size_t padding = 0;
    int n;

    while (padding < 2 && padding < text_len && text[text_len - 1 - padding] == '=')
        padding++;
    *out = malloc(text_len + 4);
    if (*out == NULL)
        return tr_err_set(err, -ENOMEM, "out of memory");
    n = text_len % 4 != 0 || text_len > 4 * SYNC_PATH_MAX
            ? -1
            : EVP_DecodeBlock((unsigned char *)*out, (const unsigned char *)text, (int)text_len);
    if (n < 0 || (size_t)n < padding) {
        free(*out);
        *out = NULL;
        return tr_err_set(err, -EINVAL, "member \"%s_b64\" is not base 64", key);
    }
    *len = (size_t)n - padding;
    (*out)[*len] = '\0';
    return 0;
}

int vmm_store_get_bytes(const json_t *body, const char *key, char **out, size_t *len,
                        struct err *err)
{
    const json_t *value = json_object_get(body, key), *b64;
    char name[64];

    snprintf(name, sizeof(name), "%s_b64", key);
    b64 = json_object_get(body, name);
    if (json_is_string(b64))
        return decode(key, json_string_value(b64), json_string_length(b64), out, len, err);
    if (!json_is_string(value))
        return tr_err_set(err, -ENOENT, "member \"%s\" is missing: it must be a string", key);
    *len = json_string_length(value);
    *out = malloc(*len + 1);
    if (*out == NULL)
        return tr_err_set(err, -ENOMEM, "out of memory");
    memcpy(*out, json_string_value(value), *len + 1);
    return 0;
}

char *vmm_store_encode(const char *bytes, size_t len)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "-_.~/";
    char *out = malloc(3 * len + 1), *at = out;

    if (out == NULL)
        return NULL;
    for (size_t i = 0; i < len; i++) {
        if (bytes[i] != '\0' && strchr(plain, bytes[i]) != NULL)
            *at++ = bytes[i];
        else
            at += sprintf(at, "%%%02X", (unsigned char)bytes[i]);
    }
    *at = '\0';
    return out;
}

/* ---- requests ---- */

int vmm_store_condition(const struct tr_h2_head *head, struct sync_condition *condition,
                        char etag[SYNC_ETAG_SIZE], struct err *err)
{
    const char *match = tr_h2_head_get(head, "if-match");
    const char *none = tr_h2_head_get(head, "if-none-match");

    condition->expect = SYNC_EXPECT_ANY;
    if (none != NULL && strcmp(none, "*") != 0)
        return tr_err_set(err, -EINVAL, "if-none-match must be \"*\": there must be nothing");
    if (match != NULL && (none != NULL || strlen(match) >= SYNC_ETAG_SIZE || *match != '"'))
        return tr_err_set(err, -EINVAL, "if-match must be the etag of an earlier answer");
    if (none != NULL)
        condition->expect = SYNC_EXPECT_ABSENT;
    if (match == NULL)
        return 0;
    condition->expect = SYNC_EXPECT_SAME;
    snprintf(etag, SYNC_ETAG_SIZE, "%s", match);
    condition->etag = etag;
    return 0;
}

int vmm_store_query_flag(struct vmm_request *req, const char *name)
{
    char *value = vmm_query_get(req->query, name);
    int flag = value == NULL || strcmp(value, "0") == 0 || strcmp(value, "false") == 0 ? 0
               : strcmp(value, "1") == 0 || strcmp(value, "true") == 0                 ? 1
                                                                                       : -1;

    free(value);
    if (flag < 0)
        vmm_reply_error(req, 400, "the query's \"%s\" must be 1 or 0", name);
    return flag;
}

int64_t vmm_store_query_limit(struct vmm_request *req, int64_t max, int64_t otherwise)
{
    char *value = vmm_query_get(req->query, "limit"), *end = NULL;
    int64_t n = otherwise;

    if (value != NULL) {
        n = strtoll(value, &end, 10);
        if (*value == '\0' || *end != '\0' || n < 1 || n > max)
            n = -1;
    }
    free(value);
    if (n < 0)
        vmm_reply_error(req, 400, "the query's \"limit\" must be 1 to %lld", (long long)max);
    return n;
}

/* ---- how things look ---- */

static const char *type_name(enum sync_type type)
{
    switch (type) {
    case SYNC_TYPE_FILE:
        return "file";
    case SYNC_TYPE_DIR:
        return "directory";
    case SYNC_TYPE_LINK:
        return "symlink";
    default:
        return "other";
    }
}

json_t *vmm_store_view_entry(const char *path, size_t len, const struct sync_stat *st,
                             const char *target)
{
    char etag[SYNC_ETAG_SIZE];
    json_t *entry = json_object();
    int r = entry == NULL ? -ENOMEM : vmm_store_set_bytes(entry, "path", path, len);

    sync_store_etag(st, etag);
    if (r == 0)
        r = json_object_set_new(entry, "type", json_string(type_name(st->type)));
    if (r == 0)
        r = json_object_set_new(entry, "size", json_integer(st->size));
    if (r == 0)
        r = json_object_set_new(entry, "mtime_ms", json_integer(st->mtime_ns / 1000000));
    if (r == 0 && st->type == SYNC_TYPE_FILE)
        r = json_object_set_new(entry, "executable", json_boolean(st->is_exec));
    if (r == 0 && st->type != SYNC_TYPE_DIR)
        r = json_object_set_new(entry, "etag", json_string(etag));
    if (r == 0 && target != NULL)
        r = vmm_store_set_bytes(entry, "target", target, strlen(target));
    if (r == 0)
        return entry;
    json_decref(entry);
    return NULL;
}

json_t *vmm_store_view_checkpoint(const struct sync_checkpoint *c)
{
    char time[VMM_TIME_SIZE];
    json_t *out;

    vmm_time_text(c->time_s * 1000, time);
    out = json_pack("{ss, ss, ss}", "id", c->id, "time", time, "cause", sync_cause_name(c->cause));
    if (out != NULL &&
        ((*c->parent && json_object_set_new(out, "parent", json_string(c->parent))) ||
         vmm_store_set_bytes(out, "message", c->message, strlen(c->message)) != 0 ||
         vmm_store_set_bytes(out, "author", c->author, strlen(c->author)) != 0)) {
        json_decref(out);
        return NULL;
    }
    return out;
}

json_t *vmm_store_view_change(const struct sync_change *c)
{
    char id[SYNC_ID_SIZE], old_id[SYNC_ID_SIZE];
    json_t *out = json_object();
    int r = out == NULL ? -ENOMEM : vmm_store_set_bytes(out, "path", c->path, strlen(c->path));

    vmm_hex(c->id, SYNC_ID_BYTES, id);
    vmm_hex(c->old_id, SYNC_ID_BYTES, old_id);
    if (r == 0)
        r = json_object_set_new(out, "change", json_string(sync_change_name(c->kind)));
    if (r == 0 && c->kind != SYNC_DELETED &&
        (json_object_set_new(out, "type", json_string(type_name(c->type))) != 0 ||
         json_object_set_new(out, "size", json_integer(c->size)) != 0 ||
         json_object_set_new(out, "executable", json_boolean(c->is_exec)) != 0 ||
         json_object_set_new(out, "id", json_string(id)) != 0))
        r = -ENOMEM;
    if (r == 0 && c->kind != SYNC_ADDED)
        r = json_object_set_new(out, "old_id", json_string(old_id));
    if (r == 0)
        return out;
    json_decref(out);
    return NULL;
}
