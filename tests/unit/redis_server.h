/* SPDX-License-Identifier: MIT */
/* For tests: a real redis-server of one's own, in a temporary directory. */
#ifndef TESTS_UNIT_REDIS_SERVER_H
#define TESTS_UNIT_REDIS_SERVER_H

struct redis_server {
    char dir[32], sock[64], url[80]; /* url: of the unix socket */
    int tcp_port;                    /* on 127.0.0.1 */
    int pid;                         /* -1: not running */
};

/* Choose names and a port; starts nothing. */
void redis_server_init(struct redis_server *s);
/* password may be "". Returns at once: the server may not accept yet. */
void redis_server_start(struct redis_server *s, const char *password);
/* With SIGKILL. Nothing when not running. */
void redis_server_kill(struct redis_server *s);
/* Kill and remove what it left. */
void redis_server_fini(struct redis_server *s);

#endif
