/* SPDX-License-Identifier: MIT */
#include "vmm/session.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "transom/log.h"
#include "vmm/file.h"
#include "vmm/ssh_keys.h"

#define RECORD_MAX_BYTES 65536
#define SANDBOXES_MAX    64 /* records read for one session */

static void session_dir(const struct vmm_sessions *s, const char *id, char out[VMM_PATH_SIZE])
{
    snprintf(out, VMM_PATH_SIZE, "%s/%s", s->dir, id);
}

static void free_session(struct vmm_session *session)
{
    struct vmm_sandbox *next;

    for (struct vmm_sandbox *sb = session->sandboxes; sb != NULL; sb = next) {
        next = sb->next;
        vmm_sandbox_fini(sb);
        vmm_ssh_keys_free(sb);
        vmm_preview_fini(&sb->preview);
        free(sb);
    }
    json_decref(session->secrets);
    free(session);
}

int vmm_session_save(struct vmm_sessions *s, const struct vmm_session *session, struct err *err)
{
    char dir[VMM_PATH_SIZE];
    json_t *record = json_pack("{si, ss, ss, ss, sI, sb, sI, sb, sO}", "v", 1, "id", session->id,
                               "owner", session->owner, "name", session->name, "created_ms",
                               (json_int_t)session->created_ms, "persist", session->persist,
                               "idle_timeout_s", (json_int_t)session->idle_timeout_s, "deleting",
                               session->deleting, "secrets", session->secrets);
    int r;

    if (record == NULL)
        return tr_err_set(err, -ENOMEM, "out of memory");
    session_dir(s, session->id, dir);
    r = vmm_file_write_json(dir, "session.json", record, err);
    json_decref(record);
    return r;
}

int vmm_sandbox_save(struct vmm_sessions *s, const struct vmm_sandbox *sb, struct err *err)
{
    char dir[VMM_PATH_SIZE + 16], name[VMM_SANDBOX_NAME_MAX + 8];
    json_t *record;
    int r;

    record = json_pack("{si, ss, ss, sI, sI, sI, sI, sI, so}", "v", 1, "name", sb->name, "label",
                       sb->label, "instance", (json_int_t)sb->instance, "vcpus",
                       (json_int_t)sb->vcpus, "memory_mb", (json_int_t)sb->memory_mb, "disk_mb",
                       (json_int_t)sb->disk_mb, "created_ms", (json_int_t)sb->created_ms, "preview",
                       vmm_preview_record(&sb->preview));
    if (record == NULL)
        return tr_err_set(err, -ENOMEM, "out of memory");
    snprintf(dir, sizeof(dir), "%s/%s/sandboxes", s->dir, sb->session->id);
    snprintf(name, sizeof(name), "%s.json", sb->name);
    r = vmm_file_write_json(dir, name, record, err);
    json_decref(record);
    return r;
}

/* Put a session whose members are complete into the tables; later free_session() needs unlink_. */
static int link_session(struct vmm_sessions *s, struct vmm_session *session)
{
    for (struct vmm_sandbox *sb = session->sandboxes; sb != NULL; sb = sb->next) {
        if (vmm_table_get(&s->by_label, sb->label) != NULL)
            return -EEXIST;
        if (vmm_table_set(&s->by_label, sb->label, sb) != 0)
            return -ENOMEM;
    }
    if (vmm_table_set(&s->by_id, session->id, session) != 0)
        return -ENOMEM;
    session->prev = s->last;
    if (s->last != NULL)
        s->last->next = session;
    else
        s->first = session;
    s->last = session;
    return 0;
}

static void unlink_session(struct vmm_sessions *s, struct vmm_session *session)
{
    for (struct vmm_sandbox *sb = session->sandboxes; sb != NULL; sb = sb->next) {
        if (vmm_table_get(&s->by_label, sb->label) == sb)
            (void)vmm_table_take(&s->by_label, sb->label);
    }
    if (vmm_table_get(&s->by_id, session->id) != session)
        return;
    (void)vmm_table_take(&s->by_id, session->id);
    if (session->prev != NULL)
        session->prev->next = session->next;
    else
        s->first = session->next;
    if (session->next != NULL)
        session->next->prev = session->prev;
    else
        s->last = session->prev;
}

static void add_sandbox(struct vmm_sessions *s, struct vmm_session *session, struct vmm_sandbox *sb)
{
    sb->session = session;
    sb->ops = s->ops;
    sb->ops_arg = s->ops_arg;
    sb->start_timeout_ms = s->start_timeout_ms;
    sb->next = session->sandboxes;
    session->sandboxes = sb;
}

/* An integer member within [min, max]. */
static int get_int(const json_t *record, const char *name, int64_t min, int64_t max, int64_t *out,
                   struct err *err)
{
    const json_t *value = json_object_get(record, name);

    if (!json_is_integer(value) || json_integer_value(value) < min ||
        json_integer_value(value) > max)
        return tr_err_set(err, -EBADMSG, "member \"%s\" is missing or out of range", name);
    *out = json_integer_value(value);
    return 0;
}

static int get_text(const json_t *record, const char *name, char *out, size_t size, struct err *err)
{
    const json_t *value = json_object_get(record, name);

    if (!json_is_string(value) || json_string_length(value) >= size ||
        strlen(json_string_value(value)) != json_string_length(value))
        return tr_err_set(err, -EBADMSG, "member \"%s\" is missing or too long", name);
    snprintf(out, size, "%s", json_string_value(value));
    return 0;
}

static int parse_sandbox(const json_t *record, struct vmm_sandbox *sb, struct err *err)
{
    int64_t instance = 0;
    int r = get_text(record, "name", sb->name, sizeof(sb->name), err);

    if (r == 0)
        r = get_text(record, "label", sb->label, sizeof(sb->label), err);
    if (r == 0 && (!vmm_word_valid(sb->name, VMM_SANDBOX_NAME_MAX, "") ||
                   !tr_label_valid(sb->label, strlen(sb->label))))
        r = tr_err_set(err, -EBADMSG, "name or label has a wrong form");
    if (r == 0)
        r = get_int(record, "instance", 0, INT64_MAX - 1, &instance, err);
    if (r == 0)
        r = get_int(record, "vcpus", 1, 1024, &sb->vcpus, err);
    if (r == 0)
        r = get_int(record, "memory_mb", 16, 1 << 24, &sb->memory_mb, err);
    if (r == 0)
        r = get_int(record, "disk_mb", 0, 1 << 28, &sb->disk_mb, err);
    if (r == 0)
        r = get_int(record, "created_ms", 0, INT64_MAX, &sb->created_ms, err);
    if (r == 0)
        r = vmm_preview_parse(&sb->preview, json_object_get(record, "preview"), err);
    sb->instance = (uint64_t)instance;
    return r;
}

static int load_sandbox(struct vmm_sessions *s, struct vmm_session *session, const char *path,
                        struct err *err)
{
    struct vmm_sandbox *sb = calloc(1, sizeof(*sb));
    json_t *record = NULL;
    struct err why = {0};
    int r;

    if (sb == NULL)
        return tr_err_set(err, -ENOMEM, "out of memory");
    r = vmm_file_read_json(path, RECORD_MAX_BYTES, &record, &why);
    if (r == 0)
        r = parse_sandbox(record, sb, &why);
    json_decref(record);
    if (r != 0) {
        free(sb);
        vmm_file_set_aside(path, &why);
        return 0;
    }
    add_sandbox(s, session, sb);
    return 0;
}

/* Call fn for each name in dir that ends in suffix and is no hidden file. */
static int each_entry(const char *dir, const char *suffix, size_t max,
                      int (*fn)(struct vmm_sessions *s, struct vmm_session *session,
                                const char *path, struct err *err),
                      struct vmm_sessions *s, struct vmm_session *session, struct err *err)
{
    DIR *d = opendir(dir);
    struct dirent *entry;
    size_t n = 0;
    int r = 0;

    if (d == NULL)
        return errno == ENOENT
                   ? 0
                   : tr_err_set(err, -errno, "cannot read %s: %s", dir, strerror(errno));
    while (r == 0 && n < max && (entry = readdir(d)) != NULL) {
        size_t len = strlen(entry->d_name), suffix_len = strlen(suffix);
        char path[VMM_PATH_SIZE];

        if (entry->d_name[0] == '.' || len < suffix_len ||
            strcmp(entry->d_name + len - suffix_len, suffix) != 0 ||
            snprintf(path, sizeof(path), "%s/%s", dir, entry->d_name) >= (int)sizeof(path))
            continue;
        n++;
        r = fn(s, session, path, err);
    }
    closedir(d);
    return r;
}

/* Records of before there were secrets have none. */
static int parse_secrets(const json_t *record, struct vmm_session *session, struct err *err)
{
    json_t *list = json_object_get(record, "secrets"), *name;
    size_t i;

    session->secrets = json_array();
    if (session->secrets == NULL)
        return tr_err_set(err, -ENOMEM, "out of memory");
    json_array_foreach(list, i, name)
    {
        if (!json_is_string(name) || json_array_append(session->secrets, name) != 0)
            return tr_err_set(err, -EBADMSG, "member \"secrets\" is not a list of names");
    }
    return 0;
}

static int parse_session(const json_t *record, struct vmm_session *session, struct err *err)
{
    int r = get_text(record, "id", session->id, sizeof(session->id), err);

    if (r == 0)
        r = get_text(record, "owner", session->owner, sizeof(session->owner), err);
    if (r == 0)
        r = get_text(record, "name", session->name, sizeof(session->name), err);
    if (r == 0)
        r = get_int(record, "created_ms", 0, INT64_MAX, &session->created_ms, err);
    if (r == 0 &&
        (!tr_label_valid(session->id, strlen(session->id)) || !vmm_owner_valid(session->owner)))
        r = tr_err_set(err, -EBADMSG, "id or owner has a wrong form");
    /* Records of before these were settings have neither. */
    if (r == 0 && json_object_get(record, "idle_timeout_s") != NULL)
        r = get_int(record, "idle_timeout_s", 0, VMM_IDLE_MAX_S, &session->idle_timeout_s, err);
    session->persist = json_is_true(json_object_get(record, "persist"));
    session->deleting = json_is_true(json_object_get(record, "deleting"));
    return r == 0 ? parse_secrets(record, session, err) : r;
}

static int load_session(struct vmm_sessions *s, struct vmm_session *unused, const char *dir,
                        struct err *err)
{
    struct vmm_session *session;
    char path[VMM_PATH_SIZE];
    json_t *record = NULL;
    struct err why = {0};
    const char *id = strrchr(dir, '/') + 1;
    int r;

    (void)unused;
    if (!tr_label_valid(id, strlen(id)) ||
        snprintf(path, sizeof(path), "%s/session.json", dir) >= (int)sizeof(path))
        return 0; /* also what was set aside */
    session = calloc(1, sizeof(*session));
    if (session == NULL)
        return tr_err_set(err, -ENOMEM, "out of memory");
    r = vmm_file_read_json(path, RECORD_MAX_BYTES, &record, &why);
    if (r == 0)
        r = parse_session(record, session, &why);
    json_decref(record);
    if (r == 0 && strcmp(id, session->id) != 0)
        r = tr_err_set(&why, -EBADMSG, "the record's id is not its folder's name");
    if (r != 0) {
        free_session(session);
        /* A folder without its record is a creation that was cut off: nothing was promised. */
        if (r == -ENOENT)
            return vmm_file_remove_tree(dir, err);
        vmm_file_set_aside(dir, &why);
        return 0;
    }
    snprintf(path, sizeof(path), "%s/sandboxes", dir);
    r = each_entry(path, ".json", SANDBOXES_MAX, load_sandbox, s, session, err);
    if (r == 0)
        r = link_session(s, session);
    if (r != 0) {
        unlink_session(s, session);
        free_session(session);
        if (r != -EEXIST)
            return tr_err_set(err, r, "cannot load %s: %s", dir, strerror(-r));
        log_error("%s: not loaded: its label belongs to another session too", dir);
    }
    return 0;
}

/* Folders are read in any order; the list is by time of creation. */
static int compare_created(const void *a, const void *b)
{
    const struct vmm_session *const *x = a, *const *y = b;

    if ((*x)->created_ms != (*y)->created_ms)
        return (*x)->created_ms < (*y)->created_ms ? -1 : 1;
    return strcmp((*x)->id, (*y)->id);
}

static int sort_sessions(struct vmm_sessions *s)
{
    size_t n = s->by_id.n_entries, i = 0;
    struct vmm_session **all;

    if (n == 0)
        return 0;
    all = calloc(n, sizeof(struct vmm_session *));
    if (all == NULL)
        return -ENOMEM;
    for (struct vmm_session *it = s->first; it != NULL; it = it->next)
        all[i++] = it;
    qsort(all, n, sizeof(struct vmm_session *), compare_created);
    s->first = all[0];
    s->last = all[n - 1];
    for (i = 0; i < n; i++) {
        all[i]->prev = i > 0 ? all[i - 1] : NULL;
        all[i]->next = i + 1 < n ? all[i + 1] : NULL;
    }
    free(all);
    return 0;
}

int vmm_sessions_open(struct vmm_sessions *s, const char *dir, struct err *err)
{
    int r;

    if (strlen(dir) >= sizeof(s->dir))
        return tr_err_set(err, -ENAMETOOLONG, "%s: path too long", dir);
    snprintf(s->dir, sizeof(s->dir), "%s", dir);
    r = vmm_file_mkdirs(dir, 0700, err);
    if (r == 0)
        r = each_entry(dir, "", VMM_SESSIONS_MAX, load_session, s, NULL, err);
    if (r == 0 && sort_sessions(s) != 0)
        r = tr_err_set(err, -ENOMEM, "out of memory");
    if (r != 0)
        vmm_sessions_close(s);
    return r;
}

void vmm_sessions_close(struct vmm_sessions *s)
{
    struct vmm_session *next;

    vmm_sessions_reap(s);
    for (struct vmm_session *it = s->first; it != NULL; it = next) {
        next = it->next;
        free_session(it);
    }
    s->first = s->last = NULL;
    vmm_table_fini(&s->by_id);
    vmm_table_fini(&s->by_label);
}

int vmm_session_new(struct vmm_sessions *s, const char *owner,
                    const struct vmm_session_settings *settings, struct vmm_session **out,
                    struct err *err)
{
    struct vmm_session *session;
    struct vmm_sandbox *sb;
    char dir[VMM_PATH_SIZE], sub[VMM_PATH_SIZE + 16];
    int r;

    if (s->by_id.n_entries >= VMM_SESSIONS_MAX)
        return tr_err_set(err, -EDQUOT, "there are %d sessions already; delete some",
                          VMM_SESSIONS_MAX);
    session = calloc(1, sizeof(*session));
    sb = calloc(1, sizeof(*sb));
    if (session != NULL)
        session->secrets = json_array();
    if (session == NULL || sb == NULL || session->secrets == NULL) {
        if (session != NULL)
            free_session(session);
        free(sb);
        return tr_err_set(err, -ENOMEM, "out of memory");
    }
    vmm_random_id(session->id, VMM_ID_LEN);
    vmm_random_id(sb->label, VMM_ID_LEN);
    snprintf(session->owner, sizeof(session->owner), "%s", owner);
    if (settings->name != NULL)
        snprintf(session->name, sizeof(session->name), "%s", settings->name);
    session->persist = settings->persist;
    session->idle_timeout_s = settings->idle_timeout_s;
    session->created_ms = sb->created_ms = vmm_wall_ms();
    snprintf(sb->name, sizeof(sb->name), "primary");
    sb->vcpus = s->vcpus;
    sb->memory_mb = s->memory_mb;
    sb->disk_mb = s->disk_mb;
    vmm_preview_init(&sb->preview);
    add_sandbox(s, session, sb);

    /* The session's own record comes last: without it the folder counts for nothing. */
    session_dir(s, session->id, dir);
    snprintf(sub, sizeof(sub), "%s/sandboxes", dir);
    r = vmm_file_mkdirs(sub, 0700, err);
    if (r == 0)
        r = vmm_sandbox_save(s, sb, err);
    if (r == 0)
        r = vmm_session_save(s, session, err);
    if (r == 0 && link_session(s, session) != 0)
        r = tr_err_set(err, -ENOMEM, "out of memory");
    if (r != 0) {
        struct err ignored = {0};

        if (vmm_file_remove_tree(dir, &ignored) != 0)
            log_warn("%s", ignored.msg); /* the next start removes it */
        unlink_session(s, session);
        free_session(session);
        return r;
    }
    *out = session;
    return 0;
}

int vmm_session_change(struct vmm_sessions *s, struct vmm_session *session,
                       const struct vmm_session_settings *settings, struct err *err)
{
    struct vmm_session before = *session;
    int r;

    session->persist = settings->persist;
    session->idle_timeout_s = settings->idle_timeout_s;
    if (settings->name != NULL)
        snprintf(session->name, sizeof(session->name), "%s", settings->name);
    r = vmm_session_save(s, session, err);
    if (r != 0) {
        session->persist = before.persist;
        session->idle_timeout_s = before.idle_timeout_s;
        memcpy(session->name, before.name, sizeof(session->name));
        if (r == -ENOENT) /* its folder: that is no fault of the request's */
            r = err->code = -EIO;
    }
    return r;
}

struct vmm_session *vmm_session_find(const struct vmm_sessions *s, const char *id)
{
    return vmm_table_get(&s->by_id, id);
}

struct vmm_sandbox *vmm_session_sandbox(const struct vmm_session *session, const char *name)
{
    for (struct vmm_sandbox *sb = session->sandboxes; sb != NULL; sb = sb->next) {
        if (strcmp(sb->name, name) == 0)
            return sb;
    }
    return NULL;
}

struct vmm_sandbox *vmm_sessions_by_label(const struct vmm_sessions *s, const char *label)
{
    return vmm_table_get(&s->by_label, label);
}

const struct vmm_gone *vmm_sessions_gone(const struct vmm_sessions *s, const char *id)
{
    size_t n = s->n_gone < VMM_GONE_KEPT ? s->n_gone : VMM_GONE_KEPT;

    for (size_t i = 0; i < n; i++) {
        if (strcmp(s->gone[i].id, id) == 0)
            return &s->gone[i];
    }
    return NULL;
}

int vmm_session_mark_deleting(struct vmm_sessions *s, struct vmm_session *session, struct err *err)
{
    int r;

    if (session->deleting)
        return 0;
    session->deleting = true;
    r = vmm_session_save(s, session, err);
    if (r != 0) {
        session->deleting = false;
        return r;
    }
    for (struct vmm_sandbox *sb = session->sandboxes; sb != NULL; sb = sb->next)
        sb->closed = true;
    return 0;
}

int vmm_session_remove(struct vmm_sessions *s, struct vmm_session *session, struct err *err)
{
    struct vmm_gone *gone = &s->gone[s->n_gone++ % VMM_GONE_KEPT];
    char dir[VMM_PATH_SIZE], aside[VMM_PATH_SIZE];
    int r = 0;

    memcpy(gone->id, session->id, sizeof(gone->id));
    memcpy(gone->owner, session->owner, sizeof(gone->owner));
    session_dir(s, session->id, dir);
    snprintf(aside, sizeof(aside), "%s/" VMM_SESSION_GONE "%s", s->dir, session->id);
    /* On a fault the next start of the manager tries again. */
    if (rename(dir, aside) != 0 && errno != ENOENT)
        r = tr_err_set(err, -errno, "cannot rename %s: %s", dir, strerror(errno));
    else
        r = vmm_file_sync_dir(s->dir, err);
    unlink_session(s, session);
    session->next = s->dead;
    s->dead = session;
    return r;
}

void vmm_sessions_reap(struct vmm_sessions *s)
{
    struct vmm_session *session;

    while ((session = s->dead) != NULL) {
        s->dead = session->next;
        free_session(session);
    }
}
