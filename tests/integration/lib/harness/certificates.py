# SPDX-License-Identifier: MIT
"""A certificate authority of a test's own, and what clients need in order to trust it."""
import base64
import hashlib
import os

from .process import run


GATEWAY_ID = 65532  # of the user that the gateway becomes, where none of its own is installed


def own_by_gateway(path):
    """A file or folder that only the gateway's user uses (its default one, if the test is root)."""
    if os.geteuid() == 0:
        os.chown(path, GATEWAY_ID, GATEWAY_ID)
    os.chmod(path, 0o700 if os.path.isdir(path) else 0o600)


def make_certificates(folder):
    """An authority, and a certificate for *.preview.localhost, *.preview.test and others. Paths of the authority's
    certificate, the server's certificate and its key."""
    def openssl(*words):
        run(["openssl", *words], cwd=folder)
    openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
            "-days", "30", "-subj", "/CN=Transom test authority", "-keyout", "ca.key",
            "-out", "ca.pem", "-addext", "basicConstraints=critical,CA:TRUE",
            "-addext", "keyUsage=critical,keyCertSign")
    with open(os.path.join(folder, "leaf.cnf"), "w", encoding="ascii") as file:
        file.write("subjectAltName=DNS:localhost,DNS:*.localhost,DNS:*.preview.localhost,"
                   "DNS:*.preview.test,IP:127.0.0.1\nbasicConstraints=CA:FALSE\nextendedKeyUsage=serverAuth\n")
    openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
            "-subj", "/CN=preview.localhost", "-keyout", "tls.key", "-out", "tls.csr")
    openssl("x509", "-req", "-in", "tls.csr", "-CA", "ca.pem", "-CAkey", "ca.key",
            "-CAcreateserial", "-days", "30", "-extfile", "leaf.cnf", "-out", "tls.pem")
    own_by_gateway(os.path.join(folder, "tls.key"))
    return tuple(os.path.join(folder, name) for name in ("ca.pem", "tls.pem", "tls.key"))


def key_hash(certificate):
    """Chromium's name for a certificate's key."""
    public = run(["openssl", "x509", "-in", certificate, "-noout", "-pubkey"]).stdout
    der = run(["openssl", "pkey", "-pubin", "-outform", "der"], stdin=public).stdout
    return base64.b64encode(hashlib.sha256(der).digest()).decode()
