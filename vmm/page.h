/* SPDX-License-Identifier: MIT */
/* A list of the API that comes in pages: ?limit=N at most, ?after=ID goes on where "next" of the
 * answer before said. */
#ifndef VMM_PAGE_H
#define VMM_PAGE_H

#include <jansson.h>
#include <stdbool.h>
#include "vmm/request.h"

#define VMM_PAGE_MAX 1000

struct vmm_page {
    struct vmm_request *req;
    json_t *list; /* NULL: there was no memory */
    char *after;  /* NULL: from the start, or it has been passed */
    char *last;   /* id of the last item */
    int64_t limit;
    bool more;
};

/* Read the query. Returns false after answering 400. */
TR_MUST_CHECK bool vmm_page_begin(struct vmm_page *page, struct vmm_request *req);
/* Called for each item that the asker may see, in order: should it be viewed and added? */
bool vmm_page_wants(struct vmm_page *page, const char *id);
/* Takes item; NULL stands for lack of memory. */
void vmm_page_add(struct vmm_page *page, const char *id, json_t *item);
/* Answer {member: [...], "next"?}, or 400 when there is nothing to go on after. Ends the page. */
void vmm_page_reply(struct vmm_page *page, const char *member);

#endif
