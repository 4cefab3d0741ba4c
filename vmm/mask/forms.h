/* SPDX-License-Identifier: MIT */
/* The ways in which a secret shows up in a text; see include/transom/mask.h. */
#ifndef VMM_MASK_FORMS_H
#define VMM_MASK_FORMS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "transom/err.h"

/* wrapped: the form may be broken into lines anywhere. Returns 0, or a fault that ends the
 * enumeration. */
typedef int (*mask_form_cb)(const uint8_t *text, size_t len, bool wrapped, void *arg);

/* The value without the line ends at its end. */
size_t mask_trimmed(const uint8_t *value, size_t len);
/* Tell every form of a value, some more than once. Returns 0, what cb returned, or UV_ENOMEM. */
TR_MUST_CHECK int mask_forms(const uint8_t *value, size_t len, mask_form_cb cb, void *arg);

#endif
