/* SPDX-License-Identifier: MIT */
/* For tests: lets one allocation of the program's own objects fail. Link with
 * -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc. Shared libraries are not touched. */
#ifndef TESTS_UNIT_ALLOC_FAIL_H
#define TESTS_UNIT_ALLOC_FAIL_H

#include <stdbool.h>

/* The n-th allocation from now (1: the next) returns NULL; 0: none. */
void alloc_fail_at(long n);
/* Did it come to that? Also switches failing off. */
bool alloc_failed(void);

#endif
