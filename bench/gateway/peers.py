# SPDX-License-Identifier: MIT
"""The proxies that the gateway is measured beside, each from the distribution, each with one worker on
one core and the same task: any host to one server, kept-alive connections to it, HTTP/1.1 plain and
over TLS, HTTP/2 over TLS, WebSockets. Beside them the origin and the floor, a bare relay of bytes."""
import os
import socket

from harness.process import Process, run

HERE = os.path.dirname(os.path.abspath(__file__))
CLIENT_CPU, PROXY_CPU = ("0", "1") if os.cpu_count() > 1 else ("0", "0")
SIZES = (1024, 1 << 20)


def free_port():
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


def listens(port):
    with socket.socket() as sock:
        return sock.connect_ex(("127.0.0.1", port)) == 0


def children(pid):
    with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
        return [int(child) for child in file.read().split()]


def pin(pids, cpu):
    for pid in pids:
        for task in os.listdir(f"/proc/{pid}/task"):
            run(["taskset", "-p", "-c", cpu, task])


class Peer:
    """A program with a folder of its own. port: plain; tls_port: 0 where it has no TLS."""
    name = ""
    cpu = PROXY_CPU

    def __init__(self, folder, name=None):
        self.name = name or self.name
        self.dir = os.path.join(folder, self.name)
        os.makedirs(self.dir, exist_ok=True)
        self.port, self.tls_port = free_port(), 0
        self.process = None

    def write(self, name, text):
        path = os.path.join(self.dir, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return path

    def start(self, argv, **env):
        self.process = Process(["taskset", "-c", self.cpu, *argv], self.dir + "/log",
                               env={**os.environ, **env})
        self.process.wait_for(lambda: listens(self.port), f"{self.name} listens")

    def pids(self):
        return [self.process.pid]

    def stop(self):
        self.process.stop()


class Nginx(Peer):
    name = "nginx"

    def start_with(self, http):
        """http: what stands in the http block."""
        temporary = "".join(f"{kind}_temp_path {self.dir}/{kind}; "
                            for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
        conf = self.write("nginx.conf", f"""
worker_processes 1; daemon off; user root;
pid {self.dir}/pid; error_log {self.dir}/error.log crit; events {{ worker_connections 9000; }}
http {{ access_log off; keepalive_requests 100000000; keepalive_timeout 3600; tcp_nodelay on; sendfile on;
  client_max_body_size 0; {temporary}
  {http} }}
""")
        self.start(["nginx", "-p", self.dir, "-c", conf])

    def pids(self):
        return children(self.process.pid)


class Origin(Nginx):
    """Serves files of SIZES bytes and takes uploads at /up; on the client's core."""
    name = "origin"
    cpu = CLIENT_CPU

    def __init__(self, folder):
        super().__init__(folder)
        for size in SIZES:
            self.write(str(size), "x" * size)
        self.start_with(f"""server {{ listen 127.0.0.1:{self.port}; root {self.dir};
    location /up {{ return 204; }} }}""")


class NginxProxy(Nginx):
    def __init__(self, folder, server, certificate, key):
        super().__init__(folder)
        self.tls_port = free_port()
        self.start_with(f"""
  map $http_upgrade $connection_upgrade {{ default upgrade; '' ''; }}
  upstream app {{ server 127.0.0.1:{server}; keepalive 256; keepalive_requests 100000000; }}
  ssl_certificate {certificate}; ssl_certificate_key {key}; ssl_protocols TLSv1.2 TLSv1.3;
  http2_max_concurrent_streams 256;
  server {{ listen 127.0.0.1:{self.port}; listen 127.0.0.1:{self.tls_port} ssl http2;
    location / {{ proxy_pass http://app; proxy_http_version 1.1; proxy_read_timeout 3600;
    proxy_set_header Upgrade $http_upgrade; proxy_set_header Connection $connection_upgrade;
    proxy_set_header Host $host; proxy_set_header X-Forwarded-For $remote_addr;
    proxy_set_header X-Forwarded-Proto $scheme; proxy_set_header X-Forwarded-Host $host;
    proxy_buffers 16 32k; proxy_buffer_size 32k; proxy_busy_buffers_size 128k;
    proxy_request_buffering off; }} }}""")


class Haproxy(Peer):
    name = "haproxy"

    def __init__(self, folder, server, certificate, key):
        super().__init__(folder)
        self.tls_port = free_port()
        with open(certificate, encoding="ascii") as first, open(key, encoding="ascii") as second:
            pem = self.write("both.pem", first.read() + second.read())
        self.start(["haproxy", "-db", "-f", self.write("haproxy.cfg", f"""
global
  nbthread 1
  maxconn 9000
defaults
  mode http
  timeout connect 5s
  timeout client 1h
  timeout server 1h
  timeout tunnel 1h
  option http-keep-alive
  http-reuse always
frontend edge
  bind 127.0.0.1:{self.port}
  bind 127.0.0.1:{self.tls_port} ssl crt {pem} alpn h2,http/1.1
  http-request set-header X-Forwarded-For %[src]
  http-request set-header X-Forwarded-Proto https if {{ ssl_fc }}
  http-request set-header X-Forwarded-Host %[req.hdr(host)]
  default_backend app
backend app
  server app 127.0.0.1:{server}
""")])


class Caddy(Peer):
    name = "caddy"

    def __init__(self, folder, server, certificate, key):
        super().__init__(folder)
        self.tls_port = free_port()
        proxy = f"""bind 127.0.0.1
  reverse_proxy 127.0.0.1:{server} {{
    transport http {{
      keepalive_idle_conns_per_host 256
    }}
  }}"""
        config = self.write("Caddyfile", f"""{{
  admin off
  auto_https off
  log {{
    level ERROR
  }}
  servers {{
    protocols h1 h2
  }}
}}
http://:{self.port} {{
  {proxy}
}}
https://:{self.tls_port} {{
  tls {certificate} {key}
  {proxy}
}}
""")
        self.start(["caddy", "run", "--config", config, "--adapter", "caddyfile"], GOMAXPROCS="1",
                   HOME=self.dir, XDG_DATA_HOME=self.dir, XDG_CONFIG_HOME=self.dir)


class H2o(Peer):
    name = "h2o"

    def __init__(self, folder, server, certificate, key):
        super().__init__(folder)
        self.tls_port = free_port()
        self.start(["h2o", "-c", self.write("h2o.conf", f"""
num-threads: 1
max-connections: 9000
user: root
listen:
  host: 127.0.0.1
  port: {self.port}
listen:
  host: 127.0.0.1
  port: {self.tls_port}
  ssl:
    certificate-file: {certificate}
    key-file: {key}
proxy.preserve-host: ON
proxy.websocket: ON
proxy.websocket.timeout: 3600000
proxy.timeout.keepalive: 60000
hosts:
  default:
    paths:
      "/":
        proxy.reverse.url: http://127.0.0.1:{server}/
""")])


class Relay(Peer):
    """The floor: what moving the bytes costs."""
    name = "bare relay"

    def __init__(self, folder, server, *_):
        super().__init__(folder, "relay")
        self.name = "bare relay"
        program = os.path.join(self.dir, "relay")
        run(["gcc", "-O2", "-std=c11", "-o", program, os.path.join(HERE, "relay.c")])
        self.start([program, str(self.port), str(server)])


PROXIES = (NginxProxy, Haproxy, Caddy, H2o)
