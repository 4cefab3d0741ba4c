// SPDX-License-Identifier: MIT
// An app that speaks HTTP/2 without TLS: what a path names is what it does. Prints its port, then
// what it saw, a line of JSON each. Arguments: settings as JSON, an address to listen on.
import { createHash } from "node:crypto";
import http2 from "node:http2";

const { HTTP2_HEADER_PATH: PATH, HTTP2_HEADER_STATUS: STATUS } = http2.constants;
const say = (what) => process.stdout.write(JSON.stringify(what) + "\n");
const seen = new Map();
let sessions = 0;

function respondWithBody(stream, headers, body) {
    stream.respond({ [STATUS]: 200, ...headers });
    stream.end(body);
}

const handlers = {
    // Everything about the request, once it is complete.
    echo(stream, headers) {
        const hash = createHash("sha256");
        let length = 0, trailers = {};
        stream.on("trailers", (fields) => { trailers = { ...fields }; });
        stream.on("data", (data) => { hash.update(data); length += data.length; });
        stream.on("end", () => stream.destroyed || respondWithBody(stream, { "content-type": "application/json" }, JSON.stringify({
            headers: { ...headers }, trailers, length, digest: hash.digest("hex"), session: stream.session?.number })));
    },
    trailers(stream) {
        stream.respond({ [STATUS]: 200 }, { waitForTrailers: true });
        stream.on("wantTrailers", () => stream.destroyed || stream.sendTrailers({ "grpc-status": "5", "x-end": "yes" }));
        stream.end("body");
    },
    only(stream) { // a head that is also the end, as gRPC calls "trailers only"
        stream.respond({ [STATUS]: 200, "grpc-status": "12" }, { endStream: true });
    },
    hints(stream) {
        stream.additionalHeaders({ [STATUS]: 103, link: "</a.css>; rel=preload" });
        stream.additionalHeaders({ [STATUS]: 103, link: "</b.js>; rel=preload" });
        respondWithBody(stream, { "content-length": 5 }, "hello");
    },
    big(stream, headers, n) {
        const piece = Buffer.alloc(65536, "x");
        let left = Number(n);
        stream.respond({ [STATUS]: 200, ...(headers["x-length"] ? { "content-length": left } : {}) });
        const more = () => {
            while (left > 0) {
                const part = piece.subarray(0, Math.min(left, piece.length));
                left -= part.length;
                say({ left });
                if (left === 0) { // at once: Node resets a stream whose end waits for a window
                    stream.end(part);
                    return;
                }
                if (!stream.write(part)) {
                    stream.once("drain", more);
                    return;
                }
            }
        };
        more();
    },
    events(stream) {
        stream.respond({ [STATUS]: 200, "content-type": "text/event-stream" });
        stream.on("data", (data) => stream.write(data)); // one for each that comes
        stream.on("end", () => stream.end());
    },
    status(stream, headers, n) {
        stream.respond({ [STATUS]: Number(n) }, { endStream: true });
    },
    length(stream, headers, n) { // of a body that is not sent
        stream.respond({ [STATUS]: 200, "content-length": Number(n) }, { endStream: true });
    },
    cookies(stream) {
        respondWithBody(stream, { "set-cookie": ["a=1; Path=/", "c=3; Domain=preview.test"],
            location: "http://localhost:8080/x" }, "");
    },
    reset(stream, headers, code) {
        stream.close(Number(code));
    },
    refuse(stream, headers, n) { // so many times
        const count = seen.get(headers["x-id"]) ?? 0;
        seen.set(headers["x-id"], count + 1);
        if (count < Number(n))
            stream.close(http2.constants.NGHTTP2_REFUSED_STREAM);
        else
            respondWithBody(stream, {}, `after ${count}`);
    },
    goaway(stream) {
        stream.session.goaway(0, stream.id);
        respondWithBody(stream, {}, String(stream.session.number));
    },
    destroy(stream) { // not from within: what came in the same read for other streams would end Node
        const { session } = stream;
        setImmediate(() => session.destroy());
    },
    silent() {},
    unread(stream) { // nothing of the request's body
        stream.pause();
        stream.respond({ [STATUS]: 200 });
        stream.write("go on");
    },
};

const server = http2.createServer({ settings: JSON.parse(process.argv[2] ?? "{}") });
server.on("session", (session) => {
    session.number = ++sessions;
    session.on("error", () => {});
    say({ session: session.number });
});
server.on("stream", (stream, headers) => {
    const [, name, argument] = headers[PATH].split("/");
    say({ path: headers[PATH] });
    stream.on("error", () => {});
    stream.on("aborted", () => say({ aborted: headers[PATH] }));
    stream.on("close", () => say({ closed: headers[PATH], code: stream.rstCode }));
    try {
        handlers[name](stream, headers, argument);
    } catch (error) { // a stream that is gone already
        say({ error: error.code ?? String(error) });
    }
});
server.listen(0, process.argv[3] ?? "127.0.0.1", () => say({ port: server.address().port }));
