# SPDX-License-Identifier: MIT
"""An agent on this host, without a machine around it, and a client that speaks its protocol."""
import base64
import contextlib
import json
import os
import queue
import secrets
import shutil
import subprocess
import sys
import tempfile
import threading
import urllib.parse

from .process import Process
from .wait import wait_until

_CGROUPS = ("/sys/fs/cgroup", "/sys/fs/cgroup/unified")


def cgroup_parent():
    """A cgroup v2 directory in which we may make groups that can be killed, or None."""
    for path in _CGROUPS:
        if not os.path.exists(os.path.join(path, "cgroup.procs")):
            continue
        probe = os.path.join(path, "transom-probe-" + secrets.token_hex(4))
        with contextlib.suppress(OSError):
            os.mkdir(probe)
            usable = os.path.exists(os.path.join(probe, "cgroup.kill"))
            os.rmdir(probe)
            if usable:
                return path
    return None


class Stream:
    """One request. Answers are awaited, never slept for."""

    def __init__(self, client, number):
        self.client, self.number = client, number
        self.status, self.headers = None, {}
        self.data = bytearray()
        self.ended = self.closed = False
        self.code = None
        self.changed = threading.Condition()

    def _event(self, event):
        with self.changed:
            kind = event["ev"]
            if kind == "head":
                self.status, self.headers = event["status"], event["headers"]
            elif kind == "data":
                self.data += base64.b64decode(event["b64"])
            elif kind == "end":
                self.ended = True
            elif kind == "close":
                self.closed, self.code = True, event["code"]
            self.changed.notify_all()

    def wait(self, condition, what, limit=60):
        with self.changed:
            if not self.changed.wait_for(lambda: condition() or self.closed, limit) \
                    or not condition():
                raise AssertionError(f"stream {self.number}: {what} did not come: status "
                                     f"{self.status}, {len(self.data)} bytes, ended {self.ended}, "
                                     f"closed {self.closed} ({self.code}): "
                                     f"{bytes(self.data[-2000:])!r}")

    def head(self, limit=60):
        self.wait(lambda: self.status is not None, "a head", limit)
        return self.status

    def body(self, limit=120):
        self.wait(lambda: self.ended, "the end", limit)
        return bytes(self.data)

    def wait_bytes(self, wanted, limit=60):
        self.wait(lambda: wanted in self.data, repr(wanted), limit)

    def send(self, data=b"", end=False):
        self.client._say(id=self.number, op="data", b64=base64.b64encode(data).decode(), end=end)

    def reset(self):
        self.client._say(id=self.number, op="reset")

    def pause(self):
        self.client._say(id=self.number, op="pause")

    def resume(self):
        self.client._say(id=self.number, op="resume")


class Sync:
    """One conversation about the home folder (agentctl_sync.h). Paths and contents are bytes."""

    def __init__(self, client, number, kind):
        self.client, self.number, self.n_asked = client, number, 0
        self.events, self.closed = [], False
        self.changed = threading.Condition()
        client.streams[number] = self
        client._say(id=number, op="sync", kind=kind)

    def _event(self, event):
        for name in ("path", "name", "target", "head", "bytes"):
            if name in event:
                event[name] = base64.b64decode(event[name])
        with self.changed:
            self.events.append(event)
            self.closed = self.closed or event["ev"] in ("done", "close")
            self.changed.notify_all()

    def _shown(self, n):
        """The last events, for people."""
        return [{k: v[:80] if isinstance(v, bytes) else v for k, v in e.items()} for e in self.events[-n:]]

    def ask(self, what, path=b"", **fields):
        for name in ("content", "target", "replaces"):
            if name in fields:
                fields[name] = base64.b64encode(fields[name]).decode()
        self.client._say(id=self.number, op="ask", what=what,
                         path=base64.b64encode(path).decode(), **fields)
        return self

    def _do(self, op):
        self.client._say(id=self.number, op=op)

    def cancel(self):
        self._do("sync-cancel")

    def hold(self):
        self._do("sync-hold")

    def let_go(self):
        self._do("sync-let-go")

    def wait(self, condition, what, limit=100):
        """Until condition(events); returns what it returned."""
        with self.changed:
            if not self.changed.wait_for(lambda: condition(self.events) or self.closed, limit) \
                    or not condition(self.events):
                raise AssertionError(f"{what} did not come: {self._shown(20)}")
            return condition(self.events)

    def done(self, limit=100):
        """The status of its end."""
        return self.wait(lambda events: [e for e in events if e["ev"] == "done"], "the end", limit)[0]["status"]

    def all(self, limit=100):
        """End the requests; all events but the end, which must be a good one."""
        self._do("sync-end")
        status = self.done(limit)
        if status != 0:
            raise AssertionError(f"it ended with {status}: {self._shown(3)}")
        return [e for e in self.events if e["ev"] != "done"]


class ExecResult:
    def __init__(self, frames):
        self.frames = frames
        self.out = b"".join(payload for kind, payload in frames if kind == 1)
        self.err = b"".join(payload for kind, payload in frames if kind == 2)
        self.started = json.loads(frames[0][1]) if frames and frames[0][0] == 0 else None
        self.exit = json.loads(frames[-1][1]) if frames and frames[-1][0] == 3 else None


def parse_frames(data):
    """The whole frames in data: [(type, payload)]."""
    frames, at = [], 0
    while at + 5 <= len(data):
        length = int.from_bytes(data[at + 1:at + 5], "big")
        if at + 5 + length > len(data):
            break
        frames.append((data[at], bytes(data[at + 5:at + 5 + length])))
        at += 5 + length
    return frames


class AgentClient:
    """A conversation with an agent."""

    def __init__(self, socket):
        self.popen = subprocess.Popen([os.path.join(os.environ["TRANSOM_BIN"], "agentctl"), socket],
                                      stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.streams, self.last = {}, 0
        self.lock = threading.Lock()
        self.opened = queue.Queue()
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()
        if self.opened.get(timeout=60) != "open":
            raise AssertionError("no conversation with the agent")

    def _read(self):
        for line in self.popen.stdout:
            event = json.loads(line)
            if "id" in event:
                self.streams[event["id"]]._event(event)
            else:
                self.opened.put(event["ev"])
        self.opened.put("over")
        for stream in list(self.streams.values()):
            if not stream.closed:
                stream._event({"ev": "close", "code": -1})

    def _say(self, **command):
        with self.lock:
            self.popen.stdin.write(json.dumps(command).encode() + b"\n")
            self.popen.stdin.flush()

    def close(self):
        with contextlib.suppress(OSError):
            self.popen.stdin.close()
        try:
            self.popen.wait(30)
        except subprocess.TimeoutExpired:  # what comes after must still be cleaned up
            print("agentctl did not end", file=sys.stderr)
            self.popen.kill()
            self.popen.wait()
        self.reader.join(30)
        self.popen.stdout.close()

    def open(self, method, path, body=None, end=True, headers=None):
        with self.lock:
            self.last += 1
            stream = self.streams[self.last] = Stream(self, self.last)
        command = {"id": stream.number, "op": "request", "method": method, "path": path,
                   "end": end, "headers": headers or {}}
        if body is not None:
            command["body"] = body if isinstance(body, str) else json.dumps(body)
        self._say(**command)
        return stream

    def sync(self, kind):
        with self.lock:
            self.last += 1
            number = self.last
        return Sync(self, number, kind)

    def call(self, method, path, body=None, limit=120, headers=None):
        """(status, decoded JSON or bytes)."""
        stream = self.open(method, path, body, headers=headers)
        status = stream.head(limit)
        data = stream.body(limit)
        if stream.headers.get("content-type") == "application/json":
            return status, json.loads(data)
        return status, data

    def hello(self, **fields):
        status, answer = self.call("POST", "/v1/hello", {"api": 1, **fields})
        assert status == 200, answer
        return answer

    def exec(self, argv=None, limit=120, **fields):
        body = {**({"argv": argv} if argv else {}), **fields}
        stream = self.open("POST", "/v1/exec", body)
        if stream.head() != 200:
            raise AssertionError(f"{stream.status} {stream.body()!r}")
        return ExecResult(parse_frames(stream.body(limit)))

    @staticmethod
    def window(name, rest=""):
        return "/v1/windows/" + urllib.parse.quote(name, safe="") + rest

    def run(self, window, command, limit=120, **fields):
        status, answer = self.call("POST", self.window(window, "/run"),
                                   {"command": command, **fields}, limit)
        if status != 200:
            raise AssertionError(f"{status} {answer}")
        return answer


def listens(path):
    """Is somebody listening on this unix socket? (Its name is there a moment earlier.)"""
    with open("/proc/net/unix") as sockets:
        return any(line.split()[3] == "00010000" and line.split()[-1] == path
                   for line in sockets.read().splitlines()[1:])


class Agent:
    """A transom-agent in a folder of its own. cgroups: True needs them, False does without."""

    def __init__(self, cgroups=False, greet=True, **env):
        self.dir = tempfile.mkdtemp(prefix="transom-agent-")
        self.socket = os.path.join(self.dir, "agent.sock")
        self.home = os.path.join(self.dir, "home")
        os.mkdir(self.home)
        self.group = ""
        if cgroups:
            self.group = os.path.join(cgroup_parent(), "transom-test-" + secrets.token_hex(6))
        try:
            self.process = Process(
                [os.path.join(os.environ["TRANSOM_BIN"], "transom-agent"), "--unix", self.socket,
                 "--host-test", "--run-dir", os.path.join(self.dir, "run"), "--home", self.home,
                 "--cgroup", self.group, "-v"], os.path.join(self.dir, "log"),
                env={**os.environ, **env})
        except OSError:  # there is no such program: nothing else was made yet
            shutil.rmtree(self.dir)
            raise
        self.process.wait_for(lambda: listens(self.socket), "the agent's socket")
        self.clients = []
        self.greet = greet

    def client(self):
        client = AgentClient(self.socket)
        self.clients.append(client)
        if self.greet:
            # Ten times the product's limit: tests judge what happens, not how fast.
            client.hello(instance="1", shell_back_ms=20000, label="test", public_hostname="me.preview.localhost",
                         public_url="http://me.preview.localhost:8080")
        return client

    def print_logs(self):
        print(f"---- agent ----\n{self.process.text()[-8000:]}")

    def close(self):
        for client in self.clients:
            client.close()
        status = self.process.stop()
        text = self.process.text()
        if self.group and os.path.isdir(self.group):
            def gone():
                for root, _, _ in os.walk(self.group, topdown=False):
                    with contextlib.suppress(OSError):
                        os.rmdir(root)
                return not os.path.isdir(self.group)
            wait_until(gone, f"{self.group} to become empty", 60)
        shutil.rmtree(self.dir, ignore_errors=True)
        for bad in ("ERROR: ", "runtime error", "WARNING: ThreadSanitizer", "handles were left"):
            if bad in text:
                raise AssertionError(f"the agent complained:\n{text[-6000:]}")
        return status
