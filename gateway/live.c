/* SPDX-License-Identifier: MIT */
#include "gateway/live.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gateway/tls.h"
#include "transom/log.h"

int gw_live_new(struct tr_config *config, struct gw_live **out, struct err *err)
{
    struct gw_live *live = calloc(1, sizeof(*live));
    int r;

    if (live == NULL) {
        tr_config_free(config);
        return tr_err_set(err, -ENOMEM, "out of memory");
    }
    live->config = config;
    atomic_init(&live->refs, 1);
    r = gw_options_init(&live->opt, config, err);
    if (r == 0)
        r = gw_tls_new(&live->opt, &live->tls, err);
    if (r == 0 && live->opt.n_https > 0 && live->tls == NULL)
        r = tr_err_set(err, -EINVAL, "gateway.certificates: no certificate in these folders");
    if (r != 0) {
        gw_live_unref(live);
        return r;
    }
    *out = live;
    return 0;
}

struct gw_live *gw_live_ref(struct gw_live *live)
{
    atomic_fetch_add(&live->refs, 1);
    return live;
}

void gw_live_unref(struct gw_live *live)
{
    if (live == NULL || atomic_fetch_sub(&live->refs, 1) > 1)
        return;
    gw_tls_free(live->tls);
    gw_options_fini(&live->opt);
    tr_config_free(live->config);
    free(live);
}

void gw_live_say_ignored(const struct gw_live *running, const struct gw_live *fresh)
{
    static const char *const fixed[] = {"gateway.http",      "gateway.https", "gateway.metrics",
                                        "gateway.workers",   "run_dir",       "redis.url",
                                        "redis.gateway_url", "gateway.user"};
    char names[256] = "";

    for (size_t i = 0; i < sizeof(fixed) / sizeof(fixed[0]); i++) {
        size_t n = strlen(names);

        if (!tr_config_same(running->config, fresh->config, fixed[i]))
            snprintf(names + n, sizeof(names) - n, " %s", fixed[i]);
    }
    if (names[0] != '\0')
        log_warn("reload: not changed in a running process:%s; SIGUSR2 applies them (gateway.user: "
                 "a restart)",
                 names);
}
