/* SPDX-License-Identifier: MIT */
/* Pattern lines, paths and names. Up to the first 0xFE byte: the home's .gitignore; up to the
 * second: a folder's; the rest: a path. Verdicts must agree with one another, whatever the bytes.
 */
#include <assert.h>
#include <stdint.h>
#include <string.h>
#include "sync/filter.h"
#include "sync/path.h"
#include "sync/pattern.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct part {
    const char *p;
    size_t len;
};

static struct part take(struct part *rest)
{
    const char *end = rest->len > 0 ? memchr(rest->p, 0xfe, rest->len) : NULL;
    struct part part = {rest->p, end != NULL ? (size_t)(end - rest->p) : rest->len};

    rest->p += part.len + (end != NULL);
    rest->len -= part.len + (end != NULL);
    return part;
}

static bool has(const char *dir, size_t len, const char *name, void *arg)
{
    (void)arg;
    assert(len == 0 || sync_path_check(dir, len) == SYNC_PATH_OK);
    return (len + strlen(name)) % 2 == 0;
}

static void check_path(const struct sync_ignore *ig, struct part path, bool is_dir)
{
    struct sync_filter filter = {.ignore = ig, .has = has};
    struct sync_entry e = {.path = path.p, .len = path.len, .type = is_dir ? SYNC_TYPE_DIR : 0};
    struct sync_ignore_hit hit;
    enum sync_ignore_verdict v;
    enum sync_why why;
    size_t at;

    why = sync_filter_path(&filter, &e, &at);
    assert(why < SYNC_N_WHY && at <= path.len);
    if (sync_path_check(path.p, path.len) != SYNC_PATH_OK) {
        assert(why != SYNC_TAKEN);
        return;
    }
    v = sync_ignore_check(ig, path.p, path.len, is_dir, &hit);
    assert(hit.up_to <= path.len && (v != SYNC_IGNORE_YES || hit.line > 0));
    if (v != SYNC_IGNORE_YES && v != SYNC_IGNORE_UNSURE)
        assert(v == sync_ignore_check_last(ig, path.p, path.len, is_dir, NULL));
    if (why == SYNC_TAKEN)
        assert(v != SYNC_IGNORE_YES && sync_filter_last(&filter, &e) == SYNC_TAKEN);
}

static void check_lines(struct part text)
{
    struct sync_pattern_reader reader;
    struct sync_pattern p;
    uint32_t line = 0;

    sync_pattern_read(&reader, text.p, text.len);
    while (sync_pattern_next(&reader, &p)) {
        assert(p.len > 0 && p.literal <= p.len && p.line > line);
        assert(p.text >= text.p && p.text + p.len <= text.p + text.len);
        line = p.line;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct part rest = {(const char *)data, size}, home = take(&rest), folder = take(&rest);
    struct sync_ignore *ig;

    check_lines(home);
    if (sync_ignore_new(&ig) != 0)
        return 0;
    if (sync_ignore_set(ig, SYNC_IGNORE_GIT, "", 0, home.p, home.len, NULL) == 0 &&
        sync_ignore_set(ig, SYNC_IGNORE_TRANSOM, "a", 1, folder.p, folder.len, NULL) == 0) {
        check_path(ig, rest, false);
        check_path(ig, rest, true);
    }
    sync_ignore_free(ig);
    return 0;
}
