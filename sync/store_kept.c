/* SPDX-License-Identifier: MIT */
/* What a sync replaced or removed, read back from the line of commits that the vault writes
 * (sync/vault_git.h tells its form). */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "sync/store_internal.h"

#define KEPT_REF   "refs/transom/kept"
#define MEMORY_MAX (1024 * 1024)

/* The word at *at up to the next blank, which is passed; "" if it does not fit. */
static void take_word(const char **at, const char *end, char *out, size_t size)
{
    const char *blank = memchr(*at, ' ', (size_t)(end - *at));
    size_t len = (size_t)((blank != NULL ? blank : end) - *at);

    snprintf(out, size, "%.*s", len < size ? (int)len : 0, *at);
    *at = blank != NULL ? blank + 1 : end;
}

static int digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Undo \xNN. */
static size_t take_path(const char *at, const char *end, char *out)
{
    size_t n = 0;

    while (at < end && n < SYNC_PATH_MAX) {
        if (end - at >= 4 && at[0] == '\\' && at[1] == 'x' && digit(at[2]) >= 0 &&
            digit(at[3]) >= 0) {
            out[n++] = (char)(digit(at[2]) << 4 | digit(at[3]));
            at += 4;
        } else {
            out[n++] = *at++;
        }
    }
    out[n] = '\0';
    return n;
}

/* One line of a message: "why side mode id path". */
static bool parse(const char *line, const char *end, struct sync_kept_version *out)
{
    char mode[8];

    take_word(&line, end, out->why, sizeof(out->why));
    take_word(&line, end, out->side, sizeof(out->side));
    take_word(&line, end, mode, sizeof(mode));
    take_word(&line, end, out->id, sizeof(out->id));
    out->type = strcmp(mode, "120000") == 0 ? SYNC_TYPE_LINK : SYNC_TYPE_FILE;
    out->is_exec = strcmp(mode, "100755") == 0;
    out->len = take_path(line, end, out->path);
    return strlen(out->id) == GIT_OID_HEXSZ && out->len > 0;
}

static int tell(const git_commit *commit, size_t from, sync_kept_cb cb, void *arg)
{
    struct sync_kept_version *v = malloc(sizeof(*v));
    const char *line = strstr(git_commit_message(commit), "\n\n"), *end;
    size_t i = 0;
    int r = v == NULL ? -ENOMEM : 0;

    if (v != NULL) {
        git_oid_tostr(v->at, SYNC_ID_SIZE, git_commit_id(commit));
        v->time_s = git_commit_time(commit);
    }
    for (line = line != NULL ? line + 2 : ""; r == 0 && *line; line = *end ? end + 1 : end, i++) {
        end = strchrnul(line, '\n');
        if (i < from || !parse(line, end, v))
            continue;
        snprintf(v->at + SYNC_ID_SIZE - 1, sizeof(v->at) - SYNC_ID_SIZE, ".%zu", i + 1);
        r = cb(v, arg);
    }
    free(v);
    return r;
}

/* "id.line": where an earlier listing ended. */
static int begin(struct sync_store *store, const char *after, git_oid *id, size_t *from,
                 struct err *err)
{
    char *end = NULL;

    *from = 0;
    if (after == NULL)
        return git_reference_name_to_id(id, store->repo, KEPT_REF) == 0 ? 0 : 1;
    if (strlen(after) > SYNC_ID_SIZE && after[SYNC_ID_SIZE - 1] == '.')
        *from = strtoul(after + SYNC_ID_SIZE, &end, 10);
    if (end == NULL || *end != '\0' || git_oid_fromstrn(id, after, GIT_OID_HEXSZ) != 0)
        return tr_err_set(err, -EINVAL, "\"after\" is not what an earlier answer told");
    return 0;
}

int sync_store_kept(struct sync_store *store, const char *after, sync_kept_cb cb, void *arg,
                    struct err *err)
{
    git_oid id;
    size_t from;
    int r = begin(store, after, &id, &from, err);

    if (r != 0)
        return r < 0 ? r : 0; /* nothing was ever kept */
    while (r == 0) {
        git_commit *commit = NULL;

        r = git_commit_lookup(&commit, store->repo, &id);
        if (r != 0)
            return sync_fail_git(err, r, "what was kept cannot be read");
        r = tell(commit, from, cb, arg);
        from = 0;
        if (r == -ENOMEM)
            (void)tr_err_set(err, r, "out of memory");
        if (r == 0 && git_commit_parentcount(commit) == 0) {
            git_commit_free(commit);
            break;
        }
        if (r == 0)
            id = *git_commit_parent_id(commit, 0);
        git_commit_free(commit);
    }
    return r;
}

int sync_store_open_blob(struct sync_store *store, const char *hex, struct err *err)
{
    git_object_t type = GIT_OBJECT_ANY;
    size_t size = 0;
    git_oid id;
    int fd, r;

    if (strlen(hex) != GIT_OID_HEXSZ || strspn(hex, "0123456789abcdef") != GIT_OID_HEXSZ ||
        git_oid_fromstr(&id, hex) != 0)
        return tr_err_set(err, -EINVAL, "a content is named by the 40 digits of its id");
    r = git_odb_read_header(&size, &type, store->odb, &id);
    if (r == GIT_ENOTFOUND || (r == 0 && type != GIT_OBJECT_BLOB))
        return tr_err_set(err, -ENOENT, "the session has no content %s", hex);
    if (r != 0)
        return sync_fail_git(err, r, "a kept content");
    fd = size <= MEMORY_MAX ? memfd_create("content", MFD_CLOEXEC)
                            : openat(store->staging, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd < 0)
        return tr_err_set(err, -errno, "%s/staging: %s", store->dir, strerror(errno));
    r = sync_odb_write_to(store->odb, &id, fd, err);
    if (r == 0)
        return fd;
    close(fd);
    return r;
}
