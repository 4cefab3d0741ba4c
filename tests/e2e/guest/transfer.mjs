// A server on 8080 for large bodies: POST / answers the SHA-256 and length of what it got;
// GET /N sends N bytes, 64 KiB chunks that carry their number (41-transfer knows the same sum).
import { createServer } from 'node:http'
import { createHash } from 'node:crypto'

const CHUNK = Buffer.alloc(1 << 16)
for (let i = 0; i < CHUNK.length; i++) CHUNK[i] = (i * 31 + (i >> 8)) & 255

let sent = 0 // of the latest download; GET /sent tells

createServer(async (request, response) => {
  if (request.method === 'POST') {
    const hash = createHash('sha256')
    let length = 0
    for await (const data of request) {
      hash.update(data)
      length += data.length
    }
    response.end(JSON.stringify({ length, sha256: hash.digest('hex') }))
    return
  }
  if (request.url === '/sent') {
    response.end(String(sent))
    return
  }
  // Each chunk differs by its number, so that a lost, doubled or swapped one changes the sum.
  let left = Number(request.url.slice(1))
  response.writeHead(200, { 'content-length': left })
  sent = 0
  for (let number = 0; left > 0; number++) {
    const data = Buffer.from(CHUNK.subarray(0, Math.min(CHUNK.length, left)))
    data.writeUInt32BE(number, 0)
    left -= data.length
    sent += data.length
    if (!response.write(data)) await new Promise((resolve) => response.once('drain', resolve))
  }
  response.end()
}).listen(8080, '0.0.0.0')
