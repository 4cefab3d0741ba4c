# SPDX-License-Identifier: MIT
"""Finding and removing what a test left behind, also when the test itself was killed.

What belongs to a test is told by evidence that no program of ours sets up for that purpose: a
process runs in one of the test's network namespaces, has the test's mark in its environment, names
the test's folder in its arguments, or is in one of its cgroups (jailed machines: no other trace); mounts, namespaces and cgroups carry the folder or the tag.
"""
import contextlib
import glob
import os
import shutil
import signal
import subprocess
import time

from .wait import wait_until

MARK = "TRANSOM_TEST"


def _read(path):
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""


def _is_zombie(pid):
    stat = _read(f"/proc/{pid}/stat")
    return not stat or stat.rpartition(b")")[2].split()[:1] == [b"Z"]


def namespaces(tag):
    return sorted(name for name in _listdir("/run/netns") if tag in name)


def _listdir(path):
    try:
        return os.listdir(path)
    except OSError:
        return []


def processes(tag, folder, spare=()):
    """Pids that belong to the test, besides `spare`."""
    inodes = set()
    for name in namespaces(tag):
        with contextlib.suppress(OSError):
            inodes.add(os.stat("/run/netns/" + name).st_ino)
    mark = f"{MARK}={tag}".encode()
    found = []
    for entry in _listdir("/proc"):
        if not entry.isdigit() or int(entry) in spare:
            continue
        base = f"/proc/{entry}"
        mine = False
        with contextlib.suppress(OSError):
            mine = os.stat(base + "/ns/net").st_ino in inodes
        mine = mine or mark in _read(base + "/environ").split(b"\0")
        mine = mine or folder.encode() in _read(base + "/cmdline")
        mine = mine or tag.encode() in _read(base + "/cgroup")
        if mine and not _is_zombie(entry):
            found.append(int(entry))
    return found


def _cgroups(tag):
    return [path for pattern in ("/sys/fs/cgroup/*", "/sys/fs/cgroup/*/*", "/sys/fs/cgroup/*/*/*",
                                       "/sys/fs/cgroup/*/*/*/*")
            for path in glob.glob(pattern) if tag in os.path.basename(path)]


def _mounts(folder):
    points = [line.split()[4].decode() for line in _read("/proc/self/mountinfo").splitlines()]
    return [point for point in points if point.startswith(folder)]


def _sockets(folder):
    lines = _read("/proc/net/unix").decode(errors="replace").splitlines()
    return sorted({line.split()[-1] for line in lines if folder in line})


def _describe(pid):
    words = _read(f"/proc/{pid}/cmdline").replace(b"\0", b" ").decode(errors="replace")
    return f"process {pid}: {words[:300]}"


def links():
    """Names of the network interfaces of the namespace that this process is in."""
    lines = subprocess.run(["ip", "-o", "link"], stdout=subprocess.PIPE, check=True).stdout.decode()
    return {line.split()[1].rstrip(":").split("@")[0] for line in lines.splitlines()}


def leftovers(tag, folder, own_namespace, own_links, spare=()):
    """What is still there of a node that was told to end: a list of sentences."""
    found = [_describe(pid) for pid in processes(tag, folder, spare)]
    found += [f"network namespace {name}" for name in namespaces(tag) if name != own_namespace]
    found += [f"link {name}" for name in sorted(links() - own_links)]
    tables = subprocess.run(["nft", "list", "tables"], stdout=subprocess.PIPE, check=False)
    found += ["nftables " + line for line in tables.stdout.decode().splitlines()]
    found += [f"mount {point}" for point in _mounts(folder)]
    found += [f"cgroup {path}" for path in _cgroups(tag)]
    found += [f"bound socket {path}" for path in _sockets(folder)]
    return found


def sweep(tag, folder, spare=()):
    """Remove all that is left of a test, whatever state it is in. Never raises."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        pids = processes(tag, folder, spare)
        if not pids:
            break
        for pid in pids:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(AssertionError):
            wait_until(lambda: all(_is_zombie(pid) for pid in pids), "killed processes end", limit=2)
    for point in reversed(_mounts(folder)):
        subprocess.run(["umount", "-l", point], check=False, stderr=subprocess.DEVNULL)
    for name in namespaces(tag):
        subprocess.run(["ip", "netns", "del", name], check=False, stderr=subprocess.DEVNULL)
    for path in sorted(_cgroups(tag), key=len, reverse=True):
        for child in sorted(glob.glob(path + "/**/", recursive=True), key=len, reverse=True):
            with contextlib.suppress(OSError):
                os.rmdir(child)
    shutil.rmtree(folder, ignore_errors=True)


def watchdog(tag, folder, finish):
    """Start a process that waits for this one to end, then runs finish() and sweep().

    It is no child of ours once started (ctest kills a test's children along with it), and does
    nothing if this process wrote "done" to the returned descriptor first.
    """
    end_read, end_write = os.pipe()
    child = os.fork()
    if child > 0:
        os.close(end_read)
        os.waitpid(child, 0)
        return end_write
    try:
        os.setsid()
        if os.fork() > 0:
            os._exit(0)
        os.close(end_write)
        null = os.open(os.devnull, os.O_RDWR)
        for fd in (0, 1, 2):  # ctest waits for the end of the test's output
            os.dup2(null, fd)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        if os.read(end_read, 16) != b"done":
            finish()
            sweep(tag, folder, spare={os.getpid()})
    finally:
        os._exit(0)
