/* SPDX-License-Identifier: MIT */
#include "agentctl_sync.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sync/remote.h"
#include "vmm/agent/base64.h"

#define MAX_CALLS 64

struct call {
    int id; /* 0: free */
    struct sync_remote *remote;
};

static struct call calls[MAX_CALLS];
static void (*say_event)(json_t *event);

static void say(const struct call *c, const char *ev, json_t *fields)
{
    json_object_set_new(fields, "id", json_integer(c->id));
    json_object_set_new(fields, "ev", json_string(ev));
    say_event(fields);
}

static json_t *bytes_json(const void *bytes, size_t len)
{
    char *b64 = agent_base64_encode(bytes, len);
    json_t *v = json_string(b64);

    free(b64);
    return v;
}

static json_t *sig_json(const struct sync_sig *sig)
{
    return json_pack("[I,I,I,I,I,b]", (json_int_t)sig->ino, (json_int_t)sig->mtime_ns,
                     (json_int_t)sig->ctime_ns, (json_int_t)sig->size, (json_int_t)sig->mode,
                     (int)sig->fresh);
}

static json_t *result_json(uint32_t index, int status, const struct sync_sig *sig)
{
    json_t *v = json_pack("{s:I,s:i}", "index", (json_int_t)index, "status", status);

    if (sig != NULL)
        json_object_set_new(v, "sig", sig_json(sig));
    return v;
}

static void on_listing(uint32_t index, int status, const struct sync_sig *sig, void *arg)
{
    say(arg, "listing", result_json(index, status, sig));
}

static void on_entry(uint32_t index, const struct sync_tree_entry *entry, void *arg)
{
    json_t *v = json_pack("{s:I,s:o,s:o}", "index", (json_int_t)index, "name",
                          bytes_json(entry->name, entry->name_len), "sig", sig_json(&entry->sig));

    if (entry->target != NULL)
        json_object_set_new(v, "target", bytes_json(entry->target, entry->target_len));
    say(arg, "entry", v);
}

static void on_listed(uint32_t index, int status, bool changed, void *arg)
{
    json_t *v = result_json(index, status, NULL);

    json_object_set_new(v, "changed", json_boolean(changed));
    say(arg, "listed", v);
}

static json_t *read_json(uint32_t index, int status, const struct sync_tree_read *read)
{
    json_t *v = result_json(index, status, &read->sig);
    char hex[2 * SYNC_ID_LEN + 1];

    sync_id_hex(&read->id, hex);
    json_object_set_new(v, "content_id", json_string(hex));
    json_object_set_new(v, "writer", json_boolean(read->writer));
    return v;
}

static void on_hashed(uint32_t index, int status, const struct sync_tree_read *read,
                      const uint8_t *head, size_t head_len, void *arg)
{
    json_t *v = read_json(index, status, read);

    json_object_set_new(v, "head", bytes_json(head, head_len));
    say(arg, "hashed", v);
}

static void on_reading(uint32_t index, int status, const struct sync_sig *sig, void *arg)
{
    say(arg, "reading", result_json(index, status, sig));
}

static void on_piece(uint32_t index, const uint8_t *bytes, size_t len, void *arg)
{
    say(arg, "piece",
        json_pack("{s:I,s:o}", "index", (json_int_t)index, "bytes", bytes_json(bytes, len)));
}

static void on_read(uint32_t index, int status, const struct sync_tree_read *read, void *arg)
{
    say(arg, "read", read_json(index, status, read));
}

static void on_applied(uint32_t index, int status, const struct sync_sig *sig, void *arg)
{
    say(arg, "applied", result_json(index, status, sig));
}

static void on_dirty(const char *dir, size_t len, void *arg)
{
    say(arg, "dirty", json_pack("{s:o}", "path", bytes_json(dir, len)));
}

static void on_lost(const char *dir, size_t len, int status, void *arg)
{
    say(arg, "lost", json_pack("{s:o,s:i}", "path", bytes_json(dir, len), "status", status));
}

static void on_overflow(void *arg)
{
    say(arg, "overflow", json_object());
}

static void on_done(struct sync_remote *remote, int status, const struct err *err, void *arg)
{
    struct call *c = arg;

    (void)remote;
    say(c, "done", json_pack("{s:i,s:s}", "status", status, "why", err->msg));
    c->id = 0;
}

static const struct sync_remote_cbs cbs = {.on_listing = on_listing,
                                           .on_entry = on_entry,
                                           .on_listed = on_listed,
                                           .on_hashed = on_hashed,
                                           .on_reading = on_reading,
                                           .on_piece = on_piece,
                                           .on_read = on_read,
                                           .on_applied = on_applied,
                                           .on_dirty = on_dirty,
                                           .on_lost = on_lost,
                                           .on_overflow = on_overflow,
                                           .on_done = on_done};

static struct call *find(int id)
{
    for (size_t i = 0; i < MAX_CALLS; i++) {
        if (calls[i].id == id)
            return &calls[i];
    }
    return NULL;
}

static void must(int r, const char *what)
{
    if (r >= 0)
        return;
    fprintf(stderr, "agentctl: %s: %s\n", what, uv_strerror(r));
    exit(2);
}

static void start(uv_loop_t *loop, struct tr_h2 *h2, int id, const char *kind)
{
    static const char *const kinds[] = {"list", "hash", "read", "apply", "watch"};
    struct call *c = find(0);

    if (c == NULL)
        abort();
    c->id = id;
    for (int i = 0; i < 5; i++) {
        if (strcmp(kind, kinds[i]) == 0)
            must(sync_remote_start(loop, h2, (enum sync_remote_kind)i, &cbs, c, &c->remote), kind);
    }
    sync_remote_flush(c->remote);
}

/* Bytes of a field; NULL: there is none. Heap. */
static uint8_t *get_bytes(const json_t *cmd, const char *name, size_t *len)
{
    const char *b64 = json_string_value(json_object_get(cmd, name));
    uint8_t *bytes = NULL;

    *len = 0;
    if (b64 != NULL)
        must(agent_base64_decode(b64, &bytes, len), name);
    return bytes;
}

static bool get_sig(const json_t *cmd, const char *name, struct sync_sig *sig)
{
    const json_t *v = json_object_get(cmd, name);

    if (!json_is_array(v))
        return false;
    *sig = (struct sync_sig){
        .ino = (uint64_t)json_integer_value(json_array_get(v, 0)),
        .mtime_ns = json_integer_value(json_array_get(v, 1)),
        .ctime_ns = json_integer_value(json_array_get(v, 2)),
        .size = json_integer_value(json_array_get(v, 3)),
        .mode = (uint32_t)json_integer_value(json_array_get(v, 4)),
        .fresh = json_is_true(json_array_get(v, 5)),
    };
    return true;
}

static void ask_op(struct call *c, const json_t *cmd, const char *path, size_t len)
{
    struct sync_op op = {.path = path, .path_len = len};
    size_t content_len, replaces_len;
    uint8_t *content = get_bytes(cmd, "content", &content_len);
    uint8_t *replaces = get_bytes(cmd, "replaces", &replaces_len);
    uint8_t *target = get_bytes(cmd, "target", &op.target_len);
    struct sync_id id;

    op.kind = (enum sync_op_kind)json_integer_value(json_object_get(cmd, "kind"));
    op.absent = !get_sig(cmd, "expected", &op.expected);
    op.exec = json_is_true(json_object_get(cmd, "exec"));
    op.target = (const char *)target;
    if (replaces != NULL) {
        op.has_id = true;
        sync_id_of(replaces, replaces_len, &op.id);
    }
    must(sync_remote_op(c->remote, &op, (int64_t)content_len), "op");
    if (op.kind == SYNC_OP_FILE) {
        sync_id_of(content, content_len, &id);
        must(sync_remote_content(c->remote, content, content_len), "content");
        must(sync_remote_content_end(c->remote,
                                     json_is_true(json_object_get(cmd, "drop")) ? NULL : &id),
             "content's end");
    }
    free(content);
    free(replaces);
    free(target);
}

static void ask(struct call *c, const json_t *cmd)
{
    const char *what = json_string_value(json_object_get(cmd, "what"));
    struct sync_sig sig;
    size_t len;
    char *path = (char *)get_bytes(cmd, "path", &len);
    bool has_sig = get_sig(cmd, "sig", &sig);

    if (strcmp(what, "op") == 0)
        ask_op(c, cmd, path, len);
    else if (strcmp(what, "dir") == 0)
        must(sync_remote_dir(c->remote, path, len), what);
    else if (strcmp(what, "want") == 0)
        must(sync_remote_want(c->remote, path, len, has_sig ? &sig : NULL), what);
    else if (strcmp(what, "watch") == 0)
        must(sync_remote_watch(c->remote, path, len), what);
    else
        must(sync_remote_unwatch(c->remote, path, len), what);
    sync_remote_flush(c->remote);
    free(path);
}

bool agentctl_sync(uv_loop_t *loop, struct tr_h2 *h2, json_t *cmd, void (*say_to)(json_t *event))
{
    const char *op = json_string_value(json_object_get(cmd, "op"));
    int id = (int)json_integer_value(json_object_get(cmd, "id"));
    struct call *c;

    if (strncmp(op, "sync", 4) != 0 && strcmp(op, "ask") != 0)
        return false;
    say_event = say_to;
    if (strcmp(op, "sync") == 0) {
        start(loop, h2, id, json_string_value(json_object_get(cmd, "kind")));
        return true;
    }
    c = find(id);
    if (c == NULL)
        return true; /* its end is on the way to the test */
    if (strcmp(op, "ask") == 0)
        ask(c, cmd);
    else if (strcmp(op, "sync-end") == 0)
        sync_remote_end(c->remote);
    else if (strcmp(op, "sync-cancel") == 0)
        sync_remote_cancel(c->remote);
    else
        sync_remote_hold(c->remote, strcmp(op, "sync-hold") == 0);
    return true;
}
