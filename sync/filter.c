/* SPDX-License-Identifier: MIT */
#include "sync/filter.h"

#include <string.h>
#include "sync/path.h"
#include "sync/tree.h"
#include "sync/wild.h"

/* Where a name of the table counts. */
enum place {
    ANY_DIR,  /* a folder of that name, anywhere */
    ANY_FILE, /* a file or link of that name, anywhere */
    TOP,      /* whatever it is, at the home's top level; the name may go further down */
};

/* What is never taken, and the one place that says so. Names are patterns (sync/wild.h); case
 * counts. With `beside`, names separated by blanks, the rule counts only where one of them stands
 * in the same folder; with `inside`, only where the folder holds it. */
static const struct {
    const char *name;
    enum place place;
    enum sync_why why;
    const char *beside, *inside;
} table[] = {
    /* Keys and passwords, settings and histories of tools: the home's own, not a project's. */
    {".ssh", TOP, SYNC_WHY_PRIVATE, NULL, NULL},
    {".aws", TOP, SYNC_WHY_PRIVATE, NULL, NULL},
    {".azure", TOP, SYNC_WHY_PRIVATE, NULL, NULL},
    {".kube", TOP, SYNC_WHY_PRIVATE, NULL, NULL},
    {".docker", TOP, SYNC_WHY_PRIVATE, NULL, NULL},
    {".gnupg", TOP, SYNC_WHY_PRIVATE, NULL, NULL},
    {".pki", TOP, SYNC_WHY_PRIVATE, NULL, NULL},
    {".password-store", TOP, SYNC_WHY_PRIVATE, NULL, NULL},
    {".config", TOP, SYNC_WHY_PRIVATE, NULL, NULL},
    {".local", TOP, SYNC_WHY_PRIVATE, NULL, NULL},
    {".npmrc", TOP, SYNC_WHY_PRIVATE, NULL, NULL},
    {".yarnrc", TOP, SYNC_WHY_PRIVATE, NULL, NULL},
    {".pypirc", TOP, SYNC_WHY_PRIVATE, NULL, NULL},
    {".netrc", TOP, SYNC_WHY_PRIVATE, NULL, NULL},
    {".git-credentials", TOP, SYNC_WHY_PRIVATE, NULL, NULL},
    {".pgpass", TOP, SYNC_WHY_PRIVATE, NULL, NULL},
    {".my.cnf", TOP, SYNC_WHY_PRIVATE, NULL, NULL},
    {".mylogin.cnf", TOP, SYNC_WHY_PRIVATE, NULL, NULL},
    {".terraform.d", TOP, SYNC_WHY_PRIVATE, NULL, NULL},
    {".cargo/credentials", TOP, SYNC_WHY_PRIVATE, NULL, NULL},
    {".cargo/credentials.toml", TOP, SYNC_WHY_PRIVATE, NULL, NULL},
    {".claude.json", TOP, SYNC_WHY_PRIVATE, NULL, NULL},
    {".claude/.credentials.json", TOP, SYNC_WHY_PRIVATE, NULL, NULL},
    {".codex/auth.json", TOP, SYNC_WHY_PRIVATE, NULL, NULL},
    {".gemini/oauth_creds.json", TOP, SYNC_WHY_PRIVATE, NULL, NULL},
    {".*_history", TOP, SYNC_WHY_PRIVATE, NULL, NULL},
    {".*_history-*.tmp", TOP, SYNC_WHY_PRIVATE, NULL, NULL},
    {".histfile", TOP, SYNC_WHY_PRIVATE, NULL, NULL},
    {".lesshst", TOP, SYNC_WHY_PRIVATE, NULL, NULL},
    {".viminfo*", TOP, SYNC_WHY_PRIVATE, NULL, NULL},
    {".wget-hsts", TOP, SYNC_WHY_PRIVATE, NULL, NULL},
    {".Xauthority", TOP, SYNC_WHY_PRIVATE, NULL, NULL},
    {".ICEauthority", TOP, SYNC_WHY_PRIVATE, NULL, NULL},
    {".dbus", TOP, SYNC_WHY_PRIVATE, NULL, NULL},
    {".ipython", TOP, SYNC_WHY_PRIVATE, NULL, NULL},
    {".jupyter", TOP, SYNC_WHY_PRIVATE, NULL, NULL},
    {".vscode-server*", TOP, SYNC_WHY_PRIVATE, NULL, NULL},
    {".vscode-remote", TOP, SYNC_WHY_PRIVATE, NULL, NULL},
    {".cursor-server", TOP, SYNC_WHY_PRIVATE, NULL, NULL},
    {".windsurf-server", TOP, SYNC_WHY_PRIVATE, NULL, NULL},
    /* Caches and tool chains of the home. */
    {".cache", TOP, SYNC_WHY_PRIVATE, NULL, NULL},
    {SYNC_STAGE_NAME, TOP, SYNC_WHY_PRIVATE, NULL, NULL}, /* sync's own, on the way */
    {".npm", TOP, SYNC_WHY_PRIVATE, NULL, NULL},
    {".pnpm-store", TOP, SYNC_WHY_PRIVATE, NULL, NULL},
    {".bun", TOP, SYNC_WHY_PRIVATE, NULL, NULL},
    {".deno", TOP, SYNC_WHY_PRIVATE, NULL, NULL},
    {".nvm", TOP, SYNC_WHY_PRIVATE, NULL, NULL},
    {".pyenv", TOP, SYNC_WHY_PRIVATE, NULL, NULL},
    {".rbenv", TOP, SYNC_WHY_PRIVATE, NULL, NULL},
    {".rustup", TOP, SYNC_WHY_PRIVATE, NULL, NULL},
    {".cargo/bin", TOP, SYNC_WHY_PRIVATE, NULL, NULL},
    {".cargo/git", TOP, SYNC_WHY_PRIVATE, NULL, NULL},
    {".cargo/registry", TOP, SYNC_WHY_PRIVATE, NULL, NULL},
    {".m2", TOP, SYNC_WHY_PRIVATE, NULL, NULL},
    {".ivy2", TOP, SYNC_WHY_PRIVATE, NULL, NULL},
    {".sbt", TOP, SYNC_WHY_PRIVATE, NULL, NULL},
    {"go/pkg", TOP, SYNC_WHY_DEPENDENCY, NULL, NULL},

    /* Dependencies: a command brings them back. vendor is source in Go and dependencies in PHP. */
    {"node_modules", ANY_DIR, SYNC_WHY_DEPENDENCY, NULL, NULL},
    {"bower_components", ANY_DIR, SYNC_WHY_DEPENDENCY, NULL, NULL},
    {"jspm_packages", ANY_DIR, SYNC_WHY_DEPENDENCY, NULL, NULL},
    {".venv", ANY_DIR, SYNC_WHY_DEPENDENCY, NULL, NULL},
    {"venv", ANY_DIR, SYNC_WHY_DEPENDENCY, NULL, NULL},
    {"user_venv", ANY_DIR, SYNC_WHY_DEPENDENCY, NULL, NULL},
    {"site-packages", ANY_DIR, SYNC_WHY_DEPENDENCY, NULL, NULL},
    {"__pypackages__", ANY_DIR, SYNC_WHY_DEPENDENCY, NULL, NULL},
    {".eggs", ANY_DIR, SYNC_WHY_DEPENDENCY, NULL, NULL},
    {"*", ANY_DIR, SYNC_WHY_DEPENDENCY, NULL, "pyvenv.cfg"}, /* a Python environment of any name */
    {".terraform", ANY_DIR, SYNC_WHY_DEPENDENCY, NULL, NULL},
    {"vendor", ANY_DIR, SYNC_WHY_DEPENDENCY, "composer.json", NULL},
    {"Pods", ANY_DIR, SYNC_WHY_DEPENDENCY, "Podfile", NULL},
    {"deps", ANY_DIR, SYNC_WHY_DEPENDENCY, "mix.exs", NULL},

    /* Caches of tools. */
    {"__pycache__", ANY_DIR, SYNC_WHY_CACHE, NULL, NULL},
    {".tox", ANY_DIR, SYNC_WHY_CACHE, NULL, NULL},
    {".nox", ANY_DIR, SYNC_WHY_CACHE, NULL, NULL},
    {".mypy_cache", ANY_DIR, SYNC_WHY_CACHE, NULL, NULL},
    {".pytest_cache", ANY_DIR, SYNC_WHY_CACHE, NULL, NULL},
    {".ruff_cache", ANY_DIR, SYNC_WHY_CACHE, NULL, NULL},
    {".hypothesis", ANY_DIR, SYNC_WHY_CACHE, NULL, NULL},
    {".ipynb_checkpoints", ANY_DIR, SYNC_WHY_CACHE, NULL, NULL},
    {".gradle", ANY_DIR, SYNC_WHY_CACHE, NULL, NULL},
    {".parcel-cache", ANY_DIR, SYNC_WHY_CACHE, NULL, NULL},
    {".turbo", ANY_DIR, SYNC_WHY_CACHE, NULL, NULL},
    {".nyc_output", ANY_DIR, SYNC_WHY_CACHE, NULL, NULL},
    {".sass-cache", ANY_DIR, SYNC_WHY_CACHE, NULL, NULL},
    {".ccache", ANY_DIR, SYNC_WHY_CACHE, NULL, NULL},
    {"*", ANY_DIR, SYNC_WHY_CACHE, NULL, "CACHEDIR.TAG"}, /* says so itself */

    /* Build output. target is never wanted; names that people also use for sources are build
     * output only beside what builds them. */
    {"target", ANY_DIR, SYNC_WHY_BUILD, NULL, NULL},
    {".next", ANY_DIR, SYNC_WHY_BUILD, NULL, NULL},
    {".nuxt", ANY_DIR, SYNC_WHY_BUILD, NULL, NULL},
    {".svelte-kit", ANY_DIR, SYNC_WHY_BUILD, NULL, NULL},
    {".output", ANY_DIR, SYNC_WHY_BUILD, "package.json", NULL},
    {".angular", ANY_DIR, SYNC_WHY_BUILD, NULL, NULL},
    {".docusaurus", ANY_DIR, SYNC_WHY_BUILD, NULL, NULL},
    {"cmake-build-*", ANY_DIR, SYNC_WHY_BUILD, NULL, NULL},
    {"*.egg-info", ANY_DIR, SYNC_WHY_BUILD, NULL, NULL},
    {"htmlcov", ANY_DIR, SYNC_WHY_BUILD, NULL, NULL},
    {"*", ANY_DIR, SYNC_WHY_BUILD, NULL, "CMakeCache.txt"},
    {"dist", ANY_DIR, SYNC_WHY_BUILD, "package.json pyproject.toml setup.py setup.cfg", NULL},
    {"build", ANY_DIR, SYNC_WHY_BUILD,
     "package.json pyproject.toml setup.py setup.cfg CMakeLists.txt meson.build Makefile configure "
     "build.gradle build.gradle.kts pubspec.yaml",
     NULL},
    {"out", ANY_DIR, SYNC_WHY_BUILD,
     "package.json CMakeLists.txt Makefile build.gradle build.gradle.kts", NULL},
    {"_build", ANY_DIR, SYNC_WHY_BUILD, "mix.exs dune-project conf.py Makefile", NULL},
    {"coverage", ANY_DIR, SYNC_WHY_BUILD, "package.json", NULL},

    {".transom-*.part", ANY_FILE, SYNC_WHY_CACHE, NULL, NULL}, /* an upload on its way */

    /* Logs. */
    {"*.log", ANY_FILE, SYNC_WHY_LOG, NULL, NULL},
    {"*.log.[0-9]*", ANY_FILE, SYNC_WHY_LOG, NULL, NULL},
    {"nohup.out", ANY_FILE, SYNC_WHY_LOG, NULL, NULL},
};

enum { N_TABLE = sizeof(table) / sizeof(table[0]) };

bool sync_filter_rule(size_t i, struct sync_filter_rule *out)
{
    if (i >= N_TABLE)
        return false;
    *out = (struct sync_filter_rule){.name = table[i].name,
                                     .is_top = table[i].place == TOP,
                                     .is_dir = table[i].place == ANY_DIR,
                                     .beside = table[i].beside,
                                     .inside = table[i].inside,
                                     .why = table[i].why};
    return true;
}

static bool is_there(const struct sync_filter *f, const char *dir, size_t len, const char *names)
{
    while (*names != '\0') {
        size_t n = strcspn(names, " ");
        char name[SYNC_NAME_MAX + 1];

        if (n < sizeof(name)) {
            memcpy(name, names, n);
            name[n] = '\0';
            if (f->has != NULL && f->has(dir, len, name, f->arg))
                return true;
        }
        names += n + (names[n] == ' ');
    }
    return false;
}

static bool matches(const char *pattern, const char *text, size_t len, bool is_path)
{
    if (pattern[0] != '*' && pattern[0] != text[0])
        return false; /* most of the table, most of the time */
    return sync_wild_match(pattern, strlen(pattern), text, len, is_path);
}

/* The table's word on the entry path[0..end), whose name begins at base. */
static enum sync_why ask_table(const struct sync_filter *f, const char *path, size_t base,
                               size_t end, bool is_dir)
{
    const char *name = path + base;
    size_t len = end - base;

    for (int i = 0; i < N_TABLE; i++) {
        bool is_match = table[i].place == TOP ? matches(table[i].name, path, end, true)
                                              : (table[i].place == ANY_DIR) == is_dir &&
                                                    matches(table[i].name, name, len, false);

        if (!is_match)
            continue;
        if (table[i].beside != NULL && !is_there(f, path, base > 0 ? base - 1 : 0, table[i].beside))
            continue;
        if (table[i].inside != NULL && !is_there(f, path, end, table[i].inside))
            continue;
        return table[i].why;
    }
    return SYNC_TAKEN;
}

/* One component, path[base..end): the table, then the rules, of which .transomignore may lift the
 * table's word. */
static enum sync_why ask_component(const struct sync_filter *f, const struct sync_entry *e,
                                   size_t base, size_t end)
{
    const bool is_dir = end < e->len || e->type == SYNC_TYPE_DIR;
    const bool is_held_file = end == e->len && e->is_held;
    enum sync_ignore_verdict v = SYNC_IGNORE_NONE;
    struct sync_ignore_hit hit = {0};
    enum sync_why why;

    if (end - base == 4 && memcmp(e->path + base, ".git", 4) == 0)
        return SYNC_WHY_GIT;
    why = ask_table(f, e->path, base, end, is_dir);
    if (why == SYNC_WHY_PRIVATE)
        return why;
    if (f->ignore != NULL)
        v = sync_ignore_check_last(f->ignore, e->path, end, is_dir, &hit);
    if (v == SYNC_IGNORE_KEEP && hit.level == SYNC_IGNORE_TRANSOM)
        return SYNC_TAKEN;
    if (why != SYNC_TAKEN && !(why == SYNC_WHY_LOG && is_held_file))
        return why;
    if (v == SYNC_IGNORE_UNSURE)
        return SYNC_WHY_BAD_RULES;
    return v == SYNC_IGNORE_YES ? SYNC_WHY_IGNORED : SYNC_TAKEN;
}

static enum sync_why ask_path(const struct sync_entry *e)
{
    switch (sync_path_check(e->path, e->len)) {
    case SYNC_PATH_BAD:
        return SYNC_WHY_BAD_PATH;
    case SYNC_PATH_TOO_LONG:
        return SYNC_WHY_LONG_NAME;
    case SYNC_PATH_TOO_DEEP:
        return SYNC_WHY_DEEP;
    default:
        return SYNC_TAKEN;
    }
}

static bool is_over(const struct sync_filter *f, const struct sync_entry *e)
{
    int64_t limit = f->size_limit > 0 ? f->size_limit : SYNC_SIZE_LIMIT;

    return e->type == SYNC_TYPE_FILE && !e->is_held && e->size > limit;
}

/* What is asked last, of the path itself. */
static enum sync_why ask_entry(const struct sync_filter *f, const struct sync_entry *e)
{
    if (e->type == SYNC_TYPE_SPECIAL)
        return SYNC_WHY_SPECIAL;
    return is_over(f, e) ? SYNC_WHY_SIZE : SYNC_TAKEN;
}

enum sync_why sync_filter_path(const struct sync_filter *f, const struct sync_entry *e, size_t *at)
{
    enum sync_why why = ask_path(e);
    size_t base = 0, end = e->len;

    if (why == SYNC_TAKEN) {
        do {
            end = sync_path_end(e->path, e->len, base);
            why = ask_component(f, e, base, end);
            base = end + 1;
        } while (why == SYNC_TAKEN && end < e->len);
        if (why == SYNC_TAKEN)
            why = ask_entry(f, e);
    }
    if (at != NULL)
        *at = end;
    return why;
}

enum sync_why sync_filter_last(const struct sync_filter *f, const struct sync_entry *e)
{
    enum sync_why why = ask_path(e);

    if (why == SYNC_TAKEN)
        why = ask_component(f, e, sync_path_base(e->path, e->len), e->len);
    return why != SYNC_TAKEN ? why : ask_entry(f, e);
}

enum sync_why sync_filter_kind(const struct sync_entry *e, enum sync_kind kind)
{
    if (e->is_held || e->type != SYNC_TYPE_FILE || sync_kind_is_wanted(kind))
        return SYNC_TAKEN;
    return kind == SYNC_KIND_MISMATCH ? SYNC_WHY_MISMATCH : SYNC_WHY_BINARY;
}

static const struct {
    const char *name, *text;
} reasons[SYNC_N_WHY] = {
    [SYNC_TAKEN] = {"taken", "synced"},
    [SYNC_WHY_BAD_PATH] = {"bad-path", "not a path that can be stored"},
    [SYNC_WHY_LONG_NAME] = {"long-name", "name over 255 bytes or path over 4095 bytes"},
    [SYNC_WHY_DEEP] = {"too-deep", "more than 128 folders deep"},
    [SYNC_WHY_SPECIAL] = {"special", "a device, socket or FIFO"},
    [SYNC_WHY_PRIVATE] = {"private",
                          "private settings, keys, histories or caches of the home folder"},
    [SYNC_WHY_GIT] = {"git", "a Git repository's own data: kept with each checkpoint instead"},
    [SYNC_WHY_DEPENDENCY] = {"dependency", "installed dependencies"},
    [SYNC_WHY_CACHE] = {"cache", "a tool's cache"},
    [SYNC_WHY_BUILD] = {"build", "build output"},
    [SYNC_WHY_LOG] = {"log", "a log file"},
    [SYNC_WHY_IGNORED] = {"ignored", "named by .gitignore or .transomignore"},
    [SYNC_WHY_BAD_RULES] = {"bad-rules", "ignore rules above it are too large to be read"},
    [SYNC_WHY_SIZE] = {"too-big", "larger than the size limit"},
    [SYNC_WHY_BINARY] = {"binary", "neither text nor a picture, PDF or document"},
    [SYNC_WHY_MISMATCH] = {"mismatch", "name and content are of different types"},
    [SYNC_WHY_SECRET] = {"secret", "holds the value of an active secret"},
};

const char *sync_why_name(enum sync_why why)
{
    return reasons[why].name;
}

const char *sync_why_text(enum sync_why why)
{
    return reasons[why].text;
}
