/* SPDX-License-Identifier: MIT */
#include "vmm/cli/term.h"

#include <stdio.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <termios.h>
#include <unistd.h>

static struct termios saved;
static volatile sig_atomic_t is_raw;

bool term_size(uint16_t *rows, uint16_t *cols)
{
    struct winsize ws;

    if ((ioctl(STDOUT_FILENO, TIOCGWINSZ, &ws) != 0 && ioctl(STDIN_FILENO, TIOCGWINSZ, &ws) != 0) ||
        ws.ws_row == 0 || ws.ws_col == 0)
        return false;
    *rows = ws.ws_row;
    *cols = ws.ws_col;
    return true;
}

void term_restore(void)
{
    if (is_raw)
        tcsetattr(STDIN_FILENO, TCSADRAIN, &saved);
    is_raw = 0;
}

static void on_fatal(int number)
{
    term_restore();
    signal(number, SIG_DFL);
    raise(number);
}

void term_raw(void)
{
    static const int fatal[] = {SIGSEGV, SIGBUS,  SIGABRT, SIGFPE, SIGILL,
                                SIGHUP,  SIGTERM, SIGQUIT, SIGINT};
    static bool prepared;
    struct termios raw;

    if (tcgetattr(STDIN_FILENO, &saved) != 0)
        return;
    for (size_t i = 0; !prepared && i < sizeof(fatal) / sizeof(fatal[0]); i++)
        signal(fatal[i], on_fatal);
    if (!prepared)
        atexit(term_restore);
    prepared = true;
    raw = saved;
    cfmakeraw(&raw);
    is_raw = 1;
    tcsetattr(STDIN_FILENO, TCSADRAIN, &raw);
}

int term_signal_fd(const int *numbers, int n)
{
    sigset_t set;

    sigemptyset(&set);
    for (int i = 0; i < n; i++)
        sigaddset(&set, numbers[i]);
    if (sigprocmask(SIG_BLOCK, &set, NULL) != 0)
        return -1;
    return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

int term_next_signal(int fd)
{
    struct signalfd_siginfo info;

    return read(fd, &info, sizeof(info)) == (ssize_t)sizeof(info) ? (int)info.ssi_signo : 0;
}

int term_hidden(const char *question, const char *subject, struct termios *old)
{
    struct termios quiet;
    int fd = open("/dev/tty", O_RDWR | O_CLOEXEC | O_NOCTTY);

    if (fd < 0 || tcgetattr(fd, old) != 0) {
        if (fd >= 0)
            close(fd);
        return -1;
    }
    quiet = *old;
    quiet.c_lflag &= ~(tcflag_t)ECHO;
    tcsetattr(fd, TCSAFLUSH, &quiet);
    dprintf(fd, "%s %s: ", question, subject);
    return fd;
}

void term_shown(int fd, const struct termios *old)
{
    tcsetattr(fd, TCSAFLUSH, old);
    dprintf(fd, "\n");
    close(fd);
}
