/* SPDX-License-Identifier: MIT */
#include "vmm/options.h"

#include <errno.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "transom/config.h"
#include "vmm/file.h"

#define NOBODY 65534

/* Port of "host:port", or 0. */
static uint16_t port_of(const char *listener)
{
    const char *colon = strrchr(listener, ':');
    long port = colon == NULL ? 0 : strtol(colon + 1, NULL, 10);

    return port > 0 && port < 65536 ? (uint16_t)port : 0;
}

/* Where a browser finds previews: the first TLS listener, else the first plain one. */
static void init_preview(struct vmm_options *o, const struct tr_config *config)
{
    const char *domain = tr_config_str(config, "preview_domain");
    bool tls = tr_config_list_len(config, "gateway.https") > 0;
    const char *list = tls ? "gateway.https" : "gateway.http";
    uint16_t port = 0;

    if (*domain)
        snprintf(o->preview_domain, sizeof(o->preview_domain), "%s", domain);
    else
        snprintf(o->preview_domain, sizeof(o->preview_domain), "preview.%s",
                 tr_config_str(config, "domain"));
    snprintf(o->preview_scheme, sizeof(o->preview_scheme), "%s", tls ? "https" : "http");
    if (tr_config_list_len(config, list) > 0)
        port = port_of(tr_config_list_get(config, list, 0));
    o->preview_port = port == (tls ? 443 : 80) ? 0 : port;
}

static int init_user(struct vmm_options *o, const struct tr_config *config, struct err *err)
{
    const char *name = tr_config_str(config, "vmm.user");
    const struct passwd *pw;

    o->qemu_uid = o->qemu_gid = NOBODY;
    if (!*name)
        return 0;
    pw = getpwnam(name);
    if (pw == NULL)
        return tr_err_set(err, -ENOENT,
                          "vmm.user: there is no user \"%s\"; create it or name another", name);
    o->qemu_uid = pw->pw_uid;
    o->qemu_gid = pw->pw_gid;
    return 0;
}

int vmm_options_init(struct vmm_options *o, const struct tr_config *config, struct err *err)
{
    const char *node = tr_config_str(config, "node.name");

    memset(o, 0, sizeof(*o));
    o->config = config;
    if (*node)
        snprintf(o->node, sizeof(o->node), "%s", node);
    else if (gethostname(o->node, sizeof(o->node) - 1) != 0)
        snprintf(o->node, sizeof(o->node), "node");
    o->state_dir = tr_config_str(config, "state_dir");
    o->run_dir = tr_config_str(config, "run_dir");
    o->cache_dir = tr_config_str(config, "cache_dir");
    /* The longest socket below it is run_dir/vm/<label>/console.sock; sun_path holds 107 bytes. */
    if (strlen(o->run_dir) > 65)
        return tr_err_set(err, -ENAMETOOLONG,
                          "run_dir: longer than 65 bytes, too long for unix sockets below it");
    o->redis_url = tr_config_str(config, "redis.url");
    o->gateway_user = tr_config_str(config, "gateway.user");
    o->metrics = tr_config_str(config, "vmm.metrics");
    o->accelerator = tr_config_str(config, "vmm.accelerator");
    o->qemu = tr_config_str(config, "vmm.qemu");
    o->image_path = tr_config_str(config, "image.path");
    o->cgroup = tr_config_str(config, "vmm.cgroup");
    o->vcpus = tr_config_int(config, "vmm.vcpus");
    o->memory_mb = tr_config_int(config, "vmm.memory_mb");
    o->disk_mb = tr_config_int(config, "vmm.disk_mb");
    o->max_sandboxes = tr_config_int(config, "vmm.max_sandboxes");
    o->start_timeout_ms = tr_config_int(config, "vmm.start_timeout_ms");
    o->max_json_bytes = tr_config_int(config, "vmm.max_json_bytes");
    o->requests_per_s = tr_config_int(config, "vmm.requests_per_s");
    o->requests_burst = tr_config_int(config, "vmm.requests_burst");
    o->audit_entries = tr_config_int(config, "vmm.audit_entries");
    o->stop_machines_on_exit = tr_config_bool(config, "vmm.stop_machines_on_exit");
    o->snapshots = tr_config_bool(config, "vmm.snapshots");
    o->net_enabled = tr_config_bool(config, "net.enabled");
    o->quota_mb = tr_config_int(config, "sessions.quota_mb");
    o->git_mb = tr_config_int(config, "sessions.git_mb");
    o->repack_objects = tr_config_int(config, "sessions.repack_objects");
    o->idle_timeout_s = tr_config_int(config, "idle.timeout_s");
    o->idle_persist_s = tr_config_int(config, "idle.persist_timeout_s");
    o->idle_warning_s = tr_config_int(config, "idle.warning_s");
    o->idle_max_run_s = tr_config_int(config, "idle.max_run_s");
    init_preview(o, config);
    return init_user(o, config, err);
}

static bool program_exists(const char *name)
{
    const char *path = getenv("PATH");
    char full[VMM_PATH_SIZE];

    if (strchr(name, '/') != NULL)
        return access(name, X_OK) == 0;
    if (path == NULL)
        path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
    while (*path) {
        size_t len = strcspn(path, ":");

        snprintf(full, sizeof(full), "%.*s/%s", (int)len, path, name);
        if (access(full, X_OK) == 0)
            return true;
        path += len + (path[len] == ':');
    }
    return false;
}

static int need(const char *program, const char *package, const char *option, struct err *err)
{
    if (program_exists(program))
        return 0;
    return tr_err_set(err, -ENOENT, "%s was not found: install it (apt-get install %s)%s%s",
                      program, package, *option ? " or set " : "", option);
}

static int check_folder(const char *option, const char *path, mode_t mode, struct err *err)
{
    if (vmm_file_mkdirs(path, mode, err) != 0) {
        (void)tr_err_wrap(err, "%s", option);
        return err->code;
    }
    if (access(path, W_OK | X_OK) != 0)
        return tr_err_set(err, -errno,
                          "%s: %s is not writable (%s): run as its owner or set another folder",
                          option, path, strerror(errno));
    return 0;
}

int vmm_options_check_host(const struct vmm_options *o, struct err *err)
{
    int r = check_folder("state_dir", o->state_dir, 0700, err);

    if (r == 0)
        r = check_folder("run_dir", o->run_dir, 0755, err);
    if (r == 0 && !*o->redis_url)
        r = need("redis-server", "redis-server", "redis.url", err);
    if (r == 0)
        r = need(o->qemu, "qemu-system-x86", "vmm.qemu", err);
    if (r == 0)
        r = need("mkfs.ext4", "e2fsprogs", "", err);
    if (r == 0 && o->net_enabled) {
        r = need("nft", "nftables", "net.enabled: false", err);
        if (r == 0)
            r = need("ip", "iproute2", "net.enabled: false", err);
        if (r == 0)
            r = need("dnsmasq", "dnsmasq-base", "net.enabled: false", err);
    }
    return r;
}
