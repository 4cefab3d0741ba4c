# SPDX-License-Identifier: MIT
"""The transom command against a node, also at a terminal."""
import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import termios
import time

from .process import run


class Cli:
    """Runs `transom` with the node's socket. session: value of TRANSOM_SESSION."""

    def __init__(self, node, session=None, **env):
        self.program = node.program("transom")
        self.env = {**node.env, "TRANSOM_SOCKET": node.admin_socket, **env}
        if session is not None:
            self.env["TRANSOM_SESSION"] = session

    def __call__(self, *words, stdin=b"", limit=180, cwd=None):
        """To its end, whatever the status: CompletedProcess with bytes."""
        return run([self.program, *words], limit=limit, check=False, stdin=stdin, env=self.env, cwd=cwd)

    def text(self, *words, **options):
        """Standard output of a command that must end with 0."""
        done = self(*words, **options)
        if done.returncode != 0:
            raise AssertionError(f"transom {' '.join(words)} ended with {done.returncode}: "
                                 f"{(done.stdout + done.stderr).decode(errors='replace')[-2000:]}")
        return done.stdout.decode(errors="replace")

    def start(self, *words, stdin=subprocess.DEVNULL):
        """Goes on; with pipes for its output. Call communicate() or stop_and_wait() in the end."""
        return subprocess.Popen([self.program, *words], env=self.env, stdin=stdin, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE)

    def at_terminal(self, *words, rows=24, cols=80):
        return Terminal([self.program, *words], self.env, rows, cols)


def read_until(stream, wanted, limit=60):
    """Bytes of a pipe up to and with `wanted`."""
    got = b""
    deadline = time.monotonic() + limit
    while wanted not in got:
        left = deadline - time.monotonic()
        if left <= 0 or not select.select([stream], [], [], left)[0]:
            raise AssertionError(f"waited in vain for {wanted!r}; got {got[-2000:]!r}")
        piece = os.read(stream.fileno(), 65536)
        if not piece:
            raise AssertionError(f"ended before {wanted!r}; got {got[-2000:]!r}")
        got += piece
    return got


class Terminal:
    """A program at a pseudo-terminal of its own."""

    def __init__(self, argv, env, rows, cols):
        self.master, self.slave = pty.openpty()
        self.seen = b""
        self._set_size(rows, cols)
        self.modes_before = termios.tcgetattr(self.slave)
        self.process = subprocess.Popen(argv, env=env, stdin=self.slave, stdout=self.slave,
                                        stderr=self.slave, start_new_session=True,
                                        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))

    def _set_size(self, rows, cols):
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))

    def resize(self, rows, cols):
        self._set_size(rows, cols)
        self.process.send_signal(signal.SIGWINCH)

    def modes(self):
        return termios.tcgetattr(self.slave)

    def type(self, text):
        os.write(self.master, text.encode() if isinstance(text, str) else text)

    def wait_for(self, wanted, limit=60):
        """Read until `wanted` (bytes) has come, and forget what was before its end."""
        deadline = time.monotonic() + limit
        while wanted not in self.seen:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self.master], [], [], left)[0]:
                raise AssertionError(f"waited in vain for {wanted!r}; got {self.seen[-2000:]!r}")
            self.seen += os.read(self.master, 65536)
        before, _, self.seen = self.seen.partition(wanted)
        return before + wanted

    def wait(self, limit=60):
        """Exit status; what it still writes is read meanwhile."""
        deadline = time.monotonic() + limit
        while self.process.poll() is None:
            if time.monotonic() > deadline:
                raise AssertionError(f"does not end; got {self.seen[-2000:]!r}")
            if select.select([self.master], [], [], 0.05)[0]:
                self.seen += os.read(self.master, 65536)
        while select.select([self.master], [], [], 0)[0]:
            self.seen += os.read(self.master, 65536)
        return self.process.returncode

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self.master)
        os.close(self.slave)
