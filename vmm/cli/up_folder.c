/* SPDX-License-Identifier: MIT */
#include "vmm/cli/up_folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include "sync/tree.h"
#include "vmm/cli/cli.h"

#define BOUND_MAX 32 /* sessions that are remembered for a folder; the oldest go */

/* ~/.local/state/transom/folders, made. New; NULL after saying why. */
static char *state_dir(void)
{
    const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    char *dir;

    if (state != NULL && *state == '/')
        dir = cli_printf("%s/transom/folders", state);
    else
        dir = cli_printf("%s/.local/state/transom/folders", home != NULL ? home : "");
    for (char *slash = strchr(dir + 1, '/');; slash = strchr(slash + 1, '/')) {
        if (slash != NULL)
            *slash = '\0';
        if (mkdir(dir, 0700) != 0 && errno != EEXIST) {
            cli_fail(1, "%s: %s", dir, strerror(errno));
            free(dir);
            return NULL;
        }
        if (slash == NULL)
            return dir;
        *slash = '/';
    }
}

/* FNV-1a. */
static uint64_t hash_of(const char *text)
{
    uint64_t hash = UINT64_C(14695981039346656037);

    for (; *text != '\0'; text++)
        hash = (hash ^ (unsigned char)*text) * UINT64_C(1099511628211);
    return hash;
}

/* Which folder it is. New. */
static char *identity(int root)
{
    struct statx st;

    if (statx(root, "", AT_EMPTY_PATH, STATX_INO | STATX_BTIME, &st) != 0)
        return cli_printf("?");
    return cli_printf("%" PRIu64 " %" PRId64 ".%09u", (uint64_t)st.stx_ino,
                      st.stx_mask & STATX_BTIME ? (int64_t)st.stx_btime.tv_sec : 0,
                      st.stx_mask & STATX_BTIME ? st.stx_btime.tv_nsec : 0);
}

static int take_lock(struct up_folder *f)
{
    char *path = cli_printf("%s.lock", f->file);
    int status = 0;

    f->lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (f->lock < 0)
        status = cli_fail(1, "%s: %s", path, strerror(errno));
    else if (flock(f->lock, LOCK_EX | LOCK_NB) != 0)
        status = errno == EWOULDBLOCK
                     ? cli_fail(1, "%s is kept in step by another transom up", f->path)
                     : cli_fail(1, "%s: %s", path, strerror(errno));
    free(path);
    return status;
}

/* What is remembered, for this very folder. */
static void read_record(struct up_folder *f)
{
    json_t *record = json_load_file(f->file, JSON_REJECT_DUPLICATES, NULL), *bound, *item;
    char *is = identity(f->root);
    size_t i;

    f->record = record != NULL && json_is_object(record) ? record : json_object();
    if (f->record != record)
        json_decref(record);
    bound = json_object_get(f->record, "bound");
    if (!json_is_array(bound)) {
        bound = json_array();
        json_object_set_new(f->record, "bound", bound);
    }
    if (strcmp(cli_text(f->record, "folder"), is) != 0) {
        json_array_foreach(bound, i, item) json_object_del(item, "id");
        json_object_set_new(f->record, "folder", json_string(is));
    }
    free(is);
}

static bool is_home(const char *path)
{
    const char *home = getenv("HOME");
    char *real = home != NULL ? realpath(home, NULL) : NULL;
    bool is_it = real != NULL && strcmp(path, real) == 0;

    free(real);
    return is_it;
}

static int open_locked(const char *dir, struct up_folder *f)
{
    char *state;

    f->path = realpath(dir, NULL);
    if (f->path == NULL)
        return cli_fail(1, "%s: %s", dir, strerror(errno));
    f->root = open(f->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (f->root < 0)
        return cli_fail(1, "%s: %s", dir, strerror(errno));
    if (strcmp(f->path, "/") == 0 || is_home(f->path))
        return cli_fail(1, "%s as a whole is no session's files: name a folder in it", f->path);
    state = state_dir();
    if (state == NULL)
        return 1;
    f->file = cli_printf("%s/%016" PRIx64 ".json", state, hash_of(f->path));
    free(state);
    return take_lock(f);
}

/* What a run that was killed has left in the folder goes, or goes back. */
static void sweep(const struct up_folder *f)
{
    const struct sync_tree tree = {.root = f->root, .stage = -1};
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    sync_tree_sweep(&tree, (int64_t)now.tv_sec * 1000000000 + now.tv_nsec);
    (void)unlinkat(f->root, SYNC_STAGE_NAME, AT_REMOVEDIR); /* fails when it is not there */
}

int up_folder_open(const char *dir, struct up_folder *f)
{
    int status;

    memset(f, 0, sizeof(*f));
    f->lock = f->root = -1;
    status = open_locked(dir, f);
    if (status != 0) {
        up_folder_close(f);
        return status;
    }
    sweep(f);
    read_record(f);
    return 0;
}

void up_folder_close(struct up_folder *f)
{
    if (f->root >= 0) {
        (void)unlinkat(f->root, SYNC_STAGE_NAME, AT_REMOVEDIR); /* fails when something is in it */
        close(f->root);
    }
    if (f->lock >= 0)
        close(f->lock);
    free(f->path);
    free(f->file);
    json_decref(f->record);
}

/* The entry for this API and session (NULL: any), and where it stands. */
static json_t *find(const struct up_folder *f, const char *api, const char *session, size_t *at)
{
    const json_t *bound = json_object_get(f->record, "bound");

    for (*at = 0; *at < json_array_size(bound); ++*at) {
        json_t *item = json_array_get(bound, *at);

        if (strcmp(cli_text(item, "api"), api) == 0 &&
            (session == NULL || strcmp(cli_text(item, "session"), session) == 0))
            return item;
    }
    return NULL;
}

const char *up_folder_session(const struct up_folder *f, const char *api)
{
    size_t at;
    const json_t *item = find(f, api, NULL, &at);

    return item != NULL ? json_string_value(json_object_get(item, "session")) : NULL;
}

static int save(const struct up_folder *f)
{
    char *tmp = cli_printf("%s.tmp", f->file), *text = json_dumps(f->record, JSON_INDENT(1));
    int fd = open(tmp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600), status = 0;

    if (text == NULL)
        abort();
    if (fd < 0 || cli_write_all(fd, text, strlen(text)) != 0 || fsync(fd) != 0 ||
        rename(tmp, f->file) != 0)
        status = cli_fail(1, "%s: %s", f->file, strerror(errno));
    if (fd >= 0)
        close(fd);
    free(text);
    free(tmp);
    return status;
}

static void make_id(char id[UP_ID_LEN + 1])
{
    uint8_t bytes[UP_ID_LEN / 2];

    if (getrandom(bytes, sizeof(bytes), 0) != (ssize_t)sizeof(bytes))
        abort();
    for (size_t i = 0; i < sizeof(bytes); i++)
        snprintf(id + 2 * i, 3, "%02x", bytes[i]);
}

int up_folder_id(struct up_folder *f, const char *api, const char *session, char id[UP_ID_LEN + 1])
{
    json_t *bound = json_object_get(f->record, "bound"), *item;
    size_t at;

    item = find(f, api, session, &at);
    if (item != NULL) {
        json_incref(item);
        json_array_remove(bound, at);
    } else if ((item = json_pack("{ss, ss}", "api", api, "session", session)) == NULL) {
        abort();
    }
    if (strlen(cli_text(item, "id")) == UP_ID_LEN) {
        memcpy(id, cli_text(item, "id"), UP_ID_LEN + 1);
    } else {
        make_id(id);
        json_object_set_new(item, "id", json_string(id));
    }
    json_array_insert_new(bound, 0, item); /* the last one first */
    while (json_array_size(bound) > BOUND_MAX)
        json_array_remove(bound, BOUND_MAX);
    return save(f);
}

bool up_folder_is_empty(const struct up_folder *f)
{
    int fd = openat(f->root, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
    bool is_empty = d != NULL; /* what cannot be read may hold anything */
    const struct dirent *entry;

    while (is_empty && (entry = readdir(d)) != NULL)
        is_empty = strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0 ||
                   strcmp(entry->d_name, ".git") == 0 ||
                   strcmp(entry->d_name, SYNC_STAGE_NAME) == 0;
    if (d != NULL)
        closedir(d);
    else if (fd >= 0)
        close(fd);
    return is_empty;
}

bool up_folder_is_there(const struct up_folder *f)
{
    struct stat here, there;

    return fstat(f->root, &here) == 0 && here.st_nlink > 0 && stat(f->path, &there) == 0 &&
           here.st_ino == there.st_ino && here.st_dev == there.st_dev;
}
