/* SPDX-License-Identifier: MIT */
/* The pure parts of the driver: specs, command lines, exit reasons, names of processes. */
#include "vmm/driver/console.h"
#include "vmm/driver/driver.h"
#include "vmm/driver/exit_reason.h"
#include "vmm/driver/kvm_probe.h"
#include "vmm/driver/qemu_args.h"
#include "vmm/driver/qemu_version.h"
#include "vmm/driver/spec.h"
#include "vmm/driver/warn_once.h"
#include "vmm/proc/procid.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static struct vm_spec spec;
static struct err err;

static void setup(void)
{
    tr_err_clear(&err);
    spec = (struct vm_spec){
        .label = "abcdefgh01234567",
        .instance = 7,
        .accel = VM_ACCEL_TCG,
        .vcpus = 2,
        .memory_mb = 512,
        .tsc_khz = 2300000,
        .kernel = "/i/vmlinux",
        .initrd = "/i/initrd",
        .root_image = "/i/root.erofs",
        .data_disk = "/m/data",
        .disk_mb = 4096,
        .run_dir = "/r/abc",
        .cgroup = "transom",
        .qemu = "qemu",
        .netns = "ns",
        .tap = "tabc",
        .mac = {2, 0x54, 100, 64, 0, 255},
        .mtu = 1500,
        .uid = 65534,
        .gid = 65533,
        .cmdline = "debug",
    };
}

/* --- spec --- */

START_TEST(a_spec_survives_the_way_to_the_launcher)
{
    struct vm_spec_copy back;
    char *text, *again;
    size_t len, again_len;

    ck_assert_int_eq(vm_spec_check(&spec, &err), 0);
    ck_assert_int_eq(vm_spec_encode(&spec, &text, &len), 0);
    ck_assert_int_eq(vm_spec_decode(text, len, &back, &err), 0);
    ck_assert_str_eq(back.spec.label, spec.label);
    ck_assert_str_eq(back.spec.cmdline, spec.cmdline);
    ck_assert_int_eq(memcmp(back.spec.mac, spec.mac, 6), 0);
    ck_assert_uint_eq(back.spec.gid, spec.gid);
    ck_assert_int_eq(vm_spec_encode(&back.spec, &again, &again_len), 0);
    ck_assert_uint_eq(len, again_len);
    ck_assert_int_eq(memcmp(text, again, len), 0);
    free(text);
    free(again);
    vm_spec_fini(&back);
}
END_TEST

START_TEST(missing_strings_become_empty_ones)
{
    struct vm_spec_copy back;

    spec.tap = spec.netns = spec.cmdline = spec.cgroup = NULL;
    ck_assert_int_eq(vm_spec_copy(&spec, &back), 0);
    ck_assert_str_eq(back.spec.tap, "");
    ck_assert_str_eq(back.spec.cgroup, "");
    vm_spec_fini(&back);
}
END_TEST

START_TEST(broken_messages_are_refused)
{
    struct vm_spec_copy back;
    char *text;
    size_t len, cut;

    ck_assert_int_eq(vm_spec_encode(&spec, &text, &len), 0);
    for (cut = 0; cut < len; cut++)
        ck_assert_int_eq(vm_spec_decode(text, cut, &back, &err), UV_EINVAL);
    for (cut = 0; cut < len; cut++) {
        text[cut] ^= 0x20; /* changes a name or a value; must never read beyond */
        if (vm_spec_decode(text, len, &back, &err) == 0)
            vm_spec_fini(&back);
        text[cut] ^= 0x20;
    }
    free(text);
}
END_TEST

START_TEST(bad_specs_are_refused)
{
    struct vm_spec good = spec;

#define REFUSED(change, word)                                                                      \
    do {                                                                                           \
        spec = good;                                                                               \
        change;                                                                                    \
        ck_assert_int_eq(vm_spec_check(&spec, &err), UV_EINVAL);                                   \
        ck_assert_msg(strstr(err.msg, word) != NULL, "%s: %s", #change, err.msg);                  \
    } while (0)
    REFUSED(spec.label = "short", "label");
    REFUSED(spec.label = "ABCDEFGH01234567", "label");
    REFUSED(spec.label = "abcdefg/../34567", "label");
    REFUSED(spec.label = NULL, "label");
    REFUSED(spec.run_dir = "relative", "run directory");
    REFUSED(spec.cgroup = "../x", "cgroup");
    REFUSED(spec.cgroup = "a/b", "cgroup");
    REFUSED(spec.vcpus = 0, "vCPU");
    REFUSED(spec.vcpus = 65, "vCPU");
    REFUSED(spec.memory_mb = 63, "memory");
    REFUSED(spec.kernel = "", "image");
    REFUSED(spec.initrd = NULL, "image");
    REFUSED(spec.data_disk = "data", "disk");
    REFUSED(spec.disk_mb = 0, "disk");
    REFUSED(spec.tap = "a-name-that-is-too-long", "tap");
    REFUSED(spec.netns = "../../etc", "tap");
    REFUSED(spec.netns = "", "tap");
    REFUSED(spec.cmdline = "a\nb", "command line");
    REFUSED(spec.accel = (enum vm_accel)9, "accelerator");
}
END_TEST

/* --- command line --- */

static bool has(char **argv, const char *option, const char *value)
{
    for (; *argv != NULL; argv++)
        if (strcmp(*argv, option) == 0 && (value == NULL || strcmp(argv[1], value) == 0))
            return true;
    return false;
}

static const char *value_of(char **argv, const char *option)
{
    for (; *argv != NULL; argv++)
        if (strcmp(*argv, option) == 0)
            return argv[1];
    return "";
}

static struct qemu_places places = {
    .program = "/usr/bin/q",
    .kernel = "/image/kernel",
    .initrd = "/image/initrd",
    .qmp_fd = 3,
    .agent_fd = 4,
    .root_fd = 5,
    .data_fd = 6,
    .data_read_fd = 7,
    .tap_fd = 8,
};

START_TEST(a_tcg_machine_knows_the_clock_rate)
{
    char **argv = qemu_args(&spec, &places);

    ck_assert_ptr_nonnull(argv);
    ck_assert_str_eq(argv[0], "/usr/bin/q");
    ck_assert(has(argv, "-accel", "tcg,thread=single,tb-size=64"));
    ck_assert(has(argv, "-cpu", "max,-erms"));
    ck_assert(has(argv, "-action", "reboot=shutdown,shutdown=pause"));
    ck_assert(has(argv, "-sandbox",
                  "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny"));
    ck_assert(has(argv, "-chardev", "socket,id=agent,fd=4,server=on,wait=off"));
    ck_assert(has(argv, "-device", "virtserialport,chardev=agent,name=transom.agent.0"));
    ck_assert(has(argv, "-device", "virtio-blk-device,drive=root,serial=root"));
    ck_assert(has(argv, "-device", "virtio-blk-device,drive=data,serial=data"));
    ck_assert(has(argv, "-drive", "id=root,file=/dev/fdset/1,format=raw,if=none,readonly=on"));
    ck_assert(has(argv, "-netdev", "tap,id=net,fd=8"));
    ck_assert(
        has(argv, "-device", "virtio-net-device,netdev=net,mac=02:54:64:40:00:ff,host_mtu=1500"));
    ck_assert_str_eq(
        value_of(argv, "-append"),
        "console=ttyS0 quiet loglevel=4 reboot=t panic=-1 tsc_early_khz=2300000 tsc=reliable "
        "lpj=9200000 transom.lapic_khz=62500 no_timer_check cryptomgr.notests 8250.nr_uarts=1 "
        "i8042.noaux i8042.nomux "
        "i8042.nopnp pci=off transom.root=root transom.data=data debug");
    qemu_args_free(argv);
}
END_TEST

START_TEST(processors_run_at_once_where_qemu_can_do_it)
{
    static const unsigned versions[] = {0, 702, 800, 801, 1002};

    for (size_t i = 0; i < sizeof(versions) / sizeof(versions[0]); i++) {
        char **argv;

        spec.qemu_version = versions[i];
        argv = qemu_args(&spec, &places);
        ck_assert(has(argv, "-accel",
                      versions[i] >= 801 ? "tcg,thread=multi,tb-size=64"
                                         : "tcg,thread=single,tb-size=64"));
        qemu_args_free(argv);
    }
}
END_TEST

START_TEST(a_kvm_machine_does_without)
{
    char **argv;

    spec.accel = VM_ACCEL_KVM;
    argv = qemu_args(&spec, &places);
    ck_assert(has(argv, "-accel", "kvm"));
    ck_assert(has(argv, "-cpu", "host"));
    ck_assert_ptr_null(strstr(value_of(argv, "-append"), "khz"));
    qemu_args_free(argv);
}
END_TEST

START_TEST(a_template_and_its_clones_have_the_same_devices)
{
    char **template, **clone;
    int n = 0;

    places.memory_fd = 9;
    spec.memory = VM_MEMORY_TEMPLATE;
    template = qemu_args(&spec, &places);
    spec.memory = VM_MEMORY_CLONE;
    clone = qemu_args(&spec, &places);
    ck_assert(has(template, "-M", "microvm,isa-serial=on,rtc=on,memory-backend=mem"));
    ck_assert_ptr_nonnull(
        strstr(value_of(template, "-object"), ",mem-path=/proc/self/fd/9,share=on"));
    ck_assert_ptr_nonnull(
        strstr(value_of(clone, "-object"), ",mem-path=/proc/self/fd/9,share=off"));
    ck_assert(has(clone, "-incoming", "defer"));
    ck_assert(!has(template, "-incoming", NULL));
    ck_assert(!has(clone, "-kernel", NULL)); /* it has booted */
    /* Memory that is shared cannot be given back. */
    ck_assert(has(clone, "-device", "virtio-balloon-device,free-page-reporting=off"));
    for (char **t = template, **c = clone; *t != NULL; t++) {
        if (strcmp(*t, "-device") != 0)
            continue;
        while (strcmp(*c, "-device") != 0)
            c++;
        ck_assert_str_eq(t[1], c[1]);
        c++;
        n++;
    }
    ck_assert_int_ge(n, 7);
    qemu_args_free(template);
    qemu_args_free(clone);
}
END_TEST

START_TEST(what_is_not_there_is_not_named)
{
    struct qemu_places none = places;
    char **argv;

    none.root_fd = none.data_fd = none.data_read_fd = none.tap_fd = -1;
    spec.cmdline = "";
    argv = qemu_args(&spec, &none);
    ck_assert(!has(argv, "-drive", NULL));
    ck_assert(!has(argv, "-netdev", NULL));
    ck_assert_ptr_null(strstr(value_of(argv, "-append"), "transom.root"));
    ck_assert_ptr_null(strstr(value_of(argv, "-append"), "transom.data"));
    qemu_args_free(argv);
}
END_TEST

/* --- exit reasons --- */

static const struct {
    struct exit_facts facts;
    enum vm_exit_reason reason;
    const char *detail;
} exits[] = {
    {{.shutdown = "guest-shutdown"}, VM_EXIT_SHUTDOWN, "powered off"},
    {{.shutdown = "guest-reset"}, VM_EXIT_RESET, "rebooted"},
    {{.shutdown = "guest-reset", .panic = "Kernel panic - x"}, VM_EXIT_PANIC, "Kernel panic - x"},
    {{.shutdown = "guest-panic"}, VM_EXIT_PANIC, "panicked"},
    {{.off = true, .code = -1}, VM_EXIT_SHUTDOWN, "no manager"},
    {{.off = true, .code = -1, .panic = "Kernel panic - y"}, VM_EXIT_PANIC, "panic - y"},
    /* The order to quit follows a guest's end as well: the guest's end is the reason. */
    {{.shutdown = "guest-shutdown", .we_quit = true}, VM_EXIT_SHUTDOWN, "powered off"},
    {{.shutdown = "host-qmp-quit", .we_quit = true}, VM_EXIT_QUIT, "in time"},
    {{.shutdown = "host-signal"}, VM_EXIT_QUIT, "ended"},
    {{.signal = SIGKILL, .we_kill = true}, VM_EXIT_KILLED, "on request"},
    {{.signal = SIGKILL}, VM_EXIT_KILLED, "something else"},
    {{.signal = SIGKILL, .oom_kills = 1, .memory_mb = 512}, VM_EXIT_KILLED, "memory limit"},
    {{.code = -1}, VM_EXIT_KILLED, "something else"},
    {{.code = -1, .we_kill = true}, VM_EXIT_KILLED, "on request"},
    {{.code = -1, .oom_kills = 2}, VM_EXIT_KILLED, "memory limit"},
    {{.signal = SIGSEGV, .stderr_tail = "last words"}, VM_EXIT_HOST_ERROR, "last words"},
    {{.signal = SIGSYS}, VM_EXIT_HOST_ERROR, "signal 31"},
    {{.code = 1, .stderr_tail = "no such option"}, VM_EXIT_HOST_ERROR, "no such option"},
};

START_TEST(ends_are_told_apart)
{
    struct vm_exit ex;

    exit_explain(&exits[_i].facts, &ex);
    ck_assert_msg(ex.reason == exits[_i].reason, "%d: %s: %s", _i, vm_exit_reason_name(ex.reason),
                  ex.detail);
    ck_assert_msg(strstr(ex.detail, exits[_i].detail) != NULL, "%d: %s", _i, ex.detail);
    ck_assert_int_eq(ex.signal, exits[_i].facts.signal);
}
END_TEST

START_TEST(a_panic_is_found_and_made_printable)
{
    static const char console[] =
        "boot\r\n[    1.0] Kernel panic - not syncing: \x1b[31mx\xff\r\nmore";
    char line[64];

    ck_assert(exit_find_panic(console, sizeof(console) - 1, line, sizeof(line)));
    ck_assert_str_eq(line, "Kernel panic - not syncing:  [31mx ");
    ck_assert(exit_find_panic(console, sizeof(console) - 1, line, 10));
    ck_assert_str_eq(line, "Kernel pa");
    ck_assert(!exit_find_panic("no panic - here", 15, line, sizeof(line)));
    ck_assert(!exit_find_panic("", 0, line, sizeof(line)));
}
END_TEST

START_TEST(console_bytes_are_decoded)
{
    size_t len;
    char *text = console_decode("AGFi/w==", &len);

    ck_assert_uint_eq(len, 4);
    ck_assert_int_eq(memcmp(text, "\0ab\xff", 4), 0);
    free(text);
    text = console_decode("", &len);
    ck_assert_uint_eq(len, 0);
    free(text);
    ck_assert_ptr_null(console_decode("a b", &len));
    ck_assert_ptr_null(console_decode(NULL, &len));
}
END_TEST

/* --- processes --- */

START_TEST(a_pidfile_names_exactly_one_process)
{
    char dir[] = "/tmp/test_machine.XXXXXX";
    struct procid id, back;
    int dir_fd;
    pid_t child = fork();

    if (child == 0) {
        (void)pause();
        _exit(0);
    }
    ck_assert_ptr_nonnull(mkdtemp(dir));
    dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    ck_assert_int_eq(procid_load(dir_fd, "pidfile", &back), -ENOENT);
    ck_assert_int_eq(procid_of(child, &id), 0);
    id.instance = 1ULL << 60;
    ck_assert_int_eq(procid_save(dir_fd, "pidfile", &id), 0);
    ck_assert_int_eq(procid_load(dir_fd, "pidfile", &back), 0);
    ck_assert_int_eq(back.pid, id.pid);
    ck_assert_uint_eq(back.start, id.start);
    ck_assert_uint_eq(back.instance, id.instance);
    ck_assert_str_eq(back.boot, id.boot);
    ck_assert(procid_alive(&back));
    back.start++; /* another process under the same number */
    ck_assert(!procid_alive(&back));
    ck_assert_int_eq(procid_signal(&back, SIGKILL), -ESRCH);
    back = id;
    back.boot[0] ^= 1; /* before a reboot */
    ck_assert(!procid_alive(&back));
    ck_assert(procid_alive(&id));
    ck_assert_int_eq(procid_signal(&id, SIGKILL), 0);
    /* A zombie does not run any more. */
    ck_assert_int_eq(waitid(P_PID, (id_t)child, &(siginfo_t){0}, WEXITED | WNOWAIT), 0);
    ck_assert(!procid_alive(&id));
    ck_assert_int_eq(waitpid(child, NULL, 0), child);
    ck_assert_int_lt(procid_pidfd(&id), 0);
    ck_assert_int_eq(unlinkat(dir_fd, "pidfile", 0), 0);
    (void)close(dir_fd);
    ck_assert_int_eq(rmdir(dir), 0);
}
END_TEST

START_TEST(bad_pidfiles_are_refused)
{
    static const char *const texts[] = {
        "",
        "\n",
        "1 2 31cfff85-82cd-402e-9312-11234fb7e8cf 3\n",
        "-5 2 31cfff85 3\n",
        "12",
        "12 x 31cfff85 3",
        "12 13 NOTHEX 3",
        "12 13 31cfff85 3 extra",
        "12 13 31cfff85",
    };
    struct procid id;
    size_t i;

    for (i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
        ck_assert_msg(procid_parse(texts[i], &id) == -EINVAL, "%s", texts[i]);
}
END_TEST

/* --- the probe's line --- */

START_TEST(the_probes_answer_is_understood)
{
    struct vm_kvm_result result;

    ck_assert_int_eq(vm_kvm_parse("tsc_khz=2300000\nusable 12 it works, 5 us\n", &result), 0);
    ck_assert_int_eq(result.verdict, VM_KVM_USABLE);
    ck_assert_uint_eq(result.tsc_khz, 2300000);
    ck_assert_uint_eq(result.rate, 12);
    ck_assert_str_eq(result.reason, "it works, 5 us");
    ck_assert_int_eq(vm_kvm_parse("tsc_khz=1\nabsent 0 no\n", &result), 0);
    ck_assert_int_eq(result.verdict, VM_KVM_ABSENT);
    ck_assert_int_eq(vm_kvm_parse("tsc_khz=1\n", &result), UV_EINVAL);
    ck_assert_int_eq(vm_kvm_parse("tsc_khz=1\nperhaps 0 x\n", &result), UV_EINVAL);
    ck_assert_int_eq(vm_kvm_parse("", &result), UV_EINVAL);
}
END_TEST

START_TEST(qemus_version_is_understood)
{
    ck_assert_uint_eq(
        qemu_version_parse("QEMU emulator version 7.2.22 (Debian 1:7.2+dfsg-7+deb12u18)\n"), 702);
    ck_assert_uint_eq(qemu_version_parse("QEMU emulator version 10.0.2\nCopyright"), 1000);
    ck_assert_uint_eq(qemu_version_parse("QEMU emulator version x"), 0);
    ck_assert_uint_eq(qemu_version_parse("sh: not found"), 0);
    ck_assert_uint_eq(qemu_version_parse(""), 0);
}
END_TEST

START_TEST(a_warning_is_new_once)
{
    ck_assert(warn_once("no limit: cannot write 5 to /a/b"));
    ck_assert(!warn_once("no limit: cannot write 7 to /c/d"));
    ck_assert(warn_once("something else"));
    ck_assert(!warn_once("something else"));
}
END_TEST

int main(void)
{
    Suite *s = suite_create("vmm/driver");
    TCase *tc = tcase_create("machine");
    SRunner *sr = srunner_create(s);
    int n_failed;

    tcase_add_checked_fixture(tc, setup, NULL);
    tcase_add_test(tc, a_spec_survives_the_way_to_the_launcher);
    tcase_add_test(tc, missing_strings_become_empty_ones);
    tcase_add_test(tc, broken_messages_are_refused);
    tcase_add_test(tc, bad_specs_are_refused);
    tcase_add_test(tc, a_tcg_machine_knows_the_clock_rate);
    tcase_add_test(tc, processors_run_at_once_where_qemu_can_do_it);
    tcase_add_test(tc, a_kvm_machine_does_without);
    tcase_add_test(tc, what_is_not_there_is_not_named);
    tcase_add_test(tc, a_template_and_its_clones_have_the_same_devices);
    tcase_add_loop_test(tc, ends_are_told_apart, 0, sizeof(exits) / sizeof(exits[0]));
    tcase_add_test(tc, a_panic_is_found_and_made_printable);
    tcase_add_test(tc, console_bytes_are_decoded);
    tcase_add_test(tc, a_pidfile_names_exactly_one_process);
    tcase_add_test(tc, bad_pidfiles_are_refused);
    tcase_add_test(tc, the_probes_answer_is_understood);
    tcase_add_test(tc, qemus_version_is_understood);
    tcase_add_test(tc, a_warning_is_new_once);
    suite_add_tcase(s, tc);
    srunner_run_all(sr, CK_ENV);
    n_failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return n_failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
