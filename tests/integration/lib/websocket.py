# SPDX-License-Identifier: MIT
"""A WebSocket client by hand (RFC 6455), over HTTP/1.1 or a stream of HTTP/2 (RFC 8441), so that a
test can send what no decent client would."""
import base64
import contextlib
import hashlib
import json
import os
import socket
import struct

import h2frames as h2
from edge import LIMIT, Conn, EndOfStream

CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10


class Refused(AssertionError):
    """The handshake was answered, but not so that there is a WebSocket."""

    def __init__(self, status, body=b""):
        super().__init__(f"the handshake was answered {status}: {body[:300]!r}")
        self.status, self.body = status, body


def frame(opcode, payload=b"", fin=True, mask=True, rsv=0, length=None):
    """length: what the head says, whatever follows."""
    length = len(payload) if length is None else length
    out = bytes([fin << 7 | rsv << 4 | opcode])
    for most, code, form in ((125, length, ""), (0xffff, 126, ">H"), (1 << 63, 127, ">Q")):
        if length <= most:
            out += bytes([mask << 7 | code]) + (struct.pack(form, length) if form else b"")
            break
    if not mask:
        return out + payload
    key = os.urandom(4)
    whole = int.from_bytes(payload, "big") ^ int.from_bytes((key * (len(payload) // 4 + 1))[:len(payload)], "big")
    return out + key + whole.to_bytes(len(payload), "big")


class H2Stream:
    """A stream of an HTTP/2 connection of its own, with the methods of edge.Conn."""

    def __init__(self, conn, fields, window=65535):
        self.h2 = h2.H2(conn, [(h2.INITIAL_WINDOW_SIZE, window)])
        settings = self.h2.until(lambda f: f.kind == h2.SETTINGS and not f.flags & h2.ACK).payload
        told = dict(struct.unpack(">HI", settings[i:i + 6]) for i in range(0, len(settings), 6))
        self.stream = self.h2.begin(fields, end=False)
        self.buf, self.over = b"", None
        self.room, self.room_all = told.get(h2.INITIAL_WINDOW_SIZE, 65535), 65535  # what may be sent
        got = self.h2.until(self._mine)
        self.status = h2.status_of(got.payload) if got.kind == h2.HEADERS else None
        if got.ends or got.kind == h2.RST_STREAM:
            self._take(got)

    def _mine(self, f):
        return (f.stream == self.stream and f.kind in (h2.HEADERS, h2.DATA, h2.RST_STREAM)) or f.kind == h2.GOAWAY

    def _take(self, got):
        if got.kind == h2.DATA:
            self.buf += got.payload
            if got.payload:
                with contextlib.suppress(OSError):  # it may have gone since
                    self.h2.window(0, len(got.payload))
                    if not got.ends:
                        self.h2.window(self.stream, len(got.payload))
        if got.ends:
            self.over = "eof"
        elif got.kind == h2.RST_STREAM:
            self.over = "reset"

    def _more(self):
        if self.over is None:
            try:
                self._take(self.h2.until(self._mine))
            except (EndOfStream, ConnectionResetError, BrokenPipeError):
                self.over = "reset"
        return self.over is None

    def read(self, n):
        while len(self.buf) < n:
            if not self._more() and len(self.buf) < n:
                raise EndOfStream(f"end of stream ({self.over}) after {len(self.buf)} of {n} bytes", self.buf != b"")
        found, self.buf = self.buf[:n], self.buf[n:]
        return found

    def ended(self):
        while self.over is None:
            self._more()
        return self.over

    def send(self, data):
        """As the windows let it; what comes meanwhile is kept."""
        while data:
            for got in [f for f in self.h2.frames if f.kind == h2.WINDOW_UPDATE]:
                self.h2.frames.remove(got)
                self._widen(got)
            n = min(len(data), self.room, self.room_all, 16384)
            if n == 0:
                got = self.h2.until(lambda f: f.kind == h2.WINDOW_UPDATE or self._mine(f))
                (self._widen if got.kind == h2.WINDOW_UPDATE else self._take)(got)
                if self.over:
                    raise BrokenPipeError
                continue
            self.h2.data(self.stream, data[:n])
            self.room, self.room_all, data = self.room - n, self.room_all - n, data[n:]

    def _widen(self, got):
        n = struct.unpack(">I", got.payload)[0]
        if got.stream == 0:
            self.room_all += n
        else:
            self.room += n

    def fin(self):
        self.h2.data(self.stream, b"", end=True)

    def reset(self):
        self.h2.rst(self.stream)

    def close(self):
        self.h2.conn.close()


class WebSocket:
    """Frames on a stream: an edge.Conn after its handshake, or an H2Stream. Pings are answered while
    something is awaited."""

    def __init__(self, stream, protocol=None):
        self.stream, self.protocol = stream, protocol
        self.n_pings, self.answer_pings = 0, True
        self.closed = None  # the status of the close frame that came
        self.runs = []  # what was told of runs, which comes in between

    def send(self, opcode, payload=b"", **odd):
        self.stream.send(frame(opcode, payload, **odd))

    def type(self, data):
        self.send(BINARY, data)

    def say(self, **message):
        self.send(TEXT, json.dumps(message).encode())

    def recv(self, runs=False):
        """(opcode, payload) of the next message; the server does not cut its messages up. runs: also of one that
        tells of a run."""
        while True:
            first, second = self.stream.read(2)
            if not first & 0x80 or first & 0x70 or second & 0x80:
                raise AssertionError(f"frame begins with {first:#x} {second:#x}")
            opcode, n = first & 15, second
            if n == 126:
                n = struct.unpack(">H", self.stream.read(2))[0]
            elif n == 127:
                n = struct.unpack(">Q", self.stream.read(8))[0]
            payload = self.stream.read(n)
            if opcode == PING:
                self.n_pings += 1
                if self.answer_pings:
                    self.send(PONG, payload)
            elif opcode == CLOSE:
                self.closed = struct.unpack(">H", payload[:2])[0] if payload else 1005
                return opcode, payload
            elif opcode == TEXT and payload.startswith(b'{"type":"run_'):
                self.runs.append(json.loads(payload))
                if runs:
                    return opcode, payload
            else:
                return opcode, payload

    def run_told(self, kind):
        """The next that is told of a run's beginning ("run_start") or end ("run_end"); terminal bytes that come
        before are dropped."""
        while not any(run["type"] == kind for run in self.runs):
            self.recv(runs=True)
        run = next(run for run in self.runs if run["type"] == kind)
        self.runs.remove(run)
        return run

    def message(self):
        """The next message, a text one; of a binary one no byte may come first."""
        opcode, payload = self.recv()
        if opcode != TEXT:
            raise AssertionError(f"no text but opcode {opcode}: {payload[:200]!r}")
        return json.loads(payload)

    def until(self, mark):
        """Terminal bytes up to the message that completes mark."""
        got = b""
        while mark not in got:
            opcode, payload = self.recv()
            if opcode != BINARY:
                raise AssertionError(f"opcode {opcode} {payload!r} before {mark!r}: {got[-2000:]!r}")
            got += payload
        return got

    def bytes(self, n):
        """At least so many terminal bytes."""
        got = b""
        while len(got) < n:
            opcode, payload = self.recv()
            if opcode != BINARY:
                raise AssertionError(f"opcode {opcode} {payload!r} after {len(got)} of {n} bytes")
            got += payload
        return got

    def ping(self, payload=b""):
        """And its answer; terminal bytes that come before are dropped."""
        self.send(PING, payload)
        opcode = None
        while opcode != PONG:
            opcode, answer = self.recv()
        if answer != payload:
            raise AssertionError(f"{answer!r} is no answer to {payload!r}")

    def wait_closed(self):
        """The status of the close frame, whatever comes before it."""
        while self.closed is None:
            self.recv()
        return self.closed

    def close(self, code=1000):
        self.send(CLOSE, struct.pack(">H", code))
        status = self.wait_closed()
        self.stream.close()
        return status


def connect_http1(conn, host, path, key=None, protocols=None, fields=()):
    """A handshake on an edge.Conn."""
    nonce = base64.b64encode(os.urandom(16)).decode()
    lines = [f"GET {path} HTTP/1.1", "Host: " + host, "Upgrade: websocket", "Connection: Upgrade",
             "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: " + nonce]
    if key is not None:
        lines.append("Authorization: Bearer " + key)
    if protocols is not None:
        lines.append("Sec-WebSocket-Protocol: " + protocols)
    conn.send("\r\n".join([*lines, *fields, "", ""]).encode())
    answer = conn.response()
    if answer.status != 101:
        raise Refused(answer.status, answer.body)
    digest = base64.b64encode(hashlib.sha1(nonce.encode() + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest())
    if answer["sec-websocket-accept"] != digest.decode():
        raise AssertionError(answer["sec-websocket-accept"])
    return WebSocket(conn, answer["sec-websocket-protocol"] if "sec-websocket-protocol" in answer else None)


def connect_http2(conn, host, path, key=None, protocols=None, scheme="http", version="13", window=65535, fields=()):
    """An extended CONNECT on a connection of its own."""
    extra = [(":protocol", "websocket"), *([("sec-websocket-version", version)] if version else []),
             *([("authorization", "Bearer " + key)] if key is not None else []),
             *([("sec-websocket-protocol", protocols)] if protocols is not None else []), *fields]
    stream = H2Stream(conn, h2.request(host, path, "CONNECT", scheme, extra), window)
    if stream.status != 200:
        if stream.status is not None:
            stream.ended()
        raise Refused(stream.status, stream.buf)
    return WebSocket(stream)


def connect_unix(path, target, **options):
    """To a socket of the manager."""
    sock = socket.socket(socket.AF_UNIX)
    sock.settimeout(LIMIT)
    sock.connect(path)
    return connect_http2(Conn(sock), "transom", target, **options)

