/* SPDX-License-Identifier: MIT */
/* Path: start -> route -> (body) -> handler -> answer -> on_close frees. */
#include "vmm/agent/request.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "transom/log.h"
#include "vmm/agent/secrets.h"

static const struct tr_h2_stream_cbs stream_cbs;

static const char *status_word(int status)
{
    switch (status) {
    case 400:
        return "bad_request";
    case 404:
        return "not_found";
    case 405:
        return "method_not_allowed";
    case 409:
        return "conflict";
    case 413:
        return "too_large";
    case 415:
        return "unsupported_media_type";
    case 416:
        return "out_of_range";
    case 502:
        return "bad_gateway";
    case 503:
        return "unavailable";
    default:
        return "internal";
    }
}

void agent_request_fields(struct agent_request *req, int status, const struct tr_h2_field *fields,
                          size_t n, bool end)
{
    if (req->answered)
        return;
    req->answered = true;
    if (tr_h2_respond(req->stream, status, fields, n, end || req->head_only) != 0)
        tr_h2_reset(req->stream, 2); /* INTERNAL_ERROR */
}

void agent_request_head(struct agent_request *req, int status, const char *content_type,
                        const char *name, const char *value)
{
    struct tr_h2_field fields[2];
    size_t n = 0;

    if (content_type != NULL)
        fields[n++] = TR_H2_FIELD("content-type", content_type);
    if (name != NULL)
        fields[n++] = (struct tr_h2_field){name, strlen(name), value, strlen(value)};
    agent_request_fields(req, status, fields, n, false);
}

int agent_request_write(struct agent_request *req, const void *data, size_t len)
{
    return tr_h2_write(req->stream, data, len);
}

void agent_request_finish(struct agent_request *req)
{
    tr_h2_end(req->stream, NULL, 0);
}

void agent_request_consume(struct agent_request *req, size_t len)
{
    tr_h2_stream_consume(req->stream, len);
}

bool agent_request_may_act(struct agent_request *req)
{
    if (req->agent->options.dry_run)
        agent_request_error(req, 503, NULL, "nothing is carried out");
    return !req->agent->options.dry_run;
}

void agent_request_answer(struct agent_request *req, int status, json_t *body)
{
    char *text = body != NULL ? json_dumps(body, JSON_COMPACT) : NULL;

    json_decref(body);
    if (text == NULL) {
        tr_h2_reset(req->stream, 2);
        return;
    }
    agent_request_head(req, status, "application/json", NULL, NULL);
    if (req->head_only) {
        free(text);
        return;
    }
    if (tr_h2_write(req->stream, text, strlen(text)) < 0)
        tr_h2_reset(req->stream, 2);
    else
        agent_request_finish(req);
    free(text);
}

void agent_request_empty(struct agent_request *req, int status)
{
    agent_request_fields(req, status, NULL, 0, true);
}

void agent_request_error(struct agent_request *req, int status, const char *code, const char *fmt,
                         ...)
{
    char text[600];
    va_list ap;

    if (req->answered) {
        tr_h2_reset(req->stream, 2);
        return;
    }
    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    agent_secrets_hide_text(req->agent->secrets, text, sizeof(text));
    for (unsigned char *p = (unsigned char *)text; *p != '\0'; p++) {
        if (*p < 0x20 || *p >= 0x7f) /* a cut or foreign name must not spoil the JSON */
            *p = '?';
    }
    agent_request_answer(
        req, status,
        json_pack("{s:s,s:s}", "code", code != NULL ? code : status_word(status), "message", text));
}

void agent_request_fail(struct agent_request *req, int code, const struct err *err)
{
    const char *text = err != NULL && err->msg[0] != '\0' ? err->msg : uv_strerror(code);
    int status;

    switch (code) {
    case UV_ENOENT:
    case UV_ESRCH:
        status = 404;
        break;
    case UV_EINVAL:
    case UV_ENOTDIR:
    case UV_ENAMETOOLONG:
    case UV_EISDIR:
    case UV_ELOOP:
        status = 400;
        break;
    case UV_EACCES:
    case UV_EPERM:
    case UV_EROFS:
        status = 403;
        break;
    case UV_EBUSY:
    case UV_EEXIST:
    case UV_ENOTEMPTY:
        status = 409;
        break;
    case UV_E2BIG:
        status = 413;
        break;
    case UV_ENOSPC:
#ifdef EDQUOT
    case -EDQUOT:
#endif
        status = 507;
        break;
    default:
        status = 500;
        break;
    }
    agent_request_error(req, status,
                        status == 403   ? "forbidden"
                        : status == 507 ? "no_space"
                                        : NULL,
                        "%s", text);
}

json_t *agent_request_json(struct agent_request *req)
{
    json_error_t fault;
    json_t *body;

    if (req->body_len == 0)
        return json_object();
    body = json_loadb(req->body, req->body_len, JSON_REJECT_DUPLICATES, &fault);
    if (body == NULL) {
        agent_request_error(req, 400, NULL, "the body is not JSON: line %d, column %d: %s",
                            fault.line, fault.column, fault.text);
        return NULL;
    }
    if (!json_is_object(body)) {
        json_decref(body);
        agent_request_error(req, 400, NULL, "the body must be a JSON object");
        return NULL;
    }
    return body;
}

bool agent_json_string(struct agent_request *req, json_t *obj, const char *name, const char **out)
{
    json_t *v = json_object_get(obj, name);

    if (v == NULL || json_is_null(v))
        return true;
    if (!json_is_string(v)) {
        agent_request_error(req, 400, NULL, "%s must be a string", name);
        return false;
    }
    *out = json_string_value(v);
    return true;
}

bool agent_json_int(struct agent_request *req, json_t *obj, const char *name, int64_t min,
                    int64_t max, int64_t *out)
{
    json_t *v = json_object_get(obj, name);

    if (v == NULL || json_is_null(v))
        return true;
    if (!json_is_integer(v) || json_integer_value(v) < min || json_integer_value(v) > max) {
        agent_request_error(req, 400, NULL, "%s must be a whole number from %lld to %lld", name,
                            (long long)min, (long long)max);
        return false;
    }
    *out = json_integer_value(v);
    return true;
}

bool agent_json_bool(struct agent_request *req, json_t *obj, const char *name, bool *out)
{
    json_t *v = json_object_get(obj, name);

    if (v == NULL || json_is_null(v))
        return true;
    if (!json_is_boolean(v)) {
        agent_request_error(req, 400, NULL, "%s must be true or false", name);
        return false;
    }
    *out = json_is_true(v);
    return true;
}

static bool is_env_name(const char *name)
{
    if (*name == '\0' || (*name >= '0' && *name <= '9'))
        return false;
    for (; *name != '\0'; name++) {
        if (!((*name >= 'a' && *name <= 'z') || (*name >= 'A' && *name <= 'Z') ||
              (*name >= '0' && *name <= '9') || *name == '_'))
            return false;
    }
    return true;
}

bool agent_json_env(struct agent_request *req, json_t *obj, const char *name, json_t **out)
{
    json_t *env = json_object_get(obj, name), *value;
    const char *key;

    if (env == NULL || json_is_null(env))
        return true;
    if (!json_is_object(env)) {
        agent_request_error(req, 400, NULL, "%s must be an object of strings", name);
        return false;
    }
    json_object_foreach(env, key, value)
    {
        if (!json_is_string(value) || !is_env_name(key)) {
            agent_request_error(req, 400, NULL,
                                "%s: \"%.64s\" is not a variable name with a string value", name,
                                key);
            return false;
        }
    }
    *out = env;
    return true;
}

static void run_handler(struct agent_request *req)
{
    if (req->answered || req->handed)
        return;
    req->handed = true;
    req->route->handle(req);
}

static void collect(struct agent_request *req, const uint8_t *data, size_t len)
{
    char *grown;

    if (req->answered)
        return;
    if (len > req->route->body_limit - req->body_len) {
        agent_request_error(req, 413, NULL, "the body is larger than %zu bytes",
                            req->route->body_limit);
        return;
    }
    grown = realloc(req->body, req->body_len + len + 1);
    if (grown == NULL) {
        agent_request_error(req, 500, NULL, "out of memory");
        return;
    }
    req->body = grown;
    memcpy(req->body + req->body_len, data, len);
    req->body_len += len;
    req->body[req->body_len] = '\0';
}

static void on_data(struct tr_h2_stream *st, const uint8_t *data, size_t len, void *arg)
{
    struct agent_request *req = arg;

    if (req->route == NULL || req->route->body_limit > 0) {
        tr_h2_stream_consume(st, len);
        if (req->route != NULL)
            collect(req, data, len);
    } else if (req->cbs != NULL && req->cbs->on_data != NULL) {
        req->cbs->on_data(req, data, len);
    } else {
        tr_h2_stream_consume(st, len); /* unwanted; without this the peer would hang */
    }
}

static void on_end(struct tr_h2_stream *st, const struct tr_h2_head *trailers, void *arg)
{
    struct agent_request *req = arg;

    (void)st;
    (void)trailers;
    req->body_ended = true;
    if (req->route != NULL && req->route->body_limit > 0)
        run_handler(req);
    else if (req->cbs != NULL && req->cbs->on_end != NULL)
        req->cbs->on_end(req);
}

static void on_drain(struct tr_h2_stream *st, void *arg)
{
    struct agent_request *req = arg;

    (void)st;
    if (req->cbs != NULL && req->cbs->on_drain != NULL)
        req->cbs->on_drain(req);
}

static void on_close(struct tr_h2_stream *st, uint32_t code, void *arg)
{
    struct agent_request *req = arg;

    (void)st;
    if (req->cbs != NULL && req->cbs->on_close != NULL)
        req->cbs->on_close(req, code);
    agent_target_fini(&req->target);
    free((char *)req->authority);
    free(req->body);
    free(req);
}

static const struct tr_h2_stream_cbs stream_cbs = {
    .on_data = on_data, .on_end = on_end, .on_drain = on_drain, .on_close = on_close};

/* Find the handler, or answer why there is none. */
static bool route(struct agent_request *req, const struct tr_h2_head *head)
{
    bool connect = strcmp(head->method, "CONNECT") == 0;
    const char *target = connect ? "/connect" : head->path;
    const char *length = tr_h2_head_get(head, "content-length");
    int r;

    if (connect && (head->authority == NULL || head->protocol != NULL)) {
        agent_request_error(req, 400, NULL, "CONNECT needs an authority and no protocol");
        return false;
    }
    r = target == NULL ? UV_EINVAL
                       : agent_route_find(agent_routes, agent_n_routes, head->method, target,
                                          &req->route, &req->target);
    if (r == UV_ENOENT)
        agent_request_error(req, 404, NULL, "no such path");
    else if (r == UV_ENOTSUP)
        agent_request_error(req, 405, NULL, "%.16s is not possible here", head->method);
    else if (r != 0)
        agent_request_error(req, r == UV_ENOMEM ? 500 : 400, NULL, "the target cannot be decoded");
    if (r != 0)
        return false;
    if (!req->route->before_hello && !req->agent->greeted) {
        agent_request_error(req, 409, "hello_first", "the machine was not greeted yet");
        return false;
    }
    if (req->route->body_limit > 0 && length != NULL &&
        strtoull(length, NULL, 10) > req->route->body_limit) {
        agent_request_error(req, 413, NULL, "the body is larger than %zu bytes",
                            req->route->body_limit);
        return false;
    }
    if (connect && (req->authority = strdup(head->authority)) == NULL) {
        agent_request_error(req, 500, NULL, "out of memory");
        return false;
    }
    return true;
}

/* A JSON body must say so; without a type it is taken as JSON, as simple clients expect. */
static bool type_fits(struct agent_request *req, const struct tr_h2_head *head)
{
    const char *type = tr_h2_head_get(head, "content-type");

    if (req->route->body_limit == 0 || type == NULL ||
        strncasecmp(type, "application/json", 16) == 0)
        return true;
    agent_request_error(req, 415, NULL, "the body must be application/json");
    return false;
}

static enum agent_form wanted_form(struct agent_request *req, const struct tr_h2_head *head)
{
    const struct agent_text *stream = agent_target_query(&req->target, "stream");
    const char *accept = tr_h2_head_get(head, "accept");

    if (stream != NULL)
        return strcmp(stream->at, "sse") == 0      ? AGENT_FORM_SSE
               : strcmp(stream->at, "ndjson") == 0 ? AGENT_FORM_NDJSON
               : strcmp(stream->at, "frames") == 0 ? AGENT_FORM_FRAMES
                                                   : AGENT_FORM_JSON;
    if (accept != NULL && strstr(accept, "text/event-stream") != NULL)
        return AGENT_FORM_SSE;
    if (accept != NULL && strstr(accept, "application/x-ndjson") != NULL)
        return AGENT_FORM_NDJSON;
    if (accept != NULL && strstr(accept, AGENT_RUN_TYPE) != NULL)
        return AGENT_FORM_FRAMES;
    return AGENT_FORM_JSON;
}

/* The name that the edge and the manager know it by, for who looks for it in all their logs. */
static void note(const struct tr_h2_head *head)
{
    const char *id = tr_h2_head_get(head, "x-request-id");
    char ids[80];

    if (tr_log_get_level() < TR_LOG_DEBUG || id == NULL || head->path == NULL)
        return;
    snprintf(ids, sizeof(ids), "req=%.64s", id);
    tr_log(TR_LOG_DEBUG, ids, "%.16s %.*s", head->method, (int)strcspn(head->path, "?"),
           head->path);
}

void agent_request_start(struct tr_h2 *h2, struct tr_h2_stream *st, const struct tr_h2_head *head,
                         bool end, void *arg)
{
    struct agent_request *req = calloc(1, sizeof(*req));

    (void)h2;
    if (req == NULL) {
        tr_h2_reset(st, 11); /* ENHANCE_YOUR_CALM: no memory */
        return;
    }
    req->agent = arg;
    req->stream = st;
    req->body_ended = end;
    req->head_only = strcmp(head->method, "HEAD") == 0;
    tr_h2_stream_set(st, &stream_cbs, req);
    note(head);
    if (!route(req, head) || !type_fits(req, head))
        return;
    req->form = wanted_form(req, head);
    if (req->route->body_limit > 0 && !end)
        return;
    req->head = head;
    run_handler(req);
    req->head = NULL;
}
