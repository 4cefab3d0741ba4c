/* SPDX-License-Identifier: MIT */
/* struct vm_spec as text between manager and launcher: "name=value" fields, each ended by NUL; an
 * empty field ends the whole. */
#ifndef VMM_SPEC_H
#define VMM_SPEC_H

#include "vmm/driver/driver.h"

#define VM_SPEC_TEXT_MAX 32768

/* A spec that owns its strings. */
struct vm_spec_copy {
    struct vm_spec spec; /* no string is NULL */
    char *text;
};

/* Is it complete and within limits? Returns 0, or UV_EINVAL with a reason. */
TR_MUST_CHECK int vm_spec_check(const struct vm_spec *spec, struct err *err);
/* What adopt and remove need of it: label, run_dir. */
TR_MUST_CHECK int vm_spec_check_place(const struct vm_spec *spec, struct err *err);

/* Encode into malloc'ed memory. Returns 0, UV_EMSGSIZE or UV_ENOMEM. */
TR_MUST_CHECK int vm_spec_encode(const struct vm_spec *spec, char **text, size_t *len);
/* Decode (text is copied). Returns 0, UV_EINVAL or UV_ENOMEM. */
TR_MUST_CHECK int vm_spec_decode(const char *text, size_t len, struct vm_spec_copy *out,
                                 struct err *err);
TR_MUST_CHECK int vm_spec_copy(const struct vm_spec *spec, struct vm_spec_copy *out);
void vm_spec_fini(struct vm_spec_copy *copy);

#endif
