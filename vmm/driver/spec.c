/* SPDX-License-Identifier: MIT */
#include "vmm/driver/spec.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum field_type { FIELD_TEXT, FIELD_U16, FIELD_U32, FIELD_U64, FIELD_MAC };

/* One line per member: the name on the wire is the member's own. */
#define FIELD(member, type)                                                                        \
    {                                                                                              \
#member, type, offsetof(struct vm_spec, member)                                            \
    }
static const struct {
    const char *name;
    enum field_type type;
    size_t offset;
} fields[] = {
    FIELD(label, FIELD_TEXT),       FIELD(instance, FIELD_U64),   FIELD(accel, FIELD_U32),
    FIELD(vcpus, FIELD_U32),        FIELD(memory_mb, FIELD_U32),  FIELD(tsc_khz, FIELD_U32),
    FIELD(qemu_version, FIELD_U32), FIELD(kernel, FIELD_TEXT),    FIELD(initrd, FIELD_TEXT),
    FIELD(root_image, FIELD_TEXT),  FIELD(data_disk, FIELD_TEXT), FIELD(disk_mb, FIELD_U32),
    FIELD(run_dir, FIELD_TEXT),     FIELD(cgroup, FIELD_TEXT),    FIELD(qemu, FIELD_TEXT),
    FIELD(netns, FIELD_TEXT),       FIELD(tap, FIELD_TEXT),       FIELD(mac, FIELD_MAC),
    FIELD(mtu, FIELD_U16),          FIELD(uid, FIELD_U32),        FIELD(gid, FIELD_U32),
    FIELD(cmdline, FIELD_TEXT),     FIELD(memory, FIELD_U32),     FIELD(disk_from, FIELD_TEXT),
};
#define N_FIELDS (sizeof(fields) / sizeof(fields[0]))

_Static_assert(sizeof(enum vm_accel) == 4 && sizeof(enum vm_memory) == 4 && sizeof(unsigned) == 4 &&
                   sizeof(uid_t) == 4 && sizeof(gid_t) == 4,
               "these travel as FIELD_U32");

static const char *text_of(const char *s)
{
    return s != NULL ? s : "";
}

/* A name that becomes one path component: no slash, no leading dot. */
static bool is_name(const char *s, size_t max)
{
    size_t len = strlen(s);

    return len > 0 && len <= max && s[0] != '.' &&
           strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-") == len;
}

int vm_spec_check_place(const struct vm_spec *spec, struct err *err)
{
    const char *label = text_of(spec->label);

    if (strlen(label) != 16 || strspn(label, "abcdefghijklmnopqrstuvwxyz0123456789") != 16)
        return tr_err_set(err, UV_EINVAL, "machine: bad label \"%.40s\"", label);
    if (text_of(spec->run_dir)[0] != '/')
        return tr_err_set(err, UV_EINVAL, "machine: run directory must be an absolute path");
    if (text_of(spec->cgroup)[0] != '\0' && !is_name(spec->cgroup, 64))
        return tr_err_set(err, UV_EINVAL, "vmm.cgroup: \"%.80s\" is not a plain name",
                          spec->cgroup);
    return 0;
}

int vm_spec_check(const struct vm_spec *spec, struct err *err)
{
    int r = vm_spec_check_place(spec, err);

    if (r != 0)
        return r;
    if (spec->vcpus < 1 || spec->vcpus > 64)
        return tr_err_set(err, UV_EINVAL, "machine: %u vCPUs (1 to 64 are possible)", spec->vcpus);
    if (spec->memory_mb < 64 || spec->memory_mb > 1048576)
        return tr_err_set(err, UV_EINVAL, "machine: %u MB of memory (64 to 1048576 are possible)",
                          spec->memory_mb);
    if (text_of(spec->kernel)[0] != '/' || text_of(spec->initrd)[0] != '/' ||
        (text_of(spec->root_image)[0] != '\0' && spec->root_image[0] != '/'))
        return tr_err_set(err, UV_EINVAL, "machine: image files must be absolute paths");
    if (text_of(spec->data_disk)[0] != '\0' && (spec->data_disk[0] != '/' || spec->disk_mb < 16))
        return tr_err_set(err, UV_EINVAL,
                          "machine: the data disk needs an absolute path and 16 MB or more");
    if (text_of(spec->tap)[0] != '\0' &&
        (!is_name(spec->tap, 15) || !is_name(text_of(spec->netns), 32)))
        return tr_err_set(err, UV_EINVAL, "machine: bad tap or namespace name");
    if (spec->accel != VM_ACCEL_TCG && spec->accel != VM_ACCEL_KVM)
        return tr_err_set(err, UV_EINVAL, "machine: bad accelerator");
    if (spec->memory > VM_MEMORY_CLONE)
        return tr_err_set(err, UV_EINVAL, "machine: bad kind of memory");
    if (text_of(spec->disk_from)[0] != '\0' &&
        (spec->disk_from[0] != '/' || text_of(spec->data_disk)[0] == '\0'))
        return tr_err_set(err, UV_EINVAL, "machine: a disk to copy needs an absolute path");
    if (strpbrk(text_of(spec->cmdline), "\n\"") != NULL)
        return tr_err_set(err, UV_EINVAL, "machine: bad kernel command line");
    return 0;
}

static void print_field(FILE *f, const struct vm_spec *spec, size_t i)
{
    const char *at = (const char *)spec + fields[i].offset;
    const uint8_t *m = (const uint8_t *)at;

    (void)fprintf(f, "%s=", fields[i].name);
    switch (fields[i].type) {
    case FIELD_TEXT:
        (void)fputs(text_of(*(const char *const *)at), f);
        break;
    case FIELD_U16:
        (void)fprintf(f, "%u", *(const uint16_t *)at);
        break;
    case FIELD_U32:
        (void)fprintf(f, "%" PRIu32, *(const uint32_t *)at);
        break;
    case FIELD_U64:
        (void)fprintf(f, "%" PRIu64, *(const uint64_t *)at);
        break;
    case FIELD_MAC:
        (void)fprintf(f, "%02x:%02x:%02x:%02x:%02x:%02x", m[0], m[1], m[2], m[3], m[4], m[5]);
        break;
    }
    (void)fputc('\0', f);
}

int vm_spec_encode(const struct vm_spec *spec, char **text, size_t *len)
{
    FILE *f = open_memstream(text, len);
    size_t i;

    if (f == NULL)
        return UV_ENOMEM;
    for (i = 0; i < N_FIELDS; i++)
        print_field(f, spec, i);
    (void)fputc('\0', f);
    if (fclose(f) != 0)
        return UV_ENOMEM;
    if (*len > VM_SPEC_TEXT_MAX) {
        free(*text);
        return UV_EMSGSIZE;
    }
    return 0;
}

static int parse_number(const char *value, uint64_t max, uint64_t *out)
{
    char *end;

    if (value[0] < '0' || value[0] > '9')
        return UV_EINVAL;
    errno = 0;
    *out = strtoull(value, &end, 10);
    return errno != 0 || *end != '\0' || *out > max ? UV_EINVAL : 0;
}

static int parse_field(struct vm_spec *spec, size_t i, const char *value)
{
    char *at = (char *)spec + fields[i].offset;
    uint64_t n = 0;
    int r = 0, end = 0;

    switch (fields[i].type) {
    case FIELD_TEXT:
        *(const char **)at = value;
        break;
    case FIELD_U16:
        r = parse_number(value, UINT16_MAX, &n);
        *(uint16_t *)at = (uint16_t)n;
        break;
    case FIELD_U32:
        r = parse_number(value, UINT32_MAX, &n);
        *(uint32_t *)at = (uint32_t)n;
        break;
    case FIELD_U64:
        r = parse_number(value, UINT64_MAX, &n);
        *(uint64_t *)at = n;
        break;
    case FIELD_MAC: {
        uint8_t *m = (uint8_t *)at;

        if (sscanf(value, "%2hhx:%2hhx:%2hhx:%2hhx:%2hhx:%2hhx%n", &m[0], &m[1], &m[2], &m[3],
                   &m[4], &m[5], &end) != 6 ||
            value[end] != '\0')
            r = UV_EINVAL;
        break;
    }
    }
    return r;
}

/* Every field must be there, once, in the table's order: both ends are the same program. */
int vm_spec_decode(const char *text, size_t len, struct vm_spec_copy *out, struct err *err)
{
    char *p;
    size_t i;

    memset(out, 0, sizeof(*out));
    if (len == 0 || len > VM_SPEC_TEXT_MAX || text[len - 1] != '\0')
        return tr_err_set(err, UV_EINVAL, "machine: broken message to the launcher");
    out->text = malloc(len);
    if (out->text == NULL)
        return tr_err_set(err, UV_ENOMEM, "out of memory");
    memcpy(out->text, text, len);
    p = out->text;
    for (i = 0; i < N_FIELDS; i++) {
        size_t name_len = strlen(fields[i].name);

        if (p >= out->text + len || strncmp(p, fields[i].name, name_len) != 0 ||
            p[name_len] != '=' || parse_field(&out->spec, i, p + name_len + 1) != 0)
            break;
        p += strlen(p) + 1;
    }
    if (i == N_FIELDS && p == out->text + len - 1)
        return 0;
    vm_spec_fini(out);
    return tr_err_set(err, UV_EINVAL, "machine: broken message to the launcher");
}

int vm_spec_copy(const struct vm_spec *spec, struct vm_spec_copy *out)
{
    char *text;
    size_t len;
    int r = vm_spec_encode(spec, &text, &len);

    if (r != 0)
        return r;
    r = vm_spec_decode(text, len, out, NULL);
    free(text);
    return r;
}

void vm_spec_fini(struct vm_spec_copy *copy)
{
    free(copy->text);
    memset(copy, 0, sizeof(*copy));
}
