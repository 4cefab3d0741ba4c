/* SPDX-License-Identifier: MIT */
/* What both daemons know of the Redis side: key names, the route record (route.h), a connection
 * that comes back by itself. Implemented in vmm/state/. */
#ifndef TRANSOM_STATE_H
#define TRANSOM_STATE_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>
#include "transom/err.h"
#include "transom/route.h"

#define TR_KEY_ROUTES "transom:routes" /* hash: label -> route record */
#define TR_KEY_ROUTE_CHANGES                                                                       \
    "transom:route-changes"                   /* stream: fields "label", "route" ("" = gone) */
#define TR_KEY_EVENTS        "transom:events" /* stream: field "event" (JSON) */
#define TR_KEY_AUDIT         "transom:audit"  /* stream: field "entry" (JSON); who did what */
#define TR_KEY_IDLE          "transom:idle"   /* sorted set: label by deadline (unix ms) */
/* Lists to page through: sorted sets by time of creation (unix ms), of everything and, with
 * ":OWNER" appended, of one owner. */
#define TR_KEY_SESSIONS      "transom:sessions"  /* ids */
#define TR_KEY_SANDBOXES     "transom:sandboxes" /* labels */
#define TR_KEY_KEYS          "transom:keys"      /* hashes of API keys */
#define TR_KEY_NODES         "transom:nodes" /* sorted set: name by last sign of life (unix ms) */
/* Prefixes. Hashes, numbers in decimal, times as in "2026-11-29T20:14:33.123Z" ("" for none):
 * sandbox:LABEL  session owner name node state reason address instance vcpus memory_mb disk_mb
 *                created_at started_at
 * session:ID     owner name node created_at
 * key:SHA256     id owner name scopes ("read", "session" or "admin") node created_at
 * node:NAME      name version cpus memory_mb load active max_sandboxes seen_at; expires */
#define TR_KEY_SANDBOX       "transom:sandbox:"
#define TR_KEY_SESSION       "transom:session:"
#define TR_KEY_KEY           "transom:key:"
#define TR_KEY_NODE          "transom:node:"
#define TR_KEY_SECRET        "transom:secret:" /* OWNER:NAME, sealed: of no use without the key file */
/* stats:LABEL: a stream with an entry for each sample, whose fields are the numbers of the API's
 * "stats". A stream, since an entry's id is the sample's time: a chart asks for a range of it
 * (XRANGE) and is told of the next one (XREAD); the length is bounded in the same command; and
 * entries with the same fields share their names. */
#define TR_KEY_STATS         "transom:stats:"
#define TR_STATS_MAX         360
/* What a gateway counts; with TR_KEY_ROUTES and TR_KEY_ROUTE_CHANGES, which it only reads, all that
 * its user can reach. */
#define TR_KEY_GATEWAY_STATS "transom:stats:gateway:" /* + name of the node */
/* Sets of what a node has written, by which it removes what has gone. */
#define TR_KEY_NODE_LABELS   "transom:node-labels:"
#define TR_KEY_NODE_SESSIONS "transom:node-sessions:"
#define TR_KEY_NODE_KEYS     "transom:node-keys:"
#define TR_KEY_NODE_SECRETS  "transom:node-secrets:"
#define TR_ROUTE_CHANGES_MAX 100000
#define TR_EVENTS_MAX        10000

/* The users of the embedded Redis; its socket and, for each user, the file with its password stand
 * in run_dir. */
#define TR_REDIS_SOCKET        "redis.sock"
#define TR_REDIS_PASSWORD_FILE "redis-%s.password"
#define TR_REDIS_MANAGER       "manager"
#define TR_REDIS_GATEWAY       "gateway"
#define TR_REDIS_ADMIN         "admin"
/* The URL by which user reaches the embedded Redis. UV_ENAMETOOLONG: it does not fit. */
TR_MUST_CHECK int tr_redis_embedded_url(const char *run_dir, const char *user, char *out,
                                        size_t size);

/* A Redis connection on a libuv loop that reconnects with backoff (100 ms doubling to 5 s, with
 * jitter). url: "unix:/path[?db=N]", "redis://[[user]:password@]host[:port][/db]" (user and
 * password percent-encoded), to both of which "?user=USER&password_file=/path" may be added (the
 * file is read at each connection), or "rediss://", refused with a clear error until supported. The
 * password never shows in a message. */
struct tr_redis;
struct redisReply;
typedef void (*tr_redis_reply_cb)(struct redisReply *reply, void *arg); /* NULL: connection lost */

struct tr_redis_cbs {
    void (*on_up)(struct tr_redis *r, void *arg);                    /* connected (again) */
    void (*on_down)(struct tr_redis *r, const char *why, void *arg); /* lost, or a try failed */
    void (*on_close)(struct tr_redis *r, void *arg);                 /* last event; then freed */
};
TR_MUST_CHECK int tr_redis_open(uv_loop_t *loop, const char *url, const struct tr_redis_cbs *cbs,
                                void *arg, struct tr_redis **out, struct err *err);
void tr_redis_close(struct tr_redis *r);
bool tr_redis_is_up(const struct tr_redis *r);
/* Send one command. A connection on which no reply comes for 30 s while some are due is dropped, so
 * blocking commands must block for less. cb may be NULL; else it runs exactly once, never before
 * this returns. Returns 0; UV_ENOTCONN when down (cb never runs); UV_ENOMEM. */
TR_MUST_CHECK int tr_redis_command(struct tr_redis *r, tr_redis_reply_cb cb, void *arg, int argc,
                                   const char **argv, const size_t *argv_len);
/* Run a Lua script by EVALSHA, with EVAL when the server does not know it yet. sha is cached by
 * the script's address (a string literal). */
TR_MUST_CHECK int tr_redis_script(struct tr_redis *r, const char *script, tr_redis_reply_cb cb,
                                  void *arg, int n_keys, int argc, const char **argv,
                                  const size_t *argv_len);

#endif
