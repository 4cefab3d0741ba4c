/* SPDX-License-Identifier: MIT */
#include "sync/ignore.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "sync/path.h"
#include "sync/pattern.h"

/* One file of rules. */
struct rules {
    char *dir; /* ours; "" is the home folder */
    size_t dir_len;
    enum sync_ignore_level level;
    char *bytes; /* ours; the patterns point into it; NULL when refused */
    size_t len;
    struct sync_pattern *patterns; /* ours */
    size_t n_patterns;
    bool is_refused; /* over a limit: what is below has no verdict */
};

struct sync_ignore {
    struct rules **files; /* by level, then folder */
    size_t n_files, n_room;
    size_t total_len; /* of all bytes held */
    bool is_full;     /* a file had no place: nothing has a verdict */
};

static void rules_free(struct rules *r)
{
    if (r == NULL)
        return;
    free(r->dir);
    free(r->bytes);
    free(r->patterns);
    free(r);
}

static int compare(const struct rules *r, enum sync_ignore_level level, const char *dir, size_t len)
{
    size_t n = r->dir_len < len ? r->dir_len : len;
    int c;

    if (r->level != level)
        return r->level < level ? -1 : 1;
    c = n > 0 ? memcmp(r->dir, dir, n) : 0;
    if (c != 0)
        return c;
    return r->dir_len < len ? -1 : r->dir_len > len;
}

/* Where the folder's file is, or would be. */
static size_t place_of(const struct sync_ignore *ig, enum sync_ignore_level level, const char *dir,
                       size_t len, bool *is_there)
{
    size_t low = 0, high = ig->n_files;

    *is_there = false;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        int c = compare(ig->files[mid], level, dir, len);

        if (c == 0) {
            *is_there = true;
            return mid;
        }
        if (c < 0)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

static const struct rules *find(const struct sync_ignore *ig, enum sync_ignore_level level,
                                const char *dir, size_t len)
{
    bool is_there;
    size_t i = place_of(ig, level, dir, len, &is_there);

    return is_there ? ig->files[i] : NULL;
}

int sync_ignore_new(struct sync_ignore **out)
{
    struct sync_ignore *ig = calloc(1, sizeof(*ig));

    if (ig == NULL)
        return -ENOMEM;
    *out = ig;
    return 0;
}

void sync_ignore_free(struct sync_ignore *ig)
{
    if (ig == NULL)
        return;
    for (size_t i = 0; i < ig->n_files; i++)
        rules_free(ig->files[i]);
    free(ig->files);
    free(ig);
}

/* Count first, then keep: the file is small, and the memory is exact. */
static int parse(struct rules *r, const char *bytes, size_t len)
{
    struct sync_pattern_reader reader;
    struct sync_pattern p;
    size_t n = 0;

    sync_pattern_read(&reader, bytes, len);
    while (sync_pattern_next(&reader, &p))
        if (++n > SYNC_IGNORE_LINES_MAX)
            return -E2BIG;
    if (n == 0)
        return 0;
    r->bytes = malloc(len);
    r->patterns = calloc(n, sizeof(*r->patterns));
    if (r->bytes == NULL || r->patterns == NULL)
        return -ENOMEM;
    memcpy(r->bytes, bytes, len);
    r->len = len;
    sync_pattern_read(&reader, r->bytes, len);
    while (r->n_patterns < n && sync_pattern_next(&reader, &r->patterns[r->n_patterns]))
        r->n_patterns++;
    return 0;
}

static int rules_new(enum sync_ignore_level level, const char *dir, size_t dir_len,
                     const char *bytes, size_t len, struct rules **out)
{
    struct rules *r = calloc(1, sizeof(*r));
    int status;

    if (r == NULL)
        return -ENOMEM;
    r->level = level;
    r->dir_len = dir_len;
    r->dir = malloc(dir_len + 1);
    if (r->dir == NULL) {
        rules_free(r);
        return -ENOMEM;
    }
    if (dir_len > 0)
        memcpy(r->dir, dir, dir_len);
    r->dir[dir_len] = '\0';
    status = len > SYNC_IGNORE_FILE_MAX ? -E2BIG : parse(r, bytes, len);
    if (status == -ENOMEM) {
        rules_free(r);
        return status;
    }
    r->is_refused = status != 0;
    *out = r;
    return 0;
}

static int make_room(struct sync_ignore *ig)
{
    size_t n = ig->n_room == 0 ? 16 : ig->n_room * 2;
    struct rules **files;

    if (ig->n_files < ig->n_room)
        return 0;
    files = realloc(ig->files, n * sizeof(struct rules *));
    if (files == NULL)
        return -ENOMEM;
    ig->files = files;
    ig->n_room = n;
    return 0;
}

int sync_ignore_set(struct sync_ignore *ig, enum sync_ignore_level level, const char *dir,
                    size_t dir_len, const char *bytes, size_t len, struct err *err)
{
    struct rules *r = NULL;
    size_t at, others;
    bool is_there;

    if (dir_len > 0 && sync_path_check(dir, dir_len) != SYNC_PATH_OK)
        return tr_err_set(err, -EINVAL, "ignore rules: the folder's path is not a valid one");
    if (rules_new(level, dir, dir_len, bytes, len, &r) != 0 || make_room(ig) != 0) {
        rules_free(r);
        return tr_err_set(err, -ENOMEM, "ignore rules: out of memory");
    }
    at = place_of(ig, level, dir, dir_len, &is_there);
    others = ig->total_len - (is_there ? ig->files[at]->len : 0);
    if (!is_there && ig->n_files == SYNC_IGNORE_FILES_MAX) {
        rules_free(r);
        ig->is_full = true;
        return tr_err_set(err, -ENOSPC, "ignore rules: more than %d files of them",
                          SYNC_IGNORE_FILES_MAX);
    }
    if (others + r->len > SYNC_IGNORE_TOTAL_MAX) {
        free(r->bytes);
        free(r->patterns);
        r->bytes = NULL;
        r->patterns = NULL;
        r->len = r->n_patterns = 0;
        r->is_refused = true;
    }
    if (is_there) {
        rules_free(ig->files[at]);
    } else {
        memmove(ig->files + at + 1, ig->files + at, (ig->n_files - at) * sizeof(struct rules *));
        ig->n_files++;
    }
    ig->files[at] = r;
    ig->total_len = others + r->len;
    if (r->is_refused)
        return tr_err_set(err, -E2BIG,
                          "ignore rules: over a limit (%d bytes or %d patterns a file, "
                          "%d bytes in all)",
                          SYNC_IGNORE_FILE_MAX, SYNC_IGNORE_LINES_MAX, SYNC_IGNORE_TOTAL_MAX);
    return 0;
}

void sync_ignore_drop(struct sync_ignore *ig, enum sync_ignore_level level, const char *dir,
                      size_t dir_len)
{
    bool is_there;
    size_t at = place_of(ig, level, dir, dir_len, &is_there);

    if (!is_there)
        return;
    ig->total_len -= ig->files[at]->len;
    rules_free(ig->files[at]);
    ig->n_files--;
    memmove(ig->files + at, ig->files + at + 1, (ig->n_files - at) * sizeof(struct rules *));
}

static void note(struct sync_ignore_hit *hit, const struct rules *r, uint32_t line, size_t up_to)
{
    if (hit != NULL)
        *hit = (struct sync_ignore_hit){
            .level = r->level, .dir = r->dir, .dir_len = r->dir_len, .line = line, .up_to = up_to};
}

/* The last line of one file that matches; path[below..] is the path as that file sees it. */
static enum sync_ignore_verdict ask_file(const struct rules *r, const char *path, size_t len,
                                         size_t below, bool is_dir, struct sync_ignore_hit *hit)
{
    if (r->is_refused) {
        note(hit, r, 0, len);
        return SYNC_IGNORE_UNSURE;
    }
    for (size_t i = r->n_patterns; i-- > 0;) {
        const struct sync_pattern *p = &r->patterns[i];

        if (!sync_pattern_match(p, path + below, len - below, is_dir))
            continue;
        note(hit, r, p->line, len);
        return p->is_negated ? SYNC_IGNORE_KEEP : SYNC_IGNORE_YES;
    }
    return SYNC_IGNORE_NONE;
}

/* The files of one level, from the path's own folder up to the home folder. */
static enum sync_ignore_verdict ask_level(const struct sync_ignore *ig,
                                          enum sync_ignore_level level, const char *path,
                                          size_t len, bool is_dir, struct sync_ignore_hit *hit)
{
    size_t below = sync_path_base(path, len);

    for (;;) {
        const struct rules *r = find(ig, level, path, below > 0 ? below - 1 : 0);
        enum sync_ignore_verdict v =
            r != NULL ? ask_file(r, path, len, below, is_dir, hit) : SYNC_IGNORE_NONE;

        if (v != SYNC_IGNORE_NONE || below == 0)
            return v;
        below = sync_path_base(path, below - 1);
    }
}

enum sync_ignore_verdict sync_ignore_check_last(const struct sync_ignore *ig, const char *path,
                                                size_t len, bool is_dir,
                                                struct sync_ignore_hit *hit)
{
    enum sync_ignore_verdict v;

    if (hit != NULL)
        *hit = (struct sync_ignore_hit){.dir = ""};
    if (ig->is_full)
        return SYNC_IGNORE_UNSURE;
    v = ask_level(ig, SYNC_IGNORE_TRANSOM, path, len, is_dir, hit);
    if (v == SYNC_IGNORE_NONE)
        v = ask_level(ig, SYNC_IGNORE_GIT, path, len, is_dir, hit);
    return v;
}

enum sync_ignore_verdict sync_ignore_check(const struct sync_ignore *ig, const char *path,
                                           size_t len, bool is_dir, struct sync_ignore_hit *hit)
{
    for (size_t from = 0;;) {
        size_t end = sync_path_end(path, len, from);
        enum sync_ignore_verdict v =
            sync_ignore_check_last(ig, path, end, end < len || is_dir, hit);

        if (v == SYNC_IGNORE_YES || v == SYNC_IGNORE_UNSURE || end == len)
            return v;
        from = end + 1;
    }
}
