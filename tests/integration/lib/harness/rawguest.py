# SPDX-License-Identifier: MIT
"""A guest without an operating system: raw frames through a machine's tap, so that a test can send
what no decent network stack would."""
import contextlib
import fcntl
import os
import select
import socket
import struct
import time

TUNSETIFF = 0x400454CA
IFF_TAP, IFF_NO_PI = 0x0002, 0x1000
ICMP, TCP, UDP, ICMP6 = 1, 6, 17, 58


def checksum(data):
    if len(data) % 2:
        data += b"\0"
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    total = (total >> 16) + (total & 0xFFFF)
    return ~(total + (total >> 16)) & 0xFFFF


def ipv4(source, target, protocol, payload):
    head = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 20 + len(payload), 1, 0, 64, protocol, 0,
                       socket.inet_aton(source), socket.inet_aton(target))
    return head[:10] + struct.pack("!H", checksum(head)) + head[12:] + payload


def _pseudo(source, target, protocol, length):
    return socket.inet_aton(source) + socket.inet_aton(target) + struct.pack("!BBH", 0, protocol, length)


def udp(source, sport, target, dport, data=b""):
    head = struct.pack("!HHHH", sport, dport, 8 + len(data), 0)
    check = checksum(_pseudo(source, target, UDP, len(head) + len(data)) + head + data)
    return ipv4(source, target, UDP, head[:6] + struct.pack("!H", check or 0xFFFF) + data)


def tcp(source, sport, target, dport, flags, seq=1000, ack=0, data=b""):
    head = struct.pack("!HHIIBBHHH", sport, dport, seq, ack, 5 << 4, flags, 64240, 0, 0)
    check = checksum(_pseudo(source, target, TCP, len(head) + len(data)) + head + data)
    return ipv4(source, target, TCP, head[:16] + struct.pack("!HH", check, 0) + data)


def ping(source, target, ident=7):
    head = struct.pack("!BBHHH", 8, 0, 0, ident, 1)
    return ipv4(source, target, ICMP, struct.pack("!BBHHH", 8, 0, checksum(head), ident, 1))


class Packet:
    """What is of interest in a received IPv4 packet."""

    def __init__(self, data):
        self.protocol = data[9]
        self.source, self.target = socket.inet_ntoa(data[12:16]), socket.inet_ntoa(data[16:20])
        body = data[(data[0] & 15) * 4:struct.unpack("!H", data[2:4])[0]]
        self.sport = self.dport = self.flags = self.type = self.code = None
        self.data = b""
        if self.protocol in (TCP, UDP):
            self.sport, self.dport = struct.unpack("!HH", body[:4])
        if self.protocol == TCP:
            self.seq, self.ack = struct.unpack("!II", body[4:12])
            self.flags = body[13]
            self.data = body[(body[12] >> 4) * 4:]
        elif self.protocol == UDP:
            self.data = body[8:]
        elif self.protocol == ICMP:
            self.type, self.code = body[0], body[1]
            self.data = body[8:]

    def __repr__(self):
        return (f"<{self.protocol} {self.source}:{self.sport} > {self.target}:{self.dport} "
                f"flags={self.flags} icmp={self.type}/{self.code} {self.data[:20]}>")


SYN, RST, ACK, FIN = 2, 4, 16, 1


class RawGuest:
    """The far end of a tap. namespace: what holds the tap (see harness.netns.Namespace)."""

    def __init__(self, enter, leave, port):
        self.address, self.gateway, self.dns = port["address"], port["gateway"], port["dns"]
        self.mac = bytes.fromhex(port["mac"].replace(":", ""))
        enter()
        try:
            self.fd = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
            fcntl.ioctl(self.fd, TUNSETIFF, struct.pack("16sH22x", port["tap"].encode(), IFF_TAP | IFF_NO_PI))
        finally:
            leave()
        self.gateway_mac = None
        self.frames = []  # (ethertype, payload) of all that came but was not asked for
        self._port = 20000
        self.gateway_mac = self.arp(self.gateway)

    def close(self):
        if self.fd >= 0:
            os.close(self.fd)
        self.fd = -1

    def send_frame(self, ethertype, payload, target=None):
        frame = (target or self.gateway_mac) + self.mac + struct.pack("!H", ethertype) + payload
        os.write(self.fd, frame.ljust(60, b"\0"))

    def send(self, packet):
        self.send_frame(0x0800, packet)

    def _read(self, left):
        if not select.select([self.fd], [], [], max(left, 0))[0]:
            return None
        frame = os.read(self.fd, 65536)
        ethertype = struct.unpack("!H", frame[12:14])[0]
        if ethertype == 0x0806 and frame[20:22] == b"\0\1":
            self._answer_arp(frame[14:])
        return ethertype, frame[14:]

    def _answer_arp(self, request):
        if request[24:28] == socket.inet_aton(self.address):
            self.send_frame(0x0806, request[:6] + b"\0\2" + self.mac + request[24:28] + request[8:18],
                            target=request[8:14])

    def wait(self, match, what, limit=60):
        """The next frame that match(ethertype, payload) accepts; others are kept in self.frames."""
        deadline = time.monotonic() + limit
        while True:
            got = self._read(deadline - time.monotonic())
            if got is None:
                raise AssertionError(f"{self.address}: waited {limit} s in vain: {what}; "
                                     f"came: {self.packets()}")
            value = match(*got)
            if value:
                return value
            self.frames.append(got)

    def arp(self, address):
        """Hardware address of the gateway. Asked again and again: a tap that has just got its far end
        is not up at once."""
        request = (b"\0\1\x08\0\6\4\0\1" + self.mac + socket.inet_aton(self.address) + bytes(6)
                   + socket.inet_aton(address))
        for _ in range(100):
            self.send_frame(0x0806, request, target=b"\xff" * 6)
            with contextlib.suppress(AssertionError):
                return self.wait(lambda kind, data: kind == 0x0806 and data[6:8] == b"\0\2" and data[8:14],
                                 f"ARP answer of {address}", limit=0.2)
        raise AssertionError(f"{self.address}: no ARP answer of {address}")

    def wait_packet(self, match, what, limit=60):
        def check(kind, data):
            if kind != 0x0800:
                return None
            packet = Packet(data)
            return packet if match(packet) else None
        return self.wait(check, what, limit)

    def packets(self):
        return [Packet(data) for kind, data in self.frames if kind == 0x0800]

    def next_port(self):
        self._port += 1
        return self._port

    def settle(self):
        """All that was sent before has been dealt with in the namespace, and answers to it have come:
        the kernel takes a tap's frames in turn. Returns the packets that came, and forgets them."""
        ident = self.next_port()
        self.send(ping(self.address, self.gateway, ident))
        self.wait_packet(lambda p: p.protocol == ICMP and p.type == 0 and p.source == self.gateway,
                         "the gateway's answer")
        came = self.packets()
        self.frames.clear()
        return came

    def try_udp(self, target, port, data=b"hello"):
        sport = self.next_port()
        self.send(udp(self.address, sport, target, port, data))
        return sport

    def ask_udp(self, target, port, data=b"hello"):
        sport = self.try_udp(target, port, data)
        return self.wait_packet(lambda p: p.protocol == UDP and p.dport == sport,
                                f"answer of {target}:{port}")

    def try_tcp(self, target, port):
        sport = self.next_port()
        self.send(tcp(self.address, sport, target, port, SYN))
        return sport

    def ask_tcp(self, target, port):
        """The answer to a connection attempt."""
        sport = self.try_tcp(target, port)
        return self.wait_packet(lambda p: p.protocol == TCP and p.dport == sport,
                                f"answer of {target}:{port}")

    def ask_dns(self, name, limit=60):
        """Addresses of a name; None when the server refused it."""
        ident = self.next_port()
        question = b"".join(bytes([len(part)]) + part.encode() for part in name.split(".")) + b"\0\0\1\0\1"
        query = struct.pack("!HHHHHH", ident, 0x0100, 1, 0, 0, 0) + question
        deadline = time.monotonic() + limit
        while True:
            sport = self.try_udp(self.dns, 53, query)
            with contextlib.suppress(AssertionError):
                answer = self.wait_packet(lambda p, sport=sport: p.dport == sport and p.protocol == UDP
                                          and p.data[:2] == query[:2], "DNS answer", limit=1).data
                flags, _, n_answers = struct.unpack("!HHH", answer[2:8])
                if flags & 15:
                    return None
                records = answer[12 + len(question):]
                return [socket.inet_ntoa(records[i * 16 + 12:i * 16 + 16]) for i in range(n_answers)]
            if time.monotonic() > deadline:
                raise AssertionError(f"no DNS answer for {name} within {limit} s")
