/* SPDX-License-Identifier: MIT */
#include "redis_server.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static int free_port(void)
{
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(addr);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd < 0 || bind(fd, (struct sockaddr *)&addr, len) != 0 ||
        getsockname(fd, (struct sockaddr *)&addr, &len) != 0)
        abort();
    close(fd);
    return ntohs(addr.sin_port);
}

void redis_server_init(struct redis_server *s)
{
    memcpy(s->dir, "/tmp/test-redis-XXXXXX", sizeof("/tmp/test-redis-XXXXXX"));
    if (mkdtemp(s->dir) == NULL)
        abort();
    snprintf(s->sock, sizeof(s->sock), "%s/r.sock", s->dir);
    snprintf(s->url, sizeof(s->url), "unix:%s", s->sock);
    s->tcp_port = free_port();
    s->pid = -1;
}

void redis_server_start(struct redis_server *s, const char *password)
{
    char port[12];

    snprintf(port, sizeof(port), "%d", s->tcp_port);
    s->pid = fork();
    if (s->pid < 0)
        abort();
    if (s->pid == 0) {
        int null = open("/dev/null", O_WRONLY | O_CLOEXEC);

        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (null < 0 || dup2(null, STDOUT_FILENO) < 0)
            _exit(126);
        execlp("redis-server", "redis-server", "--unixsocket", s->sock, "--port", port, "--bind",
               "127.0.0.1", "--dir", s->dir, "--save", "", "--requirepass", password, (char *)NULL);
        _exit(127);
    }
}

void redis_server_kill(struct redis_server *s)
{
    if (s->pid <= 0)
        return;
    kill(s->pid, SIGKILL);
    waitpid(s->pid, NULL, 0);
    s->pid = -1;
}

void redis_server_fini(struct redis_server *s)
{
    redis_server_kill(s);
    unlink(s->sock);
    rmdir(s->dir);
}
