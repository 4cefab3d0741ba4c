"""Send one UDP datagram with a chosen source address (as root). Arguments: SOURCE TARGET PORT TEXT."""
import socket
import struct
import sys

source, target, port, text = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4].encode()


def checksum(data):
    total = sum(struct.unpack(f">{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xffff) + (total >> 16)
    return ~total & 0xffff


udp = struct.pack(">HHHH", 4000, port, 8 + len(text), 0) + text
head = struct.pack(">BBHHHBBH4s4s", 0x45, 0, 20 + len(udp), 1, 0, 64, 17, 0,
                   socket.inet_aton(source), socket.inet_aton(target))
head = head[:10] + struct.pack(">H", checksum(head)) + head[12:]
with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW) as sock:
    sock.sendto(head + udp, (target, port))
