# SPDX-License-Identifier: MIT
"""Network namespaces: enter, leave, and join to the host's network.

The test process itself moves into the namespace with setns(), so that everything that it starts is
inside, too. `ip netns exec` would not do: it also makes a mount namespace, in which the named
namespace that the manager creates would be seen by nobody else, the manager's successor included.
"""
import contextlib
import ctypes
import fcntl
import os
import subprocess
import zlib

CLONE_NEWNET = 0x40000000
FORWARD = "/proc/sys/net/ipv4/ip_forward"
FORWARD_LOCK = "/run/lock/transom-tests-forward"

_libc = ctypes.CDLL(None, use_errno=True)


def setns(fd):
    if _libc.setns(fd, CLONE_NEWNET) != 0:
        code = ctypes.get_errno()
        raise OSError(code, "setns: " + os.strerror(code))


def ip(*words, check=True):
    done = subprocess.run(["ip", *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          stdin=subprocess.DEVNULL, check=False)
    if check and done.returncode != 0:
        raise AssertionError(f"ip {' '.join(words)}: {done.stdout.decode().strip()}")
    return done.stdout.decode()


class Namespace:
    """A named network namespace with loopback up. enter() moves this process in, leave() out."""

    def __init__(self, name):
        self.name = name
        self.path = "/run/netns/" + name
        self._home = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        ip("netns", "add", name)
        ip("-n", name, "link", "set", "lo", "up")
        self.inode = os.stat(self.path).st_ino

    def enter(self):
        fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            setns(fd)
        finally:
            os.close(fd)

    def leave(self):
        setns(self._home)

    @contextlib.contextmanager
    def outside(self):
        """For the time of a with block, this thread is in the namespace it came from."""
        self.leave()
        try:
            yield
        finally:
            self.enter()


class Uplink:
    """A veth from a node's namespace to the host's, with NAT: guests reach what the host reaches.

    Made and removed from outside the namespace. The host's ip_forward is set while anyone uses an
    uplink, and put back by the last one (a lock that all users share says who that is).
    """

    def __init__(self, namespace):
        self.namespace = namespace
        number = zlib.crc32(namespace.name.encode()) % (1 << 15)
        # 198.18.0.0/15 is set aside for tests of network equipment; guests are not denied it.
        base = (198 << 24 | 18 << 16) + number * 4
        self.host_address = _dotted(base + 1)
        self.node_address = _dotted(base + 2)
        self.veth = "tu" + f"{number:x}"
        self.table = "transom_test_" + f"{number:x}"
        self._lock = None

    def up(self):
        self._share_forward()
        name = self.namespace.name
        ip("link", "add", self.veth, "type", "veth", "peer", "name", "uplink", "netns", name)
        ip("addr", "add", self.host_address + "/30", "dev", self.veth)
        ip("link", "set", self.veth, "up")
        ip("-n", name, "addr", "add", self.node_address + "/30", "dev", "uplink")
        ip("-n", name, "link", "set", "uplink", "up")
        ip("-n", name, "route", "add", "default", "via", self.host_address)
        # The host's path to the outside may have a smaller MTU than a veth has by itself.
        route = ip("-o", "route", "show", "default").split()
        if "dev" in route:
            device = route[route.index("dev") + 1]
            with open(f"/sys/class/net/{device}/mtu", encoding="ascii") as file:
                mtu = file.read().strip()
            ip("link", "set", self.veth, "mtu", mtu)
            ip("-n", name, "link", "set", "uplink", "mtu", mtu)
        rules = f"""table ip {self.table} {{
            chain post {{ type nat hook postrouting priority srcnat;
                ip saddr {self.node_address}/32 masquerade; }}
            }}\n"""
        subprocess.run(["nft", "-f", "-"], input=rules.encode(), check=True)

    def down(self):
        if self._lock is None:
            return
        subprocess.run(["nft", "delete", "table", "ip", self.table], check=False,
                       stderr=subprocess.DEVNULL)
        ip("link", "del", self.veth, check=False)
        self._release_forward()

    def remove_traces(self):
        """Remove an uplink of this name that a killed process left (its lock went with it)."""
        subprocess.run(["nft", "delete", "table", "ip", self.table], check=False,
                       stderr=subprocess.DEVNULL)
        if "does not exist" in ip("link", "del", self.veth, check=False):
            return
        self._lock = os.open(FORWARD_LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._release_forward()

    def _share_forward(self):
        self._lock = os.open(FORWARD_LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        with contextlib.suppress(BlockingIOError):  # alone: note what to put back
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # A note that is there already is of a test that was killed before it could put it back.
            if not os.pread(self._lock, 1, 0):
                with open(FORWARD, "rb") as file:
                    os.pwrite(self._lock, file.read()[:1], 0)
        fcntl.flock(self._lock, fcntl.LOCK_SH)
        with open(FORWARD, "w", encoding="ascii") as file:
            file.write("1")

    def _release_forward(self):
        with contextlib.suppress(BlockingIOError):  # raised while others use it
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            before = os.pread(self._lock, 1, 0)
            if before in (b"0", b"1"):
                with open(FORWARD, "wb") as file:
                    file.write(before)
            os.ftruncate(self._lock, 0)
        os.close(self._lock)
        self._lock = None


def _dotted(number):
    return ".".join(str(number >> shift & 255) for shift in (24, 16, 8, 0))
