/* SPDX-License-Identifier: MIT */
/* Reads the YAML event by event, so that the first thing out of place is refused where it stands:
 * nothing nests deeper than section, option, list, and there are no aliases to expand. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>
#include "conf/config_internal.h"

#define NAME_BYTES 256 /* longest dotted name that is looked at */

struct parse {
    yaml_parser_t yaml;
    yaml_event_t event; /* current; owned */
    struct tr_config *config;
    const char *file;
    const char *text;
    size_t len;
    struct err *err;
    size_t *section_lines; /* parallel to opt_table: where a section was opened; 0: not yet */
};

/* FILE:LINE:COLUMN: message, at the current event. Returns code. */
static int TR_PRINTF(3, 4) fault(struct parse *p, int code, const char *fmt, ...)
{
    char msg[sizeof(p->err->msg)];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(msg, sizeof(msg), fmt, ap);
    va_end(ap);
    return tr_err_set(p->err, code, "%.200s:%zu:%zu: %s", p->file, p->event.start_mark.line + 1,
                      p->event.start_mark.column + 1, msg);
}

/* A reader fault has an offset only. */
static void find_offset(const struct parse *p, size_t offset, size_t *line, size_t *column)
{
    *line = *column = 1;
    for (size_t i = 0; i < offset && i < p->len; i++) {
        if (p->text[i] == '\n') {
            ++*line;
            *column = 1;
        } else if (((unsigned char)p->text[i] & 0xc0) != 0x80) {
            ++*column; /* characters, as everywhere else */
        }
    }
}

/* The scanner's reason, with what to do where it is not plain. */
static int yaml_fault(struct parse *p)
{
    size_t line = p->yaml.problem_mark.line + 1, column = p->yaml.problem_mark.column + 1;
    const char *problem = p->yaml.problem != NULL ? p->yaml.problem : "not YAML";
    const char *hint = "";

    if (p->yaml.error == YAML_MEMORY_ERROR)
        return tr_err_set(p->err, -ENOMEM, "%.200s: out of memory", p->file);
    if (p->yaml.error == YAML_READER_ERROR)
        find_offset(p, p->yaml.problem_offset, &line, &column);
    if (strstr(problem, "cannot start any token") != NULL)
        hint = "; indent with spaces, not tabs, and quote text that begins with a special "
               "character";
    return tr_err_set(p->err, -EINVAL, "%.200s:%zu:%zu: not YAML: %s%s%s%s", p->file, line, column,
                      problem, p->yaml.context != NULL ? " " : "",
                      p->yaml.context != NULL ? p->yaml.context : "", hint);
}

/* Step to the next event; refuses what a configuration never needs. */
static int next(struct parse *p)
{
    const yaml_char_t *anchor = NULL, *tag = NULL;

    yaml_event_delete(&p->event);
    if (!yaml_parser_parse(&p->yaml, &p->event))
        return yaml_fault(p);
    switch (p->event.type) {
    case YAML_ALIAS_EVENT:
        return fault(p, -EINVAL, "aliases (*name) are not supported; write the value out");
    case YAML_SCALAR_EVENT:
        anchor = p->event.data.scalar.anchor;
        tag = p->event.data.scalar.tag;
        break;
    case YAML_SEQUENCE_START_EVENT:
        anchor = p->event.data.sequence_start.anchor;
        tag = p->event.data.sequence_start.tag;
        break;
    case YAML_MAPPING_START_EVENT:
        anchor = p->event.data.mapping_start.anchor;
        tag = p->event.data.mapping_start.tag;
        break;
    default:
        break;
    }
    if (anchor != NULL)
        return fault(p, -EINVAL, "anchors (&name) are not supported; write the value out");
    if (tag != NULL)
        return fault(p, -EINVAL, "tags (!name) are not supported");
    return 0;
}

/* Is the current event a plain scalar that means nothing: empty, ~ or null? */
static bool is_null(const struct parse *p)
{
    const char *s = (const char *)p->event.data.scalar.value;

    return p->event.type == YAML_SCALAR_EVENT &&
           p->event.data.scalar.style == YAML_PLAIN_SCALAR_STYLE &&
           (s[0] == '\0' || strcmp(s, "~") == 0 || strcmp(s, "null") == 0);
}

/* Control characters could break out of a line wherever the value is used later. */
static bool is_clean(const struct parse *p)
{
    const unsigned char *s = p->event.data.scalar.value;

    for (size_t i = 0; i < p->event.data.scalar.length; i++) {
        if (s[i] < 0x20 || s[i] == 0x7f)
            return false;
    }
    return true;
}

/* The current scalar as the value of option i, or as an item of its list. */
static int take_scalar(struct parse *p, size_t i)
{
    const struct opt *opt = &opt_table[i];
    const char *text = (const char *)p->event.data.scalar.value;
    bool quoted = p->event.data.scalar.style != YAML_PLAIN_SCALAR_STYLE;
    struct err why = {0};
    char wanted[300];
    int r;

    opt_describe(opt, wanted, sizeof(wanted));
    if (is_null(p))
        return fault(p, -EINVAL, "option `%s`: has no value; it must be %s (or leave the line out)",
                     opt->name, wanted);
    if (!is_clean(p))
        return fault(p, -EINVAL, "option `%s`: holds a control character", opt->name);
    if (quoted && (opt->type == OPT_INT || opt->type == OPT_BOOL))
        return fault(p, -EINVAL, "option `%s`: is quoted text; it must be %s, without quotes",
                     opt->name, wanted);
    r = opt_is_list(opt) ? config_list_add(p->config, i, text, &why)
                         : config_set(p->config, i, text, &why);
    return r == 0 ? 0 : fault(p, r, "option `%s`: %s", opt->name, why.msg);
}

static int take_list(struct parse *p, size_t i)
{
    const struct opt *opt = &opt_table[i];
    char wanted[300];
    int r;

    opt_describe(opt, wanted, sizeof(wanted));
    if (!opt_is_list(opt))
        return fault(p, -EINVAL, "option `%s`: is a list; it must be %s", opt->name, wanted);
    for (;;) {
        r = next(p);
        if (r != 0)
            return r;
        if (p->event.type == YAML_SEQUENCE_END_EVENT)
            break;
        if (p->event.type != YAML_SCALAR_EVENT)
            return fault(p, -EINVAL, "option `%s`: holds a list or section; it must be %s",
                         opt->name, wanted);
        r = take_scalar(p, i);
        if (r != 0)
            return r;
    }
    if ((int64_t)p->config->values[i].n_items < opt->min)
        return fault(p, -EINVAL, "option `%s`: needs at least %d item(s)", opt->name,
                     (int)opt->min);
    return 0;
}

/* The value of option i; the key was on the given line. */
static int take_value(struct parse *p, size_t i, size_t line)
{
    const struct opt *opt = &opt_table[i];
    char wanted[300];
    int r;

    if (p->config->values[i].line != 0)
        return fault(p, -EINVAL, "option `%s`: is given twice, first on line %zu", opt->name,
                     p->config->values[i].line);
    r = next(p);
    if (r != 0)
        return r;
    if (opt_is_list(opt))
        config_list_clear(p->config, i);
    p->config->values[i].line = line;
    if (p->event.type == YAML_SCALAR_EVENT)
        return take_scalar(p, i);
    if (p->event.type == YAML_SEQUENCE_START_EVENT)
        return take_list(p, i);
    opt_describe(opt, wanted, sizeof(wanted));
    return fault(p, -EINVAL, "option `%s`: is a section; it must be %s", opt->name, wanted);
}

static int unknown(struct parse *p, const char *name)
{
    const char *nearest = opt_nearest(name);

    if (nearest == NULL)
        return fault(p, -EINVAL,
                     "option `%.100s`: is not known; --help and transom.yaml list all options",
                     name);
    return fault(p, -EINVAL, "option `%.100s`: is not known; did you mean `%s`?", name, nearest);
}

static int take_mapping(struct parse *p, const char *prefix);

/* The value of a section (its key is the current event). */
static int take_section(struct parse *p, const char *name)
{
    size_t i = 0, line = p->event.start_mark.line + 1;
    int r;

    while (!opt_table[i].section || strcmp(opt_table[i].name, name) != 0)
        i++;
    if (p->section_lines[i] != 0)
        return fault(p, -EINVAL, "section `%s`: is given twice, first on line %zu", name,
                     p->section_lines[i]);
    p->section_lines[i] = line;
    r = next(p);
    if (r != 0 || is_null(p)) /* nothing but comments beneath it */
        return r;
    if (p->event.type != YAML_MAPPING_START_EVENT)
        return fault(p, -EINVAL,
                     "section `%s`: must hold options, indented on the lines beneath it", name);
    return take_mapping(p, name);
}

/* One key and its value. */
static int take_pair(struct parse *p, const char *prefix)
{
    const char *key = (const char *)p->event.data.scalar.value;
    char name[NAME_BYTES];
    int i, n;

    if (p->event.type != YAML_SCALAR_EVENT)
        return fault(p, -EINVAL, "an option's name must be plain text");
    if (!is_clean(p))
        return fault(p, -EINVAL, "an option's name holds a control character");
    n = snprintf(name, sizeof(name), "%s%s%s", prefix, *prefix != '\0' ? "." : "", key);
    if (n < 0 || (size_t)n >= sizeof(name))
        return fault(p, -EINVAL, "option `%.60s...`: is not known", name);
    i = opt_find(name);
    if (i >= 0)
        return take_value(p, (size_t)i, p->event.start_mark.line + 1);
    if (*name != '\0' && opt_is_section(name))
        return take_section(p, name);
    return unknown(p, name);
}

/* Keys until the end of the mapping that the current event opens. Recursion is bounded: sections
 * hold no sections. */
static int take_mapping(struct parse *p, const char *prefix) // NOLINT(misc-no-recursion)
{
    int r;

    for (;;) {
        r = next(p);
        if (r != 0 || p->event.type == YAML_MAPPING_END_EVENT)
            return r;
        r = take_pair(p, prefix);
        if (r != 0)
            return r;
    }
}

static int take_stream(struct parse *p)
{
    int r = next(p); /* stream start */

    if (r == 0)
        r = next(p);
    if (r != 0 || p->event.type == YAML_STREAM_END_EVENT) /* an empty file */
        return r;
    r = next(p);
    if (r != 0)
        return r;
    if (p->event.type == YAML_MAPPING_START_EVENT)
        r = take_mapping(p, "");
    else if (!is_null(p))
        r = fault(p, -EINVAL, "the file must hold `option: value` lines");
    if (r == 0)
        r = next(p); /* document end */
    if (r == 0)
        r = next(p);
    if (r == 0 && p->event.type != YAML_STREAM_END_EVENT)
        r = fault(p, -EINVAL, "a second document begins here; only one is allowed");
    return r;
}

int config_overlay(struct tr_config *config, const char *name, const char *text, size_t len,
                   struct err *err)
{
    struct parse p = {.config = config, .file = name, .text = text, .len = len, .err = err};
    int r = -ENOMEM;

    p.section_lines = calloc(opt_count, sizeof(*p.section_lines));
    if (p.section_lines == NULL || !yaml_parser_initialize(&p.yaml)) {
        free(p.section_lines);
        return tr_err_set(err, r, "%.200s: out of memory", name);
    }
    yaml_parser_set_input_string(&p.yaml, (const unsigned char *)text, len);
    r = take_stream(&p);
    yaml_event_delete(&p.event);
    yaml_parser_delete(&p.yaml);
    free(p.section_lines);
    return r;
}
