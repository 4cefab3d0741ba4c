/* SPDX-License-Identifier: MIT */
/* vmm/openapi.json as built into the program. */
#ifndef VMM_OPENAPI_H
#define VMM_OPENAPI_H

extern const char vmm_openapi_start[], vmm_openapi_end[];

#endif
