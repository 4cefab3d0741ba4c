# SPDX-License-Identifier: MIT
"""HTTP/2 frames by hand (RFC 9113), for what no well-behaved client sends. Header blocks are written
as literals without an index; of those that come back only the status is read."""
import struct

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, \
    CONTINUATION = range(10)
END_STREAM, ACK, END_HEADERS, PADDED, WITH_PRIORITY = 1, 1, 4, 8, 32
NO_ERROR, PROTOCOL_ERROR, INTERNAL_ERROR, FLOW_CONTROL_ERROR, SETTINGS_TIMEOUT, STREAM_CLOSED, \
    FRAME_SIZE_ERROR, REFUSED_STREAM, CANCEL, COMPRESSION_ERROR, CONNECT_ERROR, \
    ENHANCE_YOUR_CALM = range(12)
INITIAL_WINDOW_SIZE, ENABLE_CONNECT_PROTOCOL = 4, 8

# Of HPACK's static table and Huffman code, what a status needs.
STATUSES = {8: 200, 9: 204, 10: 206, 11: 304, 12: 400, 13: 404, 14: 500}
DIGITS = {"00000": "0", "00001": "1", "00010": "2", "011001": "3", "011010": "4", "011011": "5",
          "011100": "6", "011101": "7", "011110": "8", "011111": "9"}


def frame(kind, flags, stream, payload=b"", length=None):
    length = len(payload) if length is None else length
    return struct.pack(">I", length)[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def number(n, prefix_bits, first=0):
    limit = (1 << prefix_bits) - 1
    if n < limit:
        return bytes([first | n])
    out, n = [first | limit], n - limit
    while n >= 128:
        out.append(n % 128 + 128)
        n //= 128
    return bytes(out + [n])


def text(s):
    s = s if isinstance(s, bytes) else s.encode("latin-1")
    return number(len(s), 7) + s


def block(fields):
    return b"".join(b"\0" + text(n) + text(v) for n, v in fields)


def request(host, path="/", method="GET", scheme="http", extra=()):
    host = host if isinstance(host, str) else host.decode()
    return [(":method", method), (":scheme", scheme), (":authority", host), (":path", path), *extra]


def status_of(fragment):
    """The status of a response's header block, 0 when it does not begin with one."""
    while fragment and fragment[0] & 0xe0 == 0x20:  # table size update
        i = 1
        if fragment[0] & 0x1f == 0x1f:
            while fragment[i] & 0x80:
                i += 1
            i += 1
        fragment = fragment[i:]
    if fragment and fragment[0] & 0x80:
        return STATUSES.get(fragment[0] & 0x7f, 0)
    if not fragment or fragment[0] & 0x0f not in range(8, 15):  # a literal that names :status
        return 0
    huffman, length = fragment[1] & 0x80, fragment[1] & 0x7f
    value = fragment[2:2 + length]
    if not huffman:
        return int(value)
    bits, digits = "".join(f"{b:08b}" for b in value), ""
    while len(digits) < 3:
        for n in (5, 6):
            if bits[:n] in DIGITS:
                digits, bits = digits + DIGITS[bits[:n]], bits[n:]
                break
        else:
            raise AssertionError(f"no status in {fragment!r}")
    return int(digits)


class Frame:
    def __init__(self, kind, flags, stream, payload):
        self.kind, self.flags, self.stream, self.payload = kind, flags, stream, payload

    @property
    def code(self):
        """The error code of RST_STREAM or GOAWAY."""
        at = 4 if self.kind == GOAWAY else 0
        return struct.unpack(">I", self.payload[at:at + 4])[0]

    @property
    def ends(self):
        return self.kind in (DATA, HEADERS) and bool(self.flags & END_STREAM)

    def __repr__(self):
        return f"Frame({self.kind}, {self.flags:#x}, {self.stream}, {self.payload[:60]!r})"


class Answer:
    """What came on a stream: statuses of its heads, body, how it ended."""

    def __init__(self):
        self.statuses, self.body, self.reset, self.goaway = [], b"", None, None

    @property
    def status(self):
        return self.statuses[-1] if self.statuses else None

    def __repr__(self):
        return f"Answer({self.statuses}, {self.body[:300]!r}, reset={self.reset}, goaway={self.goaway})"


class H2:
    """A client connection. Frames that are not asked for stay in self.frames."""

    def __init__(self, conn, settings=(), preface=True):
        self.conn = conn
        self.next_id = 1
        self.frames = []
        if preface:
            conn.send(PREFACE + self.settings_frame(settings))

    @staticmethod
    def settings_frame(settings=()):
        """Without a dynamic table, so that a status always says itself."""
        return frame(SETTINGS, 0, 0, b"".join(struct.pack(">HI", *s) for s in ((1, 0), *settings)))

    def send(self, *frames):
        self.conn.send(b"".join(frames))

    def new_id(self):
        self.next_id += 2
        return self.next_id - 2

    def begin(self, fields, end=True, stream=None):
        stream = stream or self.new_id()
        self.send(frame(HEADERS, END_HEADERS | (END_STREAM if end else 0), stream, block(fields)))
        return stream

    def data(self, stream, body, end=False):
        self.send(frame(DATA, END_STREAM if end else 0, stream, body))

    def window(self, stream, n):
        self.send(frame(WINDOW_UPDATE, 0, stream, struct.pack(">I", n)))

    def rst(self, stream, code=CANCEL):
        self.send(frame(RST_STREAM, 0, stream, struct.pack(">I", code)))

    def ping(self, payload=b"12345678"):
        self.send(frame(PING, 0, 0, payload))

    def read(self):
        """The next frame; settings are acknowledged."""
        head = self.conn.read(9)
        length, kind, flags, stream = struct.unpack(">I", b"\0" + head[:3])[0], head[3], head[4], \
            struct.unpack(">I", head[5:])[0]
        got = Frame(kind, flags, stream, self.conn.read(length))
        if kind == SETTINGS and not flags & ACK:
            self.send(frame(SETTINGS, ACK, 0))
        return got

    def until(self, wanted):
        """The first frame for which wanted(frame) holds; others are kept."""
        for i, old in enumerate(self.frames):
            if wanted(old):
                return self.frames.pop(i)
        while True:
            got = self.read()
            if wanted(got):
                return got
            self.frames.append(got)

    def answer(self, stream, update=True):
        """Everything on a stream to its end, or the connection's."""
        answer = Answer()
        while True:
            try:
                got = self.until(lambda f: f.stream == stream or f.kind == GOAWAY)
            except (AssertionError, OSError):
                if answer.goaway is None:
                    raise
                return answer
            if got.kind == HEADERS:
                answer.statuses.append(status_of(got.payload))
            elif got.kind == DATA:
                answer.body += got.payload
                if update and got.payload:
                    self.window(0, len(got.payload))
                    if not got.ends:
                        self.window(stream, len(got.payload))
            elif got.kind == RST_STREAM:
                answer.reset = got.code
                return answer
            elif got.kind == GOAWAY:
                answer.goaway = got.code
                if got.code != NO_ERROR:
                    return answer
            if got.ends:
                return answer

    def ask(self, fields, body=b""):
        stream = self.begin(fields, end=not body)
        if body:
            self.data(stream, body, end=True)
        return self.answer(stream)

    def alive(self):
        """A round trip: nothing has ended the connection."""
        self.ping(b"roundtrp")
        self.until(lambda f: f.kind == PING and f.flags & ACK and f.payload == b"roundtrp")
