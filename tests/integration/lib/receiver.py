# SPDX-License-Identifier: MIT
"""An HTTP server of a test's own that keeps what is POSTed to it."""
import http.server
import json
import threading

from harness import wait_until


class Receiver:
    """Answers with the statuses in `answers`, then with 204; keeps what came as (path, headers, body)."""

    def __init__(self, case, tls=None):
        self.got, self.answers, self.headers = [], [], {}
        self.gate = threading.Event()
        self.gate.set()
        receiver = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = self.rfile.read(int(self.headers["content-length"]))
                receiver.got.append((self.path, dict(self.headers), body))
                receiver.gate.wait()
                status = receiver.answers.pop(0) if receiver.answers else 204
                self.send_response(status)
                for name, value in receiver.headers.items():
                    self.send_header(name, value)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_):
                pass
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        if tls is not None:
            self.server.socket = tls.wrap_socket(self.server.socket, server_side=True)
        self.port = self.server.server_port
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        case.addCleanup(self.close)

    def close(self):
        self.gate.set()
        self.server.shutdown()
        self.server.server_close()

    def url(self, path="/hook", host="127.0.0.1", scheme="http"):
        return f"{scheme}://{host}:{self.port}{path}"

    def events(self):
        return [json.loads(body) for _, _, body in self.got]

    def wait(self, n, limit=120):
        wait_until(lambda: len(self.got) >= n, f"{n} deliveries; got {len(self.got)}", limit)
