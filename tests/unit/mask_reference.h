/* SPDX-License-Identifier: MIT */
/* What masking a whole text gives, the slow and plain way. */
#ifndef TESTS_UNIT_MASK_REFERENCE_H
#define TESTS_UNIT_MASK_REFERENCE_H

#include "transom/mask.h"

/* Returns a new text, ended by a NUL. */
char *mask_reference(const struct tr_mask_secret *secrets, size_t n, const char *text, size_t len,
                     size_t *out_len);

#endif
