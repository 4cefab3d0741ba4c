/* SPDX-License-Identifier: MIT */
/* What a client of the manager's API chooses: method, path, query and body. The input is
 * "METHOD PATH?QUERY\nBODY"; each endpoint that it reaches checks its members. */
#include <stdlib.h>
#include <string.h>
#include "vmm/preview.h"
#include "vmm/router.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

typedef int (*set_fn)(struct vmm_preview *preview, const json_t *body, struct err *err);

/* What is taken survives the record; what is refused changes nothing. */
static void check_preview(const json_t *body)
{
    static const set_fn setters[] = {vmm_preview_set_routes, vmm_preview_set_ports,
                                     vmm_preview_set_access};
    struct vmm_preview p, before, again;

    vmm_preview_init(&p);
    for (size_t i = 0; i < sizeof(setters) / sizeof(setters[0]); i++) {
        struct err err = {0};
        json_t *record;
        int r;

        vmm_preview_copy(&before, &p);
        r = setters[i](&p, body, &err);
        if ((r != 0) != (err.msg[0] != '\0') || (r != 0 && !vmm_preview_equal(&p, &before)))
            abort();
        record = vmm_preview_record(&p);
        if (record == NULL || vmm_preview_parse(&again, record, &err) != 0 ||
            !vmm_preview_equal(&p, &again))
            abort();
        json_decref(record);
        vmm_preview_fini(&again);
        vmm_preview_fini(&before);
    }
    vmm_preview_fini(&p);
}

static void check_body(const struct vmm_endpoint *e, const char *body, size_t len)
{
    json_t *value = json_loadb(body, len, JSON_REJECT_DUPLICATES, NULL);
    enum vmm_scope scope;
    struct err err = {0};

    if (value != NULL && e->members != NULL && vmm_check_members(value, e->members, &err) != 0 &&
        err.msg[0] == '\0')
        abort(); /* refused without a reason */
    if (vmm_scopes_parse(json_object_get(value, "scopes"), &scope, &err) == 0 &&
        scope == VMM_SCOPE_NONE)
        abort();
    if (json_is_object(value))
        check_preview(value);
    json_decref(value);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = strndup((const char *)data, size), *path, *body, *query, *value;
    struct vmm_request req = {0};

    if (text == NULL)
        return 0;
    body = strchr(text, '\n');
    if (body != NULL)
        *body++ = '\0';
    path = strchr(text, ' ');
    if (path != NULL) {
        *path++ = '\0';
        query = strchr(path, '?');
        if (query != NULL)
            *query++ = '\0';
        value = vmm_query_get(query, "path");
        free(value);
        req.path = path;
        if (vmm_route(&req, text) == 200) {
            if (req.n_params > VMM_PARAMS_MAX)
                abort();
            for (size_t i = 0; i < req.n_params; i++)
                (void)vmm_utf8_valid(req.params[i], strlen(req.params[i]));
            if (body != NULL)
                check_body(req.endpoint, body, strlen(body));
        }
        for (size_t i = 0; i < req.n_params; i++)
            free(req.params[i]);
    }
    free(text);
    return 0;
}
