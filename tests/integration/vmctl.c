/* SPDX-License-Identifier: MIT */
/* Drives the driver and network libraries for the integration tests: reads commands from standard
 * input, one a line ("start label=... kernel=...", "kill"), prints one JSON object a line for each
 * outcome. End of input: lets go of everything and exits, as a manager does. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <uv.h>

#include "transom/log.h"
#include "vmm/driver/driver.h"
#include "vmm/driver/kvm_probe.h"
#include "vmm/net/net.h"

static uv_loop_t loop;
static uv_pipe_t input;
static struct net *net;
static struct vm *vm;
static int channel_fd = -1;
static int memory_fd = -1, state_fd = -1; /* of the template */

static void say(json_t *event)
{
    char *text = json_dumps(event, JSON_COMPACT);

    (void)printf("%s\n", text != NULL ? text : "{}");
    (void)fflush(stdout);
    free(text);
    json_decref(event);
}

static void say_done(const char *name, int status, const char *message)
{
    say(json_pack("{s:s, s:i, s:s}", "event", name, "status", status, "message", message));
}

/* Value of key in "key=value key=value ..."; "" when absent. Valid until the line is freed. */
static const char *arg_get(char **words, const char *key)
{
    size_t len = strlen(key);

    for (; *words != NULL; words++)
        if (strncmp(*words, key, len) == 0 && (*words)[len] == '=')
            return *words + len + 1;
    return "";
}

static unsigned arg_num(char **words, const char *key, unsigned otherwise)
{
    const char *value = arg_get(words, key);

    return value[0] != '\0' ? (unsigned)strtoul(value, NULL, 10) : otherwise;
}

static void spec_from(char **words, struct vm_spec *spec)
{
    const char *mac = arg_get(words, "mac");

    *spec = (struct vm_spec){
        .label = arg_get(words, "label"),
        .instance = arg_num(words, "instance", 1),
        .accel = strcmp(arg_get(words, "accel"), "kvm") == 0 ? VM_ACCEL_KVM : VM_ACCEL_TCG,
        .vcpus = arg_num(words, "vcpus", 1),
        .memory_mb = arg_num(words, "memory_mb", 256),
        .tsc_khz = arg_num(words, "tsc_khz", 0),
        .kernel = arg_get(words, "kernel"),
        .initrd = arg_get(words, "initrd"),
        .root_image = arg_get(words, "root_image"),
        .data_disk = arg_get(words, "data_disk"),
        .disk_mb = arg_num(words, "disk_mb", 0),
        .run_dir = arg_get(words, "run_dir"),
        .cgroup = arg_get(words, "cgroup"),
        .qemu = arg_get(words, "qemu"),
        .netns = arg_get(words, "netns"),
        .tap = arg_get(words, "tap"),
        .uid = arg_num(words, "uid", 65534),
        .gid = arg_num(words, "gid", 65534),
        .cmdline = arg_get(words, "cmdline"),
        .memory = strcmp(arg_get(words, "memory"), "template") == 0 ? VM_MEMORY_TEMPLATE
                  : strcmp(arg_get(words, "memory"), "clone") == 0  ? VM_MEMORY_CLONE
                                                                    : VM_MEMORY_OWN,
        .memory_fd = memory_fd,
        .state_fd = state_fd,
        .disk_from = arg_get(words, "disk_from"),
    };
    if (mac[0] != '\0')
        (void)sscanf(mac, "%hhx:%hhx:%hhx:%hhx:%hhx:%hhx", &spec->mac[0], &spec->mac[1],
                     &spec->mac[2], &spec->mac[3], &spec->mac[4], &spec->mac[5]);
}

static void on_start(struct vm *machine, int status, const struct err *err, void *arg)
{
    (void)arg;
    say(json_pack("{s:s, s:i, s:s, s:i}", "event", "started", "status", status, "message", err->msg,
                  "pid", (int)vm_pid(machine)));
    if (status != 0)
        vm = NULL;
}

static void on_exited(struct vm *machine, const struct vm_exit *ex, void *arg)
{
    (void)machine;
    (void)arg;
    vm = NULL;
    say(json_pack("{s:s, s:s, s:i, s:i, s:s}", "event", "exited", "reason",
                  vm_exit_reason_name(ex->reason), "code", ex->code, "signal", ex->signal, "detail",
                  ex->detail));
}

static void on_released(void *arg)
{
    (void)arg;
    vm = NULL;
    say_done("released", 0, "");
}

static void on_done(int status, const struct err *err, void *arg)
{
    say_done(arg, status, err->msg);
}

static void on_port(int status, const struct net_port *port, const struct err *err, void *arg)
{
    char mac[18] = "";

    if (status == 0)
        (void)snprintf(mac, sizeof(mac), "%02x:%02x:%02x:%02x:%02x:%02x", port->mac[0],
                       port->mac[1], port->mac[2], port->mac[3], port->mac[4], port->mac[5]);
    say(json_pack("{s:s, s:i, s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:i}", "event", arg, "status",
                  status, "message", err->msg, "tap", status == 0 ? port->tap : "", "netns",
                  status == 0 ? port->netns : "", "address", status == 0 ? port->address : "",
                  "gateway", status == 0 ? port->gateway : "", "dns", status == 0 ? port->dns : "",
                  "mac", mac, "mtu", status == 0 ? port->mtu : 0));
}

static void on_text(int status, const char *text, size_t len, void *arg)
{
    (void)arg;
    say(json_pack("{s:s, s:i, s:o}", "event", "console", "status", status, "text",
                  json_stringn_nocheck(text, len)));
}

static void on_probe(const struct vm_kvm_result *result, void *arg)
{
    (void)arg;
    say(json_pack("{s:s, s:i, s:s, s:s, s:I, s:I}", "event", "probe", "status", 0, "verdict",
                  vm_kvm_verdict_name(result->verdict), "reason", result->reason, "rate",
                  (json_int_t)result->rate, "tsc_khz", (json_int_t)result->tsc_khz));
}

static void on_net_closed(void *arg)
{
    (void)arg;
    net = NULL;
    say_done("net-close", 0, "");
}

static void net_command(const char *name, char **words)
{
    static char dns_text[256];
    const char *dns[8];
    struct net_options options = {0};
    struct err err = {0};
    char *save;
    int r;

    if (strcmp(name, "net-open") == 0) {
        options.name = arg_get(words, "name");
        options.range = arg_get(words, "range");
        options.run_dir = arg_get(words, "run_dir");
        (void)snprintf(dns_text, sizeof(dns_text), "%s", arg_get(words, "dns"));
        for (dns[0] = strtok_r(dns_text, ",", &save); options.n_dns < 7 && dns[options.n_dns];)
            dns[++options.n_dns] = strtok_r(NULL, ",", &save);
        options.dns = dns;
        r = net_open(&loop, &options, &net, &err);
        say_done("net-open", r, err.msg);
    } else if (net == NULL) {
        say_done(name, -EINVAL, "no network is open");
    } else if (strcmp(name, "net-up") == 0) {
        net_up(net, on_done, "net-up");
    } else if (strcmp(name, "net-attach") == 0) {
        net_attach(net, arg_get(words, "label"), arg_get(words, "address"), on_port, "net-attach");
    } else if (strcmp(name, "net-detach") == 0) {
        net_detach(net, arg_get(words, "label"), on_done, "net-detach");
    } else if (strcmp(name, "net-sweep") == 0) {
        net_sweep(net, on_done, "net-sweep");
    } else if (strcmp(name, "net-down") == 0) {
        net_down(net, on_done, "net-down");
    } else if (strcmp(name, "net-close") == 0) {
        net_close(net, on_net_closed, NULL);
    }
}

/* Memory and state of a template to be. */
static void make_template(const struct vm_spec *spec)
{
    if (memory_fd >= 0)
        (void)close(memory_fd);
    if (state_fd >= 0)
        (void)close(state_fd);
    memory_fd = memfd_create("template", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    state_fd = memfd_create("state", MFD_CLOEXEC);
    if (memory_fd < 0 || state_fd < 0 || ftruncate(memory_fd, (off_t)spec->memory_mb << 20) != 0)
        exit(2);
}

/* Every clone reads the state from its beginning on. */
static int rewind_state(void)
{
    return lseek(state_fd, 0, SEEK_SET) == 0 ? 0 : -errno;
}

/* As the manager does when the template has ended. */
static void seal_command(void)
{
    int r = fcntl(memory_fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL);

    say_done("seal", r == 0 ? 0 : -errno, "");
}

static void vm_command(const char *name, char **words)
{
    static const struct vm_cbs cbs = {on_start, on_exited};
    struct vm_spec spec;
    struct err err = {0};
    const char *exe = arg_get(words, "exe");
    int r = 0;

    spec_from(words, &spec);
    if (spec.memory == VM_MEMORY_TEMPLATE) {
        make_template(&spec);
        spec.memory_fd = memory_fd;
    }
    if (spec.memory == VM_MEMORY_CLONE)
        r = rewind_state();
    if (r == 0 && strcmp(name, "start") == 0)
        r = vm_qemu.start(&loop, exe[0] != '\0' ? exe : NULL, &spec,
                          arg_num(words, "timeout_ms", 30000), &cbs, NULL, &vm, &err);
    else if (strcmp(name, "adopt") == 0)
        r = vm_qemu.adopt(&loop, &spec, arg_num(words, "timeout_ms", 30000), &cbs, NULL, &vm, &err);
    else if (strcmp(name, "remove") == 0)
        r = vm_qemu.remove(&loop, &spec, on_done, "removed", &err);
    else if (strcmp(name, "probe") == 0)
        r = vm_kvm_probe_start(&loop, exe[0] != '\0' ? exe : NULL,
                               arg_num(words, "timeout_ms", 5000), on_probe, NULL, &err);
    else if (vm == NULL)
        r = tr_err_set(&err, -ESRCH, "no machine");
    else if (strcmp(name, "stop") == 0)
        vm_qemu.stop(vm, arg_num(words, "grace_ms", 5000));
    else if (strcmp(name, "kill") == 0)
        vm_qemu.kill(vm);
    else if (strcmp(name, "release") == 0)
        vm_qemu.release(vm, on_released, NULL);
    else if (strcmp(name, "snapshot") == 0)
        r = vm_qemu.snapshot(vm, state_fd, on_done, "snapshot");
    else if (strcmp(name, "console") == 0)
        r = vm_qemu.console(vm, on_text, NULL);
    else if (strcmp(name, "channel") == 0) {
        if (channel_fd >= 0)
            (void)close(channel_fd);
        channel_fd = vm_qemu.channel(vm, &err);
        say_done("channel", channel_fd < 0 ? channel_fd : 0, err.msg);
    }
    if (r != 0)
        say_done(name, r, err.msg);
}

static void on_line(char *line)
{
    char *words[64], *save;
    int n = 0;

    words[0] = strtok_r(line, " \t", &save);
    while (words[n] != NULL && n < 62)
        words[++n] = strtok_r(NULL, " \t", &save);
    words[n] = NULL;
    if (n == 0)
        return;
    if (strncmp(words[0], "net-", 4) == 0)
        net_command(words[0], words + 1);
    else if (strcmp(words[0], "seal") == 0)
        seal_command();
    else
        vm_command(words[0], words + 1);
}

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buf)
{
    static char scratch[8192];

    (void)handle;
    (void)suggested;
    *buf = uv_buf_init(scratch, sizeof(scratch));
}

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf)
{
    static char line[16384];
    static size_t len;
    char *end;

    if (n < 0) {
        uv_close((uv_handle_t *)stream, NULL);
        if (vm != NULL)
            vm_qemu.release(vm, on_released, NULL);
        if (net != NULL)
            net_close(net, on_net_closed, NULL);
        return;
    }
    if ((size_t)n > sizeof(line) - 1 - len)
        exit(2);
    memcpy(line + len, buf->base, (size_t)n);
    len += (size_t)n;
    line[len] = '\0';
    while ((end = strchr(line, '\n')) != NULL) {
        *end = '\0';
        on_line(line);
        len -= (size_t)(end + 1 - line);
        memmove(line, end + 1, len + 1);
    }
}

int main(int argc, char **argv)
{
    int status;

    if (vm_role_main(argc, argv, &status))
        return status;
    (void)signal(SIGPIPE, SIG_IGN);
    tr_log_init("vmctl", TR_LOG_DEBUG);
    if (uv_loop_init(&loop) != 0 || uv_pipe_init(&loop, &input, 0) != 0 ||
        uv_pipe_open(&input, 0) != 0 ||
        uv_read_start((uv_stream_t *)&input, on_alloc, on_read) != 0)
        return 2;
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    if (uv_loop_close(&loop) != 0) {
        (void)fprintf(stderr, "vmctl: handles are left open\n");
        return 3;
    }
    if (channel_fd >= 0)
        (void)close(channel_fd);
    return 0;
}
