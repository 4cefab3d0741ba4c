/* SPDX-License-Identifier: MIT */
/* Bytes of the stream -> record -> file: raw, a loose object, or a pack, which is entry after
 * entry. Each stage takes from what it is given as much as is its own. */
#include "sync/git_screen.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>
#include "sync/gitdir.h"

#define PACK_HEAD 12
#define REF_LEN   20 /* of an entry that names its base */

enum file_kind { RAW, LOOSE, PACK };

enum pack_step {
    HEAD,   /* "PACK", version, number of entries */
    TYPE,   /* an entry: type and first bits of its size */
    SIZE,   /* more of them */
    OFFSET, /* of the base, for a difference to an earlier entry */
    BASE,   /* its name */
    DATA,   /* compressed */
    OVER,   /* not looked at any further */
};

struct sync_git_screen {
    struct tr_mask *mask;
    struct tr_masker *raw;    /* the stream as it is */
    struct tr_masker *object; /* what comes out of zip */
    z_stream zip;
    bool has_zip;
    int status;
    int64_t left; /* bytes that may still come out */
    /* The stream. */
    size_t n_magic;
    uint8_t head[SYNC_GITDIR_HEAD];
    size_t n_head, path_len, n_path;
    uint64_t content; /* bytes to come */
    char path[SYNC_GITDIR_PATH_MAX + 1];
    /* The file. */
    enum file_kind kind;
    enum pack_step step;
    size_t n; /* bytes of HEAD or BASE so far */
    uint32_t n_entries;
    bool has_offset, has_base;
};

static void drop(const uint8_t *bytes, size_t len, void *arg)
{
    (void)bytes;
    (void)len;
    (void)arg;
}

static void look(struct sync_git_screen *s, struct tr_masker *masker, const uint8_t *bytes,
                 size_t len)
{
    int r = s->status == 0 ? tr_masker_write(masker, bytes, len) : 0;

    if (r == 0 && s->status == 0 && tr_masker_has_hidden(masker))
        r = 1;
    if (s->status == 0)
        s->status = r;
}

/* ---- compressed ---- */

static void end_zip(struct sync_git_screen *s)
{
    if (s->has_zip)
        (void)inflateEnd(&s->zip);
    s->has_zip = false;
    tr_masker_free(s->object);
    s->object = NULL;
}

static void begin_zip(struct sync_git_screen *s)
{
    int r;

    end_zip(s);
    r = tr_masker_new(s->mask, drop, NULL, &s->object);
    memset(&s->zip, 0, sizeof(s->zip));
    if (r == 0 && inflateInit(&s->zip) != Z_OK)
        r = -ENOMEM;
    s->has_zip = r == 0;
    if (r != 0)
        s->status = r;
}

/* Returns how many bytes were its own; *is_over: there are no more. */
static size_t unzip(struct sync_git_screen *s, const uint8_t *bytes, size_t len, bool *is_over)
{
    uint8_t out[16384];

    *is_over = !s->has_zip;
    if (*is_over)
        return 0;
    s->zip.next_in = (uint8_t *)bytes;
    s->zip.avail_in = (uInt)len;
    while (s->status == 0) {
        size_t n;
        int r;

        s->zip.next_out = out;
        s->zip.avail_out = sizeof(out);
        r = inflate(&s->zip, Z_NO_FLUSH);
        n = sizeof(out) - s->zip.avail_out;
        s->left -= (int64_t)n;
        look(s, s->object, out, n);
        if (s->left < 0 && s->status == 0)
            s->status = -E2BIG;
        if (r == Z_STREAM_END || (r != Z_OK && r != Z_BUF_ERROR)) {
            *is_over = true;
            break;
        }
        if (s->zip.avail_out > 0)
            break; /* it has all that it can make something of */
    }
    len -= s->zip.avail_in;
    if (*is_over)
        end_zip(s);
    return len;
}

/* ---- a pack ---- */

static void begin_entry(struct sync_git_screen *s)
{
    if (s->n_entries == 0) {
        s->step = OVER;
        return;
    }
    s->n_entries--;
    s->step = TYPE;
}

static void begin_data(struct sync_git_screen *s)
{
    s->step = DATA;
    begin_zip(s);
}

/* After type and size. */
static void after_size(struct sync_git_screen *s)
{
    s->n = 0;
    if (s->has_offset)
        s->step = OFFSET;
    else if (s->has_base)
        s->step = BASE;
    else
        begin_data(s);
}

static void pack_byte(struct sync_git_screen *s, uint8_t byte)
{
    static const uint8_t magic[4] = {'P', 'A', 'C', 'K'};

    switch (s->step) {
    case HEAD:
        if (s->n < 4 && byte != magic[s->n])
            s->step = OVER;
        else if (s->n >= 8)
            s->n_entries = s->n_entries << 8 | byte;
        if (++s->n == PACK_HEAD && s->step == HEAD)
            begin_entry(s);
        break;
    case TYPE:
        s->has_offset = (byte >> 4 & 7) == 6;
        s->has_base = (byte >> 4 & 7) == 7;
        s->step = SIZE;
        if (!(byte & 0x80))
            after_size(s);
        break;
    case SIZE:
        if (!(byte & 0x80))
            after_size(s);
        break;
    case OFFSET:
        if (!(byte & 0x80))
            begin_data(s);
        break;
    default: /* BASE */
        if (++s->n == REF_LEN)
            begin_data(s);
    }
}

static void pack(struct sync_git_screen *s, const uint8_t *bytes, size_t len)
{
    while (len > 0 && s->step != OVER && s->status == 0) {
        bool is_over = false;
        size_t n = 1;

        if (s->step == DATA)
            n = unzip(s, bytes, len, &is_over);
        else
            pack_byte(s, *bytes);
        if (is_over)
            begin_entry(s);
        else if (n == 0)
            break; /* cannot be */
        bytes += n;
        len -= n;
    }
}

/* ---- the stream ---- */

static bool is_hex(const char *text, size_t n)
{
    return strspn(text, "0123456789abcdef") == n;
}

/* What is behind "objects/": of the repository, or of one within it, as those of submodules are
 * (modules/NAME). NULL: none. */
static const char *in_objects(const char *path)
{
    const char *found = NULL;

    for (const char *at = path; (at = strstr(at, "objects/")) != NULL; at++) {
        if (at == path || at[-1] == '/')
            found = at + 8;
    }
    return found;
}

/* xx and the rest of the name, of SHA-1 or SHA-256. */
static bool is_loose(const char *path)
{
    const char *name = in_objects(path);
    size_t rest = name != NULL && strlen(name) > 3 ? strlen(name + 3) : 0;

    return (rest == 38 || rest == 62) && is_hex(name, 2) && name[2] == '/' &&
           is_hex(name + 3, rest);
}

static bool is_pack(const char *path)
{
    const char *name = in_objects(path);
    size_t len = name != NULL ? strlen(name) : 0;

    return len > 10 && strncmp(name, "pack/", 5) == 0 && strcmp(name + len - 5, ".pack") == 0;
}

static void begin_file(struct sync_git_screen *s)
{
    bool is_file = s->head[0] == SYNC_GITDIR_FILE;

    s->path[s->n_path] = '\0';
    s->kind = is_file && is_loose(s->path) ? LOOSE : is_file && is_pack(s->path) ? PACK : RAW;
    s->step = HEAD;
    s->n = 0;
    s->n_entries = 0;
    if (s->kind == LOOSE)
        begin_zip(s);
}

static void file_bytes(struct sync_git_screen *s, const uint8_t *bytes, size_t len)
{
    bool is_over;

    if (s->kind == LOOSE)
        (void)unzip(s, bytes, len, &is_over);
    else if (s->kind == PACK)
        pack(s, bytes, len);
}

static uint64_t number(const uint8_t *bytes, int n)
{
    uint64_t out = 0;

    while (n-- > 0)
        out = out << 8 | bytes[n];
    return out;
}

static void end_record(struct sync_git_screen *s)
{
    end_zip(s);
    s->n_head = s->n_path = s->path_len = 0;
}

static size_t least(size_t a, uint64_t b)
{
    return b < a ? (size_t)b : a;
}

/* Some of what is there. Returns how much. */
static size_t step(struct sync_git_screen *s, const uint8_t *bytes, size_t len)
{
    size_t n;

    if (s->n_magic < SYNC_GITDIR_MAGIC) {
        n = least(len, SYNC_GITDIR_MAGIC - s->n_magic);
        s->n_magic += n;
        return n;
    }
    if (s->n_head < SYNC_GITDIR_HEAD) {
        n = least(len, SYNC_GITDIR_HEAD - s->n_head);
        memcpy(s->head + s->n_head, bytes, n);
        s->n_head += n;
        if (s->n_head < SYNC_GITDIR_HEAD)
            return n;
        s->path_len = (size_t)number(s->head + 2, 2);
        s->content = number(s->head + 16, 8);
        if (s->path_len > SYNC_GITDIR_PATH_MAX) {
            s->path_len = 0; /* no such stream */
            s->content = UINT64_MAX;
        }
        if (s->path_len == 0)
            begin_file(s);
    } else if (s->n_path < s->path_len) {
        n = least(len, s->path_len - s->n_path);
        memcpy(s->path + s->n_path, bytes, n);
        s->n_path += n;
        if (s->n_path == s->path_len)
            begin_file(s);
    } else {
        n = least(len, s->content);
        file_bytes(s, bytes, n);
        s->content -= n;
    }
    if (s->n_path == s->path_len && s->content == 0)
        end_record(s);
    return n;
}

int sync_git_screen_feed(struct sync_git_screen *s, const uint8_t *bytes, size_t len)
{
    if (s == NULL)
        return 0;
    look(s, s->raw, bytes, len);
    while (len > 0 && s->status == 0) {
        size_t n = step(s, bytes, len);

        bytes += n;
        len -= n;
    }
    return s->status;
}

int sync_git_screen_new(struct sync_secrets *secrets, int64_t max, struct sync_git_screen **out)
{
    struct tr_mask *mask = sync_secrets_take(secrets);
    struct sync_git_screen *s;

    *out = NULL;
    if (mask == NULL)
        return 0;
    s = calloc(1, sizeof(*s));
    if (s == NULL || tr_masker_new(mask, drop, NULL, &s->raw) != 0) {
        tr_mask_unref(mask);
        free(s);
        return -ENOMEM;
    }
    s->mask = mask;
    s->left = max > 0 ? max : SYNC_GIT_SCREEN_MAX;
    *out = s;
    return 0;
}

void sync_git_screen_free(struct sync_git_screen *s)
{
    if (s == NULL)
        return;
    end_zip(s);
    tr_masker_free(s->raw);
    tr_mask_unref(s->mask);
    free(s);
}
