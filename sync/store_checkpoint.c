/* SPDX-License-Identifier: MIT */
/* Checkpoints: commits on one branch, each with the one before as its parent. The cause is the last
 * line of a commit's message; above it, if there are any, the .git folders (store_gits.c). */
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <git2/sys/commit.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "sync/store_internal.h"

#define CAUSE_LINE "Transom-Cause: "
#define GITS_LINE  "Transom-Git: "
#define EMAIL      "session@transom.invalid"
#define DIGITS_MIN 7 /* of an id that is cut */

static const char *const cause_names[SYNC_N_CAUSES] = {
    [SYNC_CAUSE_CREATED] = "created",   [SYNC_CAUSE_RUN] = "run",
    [SYNC_CAUSE_IDLE] = "idle",         [SYNC_CAUSE_STOP] = "stop",
    [SYNC_CAUSE_RESET] = "reset",       [SYNC_CAUSE_API] = "api",
    [SYNC_CAUSE_TIMER] = "timer",       [SYNC_CAUSE_RESTORE] = "restore",
    [SYNC_CAUSE_CONFLICT] = "conflict",
};

const char *sync_cause_name(enum sync_cause cause)
{
    return cause_names[cause];
}

/* ---- making ---- */

/* What a commit's signature may hold. */
static void clean_author(const char *author, char out[256])
{
    size_t n = 0;

    for (const char *s = author; *s && n < 255; s++) {
        unsigned char c = (unsigned char)*s;

        if (c >= 0x20 && c != 0x7f && c != '<' && c != '>')
            out[n++] = *s;
    }
    while (n > 0 && strchr(" .,:;\"'\\", out[n - 1]) != NULL)
        n--;
    out[n] = '\0';
    if (n == 0)
        snprintf(out, 256, "Transom");
}

/* The text of the commit, new; NULL without memory. */
static char *commit_text(const char *message, enum sync_cause cause, const git_oid *gits)
{
    char line[sizeof(GITS_LINE) + SYNC_ID_SIZE] = "", hex[SYNC_ID_SIZE];
    size_t len = strnlen(message, SYNC_MESSAGE_MAX), n = 0;
    char *clean = malloc(len + 1), *text;

    if (clean == NULL)
        return NULL;
    for (size_t i = 0; i < len; i++) {
        if (message[i] != '\r')
            clean[n++] = message[i];
    }
    while (n > 0 && isspace((unsigned char)clean[n - 1]))
        n--;
    clean[n] = '\0';
    if (!git_oid_is_zero(gits)) {
        git_oid_tostr(hex, sizeof(hex), gits);
        snprintf(line, sizeof(line), GITS_LINE "%s\n", hex);
    }
    if (asprintf(&text, "%s\n\n%s" CAUSE_LINE "%s\n", n > 0 ? clean : "Checkpoint", line,
                 cause_names[cause]) < 0)
        text = NULL;
    free(clean);
    return text;
}

/* Where the line with the cause begins, in a commit's message of len bytes; NULL: it has none. */
static const char *cause_line(const char *text, size_t *len)
{
    const char *line;

    while (*len > 0 && text[*len - 1] == '\n')
        (*len)--;
    line = *len > 0 ? memrchr(text, '\n', *len) : NULL;
    return line != NULL && strncmp(line + 1, CAUSE_LINE, strlen(CAUSE_LINE)) == 0 ? line + 1 : NULL;
}

/* Where the line with the .git folders begins, above that with the cause; NULL: it has none. Ours
 * stands right above; a message that ends in such a line has an empty one between. */
static const char *gits_line(const char *text, const char *cause)
{
    size_t len = strlen(GITS_LINE) + GIT_OID_HEXSZ + 1;
    const char *line = cause - len;

    return (size_t)(cause - text) > len && line[-1] == '\n' && cause[-1] == '\n' &&
                   strncmp(line, GITS_LINE, strlen(GITS_LINE)) == 0
               ? line
               : NULL;
}

void sync_commit_gits(const git_commit *commit, git_oid *out)
{
    const char *text = git_commit_message(commit), *line;
    size_t len = strlen(text);
    const char *cause = cause_line(text, &len);

    memset(out, 0, sizeof(*out));
    line = cause != NULL ? gits_line(text, cause) : NULL;
    if (line != NULL && git_oid_fromstrn(out, line + strlen(GITS_LINE), GIT_OID_HEXSZ) != 0)
        memset(out, 0, sizeof(*out));
}

/* Commits of other lines, such as what a sync kept, are none. */
static bool is_checkpoint(const git_commit *commit)
{
    const char *text = git_commit_message(commit);
    size_t len = strlen(text);

    return cause_line(text, &len) != NULL;
}

static void fill(const git_commit *commit, struct sync_checkpoint *out)
{
    const char *text = git_commit_message(commit), *line;
    const git_signature *author = git_commit_author(commit);
    size_t len = strlen(text);

    git_oid_tostr(out->id, sizeof(out->id), git_commit_id(commit));
    out->parent[0] = '\0';
    if (git_commit_parentcount(commit) > 0)
        git_oid_tostr(out->parent, sizeof(out->parent), git_commit_parent_id(commit, 0));
    out->time_s = author->when.time;
    out->cause = SYNC_CAUSE_API; /* of a commit that is not ours */
    snprintf(out->author, sizeof(out->author), "%s", author->name);
    line = cause_line(text, &len);
    if (line != NULL) {
        const char *name = line + strlen(CAUSE_LINE);

        for (int i = 0; i < SYNC_N_CAUSES; i++) {
            size_t n = strlen(cause_names[i]);

            if (strncmp(name, cause_names[i], n) == 0 && name[n] == '\n')
                out->cause = i;
        }
        if (gits_line(text, line) != NULL)
            line = gits_line(text, line);
        len = (size_t)(line - text);
        while (len > 0 && text[len - 1] == '\n')
            len--;
    }
    if (len > SYNC_MESSAGE_MAX)
        len = SYNC_MESSAGE_MAX;
    memcpy(out->message, text, len);
    out->message[len] = '\0';
}

int sync_sync_folder(const char *path, struct err *err)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC), r = 0;

    if (fd < 0 || fsync(fd) != 0)
        r = tr_err_set(err, -errno, "%s: %s", path, strerror(errno));
    if (fd >= 0)
        close(fd);
    return r;
}

static int sync_objects(struct sync_store *store, struct err *err)
{
    const char *path = git_repository_path(store->repo); /* ends in "/" */
    char *objects;
    int r;

    if (asprintf(&objects, "%sobjects", path) < 0)
        return tr_err_set(err, -ENOMEM, "out of memory");
    r = sync_sync_folder(objects, err);
    free(objects);
    return r;
}

int sync_commit(struct sync_store *store, const git_oid *tree, const git_oid *parent,
                const char *message, enum sync_cause cause, const char *author,
                struct sync_checkpoint *out, struct err *err)
{
    const git_oid *parents[1] = {parent};
    git_signature *who = NULL;
    git_reference *branch = NULL;
    git_commit *commit = NULL;
    char name[256], *text = commit_text(message, cause, &store->gits);
    git_oid id;
    int r = 0;

    if (text == NULL)
        return tr_err_set(err, -ENOMEM, "out of memory");
    clean_author(author, name);
    r = sync_gits_keep(store, err);
    errno = 0;
    if (r == 0 && (git_signature_new(&who, name, EMAIL, time(NULL), 0) != 0 ||
                   git_commit_create_from_ids(&id, store->repo, NULL, who, who, NULL, text, tree,
                                              parent != NULL, parents) != 0))
        r = sync_fail_git(err, -EIO, "cannot make the checkpoint");
    if (r == 0)
        r = sync_objects(store, err);
    errno = 0;
    if (r == 0 && (git_reference_create(&branch, store->repo, SYNC_BRANCH, &id, 1, NULL) != 0 ||
                   git_commit_lookup(&commit, store->repo, &id) != 0))
        r = sync_fail_git(err, -EIO, "cannot make the checkpoint");
    if (r == 0)
        fill(commit, out);
    git_commit_free(commit);
    git_reference_free(branch);
    git_signature_free(who);
    free(text);
    return r;
}

int sync_head(struct sync_store *store, git_oid *out, struct err *err)
{
    int r = git_reference_name_to_id(out, store->repo, SYNC_BRANCH);

    return r == 0 ? 0 : sync_fail_git(err, r, "the last checkpoint cannot be read");
}

int sync_store_checkpoint(struct sync_store *store, const char *message, enum sync_cause cause,
                          const char *author, struct sync_checkpoint *out,
                          struct sync_left_out *left, struct err *err)
{
    git_commit *last = NULL;
    git_oid head, tree, gits;
    int r = sync_head(store, &head, err);

    if (r == 0)
        r = sync_tree_write(store, &tree, left, err);
    if (r != 0)
        return r;
    if (git_commit_lookup(&last, store->repo, &head) != 0)
        return sync_fail_git(err, -EIO, "the last checkpoint cannot be read");
    sync_commit_gits(last, &gits);
    if (git_oid_equal(git_commit_tree_id(last), &tree) && git_oid_equal(&gits, &store->gits)) {
        fill(last, out);
        r = 1;
    } else {
        r = sync_commit(store, &tree, &head, message, cause, author, out, err);
    }
    git_commit_free(last);
    return r;
}

/* ---- finding ---- */

static int no_such(struct err *err, const char *name)
{
    char shown[SYNC_SHOWN_SIZE];

    return tr_err_set(err, -ENOENT, "there is no checkpoint \"%s\"",
                      sync_show(name, strlen(name), shown));
}

static int find_first(struct sync_store *store, git_commit **commit)
{
    while (git_commit_parentcount(*commit) > 0) {
        git_commit *parent = NULL;
        int r = git_commit_lookup(&parent, store->repo, git_commit_parent_id(*commit, 0));

        git_commit_free(*commit);
        *commit = parent;
        if (r != 0)
            return r;
    }
    return 0;
}

int sync_find_commit(struct sync_store *store, const char *name, git_commit **out, struct err *err)
{
    size_t len = strlen(name);
    bool is_first = strcmp(name, "first") == 0;
    git_oid id;
    int r;

    *out = NULL;
    if (is_first || strcmp(name, "latest") == 0) {
        r = sync_head(store, &id, err);
        if (r != 0)
            return r;
        r = git_commit_lookup(out, store->repo, &id);
        if (r == 0 && is_first)
            r = find_first(store, out);
        return r == 0 ? 0 : sync_fail_git(err, r, "a checkpoint cannot be read");
    }
    if (len < DIGITS_MIN || len > GIT_OID_HEXSZ || strspn(name, "0123456789abcdef") != len)
        return tr_err_set(err, -EINVAL,
                          "a checkpoint is named by %d to %d digits of its id, \"latest\" or "
                          "\"first\"",
                          DIGITS_MIN, GIT_OID_HEXSZ);
    if (git_oid_fromstrn(&id, name, len) != 0)
        return no_such(err, name);
    r = git_commit_lookup_prefix(out, store->repo, &id, len);
    if (r == GIT_EAMBIGUOUS)
        return tr_err_set(err, -EINVAL, "several ids begin with \"%s\"", name);
    if (r == 0 && is_checkpoint(*out))
        return 0;
    git_commit_free(*out);
    *out = NULL;
    return no_such(err, name);
}

int sync_store_find(struct sync_store *store, const char *name, struct sync_checkpoint *out,
                    struct err *err)
{
    git_commit *commit;
    int r = sync_find_commit(store, name, &commit, err);

    if (r != 0)
        return r;
    fill(commit, out);
    git_commit_free(commit);
    return 0;
}

int sync_store_history(struct sync_store *store, const char *before, sync_checkpoint_cb cb,
                       void *arg, struct err *err)
{
    struct sync_checkpoint *now;
    git_commit *commit;
    bool skip = before != NULL;
    int r = sync_find_commit(store, skip ? before : "latest", &commit, err);

    if (r != 0)
        return r;
    now = malloc(sizeof(*now));
    if (now == NULL)
        r = tr_err_set(err, -ENOMEM, "out of memory");
    while (now != NULL && r == 0) {
        git_commit *parent = NULL;

        if (!skip) {
            fill(commit, now);
            r = cb(now, arg);
        }
        skip = false;
        if (r != 0 || git_commit_parentcount(commit) == 0)
            break;
        if (git_commit_lookup(&parent, store->repo, git_commit_parent_id(commit, 0)) != 0)
            r = sync_fail_git(err, -EIO, "a checkpoint cannot be read");
        git_commit_free(commit);
        commit = parent;
    }
    git_commit_free(commit);
    free(now);
    return r;
}
