"""Try to reach places; arguments: JSON [[kind, address, port], ...] with kind tcp, udp or ping.
Prints JSON [true, ...]: whether a connection was made, or an answer came. All at once, under one limit."""
import json
import socket
import subprocess
import sys
import threading

LIMIT = 8


def tcp(address, port):
    socket.create_connection((address, port), LIMIT).close()
    return True


def udp(address, port):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.settimeout(LIMIT)
        sock.connect((address, port))
        sock.send(b"hello")
        return sock.recv(16) != b""


def ping(address, _):
    return subprocess.run(["ping", "-c", "1", "-W", str(LIMIT), address], stdout=subprocess.DEVNULL,
                          stderr=subprocess.DEVNULL).returncode == 0


def attempt(results, i, kind, address, port):
    try:
        results[i] = {"tcp": tcp, "udp": udp, "ping": ping}[kind](address, port)
    except OSError:
        results[i] = False


targets = json.loads(sys.argv[1])
results = [None] * len(targets)
threads = [threading.Thread(target=attempt, args=(results, i, *target)) for i, target in enumerate(targets)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(json.dumps(results))
