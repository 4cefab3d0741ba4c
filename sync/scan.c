/* SPDX-License-Identifier: MIT */
/* A run: batches of dirty folders, upper ones first, are listed; each listing is judged entry by
 * entry; what needs it is hashed. Folders that turn up are dirty in turn. */
#include "sync/scan.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
    BATCH_DIRS = 64,      /* folders listed in one call */
    BATCH_ITEMS = 200000, /* entries kept at a time; further listings wait for the next call */
    BATCH_WANTS = 1024,   /* files hashed in one call */
};

static const char *const rule_names[] = {
    [SYNC_IGNORE_GIT] = ".gitignore", [SYNC_IGNORE_TRANSOM] = ".transomignore"};
enum { N_LEVELS = sizeof(rule_names) / sizeof(rule_names[0]) };

struct item { /* one entry of a listing */
    char *name;
    size_t len;
    struct sync_id target; /* of a link: the id of its target */
    bool is_secret;        /* the target holds one */
    struct sync_sig sig;
};

struct listing {
    struct sync_name dir; /* ours */
    int status;
    bool is_changed; /* while it was listed */
    bool is_dropped; /* there was no room: again */
    struct item *items;
    size_t n, size;
};

struct want {
    struct sync_want want; /* path is ours */
    bool is_left_out;      /* its id is wanted for what it is left out with */
    uint8_t why;
};

struct sync_scan {
    struct sync_scan_options o;
    struct sync_state *state, *dirty, *rules;
    struct sync_state *later;     /* seq: when */
    struct sync_state *unwatched; /* looked at from time to time */
    struct sync_ignore *ignore;
    struct sync_filter filter;
    bool is_all_dirty, is_out_of_memory, as_old;
    uint64_t secrets_version; /* of those by which all was judged */
    int64_t now_ms;
    struct sync_scan_counters counters;

    struct listing listings[BATCH_DIRS]; /* of the call under way */
    size_t n_listings, n_items;
    const struct listing *here; /* being judged */
    struct want *wants;
    size_t n_wants, size_wants;
    uint8_t *text; /* a file of rules being read */
    size_t text_len;
    int text_status;
};

static const struct {
    const char *name, *text;
} reasons[] = {
    {"busy", "being written"},
    {"gone", "removed just now"},
    {"unreadable", "cannot be read"},
    {"too-many", "more files than can be kept in step"},
};

const char *sync_scan_why_name(unsigned why)
{
    return why < SYNC_N_WHY ? sync_why_name((enum sync_why)why) : reasons[why - SYNC_N_WHY].name;
}

const char *sync_scan_why_text(unsigned why)
{
    return why < SYNC_N_WHY ? sync_why_text((enum sync_why)why) : reasons[why - SYNC_N_WHY].text;
}

/* ---- the set of dirty folders ---- */

static size_t parent_len(const char *path, size_t len)
{
    size_t base = sync_path_base(path, len);

    return base > 0 ? base - 1 : 0;
}

static bool is_known_dir(const struct sync_scan *s, const char *dir, size_t len)
{
    const struct sync_node *node = len > 0 ? sync_state_get(s->state, dir, len) : NULL;

    return len == 0 || (node != NULL && node->value.what == SYNC_IS_DIR);
}

static struct sync_node *add(struct sync_scan *s, struct sync_state *set, const char *dir,
                             size_t len)
{
    struct sync_node *node;

    if (sync_state_put(set, dir, len, &node) == 0)
        return node;
    s->is_out_of_memory = true;
    return NULL;
}

void sync_scan_dirty(struct sync_scan *s, const char *dir, size_t len)
{
    if (is_known_dir(s, dir, len))
        (void)add(s, s->dirty, dir, len);
}

void sync_scan_dirty_parent(struct sync_scan *s, const char *path, size_t len)
{
    sync_scan_dirty(s, path, parent_len(path, len));
}

void sync_scan_later(struct sync_scan *s, const char *dir, size_t len, int64_t due_ms)
{
    struct sync_node *node = is_known_dir(s, dir, len) ? add(s, s->later, dir, len) : NULL;

    if (node != NULL && (node->seq == 0 || node->seq > (uint64_t)due_ms))
        node->seq = (uint64_t)due_ms;
}

static void watch(struct sync_scan *s, const char *dir, size_t len, bool on)
{
    if (s->o.ops->watch != NULL)
        s->o.ops->watch(s->o.side, dir, len, on);
    if (!on)
        sync_state_remove(s->unwatched, dir, len);
}

/* Every folder that is known, the root first. */
static void each_dir(struct sync_scan *s, void (*call)(struct sync_scan *, const char *, size_t))
{
    struct sync_cursor c;
    const struct sync_node *node;

    call(s, "", 0);
    for (sync_cursor_start(&c, s->state, "", 0); (node = sync_cursor_get(&c)) != NULL;
         sync_cursor_next(&c))
        if (node->value.what == SYNC_IS_DIR)
            call(s, node->path, node->len);
}

static void watch_again(struct sync_scan *s, const char *dir, size_t len)
{
    watch(s, dir, len, true);
}

void sync_scan_dirty_all(struct sync_scan *s, bool watches_are_lost)
{
    if (watches_are_lost) {
        sync_state_clear(s->unwatched);
        each_dir(s, watch_again);
    }
    s->is_all_dirty = true;
}

void sync_scan_lost(struct sync_scan *s, const char *dir, size_t len)
{
    if (!is_known_dir(s, dir, len))
        return;
    watch(s, dir, len, true);
    sync_scan_dirty(s, dir, len);
    if (len > 0)
        sync_scan_dirty_parent(s, dir, len);
}

void sync_scan_unwatched(struct sync_scan *s, const char *dir, size_t len, int64_t now_ms)
{
    if (!is_known_dir(s, dir, len))
        return;
    (void)add(s, s->unwatched, dir, len);
    sync_scan_later(s, dir, len, now_ms + SYNC_SCAN_POLL_MS);
}

int64_t sync_scan_due(const struct sync_scan *s)
{
    struct sync_cursor c;
    int64_t due = -1;

    if (s->is_all_dirty || sync_state_count(s->dirty) > 0)
        return 0;
    for (sync_cursor_start(&c, s->later, "", 0); sync_cursor_get(&c) != NULL; sync_cursor_next(&c))
        if (due < 0 || sync_cursor_get(&c)->seq < (uint64_t)due)
            due = (int64_t)sync_cursor_get(&c)->seq;
    return due;
}

/* What is due becomes dirty. */
static void wake(struct sync_scan *s)
{
    struct sync_cursor c;
    const struct sync_node *node;
    size_t n = 0;

    if (s->is_all_dirty)
        each_dir(s, sync_scan_dirty);
    s->is_all_dirty = false;
    for (sync_cursor_start(&c, s->later, "", 0); (node = sync_cursor_get(&c)) != NULL;
         sync_cursor_next(&c))
        if (node->seq <= (uint64_t)s->now_ms) {
            sync_scan_dirty(s, node->path, node->len);
            n++;
        }
    while (n > 0) { /* what is dirty is not waited for */
        for (sync_cursor_start(&c, s->later, "", 0); sync_cursor_get(&c)->seq > (uint64_t)s->now_ms;
             sync_cursor_next(&c))
            ;
        node = sync_cursor_get(&c);
        sync_state_remove(s->later, node->path, node->len);
        n--;
    }
}

/* ---- nodes ---- */

static void forget_rules(struct sync_scan *s, const char *dir, size_t len)
{
    struct sync_cursor c;
    const struct sync_node *node;

    if (!s->o.is_filtered)
        return;
    for (sync_cursor_start(&c, s->rules, dir, len); (node = sync_cursor_get(&c)) != NULL;
         sync_cursor_next(&c)) {
        if (!sync_path_is_below(node->path, node->len, dir, len))
            break;
        for (int level = 0; level < N_LEVELS; level++)
            if (strcmp(node->path + sync_path_base(node->path, node->len), rule_names[level]) == 0)
                sync_ignore_drop(s->ignore, (enum sync_ignore_level)level, node->path,
                                 parent_len(node->path, node->len));
    }
    sync_state_remove_below(s->rules, dir, len);
}

/* A path is no folder (any more): forget all below it. */
static void forget_below(struct sync_scan *s, const char *path, size_t len)
{
    struct sync_cursor c;
    const struct sync_node *node;

    for (sync_cursor_start(&c, s->state, path, len); (node = sync_cursor_get(&c)) != NULL;
         sync_cursor_next(&c)) {
        if (!sync_path_is_within(node->path, node->len, path, len))
            break;
        if (node->value.what == SYNC_IS_DIR)
            watch(s, node->path, node->len, false);
    }
    sync_state_remove_below(s->state, path, len);
    forget_rules(s, path, len);
}

static void leave_out(struct sync_scan *s, const char *dir, size_t len, uint8_t why);

/* The value of a path; a new one is news. */
static struct sync_node *set(struct sync_scan *s, const char *path, size_t len,
                             const struct sync_value *value, const struct sync_sig *sig)
{
    struct sync_node *node;
    bool is_new;
    int r = sync_state_put(s->state, path, len, &node);

    if (r == -ENOSPC) {
        leave_out(s, path, parent_len(path, len), SYNC_WHY_TOO_MANY);
        return NULL;
    }
    if (r != 0) {
        s->is_out_of_memory = true;
        return NULL;
    }
    if (node->value.what == SYNC_IS_DIR && value->what != SYNC_IS_DIR)
        forget_below(s, path, len);
    is_new = !sync_value_is_same(&node->value, value);
    if (is_new)
        node->seq = s->as_old ? 0 : ++*s->o.clock;
    node->value = *value;
    node->sig = *sig;
    return node;
}

/* A whole folder; "" is the whole side. */
static void leave_out(struct sync_scan *s, const char *dir, size_t len, uint8_t why)
{
    const struct sync_value value = {.what = SYNC_IS_LEFT_OUT, .is_there = true, .why = why};
    struct sync_node *node;

    forget_below(s, dir, len);
    if (sync_state_put(s->state, dir, len, &node) != 0) {
        s->is_out_of_memory = true;
        return;
    }
    node->value = value;
}

void sync_scan_reject(struct sync_scan *s, const char *path, size_t len, enum sync_why why)
{
    struct sync_node *node = sync_state_get(s->state, path, len);
    const struct sync_value value = {
        .what = SYNC_IS_LEFT_OUT, .is_there = true, .why = (uint8_t)why};

    if (node != NULL)
        node->value = value;
}

/* ---- the filter's view ---- */

static const struct item *find_item(const struct listing *l, const char *name)
{
    size_t low = 0, high = l->n;

    while (low < high) {
        size_t mid = low + (high - low) / 2;
        int r = strcmp(l->items[mid].name, name);

        if (r == 0)
            return &l->items[mid];
        if (r < 0)
            low = mid + 1;
        else
            high = mid;
    }
    return NULL;
}

static bool join_path(char out[SYNC_PATH_MAX + SYNC_NAME_MAX + 2], const char *dir, size_t dir_len,
                      const char *name, size_t name_len, size_t *len)
{
    size_t slash = dir_len > 0;

    if (dir_len > SYNC_PATH_MAX || name_len > SYNC_NAME_MAX)
        return false;
    memcpy(out, dir, dir_len);
    if (slash)
        out[dir_len] = '/';
    memcpy(out + dir_len + slash, name, name_len);
    *len = dir_len + slash + name_len;
    out[*len] = '\0';
    return true;
}

static bool has(const char *dir, size_t len, const char *name, void *arg)
{
    const struct sync_scan *s = arg;
    char path[SYNC_PATH_MAX + SYNC_NAME_MAX + 2];
    const struct sync_node *node;
    size_t path_len;

    if (s->here != NULL && s->here->dir.len == len && memcmp(s->here->dir.path, dir, len) == 0)
        return find_item(s->here, name) != NULL;
    if (!join_path(path, dir, len, name, strlen(name), &path_len))
        return false;
    node = sync_state_get(s->state, path, path_len);
    return node != NULL && (node->value.what != SYNC_IS_LEFT_OUT || node->value.is_there);
}

static bool is_held(const struct sync_scan *s, const char *path, size_t len)
{
    const struct sync_node *node = s->o.held != NULL ? sync_state_get(s->o.held, path, len) : NULL;

    return node != NULL && node->value.what != SYNC_IS_LEFT_OUT;
}

static enum sync_why ask(const struct sync_scan *s, const struct sync_entry *entry)
{
    if (s->o.is_filtered)
        return sync_filter_last(&s->filter, entry);
    switch (sync_path_check(entry->path, entry->len)) {
    case SYNC_PATH_BAD:
        return SYNC_WHY_BAD_PATH;
    case SYNC_PATH_TOO_LONG:
        return SYNC_WHY_LONG_NAME;
    case SYNC_PATH_TOO_DEEP:
        return SYNC_WHY_DEEP;
    default:
        return entry->type == SYNC_TYPE_SPECIAL ? SYNC_WHY_SPECIAL : SYNC_TAKEN;
    }
}

/* ---- listing ---- */

static void free_listing(struct listing *l)
{
    for (size_t i = 0; i < l->n; i++)
        free(l->items[i].name);
    free(l->items);
    free((char *)l->dir.path);
    memset(l, 0, sizeof(*l));
}

static void on_listing(uint32_t index, int status, const struct sync_sig *sig, void *arg)
{
    struct sync_scan *s = arg;

    (void)sig;
    s->listings[index].status = status;
    s->counters.n_listed++;
}

static void on_entry(uint32_t index, const struct sync_tree_entry *entry, void *arg)
{
    struct sync_scan *s = arg;
    struct listing *l = &s->listings[index];
    struct item *item;

    if (l->is_dropped || s->is_out_of_memory || l->status != 0)
        return;
    if (l->n >= SYNC_DIR_MAX) { /* whatever the side says */
        l->status = -E2BIG;
        return;
    }
    if (entry->name_len == 0 || entry->name_len > SYNC_NAME_MAX ||
        memchr(entry->name, '/', entry->name_len) != NULL ||
        memchr(entry->name, '\0', entry->name_len) != NULL) {
        l->status = -EPROTO;
        return;
    }
    if (index > 0 && s->n_items >= BATCH_ITEMS) {
        l->is_dropped = true;
        return;
    }
    if (l->n == l->size) {
        size_t size = l->size > 0 ? l->size * 2 : 32;
        struct item *more = realloc(l->items, size * sizeof(*more));

        if (more == NULL) {
            s->is_out_of_memory = true;
            return;
        }
        l->items = more;
        l->size = size;
    }
    item = &l->items[l->n];
    memset(item, 0, sizeof(*item));
    item->name = strndup(entry->name, entry->name_len);
    if (item->name == NULL) {
        s->is_out_of_memory = true;
        return;
    }
    item->len = strlen(item->name);
    item->sig = entry->sig;
    if (entry->target != NULL) {
        sync_id_of(entry->target, entry->target_len, &item->target);
        item->is_secret = sync_secrets_are_in(s->o.secrets, entry->target, entry->target_len);
    }
    l->n++;
    s->n_items++;
}

static void on_listed(uint32_t index, int status, bool changed, void *arg)
{
    struct sync_scan *s = arg;

    if (s->listings[index].status == 0)
        s->listings[index].status = status;
    s->listings[index].is_changed = changed;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct item *)a)->name, ((const struct item *)b)->name);
}

/* ---- hashing ---- */

static void want(struct sync_scan *s, const char *path, size_t len, const struct sync_sig *sig,
                 bool is_left_out, enum sync_why why)
{
    struct want *w;
    char *copy;

    if (s->n_wants == s->size_wants) {
        size_t size = s->size_wants > 0 ? s->size_wants * 2 : 256;
        struct want *more = realloc(s->wants, size * sizeof(*more));

        if (more == NULL) {
            s->is_out_of_memory = true;
            return;
        }
        s->wants = more;
        s->size_wants = size;
    }
    copy = strndup(path, len);
    if (copy == NULL) {
        s->is_out_of_memory = true;
        return;
    }
    w = &s->wants[s->n_wants++];
    memset(w, 0, sizeof(*w));
    w->want.path = copy;
    w->want.len = len;
    w->want.sig = *sig;
    w->is_left_out = is_left_out;
    w->why = (uint8_t)why;
}

/* What the beginning of a file says of it; text only as far as one can see. */
static enum sync_why kind_of(const struct sync_scan *s, const struct want *w, int64_t size,
                             const uint8_t *head, size_t head_len)
{
    const size_t base = sync_path_base(w->want.path, w->want.len);
    const struct sync_entry entry = {.path = w->want.path,
                                     .len = w->want.len,
                                     .type = SYNC_TYPE_FILE,
                                     .size = size,
                                     .is_held = is_held(s, w->want.path, w->want.len)};
    struct sync_kind_scan kind;

    if (!s->o.is_filtered)
        return SYNC_TAKEN;
    sync_kind_start(&kind, w->want.path + base, w->want.len - base);
    if (sync_kind_feed(&kind, head, head_len) && (int64_t)head_len < size)
        return SYNC_TAKEN;
    return sync_filter_kind(&entry, sync_kind_end(&kind));
}

static void set_left_out(struct sync_scan *s, const struct want *w, uint8_t why,
                         const struct sync_sig *sig)
{
    const struct sync_value value = {.what = SYNC_IS_LEFT_OUT, .is_there = true, .why = why};

    (void)set(s, w->want.path, w->want.len, &value, sig);
}

/* Somebody writes it. It is taken all the same when it has been as it is for a while. */
static bool is_busy(struct sync_scan *s, const struct want *w, const struct sync_tree_read *read)
{
    const struct sync_value busy = {
        .what = SYNC_IS_LEFT_OUT, .is_there = true, .why = SYNC_WHY_BUSY};
    struct sync_node *node = sync_state_get(s->state, w->want.path, w->want.len);
    const size_t up = parent_len(w->want.path, w->want.len);
    int64_t since = s->now_ms;

    if (!s->o.is_filtered || !read->writer)
        return false;
    if (node != NULL && sync_value_is_same(&node->value, &busy) &&
        sync_sig_equal(&node->sig, &read->sig)) {
        since = (int64_t)node->seq;
        if (s->now_ms - since >= SYNC_SCAN_BUSY_MS)
            return false;
    }
    node = set(s, w->want.path, w->want.len, &busy, &read->sig);
    if (node != NULL)
        node->seq = (uint64_t)since;
    sync_scan_later(s, w->want.path, up, since + SYNC_SCAN_BUSY_MS);
    return true;
}

static void on_hashed(uint32_t index, int status, const struct sync_tree_read *read,
                      const uint8_t *head, size_t head_len, void *arg)
{
    struct sync_scan *s = arg;
    const struct want *w = &s->wants[index];
    const size_t up = parent_len(w->want.path, w->want.len);
    struct sync_value value = {.what = SYNC_IS_FILE, .is_exec = sync_sig_exec(&read->sig)};

    s->counters.n_hashed++;
    if (!is_known_dir(s, w->want.path, up))
        return; /* left out meanwhile */
    if (status == SYNC_CHANGED || status == SYNC_BUSY || status == -ENOENT) {
        set_left_out(s, w, w->is_left_out ? w->why : SYNC_WHY_BUSY, &w->want.sig);
        sync_scan_later(s, w->want.path, up, s->now_ms + 50);
        return;
    }
    if (status != 0) {
        set_left_out(s, w, w->is_left_out ? w->why : SYNC_WHY_UNREADABLE, &w->want.sig);
        sync_scan_later(s, w->want.path, up, s->now_ms + SYNC_SCAN_RETRY_MS);
        return;
    }
    s->counters.bytes_hashed += read->sig.size;
    value.id = read->id;
    if (w->is_left_out) {
        value.what = SYNC_IS_LEFT_OUT;
        value.is_there = value.has_id = true;
        value.why = w->why;
    } else if (is_busy(s, w, read)) {
        return;
    } else {
        enum sync_why why = kind_of(s, w, read->sig.size, head, head_len);

        if (why != SYNC_TAKEN) {
            set_left_out(s, w, (uint8_t)why, &read->sig);
            return;
        }
    }
    (void)set(s, w->want.path, w->want.len, &value, &read->sig);
    if (read->sig.fresh) /* it may change without a sign: once more */
        sync_scan_later(s, w->want.path, up, s->now_ms + 2 * SYNC_FRESH_NS / 1000000);
}

static int hash_wants(struct sync_scan *s, struct err *err)
{
    static const struct sync_side_cbs cbs = {.on_hashed = on_hashed};
    struct want *all = s->wants;
    size_t n = s->n_wants;
    struct sync_want *batch = n > 0 ? calloc(BATCH_WANTS, sizeof(*batch)) : NULL;
    int r = n > 0 && batch == NULL ? -ENOMEM : 0;

    for (size_t i = 0; i < n && r == 0; i += BATCH_WANTS) {
        size_t more = n - i < BATCH_WANTS ? n - i : BATCH_WANTS;

        for (size_t k = 0; k < more; k++)
            batch[k] = all[i + k].want;
        s->wants = all + i; /* callbacks count from here */
        r = s->o.ops->hash(s->o.side, batch, more, &cbs, s, err);
    }
    free(batch);
    s->wants = all;
    for (size_t i = 0; i < n; i++)
        free((char *)all[i].want.path);
    s->n_wants = 0;
    return r;
}

/* ---- judging ---- */

static void on_rules_reading(uint32_t index, int status, const struct sync_sig *sig, void *arg)
{
    struct sync_scan *s = arg;

    (void)index;
    (void)sig;
    s->text_status = status;
    s->text_len = 0;
}

static void on_rules_piece(uint32_t index, const uint8_t *bytes, size_t len, void *arg)
{
    struct sync_scan *s = arg;

    (void)index;
    if (len > SYNC_IGNORE_FILE_MAX - s->text_len) {
        s->text_status = -EFBIG;
        return;
    }
    memcpy(s->text + s->text_len, bytes, len);
    s->text_len += len;
}

static void on_rules_read(uint32_t index, int status, const struct sync_tree_read *read, void *arg)
{
    struct sync_scan *s = arg;

    (void)index;
    (void)read;
    if (s->text_status == 0)
        s->text_status = status;
}

/* New rules, as they are or, where nobody knows them, refused as a whole. Returns 0, SYNC_CHANGED,
 * or a fault. */
static int read_rules(struct sync_scan *s, enum sync_ignore_level level, const struct listing *l,
                      const struct item *item, const char *path, size_t len, struct err *err)
{
    static const struct sync_side_cbs cbs = {
        .on_reading = on_rules_reading, .on_piece = on_rules_piece, .on_read = on_rules_read};
    const struct sync_want one = {.path = path, .len = len, .sig = item->sig};
    int r;

    if (s->text == NULL)
        s->text = malloc(SYNC_IGNORE_FILE_MAX + 1);
    if (s->text == NULL)
        return -ENOMEM;
    s->text_status = -EFBIG;
    if (item->sig.size <= SYNC_IGNORE_FILE_MAX) {
        r = s->o.ops->read(s->o.side, &one, 1, &cbs, s, err);
        if (r != 0)
            return r;
    }
    if (s->text_status > 0)
        return SYNC_CHANGED;
    if (s->text_status < 0)
        s->text_len = SYNC_IGNORE_FILE_MAX + 1; /* refused, unread */
    r = sync_ignore_set(s->ignore, level, l->dir.path, l->dir.len, (const char *)s->text,
                        s->text_len, NULL);
    return r == -ENOMEM ? r : 0;
}

/* Every folder below is to be judged anew. */
static void dirty_below(struct sync_scan *s, const char *dir, size_t len)
{
    struct sync_cursor c;
    const struct sync_node *node;

    for (sync_cursor_start(&c, s->state, dir, len); (node = sync_cursor_get(&c)) != NULL;
         sync_cursor_next(&c)) {
        if (!sync_path_is_within(node->path, node->len, dir, len))
            break;
        if (node->len > len && node->value.what == SYNC_IS_DIR)
            sync_scan_dirty(s, node->path, node->len);
    }
}

/* The rules that a folder holds. Returns 0; SYNC_CHANGED: look at the folder again; a fault. */
static int take_rules(struct sync_scan *s, const struct listing *l, struct err *err)
{
    char path[SYNC_PATH_MAX + SYNC_NAME_MAX + 2];
    bool is_new = false;
    size_t len;

    for (int level = 0; level < N_LEVELS; level++) {
        const struct item *item = find_item(l, rule_names[level]);
        struct sync_node *known;

        if (!join_path(path, l->dir.path, l->dir.len, rule_names[level], strlen(rule_names[level]),
                       &len))
            continue;
        known = sync_state_get(s->rules, path, len);
        if (item != NULL && sync_sig_type(&item->sig) != SYNC_TYPE_FILE)
            item = NULL;
        if (item == NULL && known != NULL) {
            sync_ignore_drop(s->ignore, (enum sync_ignore_level)level, l->dir.path, l->dir.len);
            sync_state_remove(s->rules, path, len);
            is_new = true;
        } else if (item != NULL && (known == NULL || known->sig.fresh ||
                                    !sync_sig_equal(&known->sig, &item->sig))) {
            int r = read_rules(s, (enum sync_ignore_level)level, l, item, path, len, err);

            if (r != 0)
                return r;
            known = add(s, s->rules, path, len);
            if (known == NULL)
                return -ENOMEM;
            known->sig = item->sig;
            if (item->sig.fresh)
                sync_scan_later(s, l->dir.path, l->dir.len,
                                s->now_ms + 2 * SYNC_FRESH_NS / 1000000);
            is_new = true;
        }
    }
    if (is_new)
        dirty_below(s, l->dir.path, l->dir.len);
    return 0;
}

static void judge_left_out(struct sync_scan *s, const struct sync_entry *e, const struct item *item,
                           enum sync_why why)
{
    struct sync_value value = {.what = SYNC_IS_LEFT_OUT, .is_there = true, .why = (uint8_t)why};
    const struct sync_node *node = sync_state_get(s->state, e->path, e->len);

    /* The store has it, and it is worth knowing whether it is the same. */
    if (e->type == SYNC_TYPE_FILE && e->is_held && e->size <= SYNC_SIZE_LIMIT) {
        if (node == NULL || !node->value.has_id || node->value.why != why || node->sig.fresh ||
            !sync_sig_equal(&node->sig, &item->sig))
            want(s, e->path, e->len, &item->sig, true, why);
        else
            return;
    }
    (void)set(s, e->path, e->len, &value, &item->sig);
}

static void judge_dir(struct sync_scan *s, const struct sync_entry *e, const struct item *item)
{
    static const struct sync_value value = {.what = SYNC_IS_DIR};
    const struct sync_node *node = sync_state_get(s->state, e->path, e->len);
    bool is_new = node == NULL || node->value.what != SYNC_IS_DIR || node->sig.ino != item->sig.ino;

    if (set(s, e->path, e->len, &value, &item->sig) == NULL || !is_new)
        return;
    watch(s, e->path, e->len, true);
    sync_scan_dirty(s, e->path, e->len);
}

static void judge_file(struct sync_scan *s, const struct sync_entry *e, const struct item *item)
{
    const struct sync_node *node = sync_state_get(s->state, e->path, e->len);
    const struct sync_value *v = node != NULL ? &node->value : NULL;
    bool is_left = v != NULL && v->what == SYNC_IS_LEFT_OUT;
    bool is_known =
        v != NULL &&
        (v->what == SYNC_IS_FILE || (is_left && v->why == SYNC_WHY_SECRET) ||
         (is_left && !e->is_held && (v->why == SYNC_WHY_BINARY || v->why == SYNC_WHY_MISMATCH)));

    if (is_known && !node->sig.fresh && sync_sig_equal(&node->sig, &item->sig))
        return;
    want(s, e->path, e->len, &item->sig, false, SYNC_TAKEN);
}

/* A name or a link that tells a secret. What the store has already stays as it is. */
static bool is_secret(struct sync_scan *s, const struct sync_entry *e, const struct item *item)
{
    const struct sync_node *held = e->is_held ? sync_state_get(s->o.held, e->path, e->len) : NULL;

    if (held == NULL && sync_secrets_are_in(s->o.secrets, e->path, e->len))
        return true;
    return item->is_secret && e->type == SYNC_TYPE_LINK &&
           (held == NULL || held->value.what != SYNC_IS_LINK ||
            !sync_id_equal(&held->value.id, &item->target));
}

static void judge(struct sync_scan *s, const struct listing *l, const struct item *item)
{
    char path[SYNC_PATH_MAX + SYNC_NAME_MAX + 2];
    struct sync_entry e = {.path = path, .type = sync_sig_type(&item->sig), .size = item->sig.size};
    struct sync_value link = {.what = SYNC_IS_LINK, .id = item->target};
    enum sync_why why;

    if (!join_path(path, l->dir.path, l->dir.len, item->name, item->len, &e.len)) {
        leave_out(s, l->dir.path, l->dir.len, SYNC_WHY_LONG_NAME); /* cannot be */
        return;
    }
    e.is_held = is_held(s, path, e.len);
    why = ask(s, &e);
    if (why == SYNC_TAKEN && is_secret(s, &e, item))
        why = SYNC_WHY_SECRET;
    if (why != SYNC_TAKEN)
        judge_left_out(s, &e, item, why);
    else if (e.type == SYNC_TYPE_DIR)
        judge_dir(s, &e, item);
    else if (e.type == SYNC_TYPE_LINK)
        (void)set(s, path, e.len, &link, &item->sig);
    else
        judge_file(s, &e, item);
}

/* One child that is not in the listing. Returns whether it is to be forgotten. */
static bool vanish(struct sync_scan *s, const struct listing *l, struct sync_node *node)
{
    const struct sync_value gone = {.what = SYNC_IS_LEFT_OUT, .why = SYNC_WHY_GONE};
    bool is_gone = sync_value_is_same(&node->value, &gone);
    int64_t due;

    if (!s->o.is_filtered || !is_held(s, node->path, node->len) ||
        (node->value.what == SYNC_IS_LEFT_OUT && !is_gone && node->value.why != SYNC_WHY_SECRET))
        return true;
    if (!is_gone) {
        (void)set(s, node->path, node->len, &gone, &node->sig);
        node->seq = (uint64_t)s->now_ms;
    }
    due = (int64_t)node->seq + SYNC_SCAN_GONE_MS;
    if (s->now_ms >= due)
        return true;
    sync_scan_later(s, l->dir.path, l->dir.len, due);
    return false;
}

/* The first child that is known, not listed, and not before `from`; NULL: none. */
static struct sync_node *next_missing(const struct sync_scan *s, const struct listing *l,
                                      const char *from, size_t from_len)
{
    const size_t base = l->dir.len > 0 ? l->dir.len + 1 : 0;
    struct sync_cursor c;
    struct sync_node *node;

    for (sync_cursor_start(&c, s->state, from, from_len); (node = sync_cursor_get(&c)) != NULL;
         sync_cursor_next(&c)) {
        if (!sync_path_is_within(node->path, node->len, l->dir.path, l->dir.len))
            return NULL;
        if (node->len > base && memchr(node->path + base, '/', node->len - base) == NULL &&
            find_item(l, node->path + base) == NULL)
            return node;
    }
    return NULL;
}

static void find_missing(struct sync_scan *s, const struct listing *l)
{
    char from[SYNC_PATH_MAX + SYNC_NAME_MAX + 2];
    size_t len = l->dir.len;
    struct sync_node *node;

    memcpy(from, l->dir.path, len);
    from[len] = '\0';
    while ((node = next_missing(s, l, from, len)) != NULL) {
        bool is_forgotten = vanish(s, l, node);

        len = node->len;
        memcpy(from, node->path, len);
        if (is_forgotten) {
            forget_below(s, from, len);
            sync_state_remove(s->state, from, len);
        }
        memcpy(from + len, "/", 2); /* go on behind it */
        len++;
    }
}

/* A folder that could not be listed. */
static void fail(struct sync_scan *s, const struct listing *l)
{
    int status = l->status;

    if (status == SYNC_CHANGED || status == SYNC_BUSY) {
        sync_scan_later(s, l->dir.path, l->dir.len, s->now_ms + 50);
    } else if (status == -E2BIG) {
        leave_out(s, l->dir.path, l->dir.len, SYNC_WHY_TOO_MANY);
        sync_scan_later(s, l->dir.path, parent_len(l->dir.path, l->dir.len),
                        s->now_ms + SYNC_SCAN_RETRY_MS);
    } else if ((status == -ENOENT || status == -ENOTDIR || status == -ELOOP) && l->dir.len > 0) {
        sync_scan_dirty_parent(s, l->dir.path, l->dir.len); /* which tells what is there now */
    } else {
        leave_out(s, l->dir.path, l->dir.len, SYNC_WHY_UNREADABLE);
        sync_scan_later(s, l->dir.path, parent_len(l->dir.path, l->dir.len),
                        s->now_ms + SYNC_SCAN_RETRY_MS);
    }
}

/* Is the folder taken now that its content is known (a CACHEDIR.TAG in it)? */
static bool is_still_taken(struct sync_scan *s, const struct listing *l)
{
    const struct sync_entry e = {.path = l->dir.path, .len = l->dir.len, .type = SYNC_TYPE_DIR};
    enum sync_why why = l->dir.len > 0 && s->o.is_filtered ? ask(s, &e) : SYNC_TAKEN;

    if (why != SYNC_TAKEN)
        leave_out(s, l->dir.path, l->dir.len, (uint8_t)why);
    return why == SYNC_TAKEN;
}

/* Not left out meanwhile. */
static bool is_open(const struct sync_scan *s, const struct sync_name *dir)
{
    return dir->len > 0 ? is_known_dir(s, dir->path, dir->len)
                        : sync_state_get(s->state, "", 0) == NULL;
}

static int judge_listing(struct sync_scan *s, struct listing *l, struct err *err)
{
    int r;

    if (l->is_dropped || !is_known_dir(s, l->dir.path, l->dir.len)) {
        sync_scan_dirty(s, l->dir.path, l->dir.len);
        return 0;
    }
    if (l->status != 0) {
        fail(s, l);
        return 0;
    }
    if (l->dir.len == 0)
        sync_state_remove(s->state, "", 0); /* it can be listed */
    if (l->n > 0)
        qsort(l->items, l->n, sizeof(l->items[0]), by_name);
    s->here = l;
    r = s->o.is_filtered ? take_rules(s, l, err) : 0;
    if (r == SYNC_CHANGED) {
        sync_scan_later(s, l->dir.path, l->dir.len, s->now_ms + 50);
        r = 0;
    } else if (r == 0 && is_still_taken(s, l)) {
        for (size_t i = 0; i < l->n && is_open(s, &l->dir); i++)
            judge(s, l, &l->items[i]);
        find_missing(s, l);
        if (l->is_changed)
            sync_scan_later(s, l->dir.path, l->dir.len, s->now_ms + 50);
        if (sync_state_get(s->unwatched, l->dir.path, l->dir.len) != NULL)
            sync_scan_later(s, l->dir.path, l->dir.len, s->now_ms + SYNC_SCAN_POLL_MS);
    }
    s->here = NULL;
    return r;
}

/* ---- a run ---- */

/* Take dirty folders, but none that is below another: that one's rules come first. */
static int pick(struct sync_scan *s)
{
    struct sync_cursor c;
    const struct sync_node *node;
    const struct sync_name *last = NULL;

    s->n_listings = s->n_items = 0;
    for (sync_cursor_start(&c, s->dirty, "", 0);
         (node = sync_cursor_get(&c)) != NULL && s->n_listings < BATCH_DIRS; sync_cursor_next(&c)) {
        struct listing *l = &s->listings[s->n_listings];

        if (last != NULL && sync_path_is_below(node->path, node->len, last->path, last->len))
            continue;
        l->dir.path = strndup(node->path, node->len);
        if (l->dir.path == NULL)
            return -ENOMEM;
        l->dir.len = node->len;
        last = &l->dir;
        s->n_listings++;
    }
    for (size_t i = 0; i < s->n_listings; i++)
        sync_state_remove(s->dirty, s->listings[i].dir.path, s->listings[i].dir.len);
    return 0;
}

static int run_batch(struct sync_scan *s, struct err *err)
{
    static const struct sync_side_cbs cbs = {
        .on_listing = on_listing, .on_entry = on_entry, .on_listed = on_listed};
    struct sync_name dirs[BATCH_DIRS];
    int r = pick(s);

    for (size_t i = 0; i < s->n_listings; i++)
        dirs[i] = s->listings[i].dir;
    if (r == 0)
        r = s->o.ops->list(s->o.side, dirs, s->n_listings, &cbs, s, err);
    for (size_t i = 0; i < s->n_listings; i++) {
        if (r == 0 && !s->is_out_of_memory)
            r = judge_listing(s, &s->listings[i], err);
        free_listing(&s->listings[i]);
    }
    if (r == 0 && !s->is_out_of_memory)
        r = hash_wants(s, err);
    return r;
}

/* Other secrets: what was left out for them is judged anew. */
static void judge_secrets_anew(struct sync_scan *s)
{
    uint64_t version = sync_secrets_version(s->o.secrets);
    struct sync_cursor c;
    struct sync_node *node;

    if (version == s->secrets_version)
        return;
    s->secrets_version = version;
    for (sync_cursor_start(&c, s->state, "", 0); (node = sync_cursor_get(&c)) != NULL;
         sync_cursor_next(&c)) {
        if (node->value.what != SYNC_IS_LEFT_OUT || node->value.why != SYNC_WHY_SECRET)
            continue;
        node->sig.fresh = true;
        sync_scan_dirty_parent(s, node->path, node->len);
    }
}

int sync_scan_run(struct sync_scan *s, int64_t now_ms, bool as_old, struct err *err)
{
    int r = 0;

    s->now_ms = now_ms;
    s->as_old = as_old;
    judge_secrets_anew(s);
    wake(s);
    while (r == 0 && !s->is_out_of_memory && sync_state_count(s->dirty) > 0)
        r = run_batch(s, err);
    if (r == 0 && s->is_out_of_memory)
        r = tr_err_set(err, -ENOMEM, "out of memory");
    s->is_out_of_memory = false;
    if (r != 0) {
        for (size_t i = 0; i < s->n_wants; i++)
            free((char *)s->wants[i].want.path);
        s->n_wants = 0;
        s->is_all_dirty = true;
    }
    return r;
}

/* ---- absent, and ruled out ---- */

static int rule_out_one(struct sync_scan *s, const struct sync_node *node, const char **left,
                        size_t *left_len)
{
    const struct sync_node *mine = sync_state_get(s->state, node->path, node->len), *up;
    const size_t up_len = parent_len(node->path, node->len);
    struct sync_entry e = {.path = node->path, .len = node->len, .is_held = true};
    struct sync_node *more;
    enum sync_why why;
    int r;

    if (mine != NULL && mine->value.what == SYNC_IS_LEFT_OUT) {
        *left = node->path;
        *left_len = node->len;
    }
    if (mine != NULL)
        return 0;
    up = up_len > 0 ? sync_state_get(s->state, node->path, up_len) : NULL;
    if (up != NULL && up->value.what != SYNC_IS_DIR)
        return 0;
    e.type = node->value.what == SYNC_IS_DIR    ? SYNC_TYPE_DIR
             : node->value.what == SYNC_IS_LINK ? SYNC_TYPE_LINK
                                                : SYNC_TYPE_FILE;
    why = ask(s, &e);
    if (why == SYNC_TAKEN)
        return 0;
    r = sync_state_put(s->state, node->path, node->len, &more);
    if (r != 0)
        return r == -ENOSPC ? 0 : r;
    more->value.what = SYNC_IS_LEFT_OUT;
    more->value.why = (uint8_t)why;
    *left = node->path;
    *left_len = node->len;
    return 0;
}

int sync_scan_rule_out(struct sync_scan *s, const struct sync_state *ancestor,
                       const struct sync_state *store)
{
    struct sync_cursor a, b;
    const char *left = NULL; /* below it all is left out */
    size_t left_len = 0;

    if (!s->o.is_filtered)
        return 0;
    sync_cursor_start(&a, ancestor, "", 0);
    sync_cursor_start(&b, store, "", 0);
    for (;;) {
        const struct sync_node *na = sync_cursor_get(&a), *nb = sync_cursor_get(&b), *node;
        int order = na == NULL   ? 1
                    : nb == NULL ? -1
                                 : sync_path_order(na->path, na->len, nb->path, nb->len);
        int r;

        if (na == NULL && nb == NULL)
            return 0;
        node = order < 0 ? na : nb;
        if (order <= 0)
            sync_cursor_next(&a);
        if (order >= 0)
            sync_cursor_next(&b);
        if (node->len == 0 || node->value.what == SYNC_IS_LEFT_OUT ||
            (left != NULL && sync_path_is_below(node->path, node->len, left, left_len)))
            continue;
        r = rule_out_one(s, node, &left, &left_len);
        if (r != 0)
            return r;
    }
}

/* ---- the rest ---- */

void sync_scan_applied(struct sync_scan *s, const char *path, size_t len,
                       const struct sync_value *to, const struct sync_sig *sig)
{
    const size_t up = parent_len(path, len);
    struct sync_node *node = sync_state_get(s->state, path, len);
    struct sync_value value = *to;

    if (to->what == SYNC_IS_ABSENT) {
        forget_below(s, path, len);
        sync_state_remove(s->state, path, len);
        return;
    }
    if (!is_known_dir(s, path, up)) {
        sync_scan_dirty_parent(s, path, up); /* left out as a whole, or made on the way */
        return;
    }
    if (node != NULL && node->value.what == SYNC_IS_LEFT_OUT && node->value.why < SYNC_N_WHY) {
        value.what = SYNC_IS_LEFT_OUT; /* it still is, wherever its content comes from */
        value.is_there = true;
        value.has_id = to->what == SYNC_IS_FILE;
        value.why = node->value.why;
    }
    node = set(s, path, len, &value, sig);
    if (node == NULL || value.what != SYNC_IS_DIR)
        return;
    watch(s, path, len, true);
    sync_scan_dirty(s, path, len);
}

const struct sync_state *sync_scan_state(const struct sync_scan *s)
{
    return s->state;
}

void sync_scan_count(const struct sync_scan *s, struct sync_scan_counters *out)
{
    *out = s->counters;
}

int sync_scan_new(const struct sync_scan_options *options, struct sync_scan **out)
{
    struct sync_scan *s = calloc(1, sizeof(*s));

    if (s == NULL)
        return -ENOMEM;
    s->o = *options;
    s->is_all_dirty = true;
    if (sync_state_new(options->n_max, 0, &s->state) != 0 || sync_state_new(0, 0, &s->dirty) != 0 ||
        sync_state_new(0, 0, &s->rules) != 0 || sync_state_new(0, 0, &s->later) != 0 ||
        sync_state_new(0, 0, &s->unwatched) != 0 ||
        (options->is_filtered && sync_ignore_new(&s->ignore) != 0)) {
        sync_scan_free(s);
        return -ENOMEM;
    }
    s->filter = (struct sync_filter){
        .ignore = s->ignore, .size_limit = options->size_limit, .has = has, .arg = s};
    watch(s, "", 0, true);
    *out = s;
    return 0;
}

void sync_scan_free(struct sync_scan *s)
{
    if (s == NULL)
        return;
    sync_state_free(s->state);
    sync_state_free(s->dirty);
    sync_state_free(s->rules);
    sync_state_free(s->later);
    sync_state_free(s->unwatched);
    if (s->ignore != NULL)
        sync_ignore_free(s->ignore);
    free(s->wants);
    free(s->text);
    free(s);
}
