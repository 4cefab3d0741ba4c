/* SPDX-License-Identifier: MIT */
#include "vmm/request.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "transom/log.h"
#include "vmm/audit.h"
#include "vmm/replay.h"
#include "vmm/vmm.h"

#define DROP_MAX_BYTES (64 * 1024 * 1024)
#define DROP_MAX_MS    10000

struct vmm_request *vmm_request_ref(struct vmm_request *req)
{
    req->refs++;
    return req;
}

void vmm_request_unref(struct vmm_request *req)
{
    if (--req->refs > 0)
        return;
    vmm_replay_drop(req);
    for (size_t i = 0; i < req->n_params; i++)
        free(req->params[i]);
    json_decref(req->body);
    if (req->raw != NULL)
        explicit_bzero(req->raw, req->raw_size); /* may have been a secret */
    free(req->raw);
    free(req->path);
    free(req->query);
    free(req);
}

void vmm_request_drop(struct vmm_request *req, size_t len)
{
    req->dropped += len;
    tr_h2_stream_consume(req->st, len);
    if (req->dropped > DROP_MAX_BYTES)
        tr_h2_stream_discard(req->st);
}

const char *vmm_error_code(int status)
{
    switch (status) {
    case 400:
        return "bad_request";
    case 401:
        return "unauthorized";
    case 403:
        return "forbidden";
    case 404:
        return "not_found";
    case 405:
        return "method_not_allowed";
    case 408:
        return "request_timeout";
    case 409:
        return "conflict";
    case 411:
        return "length_required";
    case 412:
        return "precondition_failed";
    case 413:
        return "too_large";
    case 415:
        return "unsupported_media_type";
    case 422:
        return "unprocessable";
    case 426:
        return "upgrade_required";
    case 429:
        return "too_many_requests";
    case 502:
        return "bad_gateway";
    case 503:
        return "unavailable";
    case 507:
        return "insufficient_storage";
    case 504:
        return "timeout";
    default:
        return "internal";
    }
}

void vmm_request_answered(struct vmm_request *req, int status)
{
    req->answered = true;
    req->status = status;
    req->vmm->figures
        .responses[status >= 100 && status < 600 && status != 499 ? status / 100 : 0]++;
    vmm_audit_answered(req);
}

static void respond(struct vmm_request *req, int status, const char *type, const void *data,
                    size_t len)
{
    struct tr_h2_field fields[8];
    char length[24], retry[24];
    size_t n = 0;

    if (req->replay != NULL) /* also when the client is gone: it will come again */
        vmm_replay_end(req, status, data, len);
    if (req->st == NULL || req->answered)
        return;
    vmm_request_answered(req, status);
    if (!req->ended)
        req->deadline_ms = uv_now(req->vmm->loop) + DROP_MAX_MS;
    snprintf(length, sizeof(length), "%zu", len);
    if (type != NULL)
        fields[n++] = TR_H2_FIELD("content-type", type);
    if (status != 204)
        fields[n++] = TR_H2_FIELD("content-length", length);
    fields[n++] = TR_H2_FIELD("cache-control", "no-store");
    if (status == 401)
        fields[n++] = TR_H2_FIELD("www-authenticate", "Bearer");
    if (status == 426)
        fields[n++] = TR_H2_FIELD("sec-websocket-version", "13");
    if (status == 405 && *req->allow)
        fields[n++] = TR_H2_FIELD("allow", req->allow);
    snprintf(retry, sizeof(retry), "%u", req->retry_after_s);
    if (req->retry_after_s > 0 && status >= 400)
        fields[n++] = TR_H2_FIELD("retry-after", retry);
    if (req->replayed)
        fields[n++] = TR_H2_FIELD("idempotency-replayed", "true");
    if (strcmp(req->head->method, "HEAD") == 0)
        len = 0; /* the length was told (RFC 9110 section 9.3.2) */
    if (tr_h2_respond(req->st, status, fields, n, len == 0) != 0 ||
        (len > 0 && tr_h2_write(req->st, data, len) < 0)) {
        tr_h2_reset(req->st, 2 /* INTERNAL_ERROR */);
        return;
    }
    if (len > 0)
        tr_h2_end(req->st, NULL, 0);
}

void vmm_reply_bytes(struct vmm_request *req, int status, const char *type, const void *data,
                     size_t len)
{
    respond(req, status, type, data, len);
}

void vmm_reply_empty(struct vmm_request *req, int status)
{
    respond(req, status, NULL, NULL, 0);
}

void vmm_reply_json(struct vmm_request *req, int status, json_t *body)
{
    char *text = body == NULL ? NULL : json_dumps(body, JSON_COMPACT);

    json_decref(body);
    if (text == NULL) {
        vmm_reply_error(req, 500, "out of memory");
        return;
    }
    respond(req, status, "application/json", text, strlen(text));
    free(text);
}

TR_PRINTF(4, 0)
static void reply_fault(struct vmm_request *req, int status, const char *code, const char *fmt,
                        va_list ap)
{
    char message[512], *text;
    json_t *body;

    vsnprintf(message, sizeof(message), fmt, ap);
    /* A message may quote what came from outside and be cut in the middle of a character. */
    for (size_t len = strlen(message); len > 0 && !vmm_utf8_valid(message, len);)
        message[--len] = '\0';
    body = json_pack("{ss, ss}", "code", code, "message", message);
    text = body == NULL ? NULL : json_dumps(body, JSON_COMPACT);
    json_decref(body);
    if (text == NULL) {
        static const char none[] = "{\"code\":\"internal\",\"message\":\"out of memory\"}";

        respond(req, 500, "application/json", none, sizeof(none) - 1);
        return;
    }
    respond(req, status, "application/json", text, strlen(text));
    free(text);
}

void vmm_reply_error(struct vmm_request *req, int status, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    reply_fault(req, status, vmm_error_code(status), fmt, ap);
    va_end(ap);
}

void vmm_reply_fault(struct vmm_request *req, int status, const char *code, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    reply_fault(req, status, code, fmt, ap);
    va_end(ap);
}

void vmm_reply_err(struct vmm_request *req, const struct err *err)
{
    int status = 500;

    switch (err->code) {
    case -EINVAL:
        status = 422;
        break;
    case -ENOENT:
        status = 404;
        break;
    case -EEXIST:
    case -ESHUTDOWN:
    case -ECANCELED:
        status = 409;
        break;
    case -EDQUOT:
        status = 429;
        break;
    case -ENOSPC:
    case -EAGAIN:
    case -EIO:
    case -ETIMEDOUT:
        status = 503;
        break;
    default:
        break;
    }
    if (status == 500)
        log_error("%s %s: %s", req->head != NULL ? req->head->method : "", req->path, err->msg);
    vmm_reply_error(req, status, "%s", err->msg);
}
