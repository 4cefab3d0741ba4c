# SPDX-License-Identifier: MIT
"""Debian packages of this host as files, for a machine of the same release: what a machine installs by
itself takes it minutes when it is emulated."""
import glob
import os

from harness import run

# What nothing needs in order to run.
_LEFT_OUT = ("/usr/share/doc/", "/usr/share/man/", "/usr/share/locale/", "/usr/share/icons/",
             "/usr/share/javascript/mathjax/")


def _query(form, *names):
    return run(["dpkg-query", "-W", "-f", form, *names], check=False).stdout.decode()


def _dependencies():
    """Name -> what it depends on, as lists of alternatives; virtual name -> a package that provides it."""
    needs, provided = {}, {}
    for line in _query("${Package}\t${Pre-Depends},${Depends}\t${Provides}\n").splitlines():
        name, depends, provides = line.split("\t")
        needs[name] = [[word.split("(")[0].split(":")[0].strip() for word in clause.split("|")]
                       for clause in depends.split(",") if clause.strip()]
        for word in provides.split(","):
            provided.setdefault(word.split("(")[0].strip(), name)
    return needs, provided


def files_of(package, without):
    """Paths of the package's files and of those of all that it depends on. without: names that the
    machine has already."""
    needs, provided = _dependencies()
    found, left = set(), [[package]]
    while left:
        names = left.pop()
        if any(name in found or name in without or provided.get(name) in without for name in names):
            continue
        name = next((name for name in names if name in needs), None) or provided[names[0]]
        if name not in found and name not in without:
            found.add(name)
            left += needs[name]
    names = [line.strip() for line in _query("${binary:Package}\n", *found).splitlines()]
    listed = run(["dpkg", "-L", *names]).stdout.decode().splitlines()
    paths = {path for path in listed if path.startswith("/") and not path.startswith(_LEFT_OUT)
             and (os.path.islink(path) or os.path.isfile(path))}
    # Compiled when they were installed, which is no file of the package.
    for path in [path for path in paths if path.endswith(".py")]:
        folder, name = os.path.split(path)
        paths.update(glob.glob(f"{folder}/__pycache__/{name[:-3]}.cpython-*.pyc"))
    return sorted(paths)
