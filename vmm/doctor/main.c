/* SPDX-License-Identifier: MIT */
/* transom-doctor [-f FILE] [--json]: what `transom doctor` runs. */
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "transom/daemon.h"
#include "transom/log.h"
#include "vmm/doctor/doctor.h"
#include "vmm/driver/kvm_probe.h"

#define USAGE "Usage: transom-doctor [-f FILE] [--json]\n"

static const char *text_of(const json_t *check, const char *key)
{
    return json_string_value(json_object_get(check, key));
}

static void print(const struct doctor *d, bool as_json)
{
    size_t i;
    json_t *check;

    if (as_json) {
        json_t *all = json_pack("{sO, si, si}", "checks", d->checks, "bad", (int)d->n_bad,
                                "warnings", (int)d->n_warn);

        json_dumpf(all, stdout, JSON_INDENT(2));
        putchar('\n');
        json_decref(all);
        return;
    }
    json_array_foreach(d->checks, i, check)
    {
        printf("%-8s %-14s %s\n", text_of(check, "verdict"), text_of(check, "name"),
               text_of(check, "found"));
        if (*text_of(check, "mend") != '\0')
            printf("%-23s -> %s\n", "", text_of(check, "mend"));
    }
    printf("\n%s: %u bad, %u warnings\n", d->n_bad > 0 ? "not healthy" : "healthy", d->n_bad,
           d->n_warn);
}

/* Load the file. False: nothing else can be looked at. */
static bool check_configuration(struct doctor *d, struct tr_config **config)
{
    bool usual = strcmp(d->config_path, TR_CONFIG_DEFAULT_PATH) == 0;
    struct err err = {0};
    int r;

    if (usual && access(d->config_path, F_OK) != 0) {
        if (tr_config_new(config) != 0)
            abort();
        doctor_report(d, "configuration", DOCTOR_WARN,
                      "copy conf/transom.yaml there and change what is not right for this host",
                      "%s does not exist: the defaults hold", d->config_path);
    } else {
        r = tr_config_load(d->config_path, config, &err);
        if (r != 0) {
            doctor_report(d, "configuration", DOCTOR_BAD,
                          "correct the line; transom-vmm -n checks the file", "%s", err.msg);
            return false;
        }
        doctor_report(d, "configuration", DOCTOR_OK, "", "%s is well-formed", d->config_path);
    }
    d->config = *config;
    if (vmm_options_init(&d->options, *config, &err) != 0) {
        doctor_report(d, "configuration", DOCTOR_BAD, "correct the option", "%s", err.msg);
        return false;
    }
    return true;
}

int main(int argc, char **argv)
{
    static const struct option longs[] = {
        {"json", no_argument, NULL, 'j'}, {"help", no_argument, NULL, 'h'}, {NULL, 0, NULL, 0}};
    struct doctor d = {.config_path = TR_CONFIG_DEFAULT_PATH, .checks = json_array()};
    struct tr_config *config = NULL;
    bool as_json = false;
    int c, status;

    if (argc == 2 && strcmp(argv[1], "--kvm-probe") == 0)
        return vm_kvm_probe_main();
    while ((c = getopt_long(argc, argv, "f:h", longs, NULL)) != -1) {
        if (c == 'f')
            d.config_path = optarg;
        else if (c == 'j')
            as_json = true;
        else
            return fputs(USAGE, c == 'h' ? stdout : stderr), c == 'h' ? 0 : 2;
    }
    if (optind < argc)
        return fputs(USAGE, stderr), 2;
    signal(SIGPIPE, SIG_IGN);
    tr_log_init("doctor", TR_LOG_ERROR);
    if (check_configuration(&d, &config)) {
        doctor_check_programs(&d);
        doctor_check_users(&d);
        doctor_check_kvm(&d);
        doctor_check_cgroup(&d);
        doctor_check_network(&d);
        doctor_check_folders(&d);
        doctor_check_image(&d);
        doctor_check_names(&d);
        doctor_check_certificates(&d);
        doctor_check_redis(&d);
        doctor_check_manager(&d);
        doctor_check_gateway(&d);
    }
    print(&d, as_json);
    status = d.n_bad > 0 ? EXIT_FAILURE : EXIT_SUCCESS;
    if (fflush(stdout) != 0)
        status = EXIT_FAILURE;
    json_decref(d.checks);
    tr_config_free(config);
    return status;
}
