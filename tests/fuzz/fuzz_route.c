/* SPDX-License-Identifier: MIT */
/* Route records as Redis may hold them. What is accepted must survive the round trip. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include "transom/state.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define LABEL "abcdefgh01234567"

static void check_extra(const struct tr_route_extra *a, const struct tr_route_extra *b)
{
    assert((a == NULL) == (b == NULL));
    if (a == NULL)
        return;
    assert(a->n_rules <= TR_ROUTE_RULES_MAX && a->n_ports <= TR_ROUTE_PORTS_MAX);
    assert(a->n_rules == b->n_rules && a->n_ports == b->n_ports);
    assert(a->is_private == b->is_private && a->embed == b->embed);
    assert(memcmp(a->key, b->key, sizeof(a->key)) == 0);
    for (size_t i = 0; i < a->n_rules; i++) {
        const struct tr_route_rule *x = &a->rules[i], *y = &b->rules[i];

        assert(strlen(x->prefix) == x->prefix_len && strcmp(x->prefix, y->prefix) == 0);
        assert(tr_route_prefix_valid(x->prefix, x->prefix_len, NULL));
        assert(i == 0 || a->rules[i - 1].prefix_len >= x->prefix_len);
        assert(x->port != 0 && x->port == y->port);
        assert(x->strip == y->strip && x->protocol == y->protocol);
    }
    for (size_t i = 0; i < a->n_ports; i++) {
        assert(a->ports[i].port > (i == 0 ? 0 : a->ports[i - 1].port));
        assert(a->ports[i].port == b->ports[i].port);
        assert(a->ports[i].protocol == b->ports[i].protocol);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct tr_route a, b;
    struct err err = {0};
    char *text;

    if (tr_route_parse(LABEL, (const char *)data, size, &a, &err) != 0) {
        assert(err.code == UV_EINVAL && err.msg[0] != '\0');
        return 0;
    }
    text = tr_route_encode(&a);
    assert(text != NULL);
    assert(tr_route_parse(LABEL, text, strlen(text), &b, &err) == 0);
    assert(a.state == b.state && a.port == b.port && a.instance == b.instance);
    assert(strcmp(a.address, b.address) == 0 && strcmp(a.reason, b.reason) == 0);
    assert(strcmp(a.node, b.node) == 0 && strcmp(a.owner, b.owner) == 0);
    assert(a.protocol == b.protocol && a.wake == b.wake && a.agent_port == b.agent_port);
    check_extra(a.extra, b.extra);
    tr_route_fini(&a);
    tr_route_fini(&b);
    free(text);
    return 0;
}
