#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""Settings of one image build, as shell assignments on stdout.

Precedence: command line, then the configuration file's image.* and cache_dir options, then what
the host's own package manager uses. Exit status 2 for usage, 1 for everything else.
"""
import argparse
import glob
import os
import re
import shlex
import subprocess
import sys

DEFAULT_CONFIG = "/etc/transom/transom.yaml"
DEFAULT_CACHE = "/var/cache/transom"
UBUNTU_LTS = ("noble", "jammy", "focal")
KEYRINGS = {
    "debian": "/usr/share/keyrings/debian-archive-keyring.gpg",
    "ubuntu": "/usr/share/keyrings/ubuntu-archive-keyring.gpg",
}


class Fault(Exception):
    """A setting that cannot be used; the message says what to do."""


def parse_args(argv):
    p = argparse.ArgumentParser(prog="vmm/image/build", allow_abbrev=False,
                                description="Build the guest image: kernel, initrd, root file "
                                            "system. Cached by a hash of the recipe.")
    p.add_argument("--config", metavar="FILE", help=f"configuration (default {DEFAULT_CONFIG})")
    p.add_argument("--cache", metavar="DIR", help=f"cache folder (default {DEFAULT_CACHE})")
    p.add_argument("--agent", metavar="PATH", help="static transom-agent for the initrd "
                                                   "(default: newest one under build/)")
    p.add_argument("--suite", metavar="S", help="distribution release, such as bookworm or noble")
    p.add_argument("--mirror", metavar="URL", help="package mirror")
    p.add_argument("--security-mirror", metavar="URL", help="mirror of the security updates")
    p.add_argument("--keyring", metavar="FILE", help="keys that sign the mirror")
    p.add_argument("--ca-dir", metavar="DIR", help="extra certificate authorities, *.crt")
    p.add_argument("--npm-registry", metavar="URL", help="npm registry for build and guest")
    p.add_argument("--print-key", action="store_true", help="print the image's key and exit")
    p.add_argument("--force", action="store_true", help="build even if the image is cached")
    return p.parse_args(argv)


def read_config(path, required):
    """Option name -> string, for image.* and cache_dir."""
    try:
        with open(path, encoding="utf-8") as f:
            text = f.read()
    except OSError as e:
        if required:
            raise Fault(f"cannot read {path}: {e.strerror}; name an existing file with --config")
        return {}
    import yaml  # only here: a build without a file does not need it
    try:
        doc = yaml.safe_load(text)
    except yaml.YAMLError as e:
        raise Fault(f"{path} is not valid YAML: {' '.join(str(e).split())}")
    doc = doc if isinstance(doc, dict) else {}
    image = doc.get("image")
    found = {f"image.{k}": v for k, v in (image if isinstance(image, dict) else {}).items()}
    found.update({k: v for k, v in doc.items() if k == "cache_dir" or str(k).startswith("image.")})
    return {k: str(v) for k, v in found.items() if v not in (None, "")}


def deb822_entries(text):
    """(uri, suite, components, signed_by) of each `deb` source in a .sources file."""
    for stanza in re.split(r"\n\s*\n", re.sub(r"(?m)^#.*\n?", "", text)):
        fields = {}
        name = None
        for line in stanza.splitlines():
            if line[:1] in " \t" and name:
                fields[name] += " " + line.strip()
            elif ":" in line:
                name, value = line.split(":", 1)
                name = name.strip().lower()
                fields[name] = value.strip()
        if "deb" not in fields.get("types", "").split() or fields.get("enabled", "yes") == "no":
            continue
        for uri in fields.get("uris", "").split():
            for suite in fields.get("suites", "").split():
                yield uri, suite, fields.get("components", "").split(), fields.get("signed-by", "")


def list_entries(text):
    """The same of a one-line-style .list file."""
    for line in text.splitlines():
        m = re.match(r"\s*deb\s+(?:\[([^\]]*)\]\s*)?(\S+)\s+(\S+)\s+([^#]*)", line)
        if m:
            signed = re.search(r"signed-by=(\S+)", m.group(1) or "")
            yield m.group(2), m.group(3), m.group(4).split(), signed.group(1) if signed else ""


def host_sources(apt_dir):
    for path in sorted(glob.glob(f"{apt_dir}/sources.list.d/*.sources")):
        with open(path, encoding="utf-8", errors="replace") as f:
            yield from deb822_entries(f.read())
    for path in [f"{apt_dir}/sources.list"] + sorted(glob.glob(f"{apt_dir}/sources.list.d/*.list")):
        if os.path.exists(path):
            with open(path, encoding="utf-8", errors="replace") as f:
                yield from list_entries(f.read())


def host_mirror(entries, suite, distro):
    """The URL from which the host takes this suite of its distribution, or None.

    A third party may publish a suite of the same name: its source is signed by other keys, or its
    path does not end in the distribution's name, so it comes last or not at all."""
    best = None
    for uri, s, components, signed in entries:
        if s != suite or "main" not in components or uri.startswith("cdrom:"):
            continue
        if signed and f"{distro}-archive" not in signed:
            continue
        official = bool(re.search(rf"/{distro}(-security)?/?$", uri))
        if best is None or official > best[0]:
            best = (official, uri.rstrip("/"))
    return best[1] if best else None


def os_release(path):
    fields = {}
    try:
        with open(path, encoding="utf-8") as f:
            for line in f:
                name, _, value = line.strip().partition("=")
                fields[name] = value.strip("\"'")
    except OSError:
        pass
    return fields


def distribution(suite, mirror, host):
    """(distro, suite): Ubuntu LTS when its mirror is configured, else Debian stable."""
    if suite:
        return ("ubuntu" if suite in UBUNTU_LTS else "debian"), suite
    if mirror and "ubuntu" in mirror:
        return "ubuntu", UBUNTU_LTS[0]
    if host.get("ID") == "ubuntu" and not mirror:
        codename = host.get("VERSION_CODENAME", "")
        return "ubuntu", codename if codename in UBUNTU_LTS else UBUNTU_LTS[0]
    if host.get("ID") == "debian" and host.get("VERSION_CODENAME"):
        return "debian", host["VERSION_CODENAME"]
    return "debian", "stable"


def host_npm_registry():
    """The host's npm registry when it is not the one that npm comes with."""
    env = {k: v for k, v in os.environ.items() if k.lower() != "npm_config_registry"}
    none = ["--userconfig=/dev/null", "--globalconfig=/dev/null"]
    ask = ["npm", "config", "get", "registry"]
    try:
        # In / so that no project's settings take part.
        own = subprocess.run(ask, capture_output=True, text=True, cwd="/", check=True)
        plain = subprocess.run(ask + none, capture_output=True, text=True, cwd="/", check=True,
                               env=env)
    except (OSError, subprocess.CalledProcessError):
        return ""
    return "" if own.stdout == plain.stdout else own.stdout.strip()


def resolve(args, environ):
    config_path = args.config or DEFAULT_CONFIG
    config = read_config(config_path, required=args.config is not None)
    apt_dir = environ.get("TRANSOM_APT_DIR", "/etc/apt")  # the tests' own apt settings
    host = os_release(environ.get("TRANSOM_OS_RELEASE", "/etc/os-release"))

    suite = args.suite or config.get("image.suite", "")
    mirror = (args.mirror or config.get("image.mirror", "")).rstrip("/")
    security = (args.security_mirror or config.get("image.security_mirror", "")).rstrip("/")
    distro, suite = distribution(suite, mirror, host)
    if not mirror:
        entries = list(host_sources(apt_dir))
        # The host's mirror of its own suite has the distribution's other suites, too.
        for s in (suite, host.get("VERSION_CODENAME", "")):
            mirror = mirror or host_mirror(entries, s, distro) or ""
            security = security or host_mirror(entries, f"{s}-security", distro) or ""
        if not mirror:
            raise Fault(f"this host's apt sources name no mirror of {distro} {suite}: set "
                        "image.mirror and image.suite in the configuration, or use --mirror and "
                        "--suite")
    if not security:
        security = mirror if distro == "ubuntu" else re.sub(r"/debian$", "/debian-security", mirror)
    keyring = args.keyring or config.get("image.keyring", "") or KEYRINGS[distro]
    if not os.access(keyring, os.R_OK):
        raise Fault(f"keyring {keyring} cannot be read: install {distro}-archive-keyring, or name "
                    "the mirror's keys with --keyring or image.keyring")
    ca_dir = args.ca_dir or config.get("image.ca_dir", "")
    if ca_dir and not os.path.isdir(ca_dir):
        raise Fault(f"{ca_dir} is not a folder: --ca-dir (image.ca_dir) takes a folder of *.crt")
    registry = args.npm_registry or config.get("image.npm_registry", "") or host_npm_registry()
    return {
        "cache": os.path.abspath(args.cache or config.get("cache_dir", DEFAULT_CACHE)),
        "agent": args.agent or "",
        "distro": distro,
        "suite": suite,
        "mirror": mirror,
        "security_mirror": security,
        "keyring": keyring,
        "ca_dir": os.path.abspath(ca_dir) if ca_dir else "",
        "npm_registry": registry,
        "print_key": "yes" if args.print_key else "",
        "force": "yes" if args.force else "",
    }


def main():
    args = parse_args(sys.argv[1:])
    try:
        settings = resolve(args, os.environ)
    except Fault as e:
        print(f"build: {e}", file=sys.stderr)
        return 1
    for name, value in settings.items():
        if "\n" in value or "\0" in value:
            print(f"build: the value of {name} holds a line break", file=sys.stderr)
            return 1
        print(f"opt_{name}={shlex.quote(value)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
