# SPDX-License-Identifier: MIT
"""npm packages that only one test needs: installed once for each lock file, and kept."""
import fcntl
import hashlib
import os
import shutil
import tempfile

from harness import image_cache, run


def installed(folder):
    """The folder that holds the node_modules of folder's package-lock.json. No package's own scripts
    are run. Call it where the host's network is."""
    digest = hashlib.sha256()
    for name in ("package.json", "package-lock.json"):
        with open(os.path.join(folder, name), "rb") as file:
            digest.update(file.read())
    root = os.path.join(image_cache(), "node-packages")
    os.makedirs(root, exist_ok=True)
    path = os.path.join(root, digest.hexdigest()[:32])
    with open(path + ".lock", "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not os.path.isdir(path):
            new = tempfile.mkdtemp(prefix=".new-", dir=root)
            try:
                for name in ("package.json", "package-lock.json"):
                    shutil.copy(os.path.join(folder, name), new)
                run(["npm", "ci", "--prefix", new, "--ignore-scripts", "--no-audit", "--no-fund"], limit=500)
                os.rename(new, path)
            except BaseException:
                shutil.rmtree(new, ignore_errors=True)
                raise
    return path
