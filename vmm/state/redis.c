/* SPDX-License-Identifier: MIT */
/* Path: open -> resolve (host names only) -> connect -> AUTH, SELECT, PING -> on_up -> commands.
 * Faults (refused, deadline, an error in the greeting, a lost connection, silence) enter at lost(),
 * which tells on_down and tries again after a pause.
 *
 * One timer serves all states: what it means is in state. */
#include "transom/state.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <hiredis/async.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>
#include "vmm/state/redis_loop.h"
#include "vmm/state/redis_script.h"
#include "vmm/state/redis_url.h"

#define CONNECT_MS     3000
#define BACKOFF_MIN_MS 100
#define BACKOFF_MAX_MS 5000
#ifndef REDIS_SILENCE_MS       /* tests wait for less */
#define REDIS_SILENCE_MS 30000 /* with commands waiting */
#define REDIS_CHECK_MS   5000
#endif
#define ARGC_MAX 100000

/* who leaves it: WAITING the timer; RESOLVING its callback or the timer; GREETING the replies, the
 * timer or a lost connection; UP a lost connection or the timer (silence); CLOSING nobody. */
enum state { WAITING, RESOLVING, GREETING, UP, CLOSING };

struct tr_redis {
    uv_loop_t *loop;
    struct tr_redis_cbs cbs;
    void *arg;
    struct redis_url url;
    enum state state;
    redisAsyncContext *ac; /* NULL when there is no connection */
    uint64_t n_conn;       /* number of the connection */
    int n_greeting;        /* greeting replies still due */
    uv_timer_t timer;
    uv_getaddrinfo_t gai;
    bool gai_busy;
    bool timer_closed;
    uint64_t backoff_ms;
    size_t n_pending;
    uint64_t progress_at; /* loop time of the last reply, or of the first waiting command */
    struct redis_scripts scripts;
};

struct request {
    struct tr_redis *r;
    tr_redis_reply_cb cb;
    void *arg;
    struct redis_eval *retry; /* a script sent by its hash */
};

static void on_timer(uv_timer_t *timer);

static void set_timer(struct tr_redis *r, uint64_t ms, uint64_t repeat)
{
    if (uv_timer_start(&r->timer, on_timer, ms, repeat) != 0)
        abort(); /* only with a closing handle */
}

/* ---- losing a connection ---- */

/* Half of the pause is chance, so that many clients of a server that came back do not all arrive
 * at once. */
static uint64_t jittered(uint64_t ms)
{
    uint32_t x = 0;

    (void)!getrandom(&x, sizeof(x), GRND_NONBLOCK); /* without chance: half the pause */
    return ms / 2 + x % (ms / 2 + 1);
}

static void lost(struct tr_redis *r, const char *why)
{
    if (r->state == CLOSING || r->state == WAITING)
        return;
    r->state = WAITING;
    set_timer(r, jittered(r->backoff_ms), 0);
    r->backoff_ms = r->backoff_ms * 2 < BACKOFF_MAX_MS ? r->backoff_ms * 2 : BACKOFF_MAX_MS;
    if (r->cbs.on_down != NULL)
        r->cbs.on_down(r, why, r->arg);
}

/* Let go of the connection: waiting commands are answered with NULL (at once, or when hiredis is
 * done with the callback that we are called from). */
static void let_go(struct tr_redis *r)
{
    redisAsyncContext *ac = r->ac;

    r->ac = NULL;
    if (ac == NULL)
        return;
    ac->data = NULL;
    redisAsyncFree(ac);
}

static void drop(struct tr_redis *r, const char *why)
{
    if (r->state == UP)
        r->state = GREETING; /* what let_go() answers must not find us up */
    let_go(r);
    lost(r, why);
}

static void on_disconnect(const redisAsyncContext *ac, int status)
{
    struct tr_redis *r = ac->data;

    (void)status;
    if (r == NULL)
        return; /* let_go() */
    r->ac = NULL;
    lost(r, ac->err != 0 ? ac->errstr : "connection lost");
}

/* ---- greeting ---- */

/* The first line of the file that holds the password. It is read for each connection, since it may
 * be made, or changed, while we run; it is small and no device, so reading does not block. */
static int read_password(struct redis_url *url)
{
    int fd = open(url->password_file, O_RDONLY | O_CLOEXEC | O_NONBLOCK), r = 0;
    struct stat st;
    ssize_t n;

    if (fd < 0)
        return -errno;
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) {
        r = UV_EINVAL;
    } else {
        n = read(fd, url->password, sizeof(url->password) - 1);
        if (n < 0)
            r = -errno;
        url->password[n < 0 ? 0 : n] = '\0';
        url->password[strcspn(url->password, "\r\n")] = '\0';
        if (r == 0 && url->password[0] == '\0')
            r = UV_EINVAL;
    }
    close(fd);
    url->has_password = r == 0;
    return r;
}

static void on_greeting(redisAsyncContext *ac, void *reply_arg, void *arg)
{
    struct tr_redis *r = ac->data;
    redisReply *reply = reply_arg;

    (void)arg;
    if (r == NULL || reply == NULL || r->state != GREETING)
        return; /* on_disconnect() or who let go tells */
    if (reply->type == REDIS_REPLY_ERROR) {
        char why[160];

        /* Redis names the fault, never what was sent. */
        snprintf(why, sizeof(why), "%s: %.120s", r->url.shown, reply->str);
        drop(r, why);
        return;
    }
    if (--r->n_greeting > 0)
        return;
    r->state = UP;
    r->backoff_ms = BACKOFF_MIN_MS;
    set_timer(r, REDIS_CHECK_MS, REDIS_CHECK_MS);
    if (r->cbs.on_up != NULL)
        r->cbs.on_up(r, r->arg);
}

static int greet(struct tr_redis *r)
{
    const char *auth[3] = {"AUTH"};
    int n = 1, e = REDIS_OK;

    r->n_greeting = 1 + r->url.has_password + (r->url.db != 0);
    if (r->url.has_password) {
        if (r->url.user[0] != '\0')
            auth[n++] = r->url.user;
        auth[n++] = r->url.password;
        e = redisAsyncCommandArgv(r->ac, on_greeting, NULL, n, auth, NULL);
    }
    if (e == REDIS_OK && r->url.db != 0)
        e = redisAsyncCommand(r->ac, on_greeting, NULL, "SELECT %d", r->url.db);
    if (e == REDIS_OK) /* a server that is still loading its data answers with an error */
        e = redisAsyncCommand(r->ac, on_greeting, NULL, "PING");
    return e;
}

static void on_connect(const redisAsyncContext *ac, int status)
{
    struct tr_redis *r = ac->data;

    if (r == NULL)
        return;
    if (status != REDIS_OK) {
        char why[160];

        r->ac = NULL; /* hiredis frees it when this returns */
        snprintf(why, sizeof(why), "%s: %.120s", r->url.shown, ac->errstr);
        lost(r, why);
        return;
    }
    if (!r->url.is_unix)
        (void)redisEnableKeepAlive(&r->ac->c); /* a refinement: works without */
    if (greet(r) != REDIS_OK) /* no memory; not drop(): hiredis goes on with ac when this returns */
        set_timer(r, 0, 0);
}

/* ---- connecting ---- */

static void attach(struct tr_redis *r, redisAsyncContext *ac)
{
    char why[160];
    int e = 0;

    if (ac == NULL) {
        lost(r, "no memory");
        return;
    }
    if (ac->err == 0)
        e = redis_loop_attach(r->loop, ac);
    if (ac->err != 0 || e != 0) {
        snprintf(why, sizeof(why), "%s: %.120s", r->url.shown,
                 ac->err != 0 ? ac->errstr : uv_strerror(e));
        redisAsyncFree(ac);
        lost(r, why);
        return;
    }
    ac->data = r;
    r->ac = ac;
    r->n_conn++;
    r->state = GREETING;
    (void)redisAsyncSetDisconnectCallback(ac, on_disconnect); /* fail when set already */
    (void)redisAsyncSetConnectCallback(ac, on_connect);
}

static void finish_close(struct tr_redis *r)
{
    if (!r->timer_closed || r->gai_busy)
        return;
    if (r->cbs.on_close != NULL)
        r->cbs.on_close(r, r->arg);
    redis_scripts_clear(&r->scripts);
    explicit_bzero(&r->url, sizeof(r->url));
    free(r);
}

static void on_resolved(uv_getaddrinfo_t *req, int status, struct addrinfo *res)
{
    struct tr_redis *r = req->data;
    char text[INET6_ADDRSTRLEN] = "";

    r->gai_busy = false;
    if (status == 0 && res->ai_family == AF_INET)
        uv_ip4_name((const struct sockaddr_in *)res->ai_addr, text, sizeof(text));
    else if (status == 0 && res->ai_family == AF_INET6)
        uv_ip6_name((const struct sockaddr_in6 *)res->ai_addr, text, sizeof(text));
    uv_freeaddrinfo(res);
    if (r->state == CLOSING) {
        finish_close(r);
        return;
    }
    if (r->state != RESOLVING)
        return; /* the deadline was first */
    if (text[0] == '\0') {
        char why[160];

        snprintf(why, sizeof(why), "%.100s: %s", r->url.host, uv_strerror(status));
        lost(r, why);
        return;
    }
    attach(r, redisAsyncConnect(text, r->url.port));
}

static bool is_numeric(const char *host)
{
    struct in6_addr addr;

    return inet_pton(AF_INET, host, &addr) == 1 || inet_pton(AF_INET6, host, &addr) == 1;
}

static void connect_now(struct tr_redis *r)
{
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    int e;

    r->state = RESOLVING;
    set_timer(r, CONNECT_MS, 0);
    if (r->url.password_file[0] != '\0') {
        char why[400];

        e = read_password(&r->url);
        if (e != 0) {
            snprintf(why, sizeof(why), "%.256s: %s", r->url.password_file,
                     e == UV_EINVAL ? "holds no password" : uv_strerror(e));
            lost(r, why);
            return;
        }
    }
    if (r->url.is_unix) {
        attach(r, redisAsyncConnectUnix(r->url.host));
    } else if (is_numeric(r->url.host)) {
        attach(r, redisAsyncConnect(r->url.host, r->url.port));
    } else if (r->gai_busy) {
        lost(r, "the name service does not answer"); /* the last look-up is still under way */
    } else {
        r->gai.data = r;
        e = uv_getaddrinfo(r->loop, &r->gai, on_resolved, r->url.host, NULL, &hints);
        r->gai_busy = e == 0;
        if (e != 0)
            lost(r, uv_strerror(e));
    }
}

/* ---- timer ---- */

static void on_timer_close(uv_handle_t *handle)
{
    struct tr_redis *r = handle->data;

    r->timer_closed = true;
    finish_close(r);
}

static void on_timer(uv_timer_t *timer)
{
    struct tr_redis *r = timer->data;

    switch (r->state) {
    case WAITING:
        connect_now(r);
        break;
    case RESOLVING:
    case GREETING: {
        char why[400];

        snprintf(why, sizeof(why), "%s: no answer within %d ms", r->url.shown, CONNECT_MS);
        drop(r, why);
        break;
    }
    case UP:
        if (r->n_pending > 0 && uv_now(r->loop) - r->progress_at > REDIS_SILENCE_MS)
            drop(r, "no reply to a command");
        break;
    case CLOSING:
        let_go(r);
        if (r->gai_busy)
            (void)uv_cancel((uv_req_t *)&r->gai); /* else its callback comes in its own time */
        uv_close((uv_handle_t *)&r->timer, on_timer_close);
        break;
    }
}

/* ---- commands ---- */

static void on_reply(redisAsyncContext *ac, void *reply_arg, void *arg);

static int send_command(struct tr_redis *r, struct request *req, int argc, const char **argv,
                        const size_t *argv_len)
{
    if (r->ac == NULL || r->state != UP)
        return UV_ENOTCONN;
    if (redisAsyncCommandArgv(r->ac, on_reply, req, argc, argv, argv_len) != REDIS_OK)
        return UV_ENOTCONN; /* hiredis refuses only while it disconnects */
    if (r->n_pending++ == 0)
        r->progress_at = uv_now(r->loop);
    return 0;
}

static void request_free(struct request *req)
{
    free(req->retry);
    free(req);
}

/* EVALSHA was answered with NOSCRIPT: send the text. */
static bool resend(struct tr_redis *r, struct request *req)
{
    struct redis_eval *e = req->retry;
    int status;

    req->retry = NULL;
    redis_eval_by_text(e);
    status = send_command(r, req, e->argc, e->argv, e->argv_len);
    free(e);
    return status == 0;
}

static void on_reply(redisAsyncContext *ac, void *reply_arg, void *arg)
{
    struct request *req = arg;
    struct tr_redis *r = req->r;
    redisReply *reply = reply_arg;

    (void)ac;
    r->n_pending--;
    r->progress_at = uv_now(r->loop);
    if (reply == NULL && r->state == UP)
        r->state = GREETING; /* the connection is going: on_disconnect() follows */
    if (req->retry != NULL && reply != NULL && reply->type == REDIS_REPLY_ERROR &&
        strncmp(reply->str, "NOSCRIPT", 8) == 0) {
        if (resend(r, req))
            return;
        reply = NULL;
    }
    if (req->cb != NULL)
        req->cb(reply, req->arg);
    request_free(req);
}

static struct request *request_new(struct tr_redis *r, tr_redis_reply_cb cb, void *arg)
{
    struct request *req = calloc(1, sizeof(*req));

    if (req == NULL)
        return NULL;
    req->r = r;
    req->cb = cb;
    req->arg = arg;
    return req;
}

int tr_redis_command(struct tr_redis *r, tr_redis_reply_cb cb, void *arg, int argc,
                     const char **argv, const size_t *argv_len)
{
    struct request *req;
    int e;

    if (r->state != UP)
        return UV_ENOTCONN;
    req = request_new(r, cb, arg);
    if (req == NULL)
        return UV_ENOMEM;
    e = send_command(r, req, argc, argv, argv_len);
    if (e != 0)
        request_free(req);
    return e;
}

/* ---- scripts ---- */

int tr_redis_script(struct tr_redis *r, const char *script, tr_redis_reply_cb cb, void *arg,
                    int n_keys, int argc, const char **argv, const size_t *argv_len)
{
    struct redis_script *s;
    struct redis_eval *e = NULL;
    struct request *req;
    bool known;
    int status;

    if (n_keys < 0 || argc < n_keys || argc > ARGC_MAX)
        return UV_EINVAL;
    if (r->state != UP)
        return UV_ENOTCONN;
    s = redis_script_get(&r->scripts, script);
    req = request_new(r, cb, arg);
    if (s != NULL && req != NULL)
        e = redis_eval_new(s, n_keys, argc, argv, argv_len);
    if (e == NULL) {
        free(req);
        return UV_ENOMEM;
    }
    /* Each connection is sent the text once, so that the scripts of one caller run in the order of
     * the calls also when the server is new; only SCRIPT FLUSH makes it ask again. */
    known = s->known_on == r->n_conn;
    if (known)
        redis_eval_by_hash(e);
    else
        redis_eval_by_text(e);
    status = send_command(r, req, e->argc, e->argv, e->argv_len);
    if (status == 0)
        s->known_on = r->n_conn;
    if (status == 0 && known)
        req->retry = e;
    else
        free(e);
    if (status != 0)
        request_free(req);
    return status;
}

/* ---- public ---- */

int tr_redis_open(uv_loop_t *loop, const char *url, const struct tr_redis_cbs *cbs, void *arg,
                  struct tr_redis **out, struct err *err)
{
    struct tr_redis *r = calloc(1, sizeof(*r));
    int e;

    if (r == NULL)
        return tr_err_set(err, UV_ENOMEM, "no memory");
    e = redis_url_parse(url, &r->url, err);
    if (e != 0) {
        explicit_bzero(&r->url, sizeof(r->url));
        free(r);
        return e;
    }
    r->loop = loop;
    r->cbs = *cbs;
    r->arg = arg;
    r->backoff_ms = BACKOFF_MIN_MS;
    if (uv_timer_init(loop, &r->timer) != 0)
        abort(); /* cannot fail on Unix */
    r->timer.data = r;
    r->state = WAITING;
    set_timer(r, 0, 0);
    *out = r;
    return 0;
}

void tr_redis_close(struct tr_redis *r)
{
    if (r->state == CLOSING)
        return;
    r->state = CLOSING;
    set_timer(r, 0, 0);
}

bool tr_redis_is_up(const struct tr_redis *r)
{
    return r->state == UP;
}
