/* SPDX-License-Identifier: MIT */
/* The options as text for --help, and as the commented conf/transom.yaml. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include "conf/options.h"
#include "transom/config.h"

#define WIDTH 96

/* Words of text, broken at WIDTH, each line begun with lead. */
static void print_wrapped(FILE *out, const char *lead, const char *text)
{
    size_t column = 0;

    while (*text != '\0') {
        size_t n = strcspn(text, " ");

        if (column == 0 || column + 1 + n > WIDTH) {
            fprintf(out, "%s%s", column == 0 ? "" : "\n", lead);
            column = strlen(lead);
        } else {
            fputc(' ', out);
            column++;
        }
        fwrite(text, 1, n, out);
        column += n;
        text += n + (text[n] == ' ');
    }
    fputc('\n', out);
}

/* The default as YAML. Text is quoted where plain YAML could read something else. */
static void print_default(FILE *out, const struct opt *opt)
{
    const char *at = opt->def;

    switch (opt->type) {
    case OPT_INT:
    case OPT_BOOL:
    case OPT_ENUM:
        fputs(opt->def, out);
        return;
    default:
        break;
    }
    if (!opt_is_list(opt)) {
        fprintf(out, "\"%s\"", opt->def);
        return;
    }
    fputc('[', out);
    while (*at != '\0') {
        size_t n = strcspn(at, ",");

        fprintf(out, "\"%.*s\"%s", (int)n, at, at[n] == ',' ? ", " : "");
        at += n + (at[n] == ',' ? 2 : 0);
    }
    fputc(']', out);
}

/* The help, and the values allowed where the default does not show them. */
static void print_help_of(FILE *out, const char *lead, const struct opt *opt)
{
    char wanted[300], line[1000];

    opt_describe(opt, wanted, sizeof(wanted));
    if (opt->type == OPT_INT)
        snprintf(line, sizeof(line), "%s %" PRId64 " to %" PRId64 " %s.", opt->help, opt->min,
                 opt->max, opt->unit);
    else if (opt->type == OPT_ENUM)
        snprintf(line, sizeof(line), "%s One of %s.", opt->help, wanted);
    else
        snprintf(line, sizeof(line), "%s", opt->help);
    print_wrapped(out, lead, line);
}

void tr_config_print_help(FILE *out)
{
    for (size_t i = 0; i < opt_count; i++) {
        const struct opt *opt = &opt_table[i];

        if (opt->section) {
            fprintf(out, "%s%s%s%s\n", i > 0 ? "\n" : "", opt->name, *opt->name ? ": " : "",
                    opt->help);
            continue;
        }
        fprintf(out, "  %s (default ", opt->name);
        print_default(out, opt);
        fputs(")\n", out);
        print_help_of(out, "      ", opt);
    }
}

void tr_config_print_yaml(FILE *out)
{
    fputs(
        "# Configuration of transom-gateway and transom-vmm. Both read /etc/transom/transom.yaml,\n"
        "# or the file given with -f; without a file they use the defaults. Each option stands\n"
        "# here with its default, commented out. Check a file with: transom-gateway -n -f FILE\n"
        "#\n"
        "# Generated from conf/options.def; do not edit.\n",
        out);
    for (size_t i = 0; i < opt_count; i++) {
        const struct opt *opt = &opt_table[i];
        bool nested = strchr(opt->name, '.') != NULL;

        if (opt->section) {
            fputc('\n', out);
            print_wrapped(out, "# ", opt->help);
            if (*opt->name != '\0')
                fprintf(out, "%s:\n", opt->name);
            continue;
        }
        if (!opt_table[i - 1].section || *opt_table[i - 1].name == '\0')
            fputc('\n', out);
        print_help_of(out, nested ? "  # " : "# ", opt);
        fprintf(out, "%s#%s: ", nested ? "  " : "", opt_leaf(opt));
        print_default(out, opt);
        fputc('\n', out);
    }
}

/* Text in which nothing is a request or an escape. */
static void print_roff(FILE *out, const char *text)
{
    if (*text == '.' || *text == '\'')
        fputs("\\&", out);
    for (; *text != '\0'; text++) {
        if (*text == '\\')
            fputs("\\e", out);
        else if (*text == '-')
            fputs("\\-", out);
        else
            fputc(*text, out);
    }
}

static void print_roff_option(FILE *out, const struct opt *opt)
{
    char wanted[300];

    fputs(".TP\n.B ", out);
    print_roff(out, opt->name);
    fputc('\n', out);
    print_roff(out, opt->help);
    if (opt->type == OPT_INT)
        fprintf(out, " %" PRId64 " to %" PRId64 " %s.", opt->min, opt->max, opt->unit);
    opt_describe(opt, wanted, sizeof(wanted));
    if (opt->type == OPT_ENUM) {
        fputs(" One of ", out);
        print_roff(out, wanted);
        fputc('.', out);
    }
    fputs(" Default: ", out);
    print_roff(out, *opt->def ? opt->def : "none");
    fputs(".\n", out);
}

void tr_config_print_man(FILE *out)
{
    fputs(".TH TRANSOM.YAML 5 \"\" \"transom " TRANSOM_VERSION "\" \"File Formats\"\n.nh\n.ad l\n"
          ".SH NAME\ntransom.yaml \\- configuration of transom\\-gateway and transom\\-vmm\n"
          ".SH DESCRIPTION\nBoth daemons read /etc/transom/transom.yaml, or the file given with "
          "\\-f; without a file they use the defaults. What stands before the last dot of an "
          "option's name is a section of the file.\n",
          out);
    for (size_t i = 0; i < opt_count; i++) {
        const struct opt *opt = &opt_table[i];

        if (!opt->section) {
            print_roff_option(out, opt);
            continue;
        }
        fputs(".SH ", out);
        print_roff(out, *opt->name ? opt->name : "top of the file");
        fputc('\n', out);
        print_roff(out, opt->help);
        fputc('\n', out);
    }
    fputs(".SH SEE ALSO\n.BR transom (1),\n.BR transom\\-vmm (8),\n.BR transom\\-gateway (8)\n",
          out);
}
