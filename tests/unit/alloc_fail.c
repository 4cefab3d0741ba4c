/* SPDX-License-Identifier: MIT */
#include "alloc_fail.h"

#include <errno.h>
#include <stdlib.h>

static long countdown;
static bool failed;

void *__real_malloc(size_t size);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t size);

void alloc_fail_at(long n)
{
    countdown = n;
    failed = false;
}

bool alloc_failed(void)
{
    countdown = 0;
    return failed;
}

static bool fail_now(void)
{
    if (countdown == 0 || --countdown > 0)
        return false;
    failed = true;
    errno = ENOMEM;
    return true;
}

void *__wrap_malloc(size_t size)
{
    return fail_now() ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t n, size_t size)
{
    return fail_now() ? NULL : __real_calloc(n, size);
}

void *__wrap_realloc(void *p, size_t size)
{
    return fail_now() ? NULL : __real_realloc(p, size);
}
