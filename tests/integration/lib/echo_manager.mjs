// SPDX-License-Identifier: MIT
// Stands where the manager's edge socket is, and answers WebSockets (RFC 8441): what a path names is
// what it does with the bytes. Says what it saw, a line of JSON each. Argument: the socket's path.
import http2 from "node:http2";

const { HTTP2_HEADER_PATH: PATH, HTTP2_HEADER_STATUS: STATUS, HTTP2_HEADER_METHOD: METHOD } = http2.constants;
const say = (what) => process.stdout.write(JSON.stringify(what) + "\n");

const handlers = {
    echo(stream) {
        stream.respond({ [STATUS]: 200, "sec-websocket-protocol": "transom.v1" });
        stream.pipe(stream);
    },
    greet(stream) { // bytes right behind the head
        stream.respond({ [STATUS]: 200 });
        stream.write("hello");
        stream.pipe(stream);
    },
    flood(stream) { // far more than anybody keeps
        const piece = Buffer.alloc(65536, "x");
        stream.respond({ [STATUS]: 200 });
        stream.resume();
        let sent = 0;
        const more = () => {
            while (sent < 256 * 1024 * 1024 && !stream.destroyed) {
                sent += piece.length;
                if (!stream.write(piece)) {
                    stream.once("drain", more);
                    return;
                }
            }
        };
        more();
        stream.on("close", () => say({ flooded: sent }));
    },
    deaf(stream) { // but it talks now and then, as the real one does
        stream.respond({ [STATUS]: 200 });
        stream.pause();
        stream.write("deaf");
        const timer = setInterval(() => stream.write("."), 200);
        stream.on("close", () => clearInterval(timer));
    },
    last(stream) { // so many bytes, and the end
        stream.respond({ [STATUS]: 200 });
        stream.resume();
        stream.end(Buffer.alloc(300000, "y"));
    },
    refuse(stream) {
        stream.respond({ [STATUS]: 401, "content-type": "text/plain" });
        stream.end("who are you?");
    },
    break(stream) {
        stream.respond({ [STATUS]: 200 });
        stream.once("data", () => stream.destroy(new Error("broken")));
    },
};

const server = http2.createServer({ settings: { enableConnectProtocol: true } });
server.on("stream", (stream, headers) => {
    const name = headers[PATH].split("/")[1];
    say({ request: { ...headers } });
    stream.on("error", () => {});
    stream.on("end", () => say({ ended: name }));
    stream.on("close", () => say({ closed: name, code: stream.rstCode }));
    if (headers[METHOD] !== "CONNECT" || headers[":protocol"] !== "websocket") {
        stream.respond({ [STATUS]: 426 });
        stream.end("a WebSocket");
    } else {
        handlers[name](stream);
    }
});
server.listen(process.argv[2], () => say({ ready: true }));
