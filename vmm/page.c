/* SPDX-License-Identifier: MIT */
#include "vmm/page.h"

#include <stdlib.h>
#include <string.h>
#include "vmm/store_api.h"

bool vmm_page_begin(struct vmm_page *page, struct vmm_request *req)
{
    int64_t limit = vmm_store_query_limit(req, VMM_PAGE_MAX, VMM_PAGE_MAX);

    if (limit < 0)
        return false;
    *page = (struct vmm_page){.req = req, .list = json_array(), .limit = limit};
    page->after = vmm_query_get(req->query, "after");
    if (page->after != NULL && *page->after == '\0') {
        free(page->after);
        page->after = NULL;
    }
    return true;
}

bool vmm_page_wants(struct vmm_page *page, const char *id)
{
    if (page->after != NULL) {
        if (strcmp(page->after, id) == 0) {
            free(page->after);
            page->after = NULL;
        }
        return false;
    }
    if (page->list == NULL || page->more)
        return false;
    page->more = (int64_t)json_array_size(page->list) >= page->limit;
    return !page->more;
}

void vmm_page_add(struct vmm_page *page, const char *id, json_t *item)
{
    char *last = strdup(id);

    if (last != NULL && json_array_append_new(page->list, item) == 0) {
        free(page->last);
        page->last = last;
        return;
    }
    free(last);
    json_decref(page->list);
    page->list = NULL;
}

void vmm_page_reply(struct vmm_page *page, const char *member)
{
    json_t *body = NULL;

    if (page->after != NULL) {
        vmm_reply_error(page->req, 400, "there is nothing of that name to continue after");
        json_decref(page->list);
    } else {
        if (page->list != NULL)
            body = json_pack("{so}", member, page->list);
        if (body != NULL && page->more &&
            json_object_set_new(body, "next", json_string(page->last)) != 0) {
            json_decref(body);
            body = NULL;
        }
        vmm_reply_json(page->req, 200, body);
    }
    free(page->after);
    free(page->last);
}
