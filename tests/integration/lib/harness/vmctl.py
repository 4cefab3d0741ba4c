# SPDX-License-Identifier: MIT
"""Drives the machine driver and the network library through the test program vmctl."""
import json
import os
import select
import subprocess
import time

BIN = os.environ.get("TRANSOM_BIN", "build/dev/bin")


class Vmctl:
    """One manager's worth of driver and network. Commands go in, events come out as dicts."""

    def __init__(self, log, prefix=()):
        self._log = open(log, "ab")
        self.popen = subprocess.Popen([*prefix, os.path.join(BIN, "vmctl")], stdin=subprocess.PIPE,
                                      stdout=subprocess.PIPE, stderr=self._log)
        self._rest = b""
        self._events = []

    def send(self, command, **words):
        line = " ".join([command, *(f"{key}={value}" for key, value in words.items())])
        self.popen.stdin.write(line.encode() + b"\n")
        self.popen.stdin.flush()

    def event(self, name, limit=60):
        """Wait for the next event of that name; others are kept for later calls."""
        deadline = time.monotonic() + limit
        while True:
            for index, event in enumerate(self._events):
                if event["event"] == name:
                    return self._events.pop(index)
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self.popen.stdout], [], [], left)[0]:
                raise AssertionError(f"no event {name} within {limit} s, only {self._events}")
            data = os.read(self.popen.stdout.fileno(), 65536)
            if not data:
                raise AssertionError(f"vmctl ended ({self.popen.wait()}) before: {name}; "
                                     f"events: {self._events}")
            *lines, self._rest = (self._rest + data).split(b"\n")
            self._events += [json.loads(line) for line in lines]

    def call(self, command, answer=None, **words):
        """Send a command and return its outcome."""
        self.send(command, **words)
        return self.event(answer or command)

    def must(self, command, answer=None, **words):
        outcome = self.call(command, answer, **words)
        if outcome["status"] != 0:
            raise AssertionError(f"{command}: {outcome}")
        return outcome

    def end(self, limit=90):
        """Let go of everything, as a manager that exits; returns the exit status."""
        self.popen.stdin.close()
        status = self.popen.wait(limit)
        self._close()
        return status

    def kill(self):
        self.popen.kill()
        self.popen.wait()
        self.popen.stdin.close()
        self._close()

    def _close(self):
        self.popen.stdout.close()
        self._log.close()

    def close(self):
        if self.popen.returncode is None:
            self.kill()
