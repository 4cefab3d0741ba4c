# SPDX-License-Identifier: MIT
"""HTTP as a client of the gateway speaks it."""
import http.client
import socket
import ssl


class Response:
    def __init__(self, response, body):
        self.status = response.status
        self.headers = response.headers
        self.body = body

    def text(self):
        return self.body.decode(errors="replace")

    def __repr__(self):
        return f"Response({self.status}, {dict(self.headers)}, {self.body[:300]!r})"


def fetch(port, host, path="/", method="GET", body=None, headers=None, tls=None, limit=60,
          address="127.0.0.1"):
    """One request on a new connection. tls: a file with the authority's certificate, or True to
    accept any. headers may replace Host."""
    if tls:
        context = ssl.create_default_context(cafile=tls if isinstance(tls, str) else None)
        if tls is True:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        conn = http.client.HTTPSConnection(address, port, timeout=limit, context=context)
        sock = socket.create_connection((address, port), limit)
        conn.sock = context.wrap_socket(sock, server_hostname=host.split(":")[0])
    else:
        conn = http.client.HTTPConnection(address, port, timeout=limit)
    try:
        conn.request(method, path, body=body, headers={"Host": host, **(headers or {})})
        response = conn.getresponse()
        return Response(response, response.read())
    finally:
        conn.close()


def raw_connect(port, limit=60, address="127.0.0.1"):
    """A plain connected socket, for exact bytes."""
    return socket.create_connection((address, port), limit)
