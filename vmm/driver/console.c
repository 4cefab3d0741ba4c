/* SPDX-License-Identifier: MIT */
#include "vmm/driver/console.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "vmm/driver/qemu_args.h"

int console_connect(const char *run_dir, const char *name)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    int dir_fd = open(run_dir, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    int fd, r = 0;

    if (dir_fd < 0)
        return -errno;
    /* By way of the descriptor, so that a long run_dir does not matter. */
    (void)snprintf(addr.sun_path, sizeof(addr.sun_path), "/proc/self/fd/%d/%s", dir_fd, name);
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    /* A unix socket connects at once; EAGAIN: its queue is full. */
    if (fd < 0 || connect(fd, (struct sockaddr *)&addr, sizeof(addr)) != 0)
        r = -errno;
    (void)close(dir_fd);
    if (r == 0)
        return fd;
    if (fd >= 0)
        (void)close(fd);
    return r;
}

json_t *console_request(void)
{
    return json_pack("{s:s, s:i, s:s}", "device", "console", "size", QEMU_CONSOLE_BYTES, "format",
                     "base64");
}

static int digit(char c)
{
    if (c >= 'A' && c <= 'Z')
        return c - 'A';
    if (c >= 'a' && c <= 'z')
        return c - 'a' + 26;
    if (c >= '0' && c <= '9')
        return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

char *console_decode(const char *base64, size_t *len)
{
    size_t size = base64 != NULL ? strlen(base64) : 0, i;
    uint32_t bits = 0;
    int n_bits = 0;
    char *out = base64 != NULL ? malloc(size / 4 * 3 + 4) : NULL;

    *len = 0;
    if (out == NULL)
        return NULL;
    for (i = 0; i < size && base64[i] != '='; i++) {
        int d = digit(base64[i]);

        if (d < 0) {
            free(out);
            *len = 0;
            return NULL;
        }
        bits = bits << 6 | (uint32_t)d;
        n_bits += 6;
        if (n_bits >= 8) {
            n_bits -= 8;
            out[(*len)++] = (char)(bits >> n_bits);
        }
    }
    out[*len] = '\0';
    return out;
}
