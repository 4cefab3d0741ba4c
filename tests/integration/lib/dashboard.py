# SPDX-License-Identifier: MIT
"""The dashboard without a machine: a real gateway, manager and Redis at admin.localhost."""
import json
import os
import re
import shutil
import subprocess
import tempfile
import threading

from edge import Edge
from harness.api import Api
from harness.node import artifacts_dir, source_dir, to_yaml
from harness.process import Process

HOST = "admin.localhost"


class Site:
    """close() ends it. prepare: called with the manager's state folder before it starts."""

    def __init__(self, options=None, prepare=None, **edge):
        self.manager = self.shm = None
        self.edge = Edge({"gateway.workers": 1, "domain": "localhost", **(options or {})}, **edge)
        self.state = self.edge.dir + "/state"
        if prepare is not None and os.access("/dev/shm", os.W_OK):  # many files: a disk may take minutes
            self.shm = self.state = tempfile.mkdtemp(prefix="transom-dashboard-", dir="/dev/shm")
        try:
            if prepare is not None:
                prepare(self.state)
            self.start_manager()
        except BaseException:
            self.close(quiet=True)
            raise
        self.admin = Api(self.edge.dir + "/admin.sock")
        self.url = f"http://{HOST}:{self.edge.port}"

    def start_manager(self):
        options = {"run_dir": self.edge.dir, "state_dir": self.state, "cache_dir": self.edge.dir + "/cache",
                   "domain": "localhost", "net.enabled": False, "redis.url": self.edge.options["redis.url"],
                   "vmm.accelerator": "tcg", "vmm.stop_machines_on_exit": True, "vmm.metrics": ""}
        path, log = self.edge.dir + "/vmm.yaml", self.edge.dir + "/vmm.log"
        with open(path, "w", encoding="utf-8") as file:
            file.write(to_yaml(options))
        before = os.path.getsize(log) if os.path.exists(log) else 0
        self.manager = Process([os.path.join(os.environ["TRANSOM_BIN"], "transom-vmm"), "-f", path], log)
        self.manager.wait_for(lambda: " ready" in self.manager.text()[before:], "manager is ready", 60)

    def key(self, owner="ann", scope="session"):
        return self.admin.post("/v1/keys", {"owner": owner, "scopes": [scope]})["key"]

    def ask(self, method, path, fields=(), tls=False, host=None, body=b""):
        """One request on a connection of its own; fields: "name: value"."""
        conn = self.edge.connect(tls=tls)
        host = host or f"{HOST}:{self.edge.tls_port if tls else self.edge.port}"
        lines = [f"{method} {path} HTTP/1.1", f"Host: {host}", *fields]
        if body or method not in ("GET", "HEAD"):
            lines.append(f"Content-Length: {len(body)}")
        conn.send("\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body)
        try:
            return conn.response(method)
        finally:
            conn.close()

    def sign_in(self, key, tls=False):
        """Returns "name=value" of the cookie."""
        origin = f"https://{HOST}:{self.edge.tls_port}" if tls else self.url
        got = self.ask("POST", "/signin", [f"Origin: {origin}", f"Authorization: Bearer {key}"], tls=tls)
        assert got.status == 200, got
        return got["set-cookie"].partition(";")[0]

    def close(self, quiet=False):
        if self.manager is not None:
            self.manager.stop()
        if self.shm is not None:
            shutil.rmtree(self.shm, ignore_errors=True)
        self.edge.close(quiet)


class Browser:
    """A page of Chromium driven by e2e/client/dashboard.mjs: each call sends a line of JavaScript's
    names for it and waits for the answer. See there for what it can do."""

    def __init__(self, folder, args=(), size=(1280, 800), dark=False):
        script = os.path.join(source_dir(), "tests/e2e/client/dashboard.mjs")
        self.log = open(os.path.join(folder, f"browser-{id(self)}.log"), "w+b")
        self.popen = subprocess.Popen(["node", script, json.dumps({"args": list(args), "size": size, "dark": dark})],
                                      stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log,
                                      env={**os.environ, "HOME": folder, "TMPDIR": folder})
        self.clock = None

    def __call__(self, what, *args, limit=60):
        self.clock = threading.Timer(limit + 20, self.popen.kill)
        self.clock.start()
        try:
            self.popen.stdin.write(json.dumps({"do": what, "args": args, "ms": limit * 1000}).encode() + b"\n")
            self.popen.stdin.flush()
            line = self.popen.stdout.readline()
        except OSError:
            line = b""
        finally:
            self.clock.cancel()
        if not line:
            self.log.seek(0)
            raise AssertionError(f"the browser ended at {what} {args}: {self.log.read()[-3000:].decode()}")
        answer = json.loads(line)
        if "fault" in answer:
            raise AssertionError(f"{what} {args}: {answer['fault']}\n{answer.get('seen', '')}")
        return answer.get("value")

    def shot(self, name):
        self("shot", os.path.join(artifacts_dir(), re.sub(r"[^\w-]", "-", name) + ".png"))

    def sign_in(self, url, key):
        self("goto", url)
        self("fill", "label=API key", key)
        self("press", "Enter")
        self("see", "role=heading[name='Sandboxes']")

    def close(self):
        try:
            self.popen.stdin.close()
            self.popen.wait(30)
        except (OSError, subprocess.TimeoutExpired):
            self.popen.kill()
            self.popen.wait()
        self.popen.stdout.close()
        self.log.close()
