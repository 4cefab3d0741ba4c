/* SPDX-License-Identifier: MIT */
/* Path: open -> "hello" -> post -> kick -> "start" -> "end" -> post... -> on_exit -> what is left
 * in the terminal -> on_gone. How a shell that waits at its prompt is made to look: SIGWINCH (which
 * does no harm to one without our hooks) runs the hook's trap; it answers "kicked" and gets SIGINT
 * once it sleeps in the line editor again. Kicks are repeated; a shell that answers none gets
 * SIGINT alone, which ends a builtin that waits. */
#include "vmm/agent/shell.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <termios.h>
#include <unistd.h>

#include "transom/log.h"
#include "vmm/agent/child.h"
#include "vmm/agent/deaths.h"
#include "vmm/agent/marker.h"
#include "vmm/agent/proc.h"
#include "vmm/agent/reaper.h"
#include "vmm/agent/secrets.h"
#include "vmm/agent/spawn.h"

#define KICK_MS           40 /* first repetition; each waits half as long again */
#define KICK_MAX_MS       400
#define DEATH_ASKED       200 /* times, at intervals of a millisecond, how a command ended */
#define KICKS_BEFORE_INT  3
#define KICKS_BEFORE_KILL 5
#define SLEEP_TRIES       40  /* milliseconds to wait for the line editor after "kicked" */
#define HOLD_MS           50  /* how long what may be a mark is held back */
#define LAST_WORDS_MS     100 /* silence after which a dead shell's terminal counts as read */
#define READS_AT_ONCE     64  /* of whoever must know what is there now */

extern const char agent_window_bash[], agent_window_bash_end[];
/* The hooks, put into the program as they are. */
__asm__(".section .rodata\n"
        ".global agent_window_bash, agent_window_bash_end\n"
        "agent_window_bash:\n"
        ".incbin \"" AGENT_WINDOW_BASH "\"\n"
        "agent_window_bash_end:\n"
        ".byte 0\n"
        ".previous\n");

struct agent_shell {
    struct agent *agent;
    struct agent_shell_cbs cbs;
    void *arg;
    char dir[256];
    char nonce[AGENT_NONCE_LEN + 1];
    pid_t pid;
    struct agent_watch *watch; /* NULL once exited */
    struct agent_parent children;
    int master, status_fd, go_fd;
    uv_poll_t master_poll, status_poll;
    uv_timer_t kick, sleep, hold, last, death;
    int n_open;
    struct termios modes; /* as at the beginning */
    struct agent_marker marker;
    char news[512]; /* of the status FIFO, from news_at on not looked at */
    size_t news_at, news_len;
    char line[256]; /* incomplete */
    size_t line_len;
    struct { /* news of an end; how that came about is not known yet */
        bool due, cut;
        uint64_t seq;
        int status;
        unsigned n_asked;
    } end;
    uint8_t *input;
    size_t input_len;
    uint64_t taken;         /* for agent_share_take() */
    uint64_t posted, begun; /* newest command handed over; newest the shell took up */
    unsigned n_kicks, n_sleeps;
    bool int_ignored, int_sent; /* by the shell; to a shell that ignored it */
    bool empty;                 /* what was posted has no command */
    bool hello;                 /* hooks are there */
    bool at_prompt;
    bool typed_on; /* input since the prompt */
    bool terminal_ended;
    bool paused; /* the terminal is not watched for output */
    bool exited, by_exit;
    int code;
    bool silent;     /* abandoned: no more events */
    json_t *secrets; /* names of those it was started with */
};

/* ---- end of life ---- */

static void remove_dir(struct agent_shell *sh)
{
    static const char *const names[] = {"status", "go", "command", "command.new", "trap"};
    char path[320];

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        snprintf(path, sizeof(path), "%s/%s", sh->dir, names[i]);
        unlink(path);
    }
    rmdir(sh->dir);
}

static void on_handle_close(uv_handle_t *handle)
{
    struct agent_shell *sh = handle->data;

    if (--sh->n_open > 0)
        return;
    free(sh->input);
    json_decref(sh->secrets);
    free(sh);
}

static void close_all(struct agent_shell *sh)
{
    uv_handle_t *handles[] = {(uv_handle_t *)&sh->master_poll, (uv_handle_t *)&sh->status_poll,
                              (uv_handle_t *)&sh->kick,        (uv_handle_t *)&sh->sleep,
                              (uv_handle_t *)&sh->hold,        (uv_handle_t *)&sh->last,
                              (uv_handle_t *)&sh->death};

    agent_deaths_forget(sh->agent->deaths, &sh->children);
    for (size_t i = 0; i < sizeof(handles) / sizeof(handles[0]); i++)
        uv_close(handles[i], on_handle_close);
    close(sh->master);
    close(sh->status_fd);
    close(sh->go_fd);
    sh->master = sh->status_fd = sh->go_fd = -1;
    remove_dir(sh);
}

static void finish(struct agent_shell *sh)
{
    if (sh->silent)
        return;
    sh->silent = true;
    close_all(sh);
    sh->cbs.on_gone(sh->by_exit, sh->code, sh->arg);
}

void agent_shell_abandon(struct agent_shell *sh)
{
    if (sh->silent)
        return;
    sh->silent = true;
    if (sh->watch != NULL)
        agent_watch_forget(sh->watch);
    close_all(sh);
}

static void start_timer(uv_timer_t *timer, uv_timer_cb cb, uint64_t ms)
{
    if (uv_timer_start(timer, cb, ms, 0) != 0)
        abort(); /* fails only without a callback */
}

/* ---- the terminal's bytes ---- */

static void on_bytes(const uint8_t *data, size_t len, void *arg)
{
    struct agent_shell *sh = arg;

    sh->cbs.on_output(data, len, sh->arg);
}

static void on_mark(char kind, uint64_t number, void *arg)
{
    struct agent_shell *sh = arg;

    sh->cbs.on_mark(kind, number, sh->arg);
}

static const struct agent_marker_cbs marker_cbs = {on_bytes, on_mark};

static bool read_terminal(struct agent_shell *sh, unsigned n_reads);
static void on_last(uv_timer_t *timer);

static void on_hold(uv_timer_t *timer)
{
    struct agent_shell *sh = timer->data;

    /* Timers come before descriptors: after a pause of our own the rest may be there. */
    if (!read_terminal(sh, 1))
        agent_marker_flush(&sh->marker, &marker_cbs, sh);
    else if (sh->exited)
        start_timer(&sh->last, on_last, LAST_WORDS_MS);
}

static void on_last(uv_timer_t *timer)
{
    struct agent_shell *sh = timer->data;

    /* As above: there may be more. */
    if (read_terminal(sh, 1)) {
        start_timer(&sh->last, on_last, LAST_WORDS_MS);
        return;
    }
    agent_marker_flush(&sh->marker, &marker_cbs, sh);
    finish(sh);
}

/* Returns whether anything came. */
static bool read_terminal(struct agent_shell *sh, unsigned n_reads)
{
    uint8_t buf[4096];
    bool some = false;

    for (unsigned i = 0; i < n_reads && !sh->terminal_ended; i++) {
        ssize_t n = read(sh->master, buf, sizeof(buf));

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            break;
        if (n <= 0) { /* EIO: nobody holds the other side any more */
            sh->terminal_ended = true;
            uv_poll_stop(&sh->master_poll);
            break;
        }
        some = true;
        agent_marker_feed(&sh->marker, buf, (size_t)n, &marker_cbs, sh);
        if (sh->paused)
            break;
    }
    if (agent_marker_holds(&sh->marker))
        start_timer(&sh->hold, on_hold, HOLD_MS);
    return some;
}

/* ---- typed input ---- */

static void on_master(uv_poll_t *poll, int status, int events);

static void watch_master(struct agent_shell *sh)
{
    int events = (sh->paused ? 0 : UV_READABLE) | (sh->input_len > 0 ? UV_WRITABLE : 0);

    if (sh->terminal_ended || sh->silent)
        return;
    if (events == 0)
        uv_poll_stop(&sh->master_poll);
    else if (uv_poll_start(&sh->master_poll, events, on_master) != 0)
        log_error("window: terminal cannot be watched");
}

void agent_shell_pause(struct agent_shell *sh, bool on)
{
    if (sh->paused == on)
        return;
    sh->paused = on;
    watch_master(sh);
}

static void write_input(struct agent_shell *sh)
{
    size_t done = 0;

    while (done < sh->input_len) {
        ssize_t n = write(sh->master, sh->input + done, sh->input_len - done);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            if (n < 0 && errno != EAGAIN)
                done = sh->input_len; /* hung up: nobody will read it */
            break;
        }
        done += (size_t)n;
    }
    memmove(sh->input, sh->input + done, sh->input_len - done);
    sh->input_len -= done;
}

size_t agent_shell_input(struct agent_shell *sh, const void *data, size_t len)
{
    uint8_t *grown = realloc(sh->input, sh->input_len + len + 1);

    if (grown == NULL)
        return sh->input_len;
    sh->input = grown;
    memcpy(sh->input + sh->input_len, data, len);
    sh->input_len += len;
    sh->typed_on = true;
    write_input(sh);
    watch_master(sh);
    return sh->input_len;
}

/* A terminal gives a page at a time, at some cost. A key and its echo in another window wait for a
 * round of these, however many print however much. */
static unsigned share(struct agent_shell *sh)
{
    return agent_share_take(&sh->agent->terminals, &sh->taken, uv_now(sh->agent->loop));
}

static void on_master(uv_poll_t *poll, int status, int events)
{
    struct agent_shell *sh = poll->data;
    bool queued = sh->input_len > 0;

    if (sh->silent)
        return;
    if ((events & UV_READABLE) != 0 || status < 0) {
        if (read_terminal(sh, share(sh)) && sh->exited)
            start_timer(&sh->last, on_last, LAST_WORDS_MS);
    }
    if (queued && (events & UV_WRITABLE) != 0) {
        write_input(sh);
        watch_master(sh);
        if (sh->input_len == 0)
            sh->cbs.on_input_drain(sh->arg);
    }
    if (sh->exited && sh->terminal_ended)
        start_timer(&sh->last, on_last, 0);
}

/* ---- kicks ---- */

static void read_status(struct agent_shell *sh);

static void on_sleep(uv_timer_t *timer)
{
    struct agent_shell *sh = timer->data;
    struct agent_proc p;

    read_status(sh);
    if (sh->exited || sh->begun == sh->posted)
        return;
    if (sh->n_sleeps++ < SLEEP_TRIES && agent_proc_read(sh->pid, &p) && p.state != 'S')
        start_timer(&sh->sleep, on_sleep, 1);
    else if (!sh->int_ignored || sh->int_sent) {
        kill(sh->pid, sh->int_ignored ? SIGWINCH : SIGINT);
    } else {
        sh->int_sent = true;
        kill(sh->pid, SIGINT);
        start_timer(&sh->sleep, on_sleep, 1);
    }
}

static void on_kick(uv_timer_t *timer)
{
    struct agent_shell *sh = timer->data;
    pid_t in_front = agent_shell_foreground(sh); /* asked before the news: not of the new command */
    uint64_t wait = KICK_MS;

    read_status(sh);
    if (sh->exited || !sh->hello || sh->begun == sh->posted)
        return;
    kill(sh->pid, SIGWINCH);
    if (++sh->n_kicks > KICKS_BEFORE_INT) {
        kill(sh->pid, SIGINT);
        if (in_front != 0) { /* typed, so in no group that could be ended */
            kill(-in_front, sh->n_kicks > KICKS_BEFORE_KILL ? SIGKILL : SIGTERM);
            kill(-in_front, SIGCONT);
        }
    }
    for (unsigned i = 0; i < sh->n_kicks && wait < KICK_MAX_MS; i++)
        wait += wait / 2;
    start_timer(&sh->kick, on_kick, wait);
}

/* ---- what the hooks say ---- */

static void say_go(struct agent_shell *sh, uint64_t seq)
{
    char text[32];
    int n = snprintf(text, sizeof(text), "%" PRIu64 "\n", seq);

    if (write(sh->go_fd, text, (size_t)n) != n)
        log_warn("a window's shell cannot be answered: %s", strerror(errno));
}

static void on_death(uv_timer_t *timer);

/* Pass the end on; a command that may have been killed when that is known, or was waited for. */
static void tell_end(struct agent_shell *sh)
{
    struct agent_deaths *deaths = sh->agent->deaths;
    enum agent_death death = agent_deaths_ask(deaths, &sh->children, sh->end.status);

    if (death == AGENT_DEATH_UNKNOWN && sh->end.status > 128 && agent_deaths_are_told(deaths) &&
        !sh->exited && sh->end.n_asked++ < DEATH_ASKED) {
        sh->end.due = true;
        start_timer(&sh->death, on_death, 1);
        return;
    }
    sh->end.due = false;
    sh->cbs.on_end(sh->end.seq, sh->end.status, death == AGENT_DEATH_SIGNALLED, sh->end.cut,
                   sh->arg);
}

static void on_death(uv_timer_t *timer)
{
    struct agent_shell *sh = timer->data;

    tell_end(sh);
    if (!sh->silent)
        read_status(sh);
}

static void on_line(struct agent_shell *sh, char *line)
{
    char word[16] = "", cut[8] = "";
    uint64_t seq = 0;
    int status = 0;

    if (sscanf(line, "%15s %" SCNu64 " %d %7s", word, &seq, &status, cut) < 2)
        return;
    if (strcmp(word, "hello") == 0) {
        sh->hello = true;
    } else if (strcmp(word, "ready") == 0) {
        sh->at_prompt = true;
        sh->typed_on = false;
        if (seq == sh->posted && sh->empty) {
            sh->begun = seq;
            uv_timer_stop(&sh->kick);
            uv_timer_stop(&sh->sleep);
        }
        if (sh->begun != sh->posted) /* it looked just before the command came */
            start_timer(&sh->kick, on_kick, 1);
    } else if (strcmp(word, "kicked") == 0) {
        sh->n_sleeps = 0;
        sh->int_sent = false;
        sh->int_ignored = strchr(line, 'i') != NULL && strrchr(line, 'i') > strchr(line, ' ');
        start_timer(&sh->sleep, on_sleep, 0);
    } else if (strcmp(word, "start") == 0 && seq <= sh->posted) {
        sh->at_prompt = false;
        sh->begun = seq;
        if (seq == sh->posted) {
            uv_timer_stop(&sh->kick);
            uv_timer_stop(&sh->sleep);
        }
        agent_deaths_reset(sh->agent->deaths, &sh->children);
        say_go(sh, seq);
        sh->cbs.on_start(seq, sh->arg);
    } else if (strcmp(word, "end") == 0) {
        sh->end.seq = seq;
        sh->end.status = status;
        sh->end.cut = cut[0] != '\0';
        sh->end.n_asked = 0;
        tell_end(sh);
    }
}

/* What comes behind an end waits for it. */
static void read_status(struct agent_shell *sh)
{
    while (!sh->end.due && !sh->silent) {
        char c;

        if (sh->news_at == sh->news_len) {
            ssize_t n = sh->status_fd >= 0 ? read(sh->status_fd, sh->news, sizeof(sh->news)) : 0;

            if (n <= 0)
                return;
            sh->news_at = 0;
            sh->news_len = (size_t)n;
        }
        c = sh->news[sh->news_at++];
        if (c != '\n') {
            if (sh->line_len < sizeof(sh->line) - 1)
                sh->line[sh->line_len++] = c;
            continue;
        }
        sh->line[sh->line_len] = '\0';
        sh->line_len = 0;
        on_line(sh, sh->line);
    }
}

static void on_status(uv_poll_t *poll, int status, int events)
{
    struct agent_shell *sh = poll->data;

    (void)status;
    (void)events;
    /* What was written to the terminal before is taken first, so that a mark comes before the news
     * where it can. */
    if (read_terminal(sh, READS_AT_ONCE) && sh->exited)
        start_timer(&sh->last, on_last, LAST_WORDS_MS);
    read_status(sh);
}

static void on_exit_status(bool exited, int code, void *arg)
{
    struct agent_shell *sh = arg;

    sh->watch = NULL;
    sh->exited = true;
    sh->by_exit = exited;
    sh->code = code;
    uv_timer_stop(&sh->kick);
    uv_timer_stop(&sh->sleep);
    read_terminal(sh, READS_AT_ONCE);
    if (sh->end.due)
        tell_end(sh);
    read_status(sh);
    if (!sh->silent)
        start_timer(&sh->last, on_last, sh->terminal_ended ? 0 : LAST_WORDS_MS);
}

/* ---- commands ---- */

static int append(char **text, size_t *len, const char *data, size_t n)
{
    char *grown = realloc(*text, *len + n + 1);

    if (grown == NULL)
        return UV_ENOMEM;
    memcpy(grown + *len, data, n);
    grown[*len + n] = '\0';
    *text = grown;
    *len += n + 1;
    return 0;
}

static int append_variable(char **text, size_t *len, const char *name, const char *value)
{
    int r = append(text, len, name, strlen(name));

    if (r == 0) {
        (*len)--; /* one text: NAME=VALUE */
        r = append(text, len, "=", 1);
    }
    if (r == 0) {
        (*len)--;
        r = append(text, len, value, strlen(value));
    }
    return r;
}

/* Those that are active, and only the names of those that the shell has no more. What env names is
 * env's. */
static int append_secrets(struct agent_shell *sh, char **text, size_t *len, const json_t *env)
{
    const struct agent_secrets *secrets = sh->agent->secrets;
    json_t *stale = agent_shell_stale_secrets(sh), *name;
    size_t i;
    int r = 0;

    for (i = 0; r == 0 && i < secrets->n; i++) {
        if (json_object_get(env, secrets->list[i].name) == NULL)
            r = append_variable(text, len, secrets->list[i].name, secrets->list[i].value);
    }
    json_array_foreach(stale, i, name)
    {
        if (r == 0 && json_object_get(env, json_string_value(name)) == NULL)
            r = append(text, len, json_string_value(name), json_string_length(name));
    }
    json_decref(stale);
    return r;
}

/* The message: number, flags, command, command as shown, then variables to set (NAME=VALUE) and to
 * unset (NAME); each ends in a NUL. */
static int write_message(struct agent_shell *sh, uint64_t seq, const char *flags,
                         const char *command, size_t command_len, const char *shown,
                         const json_t *env)
{
    char path[320], next[320], number[32], *text = NULL;
    size_t len = 0, done = 0;
    const char *name;
    json_t *value;
    int fd, r;

    snprintf(number, sizeof(number), "%" PRIu64, seq);
    r = append(&text, &len, number, strlen(number));
    if (r == 0)
        r = append(&text, &len, flags, strlen(flags));
    if (r == 0)
        r = append(&text, &len, command, command_len);
    if (r == 0)
        r = append(&text, &len, shown, strlen(shown));
    json_object_foreach((json_t *)env, name, value)
    {
        if (r == 0)
            r = append_variable(&text, &len, name, json_string_value(value));
    }
    if (r == 0)
        r = append_secrets(sh, &text, &len, env);
    snprintf(path, sizeof(path), "%s/command", sh->dir);
    snprintf(next, sizeof(next), "%s/command.new", sh->dir);
    fd = r == 0 ? open(next, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644) : -1;
    while (fd >= 0 && r == 0 && done < len) {
        ssize_t n = write(fd, text + done, len - done);

        if (n < 0 && errno != EINTR)
            r = -errno;
        done += n > 0 ? (size_t)n : 0;
    }
    if (r == 0 && (fd < 0 || rename(next, path) != 0))
        r = -errno;
    if (fd >= 0)
        close(fd);
    if (text != NULL)
        explicit_bzero(text, len);
    free(text);
    return r;
}

int agent_shell_post(struct agent_shell *sh, uint64_t seq, const char *command, size_t len,
                     const char *shown, const json_t *env)
{
    const char *flags = sh->at_prompt && sh->typed_on ? "d" : "";
    int r = write_message(sh, seq, flags, command, len, shown, env);

    if (r != 0)
        return r;
    sh->posted = seq;
    sh->empty = len == 0;
    sh->n_kicks = 0;
    /* At once, so that it comes before the signals which end what the shell waits for. */
    if (sh->hello && !sh->exited)
        kill(sh->pid, SIGWINCH);
    start_timer(&sh->kick, on_kick, KICK_MS);
    return 0;
}

json_t *agent_shell_stale_secrets(const struct agent_shell *sh)
{
    json_t *stale = json_array(), *name;
    size_t i;

    json_array_foreach(sh->secrets, i, name)
    {
        if (agent_secret_find(sh->agent->secrets, json_string_value(name)) == NULL)
            json_array_append(stale, name);
    }
    return stale;
}

void agent_shell_read(struct agent_shell *sh)
{
    read_terminal(sh, READS_AT_ONCE);
    read_status(sh);
}

bool agent_shell_has_started(const struct agent_shell *sh)
{
    return sh->hello;
}

bool agent_shell_is_itself(const struct agent_shell *sh)
{
    static const char wanted[] = "bash\0--rcfile";
    char path[64], text[sizeof(wanted)] = "";
    bool same;
    int fd;

    snprintf(path, sizeof(path), "/proc/%d/cmdline", (int)sh->pid);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return true; /* it is ending, which is noticed elsewhere */
    same = read(fd, text, sizeof(text)) <= 0 || memcmp(text, wanted, sizeof(wanted)) == 0;
    close(fd);
    return same;
}

bool agent_shell_works(const struct agent_shell *sh)
{
    struct agent_proc p;

    return agent_proc_read(sh->pid, &p) && (p.state == 'R' || p.state == 'D');
}

pid_t agent_shell_pid(const struct agent_shell *sh)
{
    return sh->pid;
}

pid_t agent_shell_foreground(const struct agent_shell *sh)
{
    pid_t pgrp = tcgetpgrp(sh->master);

    return pgrp > 0 && pgrp != sh->pid ? pgrp : 0;
}

/* Output that was stopped from the keyboard (^S) goes on. The kernel has no call for that, as it
 * has for what tcflow() stopped: it lets go when it is told that the keys do not count. */
static void start_output(int master)
{
    struct termios now, without;

    if (tcgetattr(master, &now) != 0 || !(now.c_iflag & IXON))
        return;
    without = now;
    without.c_iflag &= ~(tcflag_t)IXON;
    if (tcsetattr(master, TCSANOW, &without) == 0)
        (void)tcsetattr(master, TCSANOW, &now);
}

void agent_shell_reset_terminal(struct agent_shell *sh)
{
    int slave;

    sh->input_len = 0;
    watch_master(sh);
    slave = ioctl(sh->master, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK);
    if (slave >= 0) {
        tcflush(slave, TCIFLUSH);
        tcflow(slave, TCOON);
        close(slave);
    }
    start_output(sh->master);
    if (agent_shell_foreground(sh) != 0 || !sh->at_prompt) /* else they are the line editor's */
        tcsetattr(sh->master, TCSANOW, &sh->modes);
}

int agent_shell_resize(struct agent_shell *sh, int rows, int cols)
{
    struct winsize size = {.ws_row = (unsigned short)rows, .ws_col = (unsigned short)cols};

    return ioctl(sh->master, TIOCSWINSZ, &size) == 0 ? 0 : -errno;
}

void agent_shell_signal(struct agent_shell *sh, int signum)
{
    if (!sh->exited)
        kill(sh->pid, signum);
}

void agent_shell_kill(struct agent_shell *sh)
{
    agent_shell_signal(sh, SIGKILL);
}

/* ---- start ---- */

static int make_nonce(char *out)
{
    uint8_t bytes[AGENT_NONCE_LEN / 2];

    if (getrandom(bytes, sizeof(bytes), 0) != (ssize_t)sizeof(bytes))
        return -errno;
    for (size_t i = 0; i < sizeof(bytes); i++)
        snprintf(out + i * 2, 3, "%02x", bytes[i]);
    return 0;
}

/* By a rename: another window's shell may be reading it just now. */
static int write_hooks(const char *path)
{
    size_t len = (size_t)(agent_window_bash_end - agent_window_bash);
    char next[320];
    int fd, r;

    snprintf(next, sizeof(next), "%s.new", path);
    fd = open(next, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644);
    r = fd < 0 ? -errno : 0;
    if (r == 0 && (write(fd, agent_window_bash, len) != (ssize_t)len || rename(next, path) != 0))
        r = -errno;
    if (fd >= 0)
        close(fd);
    return r;
}

/* A FIFO that the user's side can open, and our end of it, which keeps it from ever ending. */
static int make_fifo(struct agent_shell *sh, const struct agent_child *child, const char *name)
{
    char path[320];
    int fd;

    snprintf(path, sizeof(path), "%s/%s", sh->dir, name);
    if (mkfifo(path, 0600) != 0 ||
        (child->change_user && chown(path, child->user.uid, child->user.gid) != 0))
        return -errno;
    fd = open(path, O_RDWR | O_NONBLOCK | O_CLOEXEC);
    return fd < 0 ? -errno : fd;
}

/* The side channel's folder: hooks, command file, FIFOs. */
static int make_dir(struct agent_shell *sh, const struct agent_child *child, char *hooks,
                    size_t hooks_size, struct err *err)
{
    const char *run_dir = sh->agent->options.run_dir;
    char name[AGENT_NONCE_LEN + 1];
    int r = make_nonce(name);

    mkdir(run_dir, 0755);
    snprintf(sh->dir, sizeof(sh->dir), "%s/%.12s", run_dir, name);
    snprintf(hooks, hooks_size, "%s/window.bash", run_dir);
    if (r == 0)
        r = write_hooks(hooks);
    if (r == 0 && mkdir(sh->dir, 0700) != 0)
        r = -errno;
    if (r == 0) {
        sh->status_fd = make_fifo(sh, child, "status");
        sh->go_fd = make_fifo(sh, child, "go");
        r = sh->status_fd < 0 ? sh->status_fd : sh->go_fd < 0 ? sh->go_fd : 0;
    }
    if (r == 0)
        r = write_message(sh, 0, "", "", 0, "", NULL);
    if (r == 0 && child->change_user && chown(sh->dir, child->user.uid, child->user.gid) != 0)
        r = -errno;
    if (r == 0)
        return 0;
    remove_dir(sh);
    return tr_err_set(err, r, "side channel in %s: %s", run_dir, uv_strerror(r));
}

static int open_terminal(struct agent_shell *sh, const struct agent_child *child, int rows,
                         int cols, struct err *err)
{
    struct winsize size = {.ws_row = (unsigned short)rows, .ws_col = (unsigned short)cols};
    int slave = -1, r = 0;

    sh->master = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (sh->master < 0 || unlockpt(sh->master) != 0 ||
        (slave = ioctl(sh->master, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC)) < 0 ||
        tcgetattr(slave, &sh->modes) != 0)
        r = -errno;
    if (r == 0) {
        sh->modes.c_iflag |= IUTF8;
        if (tcsetattr(slave, TCSANOW, &sh->modes) != 0 || ioctl(slave, TIOCSWINSZ, &size) != 0 ||
            fcntl(sh->master, F_SETFL, O_RDWR | O_NONBLOCK) != 0 ||
            (child->change_user &&
             (fchown(slave, child->user.uid, (gid_t)-1) != 0 || fchmod(slave, 0620) != 0)))
            r = -errno;
    }
    if (r == 0)
        return slave;
    if (slave >= 0)
        close(slave);
    if (sh->master >= 0)
        close(sh->master);
    sh->master = -1;
    return tr_err_set(err, r, "terminal: %s", uv_strerror(r));
}

static int launch(struct agent_shell *sh, struct agent_group *group, struct agent_child *child,
                  int rows, int cols, struct err *err)
{
    char hooks[300], channel[sizeof(sh->dir) + AGENT_NONCE_LEN + 8];
    char *argv[] = {"bash", "--rcfile", hooks, NULL};
    struct agent_spawn sp = {.path = "/bin/bash",
                             .argv = argv,
                             .cwd = child->user.home,
                             .user = child->change_user ? &child->user : NULL,
                             .terminal = true,
                             .procs_fd = agent_group_procs_fd(group)};
    int slave, r = make_dir(sh, child, hooks, sizeof(hooks), err);

    if (r != 0)
        return r;
    snprintf(channel, sizeof(channel), "%s:%s", sh->dir, sh->nonce);
    slave = open_terminal(sh, child, rows, cols, err);
    if (slave < 0) {
        remove_dir(sh);
        return slave;
    }
    r = agent_child_set(child, "TRANSOM_WINDOW", channel);
    if (r == 0)
        r = agent_child_set(child, "TERM", "xterm-256color");
    sp.envp = child->envp;
    sp.fds[0] = sp.fds[1] = sp.fds[2] = slave;
    if (r == 0)
        r = agent_spawn(&sp, &sh->pid, err);
    close(slave);
    if (r != 0) {
        close(sh->master);
        remove_dir(sh);
    }
    return r;
}

static void watch(struct agent_shell *sh)
{
    uv_loop_t *loop = sh->agent->loop;
    uv_timer_t *timers[] = {&sh->kick, &sh->sleep, &sh->hold, &sh->last, &sh->death};

    sh->n_open = 7;
    for (size_t i = 0; i < sizeof(timers) / sizeof(timers[0]); i++) {
        if (uv_timer_init(loop, timers[i]) != 0)
            abort(); /* cannot fail on Unix */
        timers[i]->data = sh;
    }
    if (uv_poll_init(loop, &sh->master_poll, sh->master) != 0 ||
        uv_poll_init(loop, &sh->status_poll, sh->status_fd) != 0)
        abort(); /* terminals and FIFOs can be polled */
    sh->master_poll.data = sh->status_poll.data = sh;
    watch_master(sh);
    if (uv_poll_start(&sh->status_poll, UV_READABLE, on_status) != 0 ||
        agent_reaper_watch(sh->agent->reaper, sh->pid, on_exit_status, sh, &sh->watch) != 0)
        log_error("window: out of memory");
}

int agent_shell_open(struct agent *a, struct agent_group *group, int rows, int cols,
                     const struct agent_shell_cbs *cbs, void *arg, struct agent_shell **out,
                     struct err *err)
{
    struct agent_shell *sh = calloc(1, sizeof(*sh));
    struct agent_child child;
    int r;

    if (sh == NULL)
        return tr_err_set(err, UV_ENOMEM, "out of memory");
    sh->agent = a;
    sh->cbs = *cbs;
    sh->arg = arg;
    sh->master = sh->status_fd = sh->go_fd = -1;
    r = make_nonce(sh->nonce);
    if (r == 0)
        r = agent_child_init(&child, a, AGENT_SANDBOX_USER, NULL, err);
    if (r != 0) {
        free(sh);
        return r;
    }
    agent_marker_init(&sh->marker, sh->nonce);
    sh->secrets = json_array();
    for (size_t i = 0; i < a->secrets->n; i++)
        json_array_append_new(sh->secrets, json_string(a->secrets->list[i].name));
    r = launch(sh, group, &child, rows, cols, err);
    agent_child_fini(&child);
    if (r != 0) {
        if (sh->status_fd >= 0)
            close(sh->status_fd);
        if (sh->go_fd >= 0)
            close(sh->go_fd);
        json_decref(sh->secrets);
        free(sh);
        return r;
    }
    agent_deaths_watch(a->deaths, &sh->children, sh->pid);
    agent_group_set_leader(group, sh->pid, true);
    watch(sh);
    *out = sh;
    return 0;
}
