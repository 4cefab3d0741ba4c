/* SPDX-License-Identifier: MIT */
/* Path: a change -> one script -> done. Faults: down -> nothing is sent; up again -> write_back()
 * sends everything there is, in pieces, so that neither end is flooded. */
#include "vmm/live.h"

#include <errno.h>
#include <hiredis/hiredis.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "transom/log.h"
#include "vmm/api.h"
#include "vmm/node.h"

#define HEARTBEAT_MS     10000
#define NODE_EXPIRY_MS   35000
#define LEAVE_TIMEOUT_MS 2000
#define BATCH            256 /* scripts under way during a write-back */
#define STATS_FIELDS_MAX 24
#define EVENT_STATS      "sandbox.stats"
#define ARGS_MAX         64
#define SECRET_ID_SIZE   (VMM_OWNER_MAX + VMM_SECRET_NAME_MAX + 4) /* "x:OWNER:NAME" */

/* KEYS: routes, route-changes, sandbox:L, events, idle, node-labels, sandboxes, sandboxes:OWNER.
 * ARGV: label, route, event or "", maximum of route-changes, of events, time of creation, then
 * field, value ... of sandbox:L. The stream of
 * changes gets an entry only for a real change: a write-back of thousands must not flush it. */
static const char script_sandbox[] =
    "if redis.call('HGET', KEYS[1], ARGV[1]) ~= ARGV[2] then "
    "redis.call('HSET', KEYS[1], ARGV[1], ARGV[2]) "
    "redis.call('XADD', KEYS[2], 'MAXLEN', '~', ARGV[4], '*', 'label', ARGV[1], 'route', ARGV[2]) "
    "end "
    "for i = 7, #ARGV, 2 do redis.call('HSET', KEYS[3], ARGV[i], ARGV[i + 1]) end "
    "if ARGV[3] ~= '' then "
    "redis.call('XADD', KEYS[4], 'MAXLEN', '~', ARGV[5], '*', 'event', ARGV[3]) end "
    "if redis.call('HGET', KEYS[3], 'state') ~= 'running' then "
    "redis.call('ZREM', KEYS[5], ARGV[1]) end "
    "redis.call('SADD', KEYS[6], ARGV[1]) "
    "redis.call('ZADD', KEYS[7], ARGV[6], ARGV[1]) "
    "redis.call('ZADD', KEYS[8], ARGV[6], ARGV[1]) "
    "return 1";

/* KEYS: session:S, events, node-sessions, sessions, sessions:OWNER. ARGV: id, event or "", maximum
 * of events, time of creation, field, value. */
static const char script_session[] =
    "for i = 5, #ARGV, 2 do redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 1]) end "
    "redis.call('SADD', KEYS[3], ARGV[1]) "
    "redis.call('ZADD', KEYS[4], ARGV[4], ARGV[1]) "
    "redis.call('ZADD', KEYS[5], ARGV[4], ARGV[1]) "
    "if ARGV[2] ~= '' then "
    "redis.call('XADD', KEYS[2], 'MAXLEN', '~', ARGV[3], '*', 'event', ARGV[2]) end "
    "return 1";

/* KEYS: key:H, node-keys, keys, keys:OWNER. ARGV: hash, time of creation, field, value. */
static const char script_key[] =
    "for i = 3, #ARGV, 2 do redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 1]) end "
    "redis.call('SADD', KEYS[2], ARGV[1]) "
    "redis.call('ZADD', KEYS[3], ARGV[2], ARGV[1]) "
    "redis.call('ZADD', KEYS[4], ARGV[2], ARGV[1]) "
    "return 1";

/* KEYS: secret:O:N, node-secrets. ARGV: "OWNER:NAME", field, value ... */
static const char script_secret[] =
    "for i = 2, #ARGV, 2 do redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 1]) end "
    "redis.call('SADD', KEYS[2], ARGV[1]) "
    "return 1";

/* KEYS: routes, route-changes, idle, node-labels, node-sessions, node-keys, events, node-secrets.
 * ARGV: maximum of route-changes, of events, event or "", "keep" (the ids that follow stay, the
 * rest goes) or "drop" (they go), then ids: "l:LABEL", "s:SESSION", "k:HASH" and "x:OWNER:NAME". */
static const char script_prune[] =
    "local function forget(key, list, id) "
    "local owner = redis.call('HGET', key .. id, 'owner') "
    "if owner then redis.call('ZREM', list .. ':' .. owner, id) end "
    "redis.call('ZREM', list, id) "
    "redis.call('DEL', key .. id) end "
    "local named, keep = {}, ARGV[4] == 'keep' "
    "for i = 5, #ARGV do named[ARGV[i]] = true end "
    "for _, l in ipairs(redis.call('SMEMBERS', KEYS[4])) do "
    "if (named['l:' .. l] == nil) == keep then "
    "if redis.call('HDEL', KEYS[1], l) == 1 then "
    "redis.call('XADD', KEYS[2], 'MAXLEN', '~', ARGV[1], '*', 'label', l, 'route', '') end "
    "forget('" TR_KEY_SANDBOX "', '" TR_KEY_SANDBOXES "', l) "
    "redis.call('DEL', '" TR_KEY_STATS "' .. l) "
    "redis.call('ZREM', KEYS[3], l) "
    "redis.call('SREM', KEYS[4], l) end end "
    "for _, s in ipairs(redis.call('SMEMBERS', KEYS[5])) do "
    "if (named['s:' .. s] == nil) == keep then "
    "forget('" TR_KEY_SESSION "', '" TR_KEY_SESSIONS "', s) "
    "redis.call('SREM', KEYS[5], s) end end "
    "for _, k in ipairs(redis.call('SMEMBERS', KEYS[6])) do "
    "if (named['k:' .. k] == nil) == keep then "
    "forget('" TR_KEY_KEY "', '" TR_KEY_KEYS "', k) "
    "redis.call('SREM', KEYS[6], k) end end "
    "for _, x in ipairs(redis.call('SMEMBERS', KEYS[8])) do "
    "if (named['x:' .. x] == nil) == keep then "
    "redis.call('DEL', '" TR_KEY_SECRET "' .. x) "
    "redis.call('SREM', KEYS[8], x) end end "
    "if ARGV[3] ~= '' then "
    "redis.call('XADD', KEYS[7], 'MAXLEN', '~', ARGV[2], '*', 'event', ARGV[3]) end "
    "return 1";

/* KEYS: node:N, nodes. ARGV: name, expiry in ms, now, now less the expiry, field, value ... */
static const char script_node[] =
    "for i = 5, #ARGV, 2 do redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 1]) end "
    "redis.call('PEXPIRE', KEYS[1], ARGV[2]) "
    "redis.call('ZADD', KEYS[2], ARGV[3], ARGV[1]) "
    "redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', ARGV[4]) "
    "return 1";

/* KEYS: node:N, nodes. ARGV: name. */
static const char script_leave[] = "redis.call('DEL', KEYS[1]) "
                                   "redis.call('ZREM', KEYS[2], ARGV[1]) "
                                   "return 1";

struct vmm_live {
    struct vmm *vmm;
    struct tr_redis *redis;
    uv_timer_t timer; /* heartbeat; the deadline of leaving */
    char *url;        /* without password */
    char key_node[96], key_labels[96], key_sessions[96], key_keys[96], key_secrets[96];
    bool was_up, leaving, closing;
    bool writing_back;
    char next_session[VMM_ID_LEN + 1];   /* write-back: where to go on; "" at its start */
    char next_key[VMM_KEY_HASH_LEN + 1]; /* the same of keys, which come first */
    bool keys_written;
    const struct vmm_secret *next_secret; /* the same of secrets, which come second */
    bool secrets_written;
    unsigned n_batch;    /* scripts of the write-back under way */
    uint64_t event_sent; /* id of the last event given to Redis */
    int n_open;
    void (*on_closed)(void *arg);
    void *on_closed_arg;
};

/* The arguments of one script, numbers in text of their own. */
struct args {
    const char *v[ARGS_MAX];
    size_t n;
    char numbers[16][24];
    size_t n_numbers;
};

static void add(struct args *a, const char *text)
{
    if (a->n < ARGS_MAX)
        a->v[a->n++] = text;
}

static void add_int(struct args *a, int64_t value)
{
    char *text = a->numbers[a->n_numbers++];

    snprintf(text, sizeof(a->numbers[0]), "%" PRId64, value);
    add(a, text);
}

static void on_reply(struct redisReply *reply, void *arg)
{
    (void)arg;
    if (reply != NULL && reply->type == REDIS_REPLY_ERROR)
        log_error("redis refused a state change: %s", reply->str);
}

static bool usable(const struct vmm_live *live)
{
    return live != NULL && !live->closing && tr_redis_is_up(live->redis);
}

/* Returns 0 when cb will run. */
static int run_to(struct vmm_live *live, const char *script, tr_redis_reply_cb cb, void *arg,
                  int n_keys, const struct args *a)
{
    size_t len[ARGS_MAX];
    int r;

    for (size_t i = 0; i < a->n; i++)
        len[i] = strlen(a->v[i]);
    r = tr_redis_script(live->redis, script, cb, arg, n_keys, (int)a->n, (const char **)a->v, len);
    if (r != 0 && r != UV_ENOTCONN) /* down: the write-back will do it */
        log_error("redis: a state change was not sent: %s", uv_strerror(r));
    return r;
}

static int run(struct vmm_live *live, const char *script, tr_redis_reply_cb cb, int n_keys,
               const struct args *a)
{
    return run_to(live, script, cb, live, n_keys, a);
}

/* ---- what is written ---- */

static char *encode_route(const struct vmm *vmm, const struct vmm_sandbox *sb)
{
    struct tr_route route = {.state = sb->state, .instance = sb->instance};
    char *text;

    memcpy(route.label, sb->label, sizeof(route.label));
    route.agent_port = sb->agent_port;
    snprintf(route.address, sizeof(route.address), "%s", sb->address);
    snprintf(route.node, sizeof(route.node), "%s", vmm->options->node);
    snprintf(route.session, sizeof(route.session), "%s", sb->session->id);
    snprintf(route.owner, sizeof(route.owner), "%s", sb->session->owner);
    snprintf(route.reason, sizeof(route.reason), "%s", sb->reason);
    for (size_t len = strlen(route.reason); len > 0 && !vmm_utf8_valid(route.reason, len);)
        route.reason[--len] = '\0'; /* cut in the middle of a character */
    if (vmm_preview_route(&sb->preview, vmm->preview_master, &route) != 0)
        return NULL;
    text = tr_route_encode(&route);
    tr_route_fini(&route);
    return text;
}

/* The name of one owner's list. */
static void owner_list(char *out, size_t size, const char *list, const char *owner)
{
    snprintf(out, size, "%s:%s", list, owner);
}

static int send_sandbox_to(struct vmm_live *live, const struct vmm_sandbox *sb, const char *event,
                           tr_redis_reply_cb cb, void *arg)
{
    struct args a = {.n = 0};
    char key[64], created[VMM_TIME_SIZE], started[VMM_TIME_SIZE], list[128];
    char *route = encode_route(live->vmm, sb);
    int r;

    if (route == NULL) {
        log_error("vm=%s: out of memory for its route", sb->label);
        return UV_ENOMEM;
    }
    snprintf(key, sizeof(key), "%s%s", TR_KEY_SANDBOX, sb->label);
    owner_list(list, sizeof(list), TR_KEY_SANDBOXES, sb->session->owner);
    vmm_time_text(sb->created_ms, created);
    vmm_time_text(sb->started_ms, started);
    add(&a, TR_KEY_ROUTES);
    add(&a, TR_KEY_ROUTE_CHANGES);
    add(&a, key);
    add(&a, TR_KEY_EVENTS);
    add(&a, TR_KEY_IDLE);
    add(&a, live->key_labels);
    add(&a, TR_KEY_SANDBOXES);
    add(&a, list);
    add(&a, sb->label);
    add(&a, route);
    add(&a, event);
    add_int(&a, TR_ROUTE_CHANGES_MAX);
    add_int(&a, TR_EVENTS_MAX);
    add_int(&a, sb->created_ms);
    add(&a, "session"), add(&a, sb->session->id);
    add(&a, "owner"), add(&a, sb->session->owner);
    add(&a, "name"), add(&a, sb->name);
    add(&a, "node"), add(&a, live->vmm->options->node);
    add(&a, "state"), add(&a, tr_sandbox_state_name(sb->state));
    add(&a, "reason"), add(&a, sb->reason);
    add(&a, "address"), add(&a, sb->address);
    add(&a, "instance"), add_int(&a, (int64_t)sb->instance);
    add(&a, "vcpus"), add_int(&a, sb->vcpus);
    add(&a, "memory_mb"), add_int(&a, sb->memory_mb);
    add(&a, "disk_mb"), add_int(&a, sb->disk_mb);
    add(&a, "created_at"), add(&a, created);
    add(&a, "started_at"), add(&a, started);
    r = run_to(live, script_sandbox, cb, arg, 8, &a);
    free(route);
    return r;
}

static int send_sandbox(struct vmm_live *live, const struct vmm_sandbox *sb, const char *event,
                        tr_redis_reply_cb cb)
{
    return send_sandbox_to(live, sb, event, cb, live);
}

static int send_session(struct vmm_live *live, const struct vmm_session *session, const char *event,
                        tr_redis_reply_cb cb)
{
    struct args a = {.n = 0};
    char key[64], created[VMM_TIME_SIZE], list[128];

    snprintf(key, sizeof(key), "%s%s", TR_KEY_SESSION, session->id);
    owner_list(list, sizeof(list), TR_KEY_SESSIONS, session->owner);
    vmm_time_text(session->created_ms, created);
    add(&a, key);
    add(&a, TR_KEY_EVENTS);
    add(&a, live->key_sessions);
    add(&a, TR_KEY_SESSIONS);
    add(&a, list);
    add(&a, session->id);
    add(&a, event);
    add_int(&a, TR_EVENTS_MAX);
    add_int(&a, session->created_ms);
    add(&a, "owner"), add(&a, session->owner);
    add(&a, "name"), add(&a, session->name);
    add(&a, "node"), add(&a, live->vmm->options->node);
    add(&a, "created_at"), add(&a, created);
    return run(live, script_session, cb, 5, &a);
}

static int send_key(struct vmm_live *live, const struct vmm_key *k, tr_redis_reply_cb cb)
{
    struct args a = {.n = 0};
    char key[96], created[VMM_TIME_SIZE], list[128];

    snprintf(key, sizeof(key), "%s%s", TR_KEY_KEY, k->hash);
    owner_list(list, sizeof(list), TR_KEY_KEYS, k->owner);
    vmm_time_text(k->created_ms, created);
    add(&a, key);
    add(&a, live->key_keys);
    add(&a, TR_KEY_KEYS);
    add(&a, list);
    add(&a, k->hash);
    add_int(&a, k->created_ms);
    add(&a, "id"), add(&a, k->id);
    add(&a, "owner"), add(&a, k->owner);
    add(&a, "name"), add(&a, k->name);
    add(&a, "scopes"), add(&a, vmm_scope_name(k->scope));
    add(&a, "node"), add(&a, live->vmm->options->node);
    add(&a, "created_at"), add(&a, created);
    return run(live, script_key, cb, 4, &a);
}

static int send_secret(struct vmm_live *live, const struct vmm_secret *s, tr_redis_reply_cb cb)
{
    struct args a = {.n = 0};
    char key[256], id[224], updated[VMM_TIME_SIZE];
    char *sealed = json_dumps(s->sealed, JSON_COMPACT);
    int r;

    if (sealed == NULL)
        return UV_ENOMEM;
    snprintf(id, sizeof(id), "%s:%s", s->owner, s->name);
    snprintf(key, sizeof(key), "%s%s", TR_KEY_SECRET, id);
    vmm_time_text(s->updated_ms, updated);
    add(&a, key);
    add(&a, live->key_secrets);
    add(&a, id);
    add(&a, "owner"), add(&a, s->owner);
    add(&a, "name"), add(&a, s->name);
    add(&a, "node"), add(&a, live->vmm->options->node);
    add(&a, "updated_at"), add(&a, updated);
    add(&a, "sealed"), add(&a, sealed);
    r = run(live, script_secret, cb, 2, &a);
    free(sealed);
    return r;
}

static void send_event(struct vmm_live *live, const char *event)
{
    const char *argv[] = {"XADD", TR_KEY_EVENTS, "MAXLEN", "~", "10000", "*", "event", event};
    size_t len[8];

    _Static_assert(TR_EVENTS_MAX == 10000, "the text above says so");
    for (size_t i = 0; i < 8; i++)
        len[i] = strlen(argv[i]);
    (void)!tr_redis_command(live->redis, on_reply, NULL, 8, argv, len);
}

static void send_node(struct vmm_live *live)
{
    struct args a = {.n = 0};
    int64_t now_ms = vmm_wall_ms();
    size_t n_active = 0;
    char now[VMM_TIME_SIZE], load_text[24] = "";
    double load;

    for (const struct vmm_session *s = live->vmm->sessions.first; s != NULL; s = s->next) {
        for (const struct vmm_sandbox *sb = s->sandboxes; sb != NULL; sb = sb->next)
            n_active += vmm_sandbox_is_active(sb);
    }
    if (getloadavg(&load, 1) == 1)
        snprintf(load_text, sizeof(load_text), "%.2f", load);
    vmm_time_text(now_ms, now);
    add(&a, live->key_node);
    add(&a, TR_KEY_NODES);
    add(&a, live->vmm->options->node);
    add_int(&a, NODE_EXPIRY_MS);
    add_int(&a, now_ms);
    add_int(&a, now_ms - NODE_EXPIRY_MS);
    add(&a, "name"), add(&a, live->vmm->options->node);
    add(&a, "version"), add(&a, TRANSOM_VERSION);
    add(&a, "cpus"), add_int(&a, live->vmm->node->cpus);
    add(&a, "memory_mb"), add_int(&a, live->vmm->node->memory_mb);
    add(&a, "load"), add(&a, load_text);
    add(&a, "seen_at"), add(&a, now);
    add(&a, "active"), add_int(&a, (int64_t)n_active);
    add(&a, "max_sandboxes"), add_int(&a, live->vmm->options->max_sandboxes);
    (void)run(live, script_node, on_reply, 2, &a);
}

/* Remove what is named ("drop"), or all of ours that is not named ("keep"). */
static int send_prune(struct vmm_live *live, bool keep, const char *event, const char **ids,
                      size_t n_ids, tr_redis_reply_cb cb)
{
    const char *fixed[] = {TR_KEY_ROUTES,
                           TR_KEY_ROUTE_CHANGES,
                           TR_KEY_IDLE,
                           live->key_labels,
                           live->key_sessions,
                           live->key_keys,
                           TR_KEY_EVENTS,
                           live->key_secrets,
                           "100000",
                           "10000",
                           event,
                           keep ? "keep" : "drop"};
    size_t n = sizeof(fixed) / sizeof(fixed[0]) + n_ids;
    const char **argv = calloc(n, sizeof(char *));
    size_t *len = calloc(n, sizeof(size_t));
    int r = UV_ENOMEM;

    _Static_assert(TR_ROUTE_CHANGES_MAX == 100000, "the text above says so");
    if (argv != NULL && len != NULL) {
        memcpy(argv, fixed, sizeof(fixed));
        for (size_t i = 0; i < n_ids; i++)
            argv[sizeof(fixed) / sizeof(fixed[0]) + i] = ids[i];
        for (size_t i = 0; i < n; i++)
            len[i] = strlen(argv[i]);
        r = tr_redis_script(live->redis, script_prune, cb, live, 8, (int)n, argv, len);
    }
    free(argv);
    free(len);
    return r;
}

/* ---- write-back ---- */

static void write_some(struct vmm_live *live);

static void on_batch_reply(struct redisReply *reply, void *arg)
{
    struct vmm_live *live = arg;

    on_reply(reply, NULL);
    live->n_batch--;
    if (live->n_batch == 0 && live->writing_back)
        write_some(live);
}

/* Up to BATCH keys; what is created meanwhile is sent by itself. */
static void write_some_keys(struct vmm_live *live)
{
    const struct vmm_auth *auth = live->vmm->auth;
    const struct vmm_key *key = *live->next_key ? vmm_auth_by_hash(auth, live->next_key) : NULL;

    if (key == NULL) /* the start, or deleted meanwhile: begin again, which does no harm */
        key = vmm_auth_keys(auth);
    for (unsigned n = 0; key != NULL && n < BATCH; key = key->next, n++)
        live->n_batch += send_key(live, key, on_batch_reply) == 0;
    live->keys_written = key == NULL;
    if (key != NULL)
        memcpy(live->next_key, key->hash, sizeof(live->next_key));
}

/* The same of secrets. */
static void write_some_secrets(struct vmm_live *live)
{
    const struct vmm_secret *secret = live->next_secret;

    for (unsigned n = 0; secret != NULL && n < BATCH; secret = secret->next, n++)
        live->n_batch += send_secret(live, secret, on_batch_reply) == 0;
    live->secrets_written = secret == NULL;
    live->next_secret = secret;
}

/* Up to BATCH sessions and their sandboxes; what is created meanwhile is sent by itself. */
static void write_some(struct vmm_live *live)
{
    const struct vmm_session *session = live->vmm->sessions.first;
    unsigned n = 0;

    if (!usable(live)) {
        live->writing_back = false;
        return;
    }
    if (!live->keys_written) {
        write_some_keys(live);
        if (live->n_batch > 0)
            return;                /* the replies go on */
        if (!live->keys_written) { /* nothing could be sent: the next write-back begins anew */
            live->writing_back = false;
            return;
        }
    }
    if (!live->secrets_written) {
        write_some_secrets(live);
        if (live->n_batch > 0)
            return;
        if (!live->secrets_written) {
            live->writing_back = false;
            return;
        }
    }
    if (*live->next_session) {
        session = vmm_session_find(&live->vmm->sessions, live->next_session);
        if (session == NULL) /* deleted meanwhile: begin again, which does no harm */
            session = live->vmm->sessions.first;
    }
    for (; session != NULL && n < BATCH; session = session->next, n++) {
        live->n_batch += send_session(live, session, "", on_batch_reply) == 0;
        for (const struct vmm_sandbox *sb = session->sandboxes; sb != NULL; sb = sb->next)
            live->n_batch += send_sandbox(live, sb, "", on_batch_reply) == 0;
    }
    if (session == NULL) {
        live->writing_back = false;
        log_info("redis: everything of this node is written");
        return;
    }
    memcpy(live->next_session, session->id, sizeof(live->next_session));
    if (live->n_batch == 0) /* nothing could be sent: the next write-back begins anew */
        live->writing_back = false;
}

/* Ids of all that exists, for script_prune. Entries point into text, which the caller frees. */
static const char **all_ids(const struct vmm *vmm, char **text, size_t *n)
{
    size_t n_keys = vmm->auth == NULL ? 0 : vmm_auth_n_keys(vmm->auth);
    size_t max = vmm->sessions.by_id.n_entries + vmm->sessions.by_label.n_entries;
    size_t n_secrets = vmm->secrets == NULL ? 0 : vmm_secrets_count(vmm->secrets);
    const char **ids = calloc(max + n_keys + n_secrets + 1, sizeof(char *));
    char *p = malloc((max + 1) * (VMM_ID_LEN + 3) + n_keys * (VMM_KEY_HASH_LEN + 3) +
                     n_secrets * SECRET_ID_SIZE);

    *n = 0;
    *text = p;
    if (ids == NULL || p == NULL) {
        free(ids);
        return NULL;
    }
    for (const struct vmm_session *s = vmm->sessions.first; s != NULL; s = s->next) {
        ids[(*n)++] = p;
        p += snprintf(p, VMM_ID_LEN + 3, "s:%s", s->id) + 1;
        for (const struct vmm_sandbox *sb = s->sandboxes; sb != NULL; sb = sb->next) {
            ids[(*n)++] = p;
            p += snprintf(p, VMM_ID_LEN + 3, "l:%s", sb->label) + 1;
        }
    }
    for (const struct vmm_key *k = n_keys == 0 ? NULL : vmm_auth_keys(vmm->auth); k != NULL;
         k = k->next) {
        ids[(*n)++] = p;
        p += snprintf(p, VMM_KEY_HASH_LEN + 3, "k:%s", k->hash) + 1;
    }
    for (const struct vmm_secret *x = n_secrets == 0 ? NULL : vmm_secrets_first(vmm->secrets);
         x != NULL; x = x->next) {
        ids[(*n)++] = p;
        p += snprintf(p, SECRET_ID_SIZE, "x:%s:%s", x->owner, x->name) + 1;
    }
    return ids;
}

static void write_back(struct vmm_live *live)
{
    const struct vmm_event *ev;
    size_t n;
    char *text;
    const char **ids = all_ids(live->vmm, &text, &n);

    if (ids == NULL || send_prune(live, true, "", ids, n, on_reply) != 0)
        log_error("redis: what is gone could not be removed from it");
    free(ids);
    free(text);
    while ((ev = vmm_events_next(&live->vmm->events, live->event_sent, NULL)) != NULL) {
        if (strcmp(ev->type, EVENT_STATS) != 0)
            send_event(live, ev->text);
        live->event_sent = ev->id;
    }
    send_node(live);
    live->next_session[0] = live->next_key[0] = '\0';
    live->keys_written = live->vmm->auth == NULL;
    live->next_secret = live->vmm->secrets == NULL ? NULL : vmm_secrets_first(live->vmm->secrets);
    live->secrets_written = live->next_secret == NULL;
    live->writing_back = true;
    if (live->n_batch == 0) /* else the replies of an earlier one go on with it */
        write_some(live);
}

/* ---- the connection ---- */

static void maybe_closed(struct vmm_live *live)
{
    if (--live->n_open > 0)
        return;
    if (live->on_closed != NULL)
        live->on_closed(live->on_closed_arg);
    free(live->url);
    free(live);
}

static void on_timer_close(uv_handle_t *handle)
{
    maybe_closed(handle->data);
}

static void on_redis_close(struct tr_redis *r, void *arg)
{
    (void)r;
    maybe_closed(arg);
}

static void close_now(struct vmm_live *live)
{
    if (live->closing)
        return;
    live->closing = true;
    uv_close((uv_handle_t *)&live->timer, on_timer_close);
    tr_redis_close(live->redis);
}

static void on_timer(uv_timer_t *timer)
{
    struct vmm_live *live = timer->data;

    if (live->leaving)
        close_now(live);
    else if (usable(live))
        send_node(live);
}

static void on_up(struct tr_redis *r, void *arg)
{
    struct vmm_live *live = arg;

    (void)r;
    log_info("redis: connected to %s", live->url);
    live->was_up = true;
    if (!live->leaving)
        write_back(live);
}

static void on_down(struct tr_redis *r, const char *why, void *arg)
{
    struct vmm_live *live = arg;

    (void)r;
    if (live->was_up && !live->leaving)
        log_warn("redis: lost %s: %s", live->url, why);
    else
        log_debug("redis: %s: %s", live->url, why);
    live->was_up = false;
    if (live->leaving)
        close_now(live);
}

/* The address without its password and what else is about the user. */
static char *public_url(const char *url)
{
    const char *at = strrchr(url, '@'), *scheme = strstr(url, "://"), *rest, *end;
    char *out = NULL;

    rest = at == NULL || scheme == NULL ? url : at + 1;
    end = strrchr(rest, '?');
    if (asprintf(&out, "%.*s%.*s", rest == url ? 0 : (int)(scheme + 3 - url), url,
                 end == NULL ? (int)strlen(rest) : (int)(end - rest), rest) < 0)
        return NULL;
    return out;
}

int vmm_live_open(struct vmm *vmm, const char *url, struct vmm_live **out, struct err *err)
{
    static const struct tr_redis_cbs cbs = {
        .on_up = on_up, .on_down = on_down, .on_close = on_redis_close};
    struct vmm_live *live = calloc(1, sizeof(*live));
    int r;

    if (live == NULL || (live->url = public_url(url)) == NULL) {
        free(live);
        return tr_err_set(err, -ENOMEM, "out of memory");
    }
    live->vmm = vmm;
    snprintf(live->key_node, sizeof(live->key_node), "%s%s", TR_KEY_NODE, vmm->options->node);
    snprintf(live->key_labels, sizeof(live->key_labels), "%s%s", TR_KEY_NODE_LABELS,
             vmm->options->node);
    snprintf(live->key_sessions, sizeof(live->key_sessions), "%s%s", TR_KEY_NODE_SESSIONS,
             vmm->options->node);
    snprintf(live->key_keys, sizeof(live->key_keys), "%s%s", TR_KEY_NODE_KEYS, vmm->options->node);
    snprintf(live->key_secrets, sizeof(live->key_secrets), "%s%s", TR_KEY_NODE_SECRETS,
             vmm->options->node);
    r = tr_redis_open(vmm->loop, url, &cbs, live, &live->redis, err);
    if (r != 0) {
        free(live->url);
        free(live);
        return r;
    }
    if (uv_timer_init(vmm->loop, &live->timer) != 0)
        abort(); /* cannot fail on Unix */
    live->timer.data = live;
    live->n_open = 2;
    if (uv_timer_start(&live->timer, on_timer, HEARTBEAT_MS, HEARTBEAT_MS) != 0)
        abort(); /* a callback is given, the handle is open */
    *out = live;
    return 0;
}

static void on_left(struct redisReply *reply, void *arg)
{
    on_reply(reply, NULL);
    close_now(arg);
}

void vmm_live_close(struct vmm_live *live, bool leave, void (*cb)(void *arg), void *arg)
{
    struct args a = {.n = 0};

    live->on_closed = cb;
    live->on_closed_arg = arg;
    live->leaving = true;
    live->writing_back = false;
    add(&a, live->key_node);
    add(&a, TR_KEY_NODES);
    add(&a, live->vmm->options->node);
    if (!leave || !usable(live) || run(live, script_leave, on_left, 2, &a) != 0) {
        close_now(live);
        return;
    }
    (void)uv_timer_start(&live->timer, on_timer, LEAVE_TIMEOUT_MS, 0);
}

bool vmm_live_is_up(const struct vmm_live *live)
{
    return usable(live);
}

const char *vmm_live_url(const struct vmm_live *live)
{
    return live == NULL ? "" : live->url;
}

/* ---- changes ---- */

/* The text of an event for the same script as its state change; "" when there is none. */
static const char *event_text(struct vmm *vmm, const struct vmm_event *ev)
{
    if (ev == NULL)
        return "";
    if (usable(vmm->live))
        vmm->live->event_sent = ev->id;
    return ev->text;
}

void vmm_live_sandbox(struct vmm *vmm, const struct vmm_sandbox *sb)
{
    const struct vmm_event *ev = vmm_events_add(
        &vmm->events, "sandbox.state", sb->session->owner,
        json_pack("{ss, ss, ss, ss, ss, sI}", "session", sb->session->id, "sandbox", sb->name,
                  "label", sb->label, "state", tr_sandbox_state_name(sb->state), "reason",
                  sb->reason, "instance", (json_int_t)sb->instance));

    if (usable(vmm->live))
        (void)send_sandbox(vmm->live, sb, event_text(vmm, ev), on_reply);
}

/* A change of a preview's settings whose answer somebody waits for. */
struct setting {
    struct vmm *vmm;
    char label[VMM_ID_LEN + 1];
    vmm_live_cb cb;
    void *arg;
};

static void on_setting(struct redisReply *reply, void *arg)
{
    struct setting *s = arg;
    struct vmm_sandbox *sb = vmm_sessions_by_label(&s->vmm->sessions, s->label);
    bool refused = reply != NULL && reply->type == REDIS_REPLY_ERROR;

    if (sb != NULL && reply != NULL)
        sb->unsent = refused; /* said anew also when the change before this one was taken */
    /* Lost: it is as with Redis down, the write-back does it. */
    s->cb(refused ? -EIO : 0, refused ? reply->str : "", s->arg);
    free(s);
}

int vmm_live_preview(struct vmm *vmm, struct vmm_sandbox *sb, const char *event, vmm_live_cb cb,
                     void *arg)
{
    const struct vmm_event *ev = NULL;
    struct setting *s;
    int r;

    if (event != NULL)
        ev = vmm_events_add(&vmm->events, event, sb->session->owner,
                            json_pack("{ss, ss, ss, ss, sb}", "session", sb->session->id, "sandbox",
                                      sb->name, "label", sb->label, "access",
                                      sb->preview.is_private ? "private" : "public", "wake",
                                      (int)sb->preview.wake));
    sb->unsent = true;
    if (!usable(vmm->live))
        return UV_ENOTCONN;
    s = calloc(1, sizeof(*s));
    if (s == NULL)
        return UV_ENOMEM;
    *s = (struct setting){.vmm = vmm, .cb = cb, .arg = arg};
    memcpy(s->label, sb->label, sizeof(s->label));
    r = send_sandbox_to(vmm->live, sb, event_text(vmm, ev), on_setting, s);
    if (r != 0)
        free(s);
    return r;
}

void vmm_live_session(struct vmm *vmm, const struct vmm_session *session, const char *event)
{
    const struct vmm_event *ev =
        vmm_events_add(&vmm->events, event, session->owner,
                       json_pack("{ss, ss}", "session", session->id, "name", session->name));

    if (!usable(vmm->live))
        return;
    (void)send_session(vmm->live, session, event_text(vmm, ev), on_reply);
    for (const struct vmm_sandbox *sb = session->sandboxes; sb != NULL; sb = sb->next)
        (void)send_sandbox(vmm->live, sb, "", on_reply);
}

void vmm_live_session_gone(struct vmm *vmm, const struct vmm_session *session)
{
    const struct vmm_event *ev =
        vmm_events_add(&vmm->events, "session.deleted", session->owner,
                       json_pack("{ss, ss}", "session", session->id, "name", session->name));
    char text[65][VMM_ID_LEN + 3];
    const char *ids[65];
    size_t n = 0;

    if (!usable(vmm->live))
        return;
    snprintf(text[n], sizeof(text[n]), "s:%s", session->id);
    ids[n] = text[n];
    n++;
    for (const struct vmm_sandbox *sb = session->sandboxes; sb != NULL && n < 65; sb = sb->next) {
        snprintf(text[n], sizeof(text[n]), "l:%s", sb->label);
        ids[n] = text[n];
        n++;
    }
    if (send_prune(vmm->live, false, event_text(vmm, ev), ids, n, on_reply) != 0)
        log_error("session=%s: its routes could not be removed from redis", session->id);
}

void vmm_live_key(struct vmm *vmm, const struct vmm_key *key)
{
    if (key != NULL && usable(vmm->live))
        (void)send_key(vmm->live, key, on_reply);
}

void vmm_live_key_gone(struct vmm *vmm, const char *hash)
{
    char text[VMM_KEY_HASH_LEN + 3];
    const char *id = text;

    if (!usable(vmm->live))
        return;
    snprintf(text, sizeof(text), "k:%s", hash);
    if (send_prune(vmm->live, false, "", &id, 1, on_reply) != 0)
        log_error("an API key that was deleted could not be removed from redis");
}

void vmm_live_secret(struct vmm *vmm, const struct vmm_secret *secret)
{
    if (secret != NULL && usable(vmm->live))
        (void)send_secret(vmm->live, secret, on_reply);
}

void vmm_live_secret_gone(struct vmm *vmm, const struct vmm_secret *secret)
{
    char id[SECRET_ID_SIZE];
    const char *ids[] = {id};

    if (vmm->live == NULL)
        return;
    if (vmm->live->next_secret == secret)
        vmm->live->next_secret = secret->next;
    if (!usable(vmm->live))
        return;
    snprintf(id, sizeof(id), "x:%s:%s", secret->owner, secret->name);
    if (send_prune(vmm->live, false, "", ids, 1, on_reply) != 0)
        log_error("a secret that was deleted could not be removed from redis");
}

static void send_stats(struct vmm_live *live, const char *label, const json_t *sample)
{
    char key[64], max[16], text[STATS_FIELDS_MAX][32];
    const char *argv[5 + 2 * STATS_FIELDS_MAX] = {"XADD", key, "MAXLEN", max, "*"};
    size_t len[5 + 2 * STATS_FIELDS_MAX];
    const char *name;
    json_t *value;
    int n = 5, n_fields = 0;

    snprintf(key, sizeof(key), "%s%s", TR_KEY_STATS, label);
    snprintf(max, sizeof(max), "%d", TR_STATS_MAX);
    json_object_foreach((json_t *)sample, name, value)
    {
        if (!json_is_number(value) || n_fields == STATS_FIELDS_MAX)
            continue;
        if (json_is_integer(value))
            snprintf(text[n_fields], sizeof(text[0]), "%" JSON_INTEGER_FORMAT,
                     json_integer_value(value));
        else
            snprintf(text[n_fields], sizeof(text[0]), "%.2f", json_real_value(value));
        argv[n++] = name;
        argv[n++] = text[n_fields++];
    }
    if (n_fields == 0)
        return;
    for (int i = 0; i < n; i++)
        len[i] = strlen(argv[i]);
    (void)!tr_redis_command(live->redis, on_reply, NULL, n, argv, len);
}

void vmm_live_stats(struct vmm *vmm, const struct vmm_sandbox *sb, const json_t *sample)
{
    (void)vmm_events_add_last(&vmm->events, EVENT_STATS, sb->session->owner, sb->label,
                              json_pack("{ss, ss, ss, sI, sO}", "session", sb->session->id,
                                        "sandbox", sb->name, "label", sb->label, "instance",
                                        (json_int_t)sb->instance, "stats", (json_t *)sample));
    if (usable(vmm->live))
        send_stats(vmm->live, sb->label, sample);
}

void vmm_live_event(struct vmm *vmm, const char *type, const char *owner, json_t *members)
{
    const struct vmm_event *ev = vmm_events_add(&vmm->events, type, owner, members);

    if (ev != NULL && usable(vmm->live))
        send_event(vmm->live, event_text(vmm, ev));
}

void vmm_live_idle(struct vmm *vmm, const char *label, int64_t deadline_wall_ms)
{
    char score[24];
    const char *set[] = {"ZADD", TR_KEY_IDLE, score, label};
    const char *clear[] = {"ZREM", TR_KEY_IDLE, label};
    size_t len[4];
    int n = deadline_wall_ms > 0 ? 4 : 3;
    const char **argv = deadline_wall_ms > 0 ? set : clear;

    if (!usable(vmm->live))
        return;
    snprintf(score, sizeof(score), "%" PRId64, deadline_wall_ms);
    for (int i = 0; i < n; i++)
        len[i] = strlen(argv[i]);
    (void)!tr_redis_command(vmm->live->redis, on_reply, NULL, n, argv, len);
}
