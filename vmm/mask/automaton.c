/* SPDX-License-Identifier: MIT */
#include "vmm/mask/automaton.h"

#include <stdlib.h>
#include <string.h>
#include <uv.h>

void mask_automaton_init(struct mask_automaton *a)
{
    memset(a, 0, sizeof(*a));
}

void mask_automaton_fini(struct mask_automaton *a)
{
    if (a->nodes != NULL)
        explicit_bzero(a->nodes, a->cap * sizeof(*a->nodes));
    free(a->nodes);
    explicit_bzero(a, sizeof(*a));
}

static uint32_t child(const struct mask_automaton *a, uint32_t node, uint8_t byte)
{
    uint32_t c;

    if (node == MASK_ROOT)
        return a->first[byte];
    for (c = a->nodes[node].child; c != 0 && a->nodes[c].byte != byte; c = a->nodes[c].sibling)
        ;
    return c;
}

/* Not realloc(): the old place must be wiped. */
static int grow(struct mask_automaton *a)
{
    uint32_t cap = a->cap == 0 ? 256 : a->cap * 2;
    struct mask_node *nodes;

    if (cap > MASK_NODES_MAX)
        return UV_E2BIG;
    nodes = calloc(cap, sizeof(*nodes));
    if (nodes == NULL)
        return UV_ENOMEM;
    if (a->nodes != NULL) {
        memcpy(nodes, a->nodes, a->n * sizeof(*nodes));
        explicit_bzero(a->nodes, a->cap * sizeof(*nodes));
        free(a->nodes);
    }
    a->nodes = nodes;
    a->cap = cap;
    if (a->n == 0)
        a->n = 1; /* the root */
    return 0;
}

static int add_child(struct mask_automaton *a, uint32_t parent, uint8_t byte, uint32_t *out)
{
    struct mask_node *node;
    int r;

    if (a->n == a->cap && (r = grow(a)) != 0)
        return r;
    node = &a->nodes[a->n];
    node->byte = byte;
    node->depth = a->nodes[parent].depth + 1;
    if (parent == MASK_ROOT) {
        a->first[byte] = a->n;
    } else {
        node->sibling = a->nodes[parent].child;
        a->nodes[parent].child = a->n;
    }
    *out = a->n++;
    return 0;
}

int mask_automaton_add(struct mask_automaton *a, const uint8_t *text, size_t len)
{
    uint32_t node = MASK_ROOT;
    int r;

    if (a->nodes == NULL && (r = grow(a)) != 0)
        return r;
    for (size_t i = 0; i < len; i++) {
        uint32_t next = child(a, node, text[i]);

        if (next == 0 && (r = add_child(a, node, text[i], &next)) != 0)
            return r;
        node = next;
    }
    a->nodes[node].found = a->nodes[node].depth;
    return 0;
}

/* Breadth first: a node's fail link is shorter than the node, so it is complete by then. */
int mask_automaton_finish(struct mask_automaton *a)
{
    uint32_t *queue, head = 0, tail = 0;

    if (a->n == 0)
        return 0;
    queue = malloc(a->n * sizeof(*queue));
    if (queue == NULL)
        return UV_ENOMEM;
    for (int byte = 0; byte < 256; byte++) {
        if (a->first[byte] != 0)
            queue[tail++] = a->first[byte];
    }
    while (head < tail) {
        uint32_t parent = queue[head++];

        for (uint32_t c = a->nodes[parent].child; c != 0; c = a->nodes[c].sibling) {
            struct mask_node *node = &a->nodes[c];

            node->fail = mask_automaton_step(a, a->nodes[parent].fail, node->byte);
            if (node->found == 0)
                node->found = a->nodes[node->fail].found;
            queue[tail++] = c;
        }
    }
    free(queue);
    return 0;
}

uint32_t mask_automaton_step(const struct mask_automaton *a, uint32_t state, uint8_t byte)
{
    for (;;) {
        uint32_t next = child(a, state, byte);

        if (next != 0 || state == MASK_ROOT)
            return next;
        state = a->nodes[state].fail;
    }
}
