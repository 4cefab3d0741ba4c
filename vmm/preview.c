/* SPDX-License-Identifier: MIT */
#include "vmm/preview.h"

#include <string.h>
#include <uv.h>
#include "vmm/preview_key.h"
#include "vmm/state/route_json.h"

void vmm_preview_init(struct vmm_preview *p)
{
    *p = (struct vmm_preview){.port = VMM_PREVIEW_PORT, .generation = 1};
}

void vmm_preview_fini(struct vmm_preview *p)
{
    tr_route_extra_unref(p->places);
    p->places = NULL;
}

void vmm_preview_copy(struct vmm_preview *to, const struct vmm_preview *from)
{
    *to = *from;
    (void)tr_route_extra_ref(to->places);
}

static bool places_equal(const struct tr_route_extra *a, const struct tr_route_extra *b)
{
    if (a == b)
        return true;
    if (a == NULL || b == NULL || a->n_rules != b->n_rules || a->n_ports != b->n_ports)
        return false;
    for (size_t i = 0; i < a->n_rules; i++) {
        const struct tr_route_rule *x = &a->rules[i], *y = &b->rules[i];

        if (strcmp(x->prefix, y->prefix) != 0 || x->port != y->port || x->strip != y->strip ||
            x->protocol != y->protocol)
            return false;
    }
    for (size_t i = 0; i < a->n_ports; i++) {
        if (a->ports[i].port != b->ports[i].port || a->ports[i].protocol != b->ports[i].protocol)
            return false;
    }
    return true;
}

bool vmm_preview_equal(const struct vmm_preview *a, const struct vmm_preview *b)
{
    return a->port == b->port && a->protocol == b->protocol && a->is_private == b->is_private &&
           a->embed == b->embed && a->wake == b->wake && a->generation == b->generation &&
           places_equal(a->places, b->places);
}

/* ---- members ---- */

static int get_port(const json_t *o, uint16_t *port, uint8_t *protocol, struct err *err)
{
    json_int_t number = VMM_PREVIEW_PORT;
    const json_t *v = json_object_get(o, "port");
    int r = 0;

    if (v != NULL && !json_is_null(v))
        r = tr_member_number(o, "port", 1, UINT16_MAX, &number, err);
    if (r == 0)
        r = tr_member_protocol(o, protocol, err);
    *port = (uint16_t)number;
    return r;
}

static int get_access(const json_t *o, bool *is_private, bool *embed, bool *wake, struct err *err)
{
    char mode[16];
    int r = tr_member_text(o, "mode", mode, sizeof(mode), err);

    if (r != 0)
        return r;
    *is_private = strcmp(mode, "private") == 0;
    if (!*is_private && strcmp(mode, "public") != 0)
        return tr_err_set(err, UV_EINVAL, "mode: neither \"public\" nor \"private\"");
    r = tr_member_flag(o, "embed", embed, err);
    return r != 0 ? r : tr_member_flag(o, "wake", wake, err);
}

/* New places: the rules of one, the ports of the other (either may be NULL). Takes place of
 * p->places. */
static int set_places(struct vmm_preview *p, const struct tr_route_extra *rules,
                      const struct tr_route_extra *ports, struct err *err)
{
    struct tr_route_extra *both;
    int r =
        tr_route_extra_new(rules != NULL ? rules->rules : NULL, rules != NULL ? rules->n_rules : 0,
                           ports != NULL ? ports->ports : NULL, ports != NULL ? ports->n_ports : 0,
                           NULL, false, &both, err);

    if (r != 0)
        return r;
    tr_route_extra_unref(p->places);
    p->places = both;
    return 0;
}

int vmm_preview_set_routes(struct vmm_preview *p, const json_t *body, struct err *err)
{
    struct tr_route_extra *given = NULL;
    uint16_t port;
    uint8_t protocol;
    int r;

    if ((r = get_port(body, &port, &protocol, err)) != 0 ||
        (r = tr_route_places_parse(body, NULL, false, &given, err)) != 0)
        return r;
    r = set_places(p, given, p->places, err);
    tr_route_extra_unref(given);
    if (r != 0)
        return r;
    p->port = port;
    p->protocol = protocol;
    return 0;
}

int vmm_preview_set_ports(struct vmm_preview *p, const json_t *body, struct err *err)
{
    struct tr_route_extra *given = NULL;
    int r = tr_route_places_parse(body, NULL, false, &given, err);

    if (r != 0)
        return r;
    r = set_places(p, p->places, given, err);
    tr_route_extra_unref(given);
    return r;
}

int vmm_preview_set_access(struct vmm_preview *p, const json_t *body, struct err *err)
{
    bool is_private = false, embed = false, wake = false;
    int r = get_access(body, &is_private, &embed, &wake, err);

    if (r != 0)
        return r;
    p->is_private = is_private;
    p->embed = embed;
    p->wake = wake;
    return 0;
}

bool vmm_preview_has_port(const struct vmm_preview *p, uint16_t port)
{
    for (size_t i = 0; p->places != NULL && i < p->places->n_ports; i++) {
        if (p->places->ports[i].port == port)
            return true;
    }
    return false;
}

bool vmm_preview_serves(const struct vmm_preview *p, uint16_t port)
{
    if (port == VMM_PREVIEW_PORT || port == p->port || vmm_preview_has_port(p, port))
        return true;
    for (size_t i = 0; p->places != NULL && i < p->places->n_rules; i++) {
        if (p->places->rules[i].port == port)
            return true;
    }
    return false;
}

/* ---- the record ---- */

json_t *vmm_preview_record(const struct vmm_preview *p)
{
    return json_pack("{si, ss, so, so, s{ss, sb, sb, sI}}", "port", (int)p->port, "protocol",
                     tr_protocol_name(p->protocol), "rules", tr_route_rules_json(p->places),
                     "ports", tr_route_ports_json(p->places), "access", "mode",
                     p->is_private ? "private" : "public", "embed", (int)p->embed, "wake",
                     (int)p->wake, "generation", (json_int_t)p->generation);
}

int vmm_preview_parse(struct vmm_preview *p, const json_t *record, struct err *err)
{
    const json_t *access = json_object_get(record, "access");
    struct vmm_preview made;
    json_int_t generation = 0;
    int r;

    vmm_preview_init(&made);
    if (record == NULL) {
        *p = made;
        return 0;
    }
    if (!json_is_object(record))
        return tr_err_set(err, UV_EINVAL, "preview: not an object");
    if ((r = get_port(record, &made.port, &made.protocol, err)) != 0 ||
        /* Also when there is no access: that must not count as public. */
        (r = get_access(access, &made.is_private, &made.embed, &made.wake, err)) != 0 ||
        (r = tr_member_number(access, "generation", 1, INT64_MAX - 1, &generation, err)) != 0 ||
        (r = tr_route_places_parse(record, NULL, false, &made.places, err)) != 0) {
        (void)tr_err_wrap(err, "preview");
        return r;
    }
    made.generation = generation;
    *p = made;
    return 0;
}

int vmm_preview_route(const struct vmm_preview *p, const uint8_t master[TR_ROUTE_KEY_SIZE],
                      struct tr_route *route)
{
    const struct tr_route_extra *x = p->places;
    uint8_t key[TR_ROUTE_KEY_SIZE];
    int r = 0;

    route->port = p->port;
    route->protocol = p->protocol;
    route->wake = p->wake;
    if (p->is_private) {
        r = vmm_preview_key(master, route->label, p->generation, key);
        if (r != 0)
            return r;
        r = tr_route_extra_new(x != NULL ? x->rules : NULL, x != NULL ? x->n_rules : 0,
                               x != NULL ? x->ports : NULL, x != NULL ? x->n_ports : 0, key,
                               p->embed, &route->extra, NULL);
        explicit_bzero(key, sizeof(key));
    } else {
        route->extra = tr_route_extra_ref(p->places);
    }
    return r;
}
