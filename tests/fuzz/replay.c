/* SPDX-License-Identifier: MIT */
/* Runs a fuzz target over the files of its corpus, for builds without libFuzzer. An empty or
 * missing corpus is a failure: a replay that runs nothing proves nothing. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int replay(const char *path)
{
    FILE *f = fopen(path, "rb");
    uint8_t *data;
    long size;
    int r = -1;

    if (f == NULL || fseek(f, 0, SEEK_END) != 0 || (size = ftell(f)) < 0) {
        perror(path);
        if (f != NULL)
            fclose(f);
        return -1;
    }
    rewind(f);
    data = malloc((size_t)size + 1); /* exact bounds matter under ASan, except for empty files */
    if (data != NULL && fread(data, 1, (size_t)size, f) == (size_t)size) {
        LLVMFuzzerTestOneInput(data, (size_t)size);
        r = 0;
    }
    free(data);
    fclose(f);
    return r;
}

int main(int argc, char **argv)
{
    int n = 0;

    for (int i = 1; i < argc; i++) {
        DIR *dir = opendir(argv[i]);
        struct dirent *e;
        char path[4096];

        if (dir == NULL) {
            perror(argv[i]);
            return EXIT_FAILURE;
        }
        while ((e = readdir(dir)) != NULL) {
            if (e->d_name[0] == '.')
                continue;
            snprintf(path, sizeof(path), "%s/%s", argv[i], e->d_name);
            if (replay(path) != 0) {
                closedir(dir);
                return EXIT_FAILURE;
            }
            n++;
        }
        closedir(dir);
    }
    printf("%d inputs replayed\n", n);
    return n > 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
