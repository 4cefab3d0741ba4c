# SPDX-License-Identifier: MIT
"""A real web server behind a real gateway, and browsers in front of it; no machine, for speed.

    @over_each_mode
    class Page(Served):
        @classmethod
        def set_stage(cls, stage):
            stage.serve(["python3", "-m", "http.server", "8080"])

        def check_page(self, mode):          # becomes test_page_over_http, ..._over_https, ...
            self.assertEqual(self.stage.fetch(mode, "/").status, 200)

The server runs in a network namespace of its own, which is to the gateway what a machine is: another
address than the gateway's, and no way to the outside. This process, the gateway, Redis and browsers
are in a second one. The domain is none that frameworks know as local, so that what they demand of
other host names is demanded here.
"""
import atexit
import contextlib
import http.client
import json
import os
import signal
import tempfile
import types
import uuid

from edge import DOMAIN, Edge
from harness import Process, TestCase, cleanup, fetch, key_hash, make_certificates, run, source_dir
from harness import wait_until
from harness import node as harness_node
from harness.netns import Namespace, ip
from harness.web import Response

MODULES = os.path.join(source_dir(), "tests/node_modules")
CLIENTS = os.path.join(source_dir(), "tests/e2e/client")
EDGE_ADDRESS, GUEST_ADDRESS, PORT = "100.64.0.1", "100.64.0.2", 8080
LIMIT = 240


class Mode:
    """How a client comes in: scheme, and whether the gateway offers HTTP/2 to it."""

    def __init__(self, name, scheme, http2):
        self.name, self.scheme, self.http2 = name, scheme, http2
        self.socket_scheme = {"http": "ws", "https": "wss"}[scheme]
        self.protocol = "h2" if http2 else "http/1.1"  # as browsers name it
        self.socket_status = 200 if http2 else 101     # RFC 8441 section 5.1, RFC 6455 section 4.2.2


def _has_http2():
    """Does this gateway know HTTP/2, and can it be turned off?"""
    text = run([os.path.join(harness_node.bin_dir(), "transom-config-doc"), "--yaml"]).stdout
    return any(line.lstrip(b"# ").startswith(b"http2:") for line in text.splitlines())


def modes():
    if _has_http2():
        return [Mode("http", "http", False), Mode("https", "https", True),
                Mode("https_http1", "https", False)]
    return [Mode("http", "http", False), Mode("https", "https", False)]


def over_each_mode(case):
    """Each check_X(self, mode) becomes one test a mode."""
    for name in [name for name in dir(case) if name.startswith("check_")]:
        for mode in modes():
            def test(self, name=name, mode=mode):
                getattr(self, name)(mode)
            setattr(case, f"test_{name[6:]}_over_{mode.name}", test)
    return case


class Stage:
    def __init__(self, options=None):
        if os.geteuid() != 0:
            harness_node.skip("network namespaces need root")
        self.tag = "tt" + uuid.uuid4().hex[:8]
        self.dir = tempfile.mkdtemp(prefix=f"transom-{self.tag}-")
        os.chmod(self.dir, 0o755)
        self.app_dir = os.path.join(self.dir, "app")
        os.mkdir(self.app_dir)
        self.env = {**os.environ, cleanup.MARK: self.tag, "HOME": self.dir, "TMPDIR": self.dir,
                    "LC_ALL": "C.UTF-8"}
        self.options = dict(options or {})
        self.servers, self.browsers, self.edges = [], [], {}
        self._closed = False
        self._watchdog = cleanup.watchdog(self.tag, self.dir, lambda: None)
        atexit.register(self.close)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, harness_node._on_signal)
        self.namespace = Namespace(self.tag)
        self.guest = Namespace(self.tag + "-vm")
        ip("-n", self.tag, "link", "add", "guest", "type", "veth", "peer", "name", "eth0",
           "netns", self.guest.name)
        for name, device, address in ((self.tag, "guest", EDGE_ADDRESS),
                                      (self.guest.name, "eth0", GUEST_ADDRESS)):
            ip("-n", name, "addr", "add", address + "/30", "dev", device)
            ip("-n", name, "link", "set", device, "up")
        self.namespace.enter()
        harness_node._live.append(self)
        self.ca, self.certificate, self.key = make_certificates(self.dir)
        self.spki = key_hash(self.certificate)
        self.first = self._start_edge({})
        self.label = self.first.route(PORT, address=GUEST_ADDRESS)
        self.host = self.host_of(self.label)

    def _start_edge(self, options):
        tempfile.tempdir = self.dir  # what a killed test leaves is found there
        edge = Edge({"log.level": "debug", "gateway.https": ["127.0.0.1:0"],
                     "gateway.tls_certificate": self.certificate, "gateway.tls_key": self.key,
                     **self.options, **options}, redis="redis.url" not in options)
        tempfile.tempdir = None
        self.edges[edge.options.get("gateway.http2", True)] = edge
        edge.wait_loaded()
        return edge

    def host_of(self, label):
        return f"{label}.preview.{DOMAIN}"

    def another_host(self):
        """A second host name that leads to the same server."""
        return self.host_of(self.first.route(PORT, address=GUEST_ADDRESS))

    def edge(self, mode):
        """The gateway of a mode: a second one stands beside the first for clients without HTTP/2."""
        if mode.scheme == "http" or not mode.name.endswith("http1"):
            return self.first
        if False not in self.edges:
            self._start_edge({"gateway.http2": False, "redis.url": self.first.options["redis.url"]})
        return self.edges[False]

    def port(self, mode):
        edge = self.edge(mode)
        return edge.tls_port if mode.scheme == "https" else edge.port

    def url(self, mode, path="/"):
        return f"{mode.scheme}://{self.host}:{self.port(mode)}{path}"

    # ---- the server ----

    def path(self, name):
        return os.path.join(self.app_dir, name)

    def write(self, name, text):
        """A file of the app, replaced as editors do it: never seen half written."""
        os.makedirs(os.path.dirname(self.path(name)), exist_ok=True)
        with open(self.path(name) + ".new", "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(self.path(name) + ".new", self.path(name))

    def use_modules(self):
        """The packages of tests/package.json are the app's own."""
        os.symlink(MODULES, self.path("node_modules"))

    def serve(self, argv, path="/", env=None, limit=LIMIT):
        """Run a server in the guest's namespace until close(), and wait until its preview answers."""
        server = Process(["nsenter", "--net=" + self.guest.path, *argv],
                         os.path.join(self.dir, f"server-{len(self.servers)}.log"),
                         env={**self.env, **(env or {})}, cwd=self.app_dir)
        self.servers.append(server)
        server.wait_for(lambda: self._answer(path) not in (None, 502, 503, 504),
                        f"the server answers {path}", limit)
        return server

    def _answer(self, path):
        try:
            return fetch(self.first.port, f"{self.host}:{self.first.port}", path, limit=LIMIT).status
        except OSError:
            return None

    # ---- clients ----

    def fetch(self, mode, path="/", host=None, **options):
        """One request, over HTTP/2 where the mode says so; options as for harness.fetch()."""
        port, host = self.port(mode), host or self.host
        if mode.http2:
            return self._fetch_http2(host, port, path, **options)
        return fetch(port, f"{host}:{port}", path,
                     tls=self.ca if mode.scheme == "https" else None, **options)

    def _fetch_http2(self, host, port, path, method="GET", body=None, headers=None):
        with tempfile.TemporaryDirectory(dir=self.dir) as folder:
            argv = ["curl", "--silent", "--show-error", "--http2", "--cacert", self.ca, "--resolve",
                    f"{host}:{port}:127.0.0.1", "--path-as-is", "--dump-header", folder + "/head",
                    "--output", folder + "/body", "--write-out", "%{http_version}"]
            argv += ["--head"] if method == "HEAD" else ["--request", method]
            if body is not None:
                argv += ["--data-binary", "@-"]
            for name, value in (headers or {}).items():
                argv += ["--header", f"{name}: {value}"]
            done = run([*argv, f"https://{host}:{port}{path}"], stdin=(body or "").encode(),
                       check=False, limit=LIMIT)
            if done.returncode != 0:
                raise http.client.HTTPException(done.stderr.decode(errors="replace"))
            if done.stdout != b"2":
                raise AssertionError(f"HTTP/{done.stdout.decode()} instead of 2")
            with open(folder + "/head", "rb") as file:
                answer = types.SimpleNamespace(status=int(file.readline().split()[1]))
                answer.headers = http.client.parse_headers(file)
            if method == "HEAD" or not os.path.exists(folder + "/body"):
                return Response(answer, b"")
            with open(folder + "/body", "rb") as file:
                return Response(answer, file.read())

    def browse(self, script, mode, path="/", **task):
        """Start tests/e2e/client/SCRIPT in a browser: a Browser."""
        name = script.rpartition(".")[0]
        program = os.path.basename(_program_name())
        shot = os.path.join(harness_node.artifacts_dir(), f"{program}-{name}-{mode.name}.png")
        with contextlib.suppress(FileNotFoundError):
            os.unlink(shot)
        task = {"url": self.url(mode, path), "screenshot": shot, "domain": DOMAIN,
                "spki": self.spki if mode.scheme == "https" else None, **task}
        log = os.path.join(self.dir, f"browser-{len(self.browsers)}-{name}.log")
        process = Process(["node", os.path.join(CLIENTS, script), json.dumps(task)], log, env=self.env)
        self.browsers.append(process)
        return Browser(process)

    def hot_reload(self, mode, write, **task):
        """Open the page, change it with write(text), see the change: what the browser saw."""
        before, after = f"Opened over {mode.name}", f"Changed over {mode.name}"
        write(before)
        browser = self.browse("hmr.mjs", mode, **{"from": before, "to": after, **task})
        browser.wait_for("ready")
        write(after)
        return browser.result()

    # ---- end ----

    def print_logs(self, lines=80):
        for process in [*self.servers, *self.browsers, *(e.gateway for e in self.edges.values())]:
            tail = process.text().splitlines()[-lines:]
            print(f"---- {process.log} (last {len(tail)} lines)", *tail, sep="\n", flush=True)

    def close(self):
        if self._closed:
            return
        self._closed = True
        atexit.unregister(self.close)
        try:
            for process in self.browsers + self.servers:
                if process.alive():
                    process.kill()
                process.popen.wait()
            for edge in reversed(list(self.edges.values())):
                edge.close()
        finally:
            if self in harness_node._live:
                harness_node._live.remove(self)
            self.namespace.leave()
            cleanup.sweep(self.tag, self.dir, spare={os.getpid()})
            with contextlib.suppress(OSError):
                os.write(self._watchdog, b"done")
            os.close(self._watchdog)


def _program_name():
    import __main__
    return __main__.__file__


class Browser:
    """A script that runs in one, started by Stage.browse()."""

    def __init__(self, process):
        self.process = process

    def wait_for(self, word, limit=LIMIT):
        """The script printed a line that is this word."""
        self.process.wait_for(lambda: word in self.process.text().splitlines(), word, limit)

    def result(self, limit=LIMIT):
        """Wait for the script's end: the JSON of its last line."""
        wait_until(lambda: not self.process.alive(), "the browser's script ends", limit)
        text = self.process.text()
        if self.process.popen.returncode != 0:
            raise AssertionError(f"the browser's script ended with {self.process.popen.returncode}:\n"
                                 + text[-6000:])
        seen = json.loads(text.strip().splitlines()[-1])
        print(json.dumps(seen)[:2000])
        return seen


class Served(TestCase):
    """Tests of one server: set_stage(stage) starts it, once for all of them."""

    stage_options = None

    @classmethod
    def setUpClass(cls):
        cls.stage = cls.own_by_class(Stage(cls.stage_options))
        try:
            cls.set_stage(cls.stage)
        except BaseException:
            cls.stage.print_logs()
            raise

    def assert_seen(self, mode, seen, sockets=True):
        """Nothing failed in the page; the protocol was the mode's; a WebSocket was opened (a string:
        one whose URL has that in it), the way this protocol does it."""
        self.assertEqual(seen["faults"], [])
        self.assertEqual(seen["protocols"], [mode.protocol])
        self.assertGreater(os.path.getsize(seen["screenshot"]), 1000)
        if not sockets:
            return
        wanted = f"{mode.socket_scheme}://{self.stage.host}:{self.stage.port(mode)}/"
        mine = [s for s in seen["sockets"]
                if s["url"].startswith(wanted) and (sockets is True or sockets in s["url"])]
        self.assertTrue(mine, seen["sockets"])
        for socket in mine:
            self.assertEqual(socket["status"], mode.socket_status, socket)
