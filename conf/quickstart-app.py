# SPDX-License-Identifier: MIT
"""The app that conf/quickstart shows: one page, served from inside the microVM on port 8080."""
import html
import os
import platform
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>Transom</title>
<style>body {{ font: 1.1em/1.5 system-ui; margin: 4em auto; max-width: 36em }}</style>
<h1>It works</h1>
<p>This page is served from inside a Transom microVM.</p>
<table>
<tr><td>Public host name<td>{host}
<tr><td>Kernel<td>{kernel}
<tr><td>Python<td>{python}
<tr><td>Path asked for<td>{path}
</table>
</html>
"""


class Page(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        body = PAGE.format(host=html.escape(os.environ.get("PUBLIC_HOSTNAME", "unknown")),
                           kernel=html.escape(platform.release()), python=platform.python_version(),
                           path=html.escape(self.path)).encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


ThreadingHTTPServer(("0.0.0.0", 8080), Page).serve_forever()
