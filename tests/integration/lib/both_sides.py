# SPDX-License-Identifier: MIT
"""A session's store on this disk and its machine, which the sync keeps the same."""
import os
import urllib.parse

from harness import Node, wait_until

MEMORY = {"vmm.memory_mb": 512, "vmm.vcpus": 2}
if os.environ.get("TRANSOM_IMAGE"):  # by hand: one image and no other
    MEMORY["image.path"] = os.environ["TRANSOM_IMAGE"]


class Both:
    """A session with both of its sides, on the given node."""

    def __init__(self, node):
        self.node = node
        self.session = node.session()
        self.dir = f"{node.state_dir}/sessions/{self.session.id}"
        self.files = self.dir + "/files"
        self.sandbox = self.session.path + "/sandboxes/primary"

    @classmethod
    def alone(cls, case):
        """On a node of its own, for one test."""
        node = case.own(Node(config=dict(MEMORY)))
        node.start_manager()
        return cls(node)

    def put(self, path, data):
        answer = self.session.api.request(
            "PUT", f"{self.session.path}/files/{urllib.parse.quote(path, safe='')}", raw=data)
        assert answer.status in (200, 201), (answer.status, answer.body)

    def sh(self, script):
        result = self.session.exec(["sh", "-c", script])
        assert result.code == 0, result
        return result.out

    def python(self, script):
        """A Python script in the guest's home: what it prints."""
        self.session.put("/tmp/script.py", script.encode())
        return self.session.check(["python3", "/tmp/script.py"])

    def stored(self, path):
        try:
            with open(os.path.join(os.fsencode(self.files), os.fsencode(path)), "rb") as file:
                return file.read()
        except (FileNotFoundError, NotADirectoryError):
            return None

    def status(self):
        return self.session.api.get(self.sandbox + "/sync")

    def reasons(self):
        """What is left out, each path with the code of its reason."""
        return {item["path"]: item["code"] for item in self.status()["left_out"]}

    def faults(self):
        """{(path, side): code}"""
        return {(item["path"], item["side"]): item["code"] for item in self.status()["faults"]}

    def wait_saved(self):
        """What both sides have in common is on the disk, and nothing more is about to be written."""
        label = self.session.api.get(self.sandbox)["label"]
        path = f"{self.node.state_dir}/machines/{label}/ancestor"

        def saved():
            with open(path, "rb") as file:
                return b"gone.txt" in file.read()
        wait_until(saved, "the ancestor")

    def wait_stored(self, path, data):
        wait_until(lambda: self.stored(path) == data, f"{path} in the store")

    def wait_guest(self, path, data):
        wait_until(lambda: self.sh(f"cat '{path}' 2>/dev/null || true") == data, f"{path} in the guest")

    def wait_passed(self, limit=60):
        """All that was done in the guest before this has arrived: a file made now has, and no more is due."""
        self.n_passed = getattr(self, "n_passed", 0) + 1
        self.sh(f"echo {self.n_passed} > passed.txt")
        wait_until(lambda: self.stored("passed.txt") == b"%d\n" % self.n_passed and self.status()["in_step"],
                   "both sides in step", limit)

    def listing(self):
        """What both sides have, path by path: the type, and of files whether they can be run and their sum;
        without what is never in step. {path: [guest's, store's]}"""
        lister = r"""
import hashlib, os, sys
os.chdir(os.fsencode(sys.argv[1]))
for folder, dirs, files in os.walk(b"."):
    dirs[:] = [name for name in dirs if name not in (b".git", b"node_modules", b"user_venv")]
    if folder == b".":  # what the home folder itself comes with
        dirs[:], files = ([name for name in names if name[:1] != b"."] for names in (dirs, files))
    for name in dirs + files:
        path = os.path.join(folder, name)
        if os.path.islink(path):
            what = b"-> " + os.readlink(path)
        elif os.path.isdir(path):
            what = b"/"
        elif not os.path.isfile(path) or not os.access(path, os.R_OK):
            continue
        else:
            what = b"-x"[os.access(path, os.X_OK):][:1] + hashlib.sha1(open(path, "rb").read()).hexdigest().encode()
        print(path.hex(), what.hex())
"""
        from harness import run  # the same program for both
        self.session.put("/tmp/list.py", lister.encode())
        sides = (self.session.check(["python3", "/tmp/list.py", "."]),
                 run(["python3", "-c", lister, self.files], limit=120).stdout)
        found = {}
        for i, side in enumerate(sides):
            for line in side.splitlines():
                path, what = (bytes.fromhex(word.decode()) for word in line.split())
                found.setdefault(path[2:], [None, None])[i] = what
        return found

    def differences(self, *but):
        """Paths that are not the same on both sides, except those that begin so."""
        return {path: sides for path, sides in self.listing().items()
                if sides[0] != sides[1] and not path.startswith(but)}

    def memory_kib(self):
        """The most memory that the manager had."""
        with open(f"/proc/{self.node.manager.pid}/status", encoding="ascii") as file:
            return int(next(line for line in file if line.startswith("VmHWM")).split()[1])
