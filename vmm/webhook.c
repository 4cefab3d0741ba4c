/* SPDX-License-Identifier: MIT */
/* Path of an event: pump() takes it out of the ring -> send() starts a process -> on_sent(): taken,
 * and the next one; or refused, and tick() tries again. Each hook has one delivery under way at
 * most, so order is kept. */
#include "vmm/webhook.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "transom/config.h"
#include "transom/log.h"
#include "vmm/file.h"
#include "vmm/proc/child.h"
#include "vmm/seal.h"
#include "vmm/vmm.h"

#define KEY_FILE         "webhook.key"
#define SENDER           "transom-webhook"
#define RECORD_MAX_BYTES 16384
#define RUNNING_MAX      8
#define SEND_TIMEOUT_MS  15000 /* the process; what it does has 10 s */

struct vmm_webhook {
    struct vmm_webhooks *all;
    struct vmm_webhook *next;
    char id[VMM_ID_LEN + 1];
    char owner[VMM_OWNER_MAX + 1];
    char url[VMM_WEBHOOK_URL_MAX + 1];
    char secret[VMM_WEBHOOK_SECRET_LEN + 1];
    char patterns[VMM_WEBHOOK_EVENTS_MAX][VMM_WEBHOOK_PATTERN_MAX + 1];
    size_t n_patterns;
    bool all_owners;
    int64_t created_ms;
    uint64_t at; /* id of the last event that was taken out of the ring */
    /* The event that is being delivered; body NULL: none. */
    char *body;
    char type[VMM_WEBHOOK_PATTERN_MAX + 1];
    uint64_t event;
    unsigned n_failed;
    uint64_t again_ms;   /* of the loop's clock */
    struct child *child; /* the process; NULL: it waits */
    bool deleted;        /* freed when the process has ended */
    /* For its owner's eyes. */
    uint64_t n_delivered, n_given_up;
    int64_t last_ms;
    int last_status; /* HTTP; 0: none came */
    char last_error[200];
};

struct vmm_webhooks {
    struct vmm_listener listener; /* first: see on_wake() */
    struct vmm *vmm;
    struct vmm_seal *seal;
    char dir[VMM_PATH_SIZE];
    char sender[VMM_PATH_SIZE];
    struct vmm_webhook *first;
    size_t n, n_running;
    bool closing;
    void (*on_closed)(void *arg);
    void *on_closed_arg;
};

static void pump(struct vmm_webhook *h);

/* ---- what it is made of ---- */

bool vmm_webhook_url_valid(const char *url)
{
    size_t skip = strncmp(url, "https://", 8) == 0 ? 8 : strncmp(url, "http://", 7) == 0 ? 7 : 0;
    size_t len = strlen(url), host;

    if (skip == 0 || len > VMM_WEBHOOK_URL_MAX)
        return false;
    for (size_t i = 0; i < len; i++) {
        if (url[i] <= 0x20 || url[i] > 0x7e || strchr("\"<>\\^`{|}", url[i]) != NULL)
            return false;
    }
    host = strcspn(url + skip, "/?#");
    return host > 0 && memchr(url + skip, '@', host) == NULL && url[skip] != ':';
}

bool vmm_webhook_pattern_valid(const char *pattern)
{
    size_t len = strlen(pattern);
    size_t word = strspn(pattern, "abcdefghijklmnopqrstuvwxyz_.");

    if (strcmp(pattern, "*") == 0)
        return true;
    if (len == 0 || len > VMM_WEBHOOK_PATTERN_MAX || pattern[0] == '.')
        return false;
    return word == len || (word == len - 1 && pattern[word] == '*' && pattern[word - 1] == '.');
}

bool vmm_webhook_matches(const char *pattern, const char *type)
{
    size_t len = strlen(pattern);

    if (len > 0 && pattern[len - 1] == '*')
        return strncmp(pattern, type, len - 1) == 0;
    return strcmp(pattern, type) == 0;
}

unsigned vmm_webhook_delay(unsigned n_failed)
{
    static const unsigned delays[] = {1, 5, 30, 120, 600, 3600, 21600};

    if (n_failed == 0 || n_failed > sizeof(delays) / sizeof(delays[0]))
        return 0;
    return delays[n_failed - 1];
}

void vmm_webhook_sign(const char *secret, int64_t time_s, const char *body, char out[100])
{
    uint8_t mac[EVP_MAX_MD_SIZE];
    unsigned len = 0;
    char *text = NULL, hex[2 * EVP_MAX_MD_SIZE + 1];
    int n = asprintf(&text, "%" PRId64 ".%s", time_s, body);

    out[0] = '\0';
    if (n < 0 || HMAC(EVP_sha256(), secret, (int)strlen(secret), (const unsigned char *)text,
                      (size_t)n, mac, &len) == NULL) {
        free(n < 0 ? NULL : text);
        return;
    }
    vmm_hex(mac, len, hex);
    snprintf(out, 100, "t=%" PRId64 ",v1=%s", time_s, hex);
    free(text);
}

static bool wants(const struct vmm_webhook *h, const struct vmm_event *ev)
{
    if (!h->all_owners && strcmp(ev->owner, h->owner) != 0)
        return false;
    if (strcmp(ev->type, "sandbox.stats") == 0) /* every ten seconds, of each machine */
        return false;
    for (size_t i = 0; i < h->n_patterns; i++) {
        if (vmm_webhook_matches(h->patterns[i], ev->type))
            return true;
    }
    return h->n_patterns == 0;
}

/* ---- records ---- */

static json_t *patterns_json(const struct vmm_webhook *h)
{
    json_t *list = json_array();

    for (size_t i = 0; i < h->n_patterns; i++)
        json_array_append_new(list, json_string(h->patterns[i]));
    return list;
}

static int save(const struct vmm_webhook *h, struct err *err)
{
    char name[VMM_ID_LEN + 6];
    json_t *sealed = NULL, *record;
    int r = vmm_seal(h->all->seal, h->id, h->secret, strlen(h->secret), &sealed, err);

    if (r != 0)
        return r;
    record = json_pack("{ss, ss, ss, sb, sI, so, so}", "id", h->id, "owner", h->owner, "url",
                       h->url, "all_owners", (int)h->all_owners, "created_ms",
                       (json_int_t)h->created_ms, "events", patterns_json(h), "secret", sealed);
    if (record == NULL)
        return tr_err_set(err, -ENOMEM, "out of memory");
    snprintf(name, sizeof(name), "%s.json", h->id);
    r = vmm_file_write_json(h->all->dir, name, record, err);
    json_decref(record);
    return r;
}

static int take_patterns(struct vmm_webhook *h, const json_t *list, struct err *err)
{
    size_t i;
    json_t *item;

    if (json_array_size(list) > VMM_WEBHOOK_EVENTS_MAX)
        return tr_err_set(err, -EINVAL, "member \"events\" has at most %d types",
                          VMM_WEBHOOK_EVENTS_MAX);
    json_array_foreach(list, i, item)
    {
        if (!json_is_string(item) || !vmm_webhook_pattern_valid(json_string_value(item)))
            return tr_err_set(
                err, -EINVAL,
                "member \"events\": [%zu] must be a type such as \"session.created\", "
                "or the beginning of some, such as \"sandbox.*\"",
                i);
        snprintf(h->patterns[i], sizeof(h->patterns[i]), "%s", json_string_value(item));
        h->n_patterns++;
    }
    return 0;
}

static int parse_record(struct vmm_webhook *h, const json_t *record, struct err *err)
{
    const char *id = json_string_value(json_object_get(record, "id"));
    const char *owner = json_string_value(json_object_get(record, "owner"));
    const char *url = json_string_value(json_object_get(record, "url"));
    uint8_t *secret = NULL;
    size_t len = 0;
    int r;

    if (id == NULL || strlen(id) != VMM_ID_LEN || owner == NULL || !vmm_owner_valid(owner) ||
        url == NULL || !vmm_webhook_url_valid(url))
        return tr_err_set(err, -EBADMSG, "a member is missing or wrong");
    snprintf(h->id, sizeof(h->id), "%s", id);
    snprintf(h->owner, sizeof(h->owner), "%s", owner);
    snprintf(h->url, sizeof(h->url), "%s", url);
    h->all_owners = json_is_true(json_object_get(record, "all_owners"));
    h->created_ms = json_integer_value(json_object_get(record, "created_ms"));
    r = take_patterns(h, json_object_get(record, "events"), err);
    if (r == 0)
        r = vmm_unseal(h->all->seal, h->id, json_object_get(record, "secret"), &secret, &len, err);
    if (r == 0 && len == VMM_WEBHOOK_SECRET_LEN)
        memcpy(h->secret, secret, len + 1);
    else if (r == 0)
        r = tr_err_set(err, -EBADMSG, "its secret has another length");
    if (secret != NULL)
        explicit_bzero(secret, len);
    free(secret);
    return r;
}

static void add(struct vmm_webhooks *all, struct vmm_webhook *h)
{
    struct vmm_webhook **end = &all->first;

    while (*end != NULL)
        end = &(*end)->next;
    *end = h;
    all->n++;
}

static void free_hook(struct vmm_webhook *h)
{
    explicit_bzero(h->secret, sizeof(h->secret));
    free(h->body);
    free(h);
}

static int load_record(struct vmm_webhooks *all, const char *file, struct err *err)
{
    struct vmm_webhook *h = calloc(1, sizeof(*h));
    char path[VMM_PATH_SIZE + 64];
    json_t *record = NULL;
    struct err why = {0};
    int r;

    if (h == NULL)
        return tr_err_set(err, -ENOMEM, "out of memory");
    h->all = all;
    h->at = all->vmm->events.last_id;
    snprintf(path, sizeof(path), "%s/%s", all->dir, file);
    r = vmm_file_read_json(path, RECORD_MAX_BYTES, &record, &why);
    if (r == 0)
        r = parse_record(h, record, &why);
    json_decref(record);
    if (r == 0) {
        add(all, h);
        return 0;
    }
    free_hook(h);
    vmm_file_set_aside(path, &why);
    return 0;
}

/* ---- delivery ---- */

static void maybe_closed(struct vmm_webhooks *all)
{
    if (!all->closing || all->n_running > 0)
        return;
    for (struct vmm_webhook *h = all->first, *next; h != NULL; h = next) {
        next = h->next;
        free_hook(h);
    }
    vmm_seal_free(all->seal);
    if (all->on_closed != NULL)
        all->on_closed(all->on_closed_arg);
    free(all);
}

static void forget_body(struct vmm_webhook *h)
{
    free(h->body);
    h->body = NULL;
    h->n_failed = 0;
}

/* What the process says of itself: {"status": 200} or {"error": "..."}. */
static void read_verdict(struct vmm_webhook *h, const struct child_result *result)
{
    json_t *said = json_loadb(result->out, result->out_len, 0, NULL);
    const char *error = json_string_value(json_object_get(said, "error"));
    struct err err = {0};

    h->last_status = (int)json_integer_value(json_object_get(said, "status"));
    h->last_error[0] = '\0';
    if (error == NULL && h->last_status == 0 && child_explain(result, SENDER, &err) == 0)
        error = "the delivery said nothing";
    if (h->last_status == 0) {
        snprintf(h->last_error, sizeof(h->last_error), "%s", error != NULL ? error : err.msg);
        for (size_t len = strlen(h->last_error); len > 0 && !vmm_utf8_valid(h->last_error, len);)
            h->last_error[--len] = '\0';
    }
    json_decref(said);
}

static void on_sent(const struct child_result *result, void *arg)
{
    struct vmm_webhook *h = arg;
    struct vmm_webhooks *all = h->all;
    unsigned delay;

    h->child = NULL;
    all->n_running--;
    if (h->deleted) {
        free_hook(h);
        maybe_closed(all);
        return;
    }
    read_verdict(h, result);
    h->last_ms = vmm_wall_ms();
    if (h->last_status / 100 == 2) {
        h->n_delivered++;
        forget_body(h);
    } else {
        delay = vmm_webhook_delay(++h->n_failed);
        h->again_ms = uv_now(all->vmm->loop) + delay * 1000ULL;
        if (delay == 0) {
            log_warn("webhook %s of %s: event %" PRIu64 " is given up after %u tries: %s", h->id,
                     h->owner, h->event, h->n_failed,
                     h->last_status != 0 ? "the last answer was not 2xx" : h->last_error);
            h->n_given_up++;
            forget_body(h);
        }
    }
    if (all->closing) {
        maybe_closed(all);
        return;
    }
    /* This one, and those that waited for a place. */
    for (struct vmm_webhook *it = all->first; it != NULL; it = it->next)
        pump(it);
}

/* The job for the process, on its standard input: neither the body nor the URL is anybody's to see.
 */
static char *job_text(const struct vmm_webhook *h)
{
    const struct tr_config *config = h->all->vmm->options->config;
    int64_t now_s = vmm_wall_ms() / 1000;
    char signature[100], id[24], *text;
    json_t *job, *allow = json_array();

    for (size_t i = 0; i < tr_config_list_len(config, "vmm.webhook_allow"); i++)
        json_array_append_new(allow,
                              json_string(tr_config_list_get(config, "vmm.webhook_allow", i)));
    vmm_webhook_sign(h->secret, now_s, h->body, signature);
    snprintf(id, sizeof(id), "%" PRIu64, h->event);
    job = json_pack("{ss, ss, ss, ss, ss, so, sI, sI}", "url", h->url, "type", h->type, "id", id,
                    "signature", signature, "body", h->body, "allow", allow, "uid",
                    (json_int_t)h->all->vmm->options->qemu_uid, "gid",
                    (json_int_t)h->all->vmm->options->qemu_gid);
    text = job == NULL || *signature == '\0' ? NULL : json_dumps(job, JSON_COMPACT);
    json_decref(job);
    return text;
}

static void send_body(struct vmm_webhook *h)
{
    struct vmm_webhooks *all = h->all;
    const char *argv[] = {all->sender, NULL};
    char *job = job_text(h);
    struct err err = {0};

    if (job == NULL ||
        child_run(all->vmm->loop, argv, job, SEND_TIMEOUT_MS, on_sent, h, &h->child, &err) != 0) {
        snprintf(h->last_error, sizeof(h->last_error), "%s",
                 job == NULL ? "out of memory" : err.msg);
        log_error("webhook %s: %s", h->id, h->last_error);
        h->again_ms = uv_now(all->vmm->loop) + 60000; /* it is our fault: it does not count */
    } else {
        all->n_running++;
    }
    free(job);
}

/* Take the next event that it wants, if it has none. What left the ring before it could be taken is
 * told. */
static void take_next(struct vmm_webhook *h)
{
    const struct vmm_events *events = &h->all->vmm->events;
    uint64_t horizon = vmm_events_horizon(events);
    const struct vmm_event *ev = NULL;

    if (h->at < horizon) {
        if (asprintf(&h->body, "{\"type\":\"gap\",\"from\":%" PRIu64 ",\"to\":%" PRIu64 "}", h->at,
                     horizon) < 0)
            h->body = NULL;
        h->event = h->at = horizon;
        snprintf(h->type, sizeof(h->type), "gap");
        return;
    }
    while (h->body == NULL &&
           (ev = vmm_events_next(events, h->at, h->all_owners ? NULL : h->owner)) != NULL) {
        h->at = ev->id;
        if (!wants(h, ev))
            continue;
        h->body = strdup(ev->text);
        h->event = ev->id;
        snprintf(h->type, sizeof(h->type), "%s", ev->type);
    }
}

static void pump(struct vmm_webhook *h)
{
    if (h->child != NULL || h->all->closing)
        return;
    if (h->body == NULL) {
        take_next(h);
        h->n_failed = 0;
        h->again_ms = 0;
    }
    if (h->body != NULL && uv_now(h->all->vmm->loop) >= h->again_ms &&
        h->all->n_running < RUNNING_MAX)
        send_body(h);
}

static void on_wake(struct vmm_listener *listener)
{
    struct vmm_webhooks *all = (struct vmm_webhooks *)listener;

    for (struct vmm_webhook *h = all->first; h != NULL; h = h->next)
        pump(h);
}

void vmm_webhooks_tick(struct vmm_webhooks *all)
{
    on_wake(&all->listener);
}

/* ---- the whole ---- */

/* Beside this program, as it is installed. */
static void find_sender(char *out, size_t size)
{
    ssize_t len = readlink("/proc/self/exe", out, size - sizeof(SENDER) - 1);
    char *slash;

    out[len > 0 ? len : 0] = '\0';
    slash = strrchr(out, '/');
    snprintf(slash != NULL ? slash + 1 : out, sizeof(SENDER), SENDER);
}

int vmm_webhooks_open(struct vmm *vmm, struct vmm_webhooks **out, struct err *err)
{
    struct vmm_webhooks *all = calloc(1, sizeof(*all));
    struct dirent *entry;
    DIR *d = NULL;
    int r;

    if (all == NULL)
        return tr_err_set(err, -ENOMEM, "out of memory");
    all->vmm = vmm;
    find_sender(all->sender, sizeof(all->sender));
    snprintf(all->dir, sizeof(all->dir), "%s/webhooks", vmm->options->state_dir);
    r = vmm_file_mkdirs(all->dir, 0700, err);
    if (r == 0 && (d = opendir(all->dir)) == NULL)
        r = tr_err_set(err, -errno, "cannot read %s: %s", all->dir, strerror(errno));
    if (r == 0 && d != NULL) {
        bool any = false;

        while ((entry = readdir(d)) != NULL)
            any |= entry->d_name[0] != '.';
        rewinddir(d);
        r = vmm_seal_open(vmm->options->state_dir, KEY_FILE, !any, &all->seal, err);
    }
    while (r == 0 && d != NULL && (entry = readdir(d)) != NULL) {
        size_t len = strlen(entry->d_name);

        if (entry->d_name[0] != '.' && len == VMM_ID_LEN + 5 &&
            strcmp(entry->d_name + VMM_ID_LEN, ".json") == 0)
            r = load_record(all, entry->d_name, err);
    }
    if (d != NULL)
        closedir(d);
    if (r != 0) {
        all->closing = true;
        maybe_closed(all);
        return r;
    }
    all->listener.wake = on_wake;
    vmm_events_listen(&vmm->events, &all->listener);
    *out = all;
    return 0;
}

void vmm_webhooks_close(struct vmm_webhooks *all, void (*cb)(void *arg), void *arg)
{
    all->on_closed = cb;
    all->on_closed_arg = arg;
    all->closing = true;
    vmm_events_unlisten(&all->vmm->events, &all->listener);
    for (struct vmm_webhook *h = all->first; h != NULL; h = h->next) {
        if (h->child != NULL)
            child_cancel(h->child);
    }
    maybe_closed(all);
}

int vmm_webhook_new(struct vmm_webhooks *all, const char *owner, const char *url,
                    const json_t *patterns, bool all_owners, struct vmm_webhook **out,
                    char secret[VMM_WEBHOOK_SECRET_LEN + 1], struct err *err)
{
    struct vmm_webhook *h;
    size_t n_own = 0;
    int r;

    if (!vmm_webhook_url_valid(url))
        return tr_err_set(err, -EINVAL,
                          "member \"url\" must be a URL with https:// or http://, of at most %d "
                          "bytes and without a user",
                          VMM_WEBHOOK_URL_MAX);
    for (const struct vmm_webhook *it = all->first; it != NULL; it = it->next)
        n_own += strcmp(it->owner, owner) == 0;
    if (n_own >= VMM_WEBHOOKS_OF_OWNER || all->n >= VMM_WEBHOOKS_MAX)
        return tr_err_set(err, -EDQUOT, "there are %zu webhooks already; delete some",
                          n_own >= VMM_WEBHOOKS_OF_OWNER ? n_own : all->n);
    h = calloc(1, sizeof(*h));
    if (h == NULL)
        return tr_err_set(err, -ENOMEM, "out of memory");
    h->all = all;
    h->all_owners = all_owners;
    h->at = all->vmm->events.last_id;
    h->created_ms = vmm_wall_ms();
    vmm_random_id(h->id, VMM_ID_LEN);
    vmm_random_hex(h->secret, VMM_WEBHOOK_SECRET_LEN);
    snprintf(h->owner, sizeof(h->owner), "%s", owner);
    snprintf(h->url, sizeof(h->url), "%s", url);
    r = take_patterns(h, patterns, err);
    if (r == 0)
        r = save(h, err);
    if (r != 0) {
        free_hook(h);
        return r;
    }
    add(all, h);
    memcpy(secret, h->secret, sizeof(h->secret));
    *out = h;
    return 0;
}

int vmm_webhook_delete(struct vmm_webhooks *all, const char *id, struct err *err)
{
    for (struct vmm_webhook **p = &all->first; *p != NULL; p = &(*p)->next) {
        struct vmm_webhook *h = *p;
        char name[VMM_ID_LEN + 6];
        int r;

        if (strcmp(h->id, id) != 0)
            continue;
        snprintf(name, sizeof(name), "%s.json", h->id);
        r = vmm_file_remove(all->dir, name, err);
        if (r != 0)
            return r;
        *p = h->next;
        all->n--;
        h->deleted = true;
        if (h->child != NULL)
            child_cancel(h->child); /* on_sent() frees it */
        else
            free_hook(h);
        return 0;
    }
    return -ENOENT;
}

struct vmm_webhook *vmm_webhook_find(const struct vmm_webhooks *all, const char *id)
{
    for (struct vmm_webhook *h = all->first; h != NULL; h = h->next) {
        if (strcmp(h->id, id) == 0)
            return h;
    }
    return NULL;
}

struct vmm_webhook *vmm_webhook_first(const struct vmm_webhooks *all)
{
    return all->first;
}

struct vmm_webhook *vmm_webhook_next(const struct vmm_webhook *hook)
{
    return hook->next;
}

const char *vmm_webhook_id(const struct vmm_webhook *hook)
{
    return hook->id;
}

const char *vmm_webhook_owner(const struct vmm_webhook *hook)
{
    return hook->owner;
}

json_t *vmm_webhook_view(const struct vmm_webhook *h)
{
    char created[VMM_TIME_SIZE], last[VMM_TIME_SIZE];

    vmm_time_text(h->created_ms, created);
    vmm_time_text(h->last_ms, last);
    return json_pack("{ss, ss, ss, so, sb, ss, sI, sI, si, si, ss, ss}", "id", h->id, "owner",
                     h->owner, "url", h->url, "events", patterns_json(h), "all_owners",
                     (int)h->all_owners, "created_at", created, "delivered",
                     (json_int_t)h->n_delivered, "given_up", (json_int_t)h->n_given_up, "failures",
                     (int)h->n_failed, "last_status", h->last_status, "last_error", h->last_error,
                     "last_at", last);
}
