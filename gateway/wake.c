/* SPDX-License-Identifier: MIT */
#include "gateway/wake.h"

#include <string.h>

#include "gateway/manager.h"
#include "gateway/worker.h"

#define AGAIN_MS 5000
#define N_PROBES 8

void gw_wakes_init(struct gw_wakes *wakes)
{
    memset(wakes, 0, sizeof(*wakes));
    pthread_mutex_init(&wakes->lock, NULL);
}

void gw_wakes_fini(struct gw_wakes *wakes)
{
    pthread_mutex_destroy(&wakes->lock);
}

/* Workers' clocks differ by the length of a turn: at_ms may lie ahead. */
static bool is_old(const struct gw_wake *s, uint64_t now_ms)
{
    return now_ms >= s->at_ms + AGAIN_MS;
}

/* The label's slot, or one that it may take, or NULL when too many others were asked for just now.
 */
static struct gw_wake *slot_of(struct gw_wakes *wakes, const char *label, uint64_t now_ms)
{
    struct gw_wake *found = NULL;
    uint64_t a, b;

    memcpy(&a, label, 8);
    memcpy(&b, label + 8, 8);
    a = (a ^ (b << 1)) * 0x9e3779b97f4a7c15ull >> 54;
    for (unsigned i = 0; i < N_PROBES; i++) {
        struct gw_wake *s = &wakes->slots[(a + i) % GW_WAKE_SLOTS];

        if (memcmp(s->label, label, TR_LABEL_LEN) == 0)
            return s;
        if (found == NULL && (s->label[0] == '\0' || is_old(s, now_ms)))
            found = s;
    }
    return found;
}

bool gw_wake_due(struct gw_wakes *wakes, const char *label, uint64_t now_ms, int *status)
{
    struct gw_wake *s;
    bool due = false;

    *status = 0;
    pthread_mutex_lock(&wakes->lock);
    s = slot_of(wakes, label, now_ms);
    if (s != NULL) {
        bool known = memcmp(s->label, label, TR_LABEL_LEN) == 0;

        if (known)
            *status = s->status;
        due = !known || is_old(s, now_ms);
        if (due) {
            memcpy(s->label, label, TR_LABEL_LEN);
            s->status = known ? s->status : 0;
            s->at_ms = now_ms;
        }
    }
    pthread_mutex_unlock(&wakes->lock);
    return due;
}

void gw_wake_done(struct gw_wakes *wakes, const char *label, int status)
{
    pthread_mutex_lock(&wakes->lock);
    for (unsigned i = 0; i < GW_WAKE_SLOTS; i++)
        if (memcmp(wakes->slots[i].label, label, TR_LABEL_LEN) == 0)
            wakes->slots[i].status = (int16_t)(status > 0 && status < 600 ? status : -1);
    pthread_mutex_unlock(&wakes->lock);
}

const char *gw_wake_ask(struct gw_worker *w, const char *label)
{
    int status;

    if (gw_wake_due(&w->gw->wakes, label, gw_loop_now(w->loop), &status)) {
        gw_count(&w->stats.woken, 1);
        gw_manager_wake(w, label);
    }
    if (status < 0)
        return "The sandbox is asleep, and its node does not answer. It is asked again.";
    if (status == 429 || status == 503)
        return "The sandbox is asleep, and its node has no room for it just now. It is asked "
               "again.";
    if (status >= 300)
        return "The sandbox is asleep, and its node could not wake it. It is asked again.";
    return "The sandbox is waking up.";
}
