# SPDX-License-Identifier: MIT
"""A gateway alone: a real Redis, a real transom-gateway, apps that are sockets of the test.

    with Edge() as edge:
        app = edge.app(handler)            # handler(conn) plays one connection
        label = edge.route(app.port)
        c = edge.connect()
        c.send(b"GET / HTTP/1.1\\r\\nHost: %s\\r\\n\\r\\n" % edge.host(label))
"""
import base64
import hashlib
import json
import os
import random
import select
import shutil
import signal
import socket
import ssl
import struct
import subprocess
import tempfile
import threading
import time

from harness.certificates import own_by_gateway
from harness.node import to_yaml
from harness.process import Process
from harness.wait import wait_until

LIMIT = 20.0
DOMAIN = "test"
ALPHABET = "abcdefghijklmnopqrstuvwxyz0123456789"


def new_label():
    return "".join(random.choice(ALPHABET) for _ in range(16))


class EndOfStream(AssertionError):
    """The peer ended before what was awaited; partial: some of it had come."""

    def __init__(self, what, partial):
        super().__init__(what)
        self.partial = partial


class Conn:
    """Exact bytes on a stream; everything is bounded in time."""

    def __init__(self, sock):
        self.sock = sock
        self.buf = b""
        sock.settimeout(LIMIT)

    def send(self, data):
        self.sock.sendall(data)

    def _more(self):
        data = self.sock.recv(65536)
        self.buf += data
        return len(data) > 0

    def until(self, mark):
        """Everything up to and including mark. The rest stays."""
        while mark not in self.buf:
            if not self._more():
                raise EndOfStream(f"end of stream before {mark!r}: {self.buf[-2000:]!r}",
                                  self.buf != b"")
        at = self.buf.index(mark) + len(mark)
        found, self.buf = self.buf[:at], self.buf[at:]
        return found

    def read(self, n):
        while len(self.buf) < n:
            if not self._more():
                raise EndOfStream(f"end of stream after {len(self.buf)} of {n} bytes",
                                  self.buf != b"")
        found, self.buf = self.buf[:n], self.buf[n:]
        return found

    def swap(self, data, n):
        """Send data and read n bytes at once, in one thread: an SSL object is no place for two."""
        deadline, data = time.monotonic() + LIMIT, memoryview(data)
        self.sock.setblocking(False)
        while data or len(self.buf) < n:
            assert time.monotonic() < deadline, f"{len(data)} bytes unsent, {len(self.buf)} of {n} received"
            idle = True
            try:
                if data:
                    data = data[self.sock.send(data[:65536]):]
                    idle = False
            except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
                pass
            try:
                if len(self.buf) < n:
                    if not self._more():
                        raise EndOfStream(f"end of stream after {len(self.buf)} of {n} bytes", self.buf != b"")
                    idle = False
            except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
                pass
            if idle:
                select.select([self.sock], [self.sock] if data else [], [], 1)
        self.sock.settimeout(LIMIT)
        return self.read(n)

    def rest(self):
        """Everything to the end; ConnectionResetError is passed on."""
        while self._more():
            pass
        found, self.buf = self.buf, b""
        return found

    def ended(self):
        """Wait for the end: 'eof' or 'reset'. Bytes that come before are kept."""
        try:
            while self._more():
                pass
            return "eof"
        except (ConnectionResetError, BrokenPipeError):
            return "reset"

    def head(self):
        return self.until(b"\r\n\r\n")

    def response(self, method="GET"):
        """A whole response with Content-Length, chunked or no body."""
        while True:
            head = self.head()
            response = Head(head)
            if response.status >= 200 or response.status == 101:
                break
        if method == "HEAD" or response.status in (101, 204, 304):
            return response
        if "transfer-encoding" in response:
            response.body = self.chunked()
            response.trailers = self.trailers
        elif "content-length" in response:
            response.body = self.read(int(response["content-length"]))
        else:
            response.body = self.rest()
        return response

    def chunked(self):
        body = b""
        while True:
            size = int(self.until(b"\r\n").split(b";")[0], 16)
            if size == 0:
                break
            body += self.read(size)
            assert self.read(2) == b"\r\n"
        self.trailers = []
        while True:
            line = self.until(b"\r\n")
            if line == b"\r\n":
                return body
            self.trailers.append(line[:-2])

    def fin(self):
        self.sock.shutdown(socket.SHUT_WR)

    def reset(self):
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.sock.close()

    def close(self):
        self.sock.close()


class Head:
    def __init__(self, raw):
        self.raw = raw
        lines = raw[:-4].split(b"\r\n")
        self.line = lines[0]
        self.lines = lines[1:]
        self.fields = [(n.decode("latin-1").lower(), v.strip().decode("latin-1"))
                       for n, _, v in (line.partition(b":") for line in self.lines)]
        self.status = int(lines[0].split()[1]) if lines[0].startswith(b"HTTP/") else 0
        self.body = b""
        self.trailers = []

    def all(self, name):
        return [v for n, v in self.fields if n == name.lower()]

    def __contains__(self, name):
        return bool(self.all(name))

    def __getitem__(self, name):
        values = self.all(name)
        if len(values) != 1:
            raise AssertionError(f"{len(values)} fields {name!r} in {self.raw!r}")
        return values[0]

    def __repr__(self):
        return f"Head({self.raw!r}, body={self.body[:500]!r})"


class App:
    """A server whose handler plays each connection in a thread of its own. Faults in handlers are
    raised by close()."""

    def __init__(self, handler, family=socket.AF_INET, port=0):
        self.handler = handler
        self.sock = socket.socket(family, socket.SOCK_STREAM)
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.sock.bind(("::1" if family == socket.AF_INET6 else "127.0.0.1", port))
        self.sock.listen(256)
        self.port = self.sock.getsockname()[1]
        self.family = family
        self.faults = []
        self.conns = []
        self.n_conns = 0
        self.closing = False
        self.thread = threading.Thread(target=self._accept, daemon=True)
        self.thread.start()

    def _accept(self):
        while True:
            try:
                sock, _ = self.sock.accept()
            except OSError:
                return
            self.n_conns += 1
            conn = Conn(sock)
            self.conns.append(conn)
            threading.Thread(target=self._play, args=(conn,), daemon=True).start()

    def _play(self, conn):
        try:
            self.handler(conn)
        except Exception as fault:  # noqa: BLE001, raised again in the test's thread
            left = isinstance(fault, (ConnectionResetError, BrokenPipeError)) or (
                isinstance(fault, EndOfStream) and not fault.partial)  # between requests
            if not self.closing and not left:
                self.faults.append(fault)
        finally:
            conn.sock.close()

    def close(self):
        self.closing = True
        if self.sock.fileno() >= 0:  # a test may have ended the listening itself
            self.sock.shutdown(socket.SHUT_RDWR)
            self.sock.close()
        for conn in self.conns:
            try:
                conn.sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
        if self.faults:
            raise self.faults[0]


def serve(answer):
    """A handler for keep-alive HTTP/1.1: answer(head, conn) returns the response's bytes, or None to
    close."""
    def handler(conn):
        while True:
            while b"\r\n\r\n" not in conn.buf:
                if not conn._more():
                    return
            head = Head(conn.head())
            data = answer(head, conn)
            if data is None:
                return
            conn.send(data)
    return handler


def ok(body=b"ok", fields=b""):
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n%s\r\n%s" % (len(body), fields, body)


def websocket_accept(head, fields=b"", accept=None):
    """The 101 to a handshake's head (RFC 6455 section 4.2.2), with more fields; accept: a wrong answer."""
    key = Head(head)["sec-websocket-key"].encode()
    digest = base64.b64encode(hashlib.sha1(key + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest())
    return b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n" \
           b"Sec-WebSocket-Accept: " + (accept or digest) + b"\r\n" + fields + b"\r\n"


class Edge:
    def __init__(self, options=None, redis=True, tls=False, start=True):
        self.dir = tempfile.mkdtemp(prefix="transom-edge-")
        os.chmod(self.dir, 0o755)  # the gateway reaches Redis' socket as a user of its own
        self.redis_process = None
        self.gateway = None
        self.apps = []
        self.conns = []
        self.certificate = None
        self.over_tls = False  # what connect() and ask() do unless told
        self.options = {"run_dir": self.dir, "domain": DOMAIN,
                        "redis.url": f"unix:{self.dir}/redis.sock",
                        "gateway.http": ["127.0.0.1:0"], "gateway.metrics": "127.0.0.1:0",
                        "gateway.workers": 2, "gateway.drain_ms": 2000}
        self.options.update(options or {})
        try:
            if tls:
                self.make_certificate()
                self.options.update({"gateway.https": ["127.0.0.1:0"],
                                     "gateway.tls_certificate": self.certificate,
                                     "gateway.tls_key": self.dir + "/key.pem"})
            if redis:
                self.start_redis()
            if start:
                self.start_gateway()
        except BaseException:
            self.close(quiet=True)
            raise

    def __enter__(self):
        return self

    def __exit__(self, kind, *rest):
        self.close(quiet=kind is not None)

    def make_certificate(self):
        self.certificate = self.dir + "/cert.pem"
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
                        "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj", "/CN=test",
                        "-addext", f"subjectAltName=DNS:*.preview.{DOMAIN},DNS:api.{DOMAIN}",
                        "-keyout", self.dir + "/key.pem", "-out", self.certificate],
                       check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        own_by_gateway(self.dir + "/key.pem")

    # Redis

    def start_redis(self):
        self.redis_process = Process(
            ["redis-server", "--port", "0", "--unixsocket", self.dir + "/redis.sock",
             "--unixsocketperm", "777", "--save", "",
             "--appendonly", "no", "--dir", self.dir], self.dir + "/redis.log")
        self.redis_process.wait_for(lambda: self.redis_try("PING") == "PONG", "redis answers")

    def stop_redis(self, kill=False):
        if kill:
            self.redis_process.kill()
            self.redis_process.popen.wait()
        else:
            self.redis_process.stop()
        self.redis_process = None

    def redis_try(self, *argv):
        try:
            return self.redis(*argv)
        except (OSError, ConnectionError):
            return None

    def redis(self, *argv):
        """One command; returns str, int, list or None."""
        with socket.socket(socket.AF_UNIX) as sock:
            sock.settimeout(LIMIT)
            sock.connect(self.dir + "/redis.sock")
            words = [w if isinstance(w, bytes) else str(w).encode() for w in argv]
            sock.sendall(b"*%d\r\n" % len(words)
                         + b"".join(b"$%d\r\n%s\r\n" % (len(w), w) for w in words))
            return self._reply(sock.makefile("rb"))

    def _reply(self, file):
        line = file.readline()
        if not line:
            raise ConnectionError("redis closed the connection")
        kind, text = line[:1], line[1:-2]
        if kind == b"+":
            return text.decode()
        if kind == b":":
            return int(text)
        if kind == b"-":
            raise ConnectionError(text.decode())
        if kind == b"$":
            return None if text == b"-1" else file.read(int(text) + 2)[:-2].decode("latin-1")
        return None if text == b"-1" else [self._reply(file) for _ in range(int(text))]

    # Routes

    def route(self, port=0, label=None, state="running", address="127.0.0.1", instance=1, **more):
        """Write a route as the manager does, and wait until the gateway knows it."""
        label = label or new_label()
        record = json.dumps({"v": 1, "state": state, "address": address, "port": port,
                             "instance": instance, "node": "n1", "session": "s" * 16, "owner": "o",
                             "reason": "", **more})
        before = self.metric("transom_gateway_route_changes_total") if self.gateway else 0
        self.put_route(label, record)
        if self.gateway:
            wait_until(lambda: self.metric("transom_gateway_route_changes_total") > before,
                       "the change reached the gateway", LIMIT, every=0.005)
        return label

    def put_route(self, label, record):
        if record:
            self.redis("HSET", "transom:routes", label, record)
        else:
            self.redis("HDEL", "transom:routes", label)
        self.redis("XADD", "transom:route-changes", "MAXLEN", "~", "100000", "*", "label", label,
                   "route", record)

    def unroute(self, label):
        before = self.metric("transom_gateway_route_changes_total")
        self.put_route(label, "")
        wait_until(lambda: self.metric("transom_gateway_route_changes_total") > before,
                   "the change reached the gateway", LIMIT, every=0.005)

    def host(self, label):
        return f"{label}.preview.{DOMAIN}".encode()

    # Gateway

    def program(self):
        return os.path.join(os.environ["TRANSOM_BIN"], "transom-gateway")

    def write_config(self):
        path = self.dir + "/transom.yaml"
        with open(path + ".new", "w", encoding="utf-8") as file:
            file.write(to_yaml(self.options))
        os.rename(path + ".new", path)  # a reload never sees half of it
        return path

    def start_gateway(self):
        access_log = self.options.get("gateway.access_log", "")
        if access_log.startswith(self.dir) and not os.path.exists(access_log):
            with open(access_log, "wb"):
                own_by_gateway(access_log)
        log = self.dir + "/gateway.log"
        start = os.path.getsize(log) if os.path.exists(log) else 0
        self.gateway = Process([self.program(), "-f", self.write_config()], log)
        self.gateway.wait_for(lambda: "ready listen=" in self.gateway.text()[start:],
                              "gateway is ready")
        line = [l for l in self.gateway.text().splitlines() if "ready listen=" in l][-1]
        line = line.rstrip('"}')
        words = dict(w.split("=", 1) for w in line.split() if "=" in w)
        urls = [w for w in line.replace("listen=", "").split() if w.startswith("http")]
        ports = {u.split("://")[0]: int(u.rpartition(":")[2]) for u in urls}
        self.port = ports.get("http", 0)
        self.tls_port = ports.get("https", 0)
        self.gateway.pid = int(words["pid"])  # of the process that serves; signals go to the keeper
        self.metrics_port = int(words["metrics"].rpartition(":")[2]) if ":" in words["metrics"] else 0
        if self.redis_process:
            self.wait_loaded()

    def signal(self, number, text, limit=LIMIT):
        """Send a signal to the keeper and wait for one more line with text; returns that line."""
        def lines():
            return [line for line in self.gateway.text().splitlines() if text in line]
        before = len(lines())
        self.gateway.kill(number)
        self.gateway.wait_for(lambda: len(lines()) > before, f"{text!r} in the log", limit)
        return lines()[-1]

    def reload(self, refused=False):
        """Have the configuration, as self.options says, and the certificates read again."""
        self.write_config()
        return self.signal(signal.SIGHUP, "reload refused" if refused else " reloaded: ")

    def upgrade(self):
        """Another process serves from now on; returns the pid of the old one."""
        self.write_config()
        old = self.gateway.pid
        line = self.signal(signal.SIGUSR2, "upgraded: process ")
        self.gateway.pid = int(line.partition("upgraded: process ")[2].split()[0])
        if self.redis_process:
            self.wait_loaded()
        return old

    def wait_loaded(self):
        wait_until(lambda: self.metric("transom_gateway_redis_up") == 1
                   and self.metric("transom_gateway_route_loads_total") > 0, "routes are loaded",
                   LIMIT)

    def metrics(self):
        with socket.create_connection(("127.0.0.1", self.metrics_port), LIMIT) as sock:
            sock.sendall(b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            return Conn(sock).rest().decode()

    def metric(self, name):
        for line in self.metrics().splitlines():
            if line.startswith(name + " "):
                return int(line.split()[1])
        raise AssertionError(f"no metric {name}")

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.gateway.pid}/fd"))

    def rss_kb(self):
        with open(f"/proc/{self.gateway.pid}/status", encoding="ascii") as file:
            for line in file:
                if line.startswith("VmRSS:"):
                    return int(line.split()[1])
        raise AssertionError("no VmRSS")

    def sanitized(self):
        return "sanitizer build" in self.gateway.text()

    def assert_grown_less(self, before_kb, kb):
        """Resident memory has not grown by kb KiB since it was before_kb. Sanitizers keep what was freed,
        to find its use: under them nothing is asserted."""
        grown = self.rss_kb() - before_kb
        assert self.sanitized() or grown < kb, f"grown by {grown} KiB, limit {kb}"

    # Apps and clients

    def app(self, handler, **options):
        app = App(handler, **options)
        self.apps.append(app)
        return app

    def connect(self, tls=None, alpn=None):
        tls = self.over_tls if tls is None else tls
        sock = socket.create_connection(("127.0.0.1", self.tls_port if tls else self.port), LIMIT)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if tls:
            context = ssl.create_default_context(cafile=self.certificate)
            if alpn:
                context.set_alpn_protocols(alpn)
            sock = context.wrap_socket(sock, server_hostname="x" * 16 + ".preview." + DOMAIN)
        conn = Conn(sock)
        self.conns.append(conn)
        return conn

    def ask(self, label, path="/", method="GET", fields="", body=b"", version="1.1"):
        """One request on a connection of its own."""
        conn = self.connect()
        conn.send(f"{method} {path} HTTP/{version}\r\nHost: {label}.preview.{DOMAIN}\r\n{fields}\r\n"
                  .encode("latin-1") + body)
        try:
            return conn.response(method)
        finally:
            conn.close()

    def ask_http2(self, name, path="/", method="GET", fields="", body=b"", tls=False):
        """By curl: with ALPN over TLS, else by prior knowledge. name: what stands before the
        preview domain."""
        host, port = f"{name}.preview.{DOMAIN}", self.tls_port if tls else self.port
        argv = ["curl", "-sS", "-i", "-k", "--max-time", "60",
                "--http2" if tls else "--http2-prior-knowledge",
                "--resolve", f"{host}:{port}:127.0.0.1", "--request-target", path]
        argv += ["-I"] if method == "HEAD" else ["-X", method]
        for line in fields.split("\r\n")[:-1]:
            argv += ["-H", line]
        if body:
            argv += ["--data-binary", "@-"]
        run = subprocess.run(argv + [f"{'https' if tls else 'http'}://{host}:{port}/"], input=body,
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
        head, mark, rest = run.stdout.partition(b"\r\n\r\n")
        if run.returncode != 0 or not head.startswith(b"HTTP/2 "):
            raise AssertionError(f"curl ended with {run.returncode}: {run.stderr!r} {head!r}")
        got = Head(head + mark)
        got.body = rest
        return got

    def close_connections(self):
        """With a reset: the gateway need not wonder whether they still read."""
        for conn in self.conns:
            if conn.sock.fileno() >= 0:
                conn.reset()
        self.conns = []

    def close(self, quiet=False):
        """quiet: the test failed already; show the log instead of raising."""
        faults = []
        self.close_connections()
        if self.gateway is not None:
            try:
                status = self.gateway.stop()
                if status != 0:
                    faults.append(AssertionError(f"gateway ended with {status}"))
            except AssertionError as fault:
                faults.append(fault)
            text = self.gateway.text()
            if "Sanitizer" in text or "runtime error" in text:
                faults.append(AssertionError("sanitizer finding:\n" + text[-8000:]))
            if quiet or faults:
                print("--- gateway.log\n" + text[-6000:], flush=True)
        for app in self.apps:
            try:
                app.close()
            except Exception as fault:  # noqa: BLE001
                faults.append(fault)
        if self.redis_process is not None:
            self.redis_process.stop()
        shutil.rmtree(self.dir, ignore_errors=True)
        if faults and not quiet:
            raise faults[0]


def closed_port():
    """A port that nothing listens on, kept by a socket that is bound and does not listen."""
    sock = socket.socket()
    sock.bind(("127.0.0.1", 0))
    return sock, sock.getsockname()[1]


def at_once(since, limit=3.0):
    """Ten times what a field case allows; order and content are what tests judge."""
    return time.monotonic() - since < limit
