/* SPDX-License-Identifier: MIT */
#include "vmm/repack.h"

#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>
#include "sync/store.h"
#include "sync/store_repack.h"
#include "vmm/confine.h"
#include "vmm/file.h"

#define MEMORY_MAX (UINT64_C(2) * 1024 * 1024 * 1024) /* bytes of address space */
#define CPU_MAX_S  1800

static int repack(const char *dir)
{
    char repository[VMM_PATH_SIZE];
    const struct vmm_confine confine = {
        .dir = repository, .memory = MEMORY_MAX, .cpu_s = CPU_MAX_S};
    struct err err = {0};
    size_t n = 0;
    int r;

    snprintf(repository, sizeof(repository), "%s/store.git", dir);
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    r = sync_store_init(&err); /* what it reads of the host it has read then */
    if (r == 0)
        r = vmm_confine(&confine, &err);
    if (r == 0)
        r = sync_store_repack(dir, &n, &err);
    if (r != 0) {
        fprintf(stderr, "%s\n", err.msg);
        return EXIT_FAILURE;
    }
    printf("%zu\n", n);
    return fflush(stdout) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

bool vmm_repack_main(int argc, char **argv, int *status)
{
    if (argc != 3 || strcmp(argv[1], "--repack") != 0)
        return false;
    *status = repack(argv[2]);
#ifdef __SANITIZE_ADDRESS__
    _exit(*status); /* the search for leaks would want rights that are gone */
#endif
    return true;
}
