# SPDX-License-Identifier: MIT
"""Processes that a test starts: output to a file, ended for certain."""
import contextlib
import os
import signal
import subprocess

from .wait import wait_until


def run(argv, limit=60, check=True, stdin=b"", env=None, cwd=None):
    """Run a program to its end: subprocess.CompletedProcess with bytes."""
    done = subprocess.run(argv, input=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          timeout=limit, env=env, cwd=cwd, check=False)
    if check and done.returncode != 0:
        raise AssertionError(f"{argv[0]} ended with {done.returncode}:\n"
                             + (done.stdout + done.stderr).decode(errors="replace")[-4000:])
    return done


class Process:
    """A program that goes on while the test does other things. Its output is kept in a file."""

    def __init__(self, argv, log, env=None, cwd=None, stdin=subprocess.DEVNULL, new_session=True):
        self.argv = [str(word) for word in argv]
        self.log = log
        with open(log, "ab") as file:
            self.popen = subprocess.Popen(self.argv, stdout=file, stderr=subprocess.STDOUT,
                                          stdin=stdin, env=env, cwd=cwd,
                                          start_new_session=new_session)
        self.pid = self.popen.pid
        self.log_start = os.path.getsize(log) if os.path.exists(log) else 0

    def text(self):
        with open(self.log, "rb") as file:
            return file.read().decode(errors="replace")

    def alive(self):
        return self.popen.poll() is None

    def wait_for(self, condition, what, limit=60):
        """wait_until() that also gives up, at once, when the process has ended."""
        def check():
            value = condition()
            if not value and not self.alive():
                value = condition()  # it may have come true just before the end
                if not value:
                    raise AssertionError(f"{self.argv[0]} ended with {self.popen.returncode} "
                                         f"before: {what}\n{self.text()[-4000:]}")
            return value
        return wait_until(check, what, limit)

    def wait_for_text(self, text, limit=60):
        self.wait_for(lambda: text in self.text(), f"{text!r} in {self.log}", limit)

    def kill(self, number=signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            self.popen.send_signal(number)

    def stop(self, limit=30, number=signal.SIGTERM):
        """Ask it to end, wait, and return the exit status; kill it after limit seconds."""
        if self.alive():
            self.kill(number)
        try:
            return self.popen.wait(limit)
        except subprocess.TimeoutExpired:
            self.kill()
            self.popen.wait()
            raise AssertionError(f"{self.argv[0]} did not end within {limit} s of signal {number}"
                                 f"\n{self.text()[-4000:]}") from None
