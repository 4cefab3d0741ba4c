# SPDX-License-Identifier: MIT
"""The manager's API over its unix socket, by way of curl (HTTP/2 with prior knowledge)."""
import json
import os
import struct
import subprocess
import tempfile
import urllib.parse


class ApiError(AssertionError):
    def __init__(self, method, path, status, code, message):
        super().__init__(f"{method} {path}: {status} {code}: {message}")
        self.status = status
        self.code = code
        self.message = message


class Answer:
    def __init__(self, status, headers, body):
        self.status = status
        self.headers = headers
        self.body = body

    def json(self):
        return json.loads(self.body)


class ExecResult:
    """What an exec left: out and err (bytes), code or signal (one of them None), timed_out."""

    def __init__(self, out, err, end):
        self.out, self.err = out, err
        self.code, self.signal = end.get("exit_code"), end.get("signal")
        self.timed_out = bool(end.get("timed_out"))

    def __repr__(self):
        return f"ExecResult(code={self.code}, signal={self.signal}, out={self.out!r}, err={self.err!r})"


def read_frames(data):
    """Split application/vnd.transom.exec: yields (type, payload)."""
    at = 0
    while at < len(data):
        kind, length = struct.unpack_from(">BI", data, at)
        yield kind, data[at + 5:at + 5 + length]
        at += 5 + length


class Api:
    """One socket, one key. key=None sends none (the admin socket knows its peers by uid)."""

    def __init__(self, socket_path, key=None, limit=180):
        self.socket_path = socket_path
        self.key = key
        self.limit = limit

    def command(self, method, path, headers=(), body_file=None, wait_s=0):
        """wait_s: seconds that the manager may take besides, since it was asked to wait."""
        argv = ["curl", "--silent", "--show-error", "--http2-prior-knowledge",
                "--unix-socket", self.socket_path, "--request", method, "--max-time", str(self.limit + wait_s),
                "--header", "accept:"]
        if method == "HEAD":
            argv.append("--head")
        if self.key is not None:
            argv += ["--header", "authorization: Bearer " + self.key]
        for header in headers:
            argv += ["--header", header]
        if body_file is not None:
            argv += ["--header", "expect:", "--data-binary", "@" + body_file]
        return argv + ["http://transom" + path]

    def request(self, method, path, body=None, headers=(), raw=None):
        """Any request. body: sent as JSON; raw: bytes sent as they are. Returns Answer."""
        headers = list(headers)
        data = raw
        if body is not None:
            data = json.dumps(body).encode()
            headers.append("content-type: application/json")
        elif raw is not None and not any(h.lower().startswith("content-type") for h in headers):
            headers.append("content-type: application/octet-stream")
        with tempfile.TemporaryDirectory(prefix="transom-api-") as folder:
            head = os.path.join(folder, "head")
            wait_ms = body.get("wait_ms") if isinstance(body, dict) else None
            argv = self.command(method, path, headers, "-" if data is not None else None,
                                wait_ms / 1000 if isinstance(wait_ms, int) and wait_ms > 0 else 0)
            argv[1:1] = ["--dump-header", head]
            done = subprocess.run(argv, input=data, stdin=None if data is not None else
                                  subprocess.DEVNULL, stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, check=False)
            if done.returncode != 0:
                raise ConnectionError(f"{method} {path}: curl {done.returncode}: "
                                      f"{done.stderr.decode(errors='replace').strip()}")
            with open(head, encoding="latin-1") as file:
                blocks = [block for block in file.read().replace("\r", "").split("\n\n") if block]
        lines = blocks[-1].splitlines()
        fields = {}
        for line in lines[1:]:
            name, _, value = line.partition(":")
            fields[name.strip().lower()] = value.strip()
        return Answer(int(lines[0].split()[1]), fields, done.stdout)

    def call(self, method, path, body=None, expect=None):
        """A request that must succeed (2xx, or `expect`): the decoded JSON, or None."""
        answer = self.request(method, path, body)
        good = answer.status == expect if expect else 200 <= answer.status < 300
        if not good:
            try:
                fault = answer.json()
            except ValueError:
                fault = {}
            raise ApiError(method, path, answer.status, fault.get("code"),
                           fault.get("message", answer.body[:300]))
        return answer.json() if answer.body else None

    def get(self, path):
        return self.call("GET", path)

    def post(self, path, body=None, expect=None):
        return self.call("POST", path, {} if body is None else body, expect)

    def delete(self, path):
        return self.call("DELETE", path)

    def exec(self, base, argv, **options):
        """Attached exec at a sandbox's path: ExecResult. A string runs as shell text."""
        body = {"command": argv} if isinstance(argv, str) else {"argv": list(argv)}
        body.update(options)
        answer = self.request("POST", base + "/exec", body)
        if answer.status != 200:
            fault = answer.json()
            raise ApiError("POST", base + "/exec", answer.status, fault.get("code"),
                           fault.get("message"))
        out, err, end = b"", b"", None
        for kind, payload in read_frames(answer.body):
            if kind == 1:
                out += payload
            elif kind == 2:
                err += payload
            elif kind == 3:
                end = json.loads(payload)
        if end is None:
            raise AssertionError(f"exec {argv}: the stream ended without an exit frame")
        return ExecResult(out, err, end)


def quote(text):
    return urllib.parse.quote(text, safe="")
