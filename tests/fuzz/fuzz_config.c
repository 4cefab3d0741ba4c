/* SPDX-License-Identifier: MIT */
/* Any bytes as a configuration: refused with a place in the file, or taken with every value
 * readable. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include "conf/options.h"
#include "transom/config.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct tr_config *config;
    struct err err = {.msg = ""};

    if (tr_config_parse("f", (const char *)data, size, &config, &err) != 0) {
        if (strncmp(err.msg, "f:", 2) != 0)
            abort();
        return 0;
    }
    for (size_t i = 0; i < opt_count; i++) {
        const struct opt *opt = &opt_table[i];
        int64_t number;

        if (opt->section)
            continue;
        if (!opt_is_list(opt)) {
            if (opt_check(opt, tr_config_str(config, opt->name), &number, NULL) != 0)
                abort();
            continue;
        }
        for (size_t k = 0; k < tr_config_list_len(config, opt->name); k++) {
            if (opt_check(opt, tr_config_list_get(config, opt->name, k), &number, NULL) != 0)
                abort();
        }
    }
    tr_config_free(config);
    return 0;
}
