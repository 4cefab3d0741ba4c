/* SPDX-License-Identifier: MIT */
/* Is a secret in a .git folder (the stream of sync/gitdir.h)? Its files are looked at as they are,
 * and what Git has compressed, loose or in a pack, as it was before. It only looks: a stream or an
 * object that is none is passed over, since it is whoever made it that loses. Of an object that is
 * kept as a difference to another one, what is new in it is seen. */
#ifndef SYNC_GIT_SCREEN_H
#define SYNC_GIT_SCREEN_H

#include <stddef.h>
#include <stdint.h>
#include "sync/secrets.h"

#define SYNC_GIT_SCREEN_MAX (INT64_C(1) << 30)

struct sync_git_screen;

/* By the secrets of now. max: bytes of objects that are looked through; 0: SYNC_GIT_SCREEN_MAX.
 * Returns 0; *out is NULL when there are none; or UV_ENOMEM. */
TR_MUST_CHECK int sync_git_screen_new(struct sync_secrets *secrets, int64_t max,
                                      struct sync_git_screen **out);
/* The next bytes of the stream. Returns 0; 1: a secret is in it; -E2BIG: more than can be looked
 * through; UV_ENOMEM. After anything but 0 the same is returned again. NULL is fine: 0. */
TR_MUST_CHECK int sync_git_screen_feed(struct sync_git_screen *screen, const uint8_t *bytes,
                                       size_t len);
void sync_git_screen_free(struct sync_git_screen *screen); /* NULL is fine */

#endif
