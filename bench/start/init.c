/* SPDX-License-Identifier: MIT */
/* The least that a kernel can start: says so on the console, then ends the machine. The bare boot
 * that a sandbox's start is compared with. */
#include <fcntl.h>
#include <sys/reboot.h>
#include <unistd.h>

int main(void)
{
    static const char text[] = "bare-init-reached\n";
    int fd = open("/dev/console", O_WRONLY);

    if (write(fd < 0 ? 1 : fd, text, sizeof(text) - 1) < 0)
        return 1;
    reboot(RB_AUTOBOOT); /* with -no-reboot, QEMU ends */
    return 1;
}
