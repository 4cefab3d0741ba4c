/* SPDX-License-Identifier: MIT */
/* How each thing looks in Redis, and the scripts that write it there. */
#include <hiredis/hiredis.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "transom/log.h"
#include "vmm/live_internal.h"
#include "vmm/node.h"

#define NODE_EXPIRY_MS   35000
#define STATS_FIELDS_MAX 24
#define ARGS_MAX         64

/* KEYS: routes, route-changes, sandbox:L, events, idle, node-labels, sandboxes, sandboxes:OWNER.
 * ARGV: label, route, event or "", maximum of route-changes, of events, time of creation, then
 * field, value ... of sandbox:L. The stream of changes gets an entry only for a real change: a
 * write-back of thousands must not flush it. */
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

int live_send_sandbox(struct vmm_live *live, const struct vmm_sandbox *sb, const char *event,
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

int live_send_session(struct vmm_live *live, const struct vmm_session *session, const char *event,
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

int live_send_key(struct vmm_live *live, const struct vmm_key *k, tr_redis_reply_cb cb)
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

int live_send_secret(struct vmm_live *live, const struct vmm_secret *s, tr_redis_reply_cb cb)
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

void live_send_event(struct vmm_live *live, const char *event)
{
    const char *argv[] = {"XADD", TR_KEY_EVENTS, "MAXLEN", "~", "10000", "*", "event", event};
    size_t len[8];

    _Static_assert(TR_EVENTS_MAX == 10000, "the text above says so");
    for (size_t i = 0; i < 8; i++)
        len[i] = strlen(argv[i]);
    (void)!tr_redis_command(live->redis, live_on_reply, NULL, 8, argv, len);
}

void live_send_node(struct vmm_live *live)
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
    (void)run(live, script_node, live_on_reply, 2, &a);
}

/* Remove what is named ("drop"), or all of ours that is not named ("keep"). */
int live_send_prune(struct vmm_live *live, bool keep, const char *event, const char **ids,
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

int live_send_leave(struct vmm_live *live, tr_redis_reply_cb cb)
{
    struct args a = {.n = 0};

    add(&a, live->key_node);
    add(&a, TR_KEY_NODES);
    add(&a, live->vmm->options->node);
    return run(live, script_leave, cb, 2, &a);
}

void live_send_stats(struct vmm_live *live, const char *label, const json_t *sample)
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
    (void)!tr_redis_command(live->redis, live_on_reply, NULL, n, argv, len);
}
