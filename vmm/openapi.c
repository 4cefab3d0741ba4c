/* SPDX-License-Identifier: MIT */
#include "vmm/openapi.h"

/* The assembler reads the file; CMake names it in VMM_OPENAPI_FILE and rebuilds when it changes. */
__asm__(".pushsection .rodata\n"
        ".global vmm_openapi_start\n"
        ".global vmm_openapi_end\n"
        "vmm_openapi_start:\n"
        ".incbin \"" VMM_OPENAPI_FILE "\"\n"
        "vmm_openapi_end:\n"
        ".byte 0\n"
        ".popsection\n");
