// Client of guest/echo.mjs. Arguments: URL, Host, count, seconds of silence on a second connection.
// Prints one JSON line: what arrived. Exits 1 with a reason on the first thing that is wrong.
import { createHash, randomBytes } from 'node:crypto'
import WebSocket from 'ws'

const [url, host] = process.argv.slice(2)
const [count, silence] = process.argv.slice(4).map(Number)
const MIB = 1 << 20
// Every power of two and its neighbours, where framing changes form, then mixed ones.
const edges = [0, 1, 125, 126, 127, 65534, 65535, 65536, 65537, MIB - 1, MIB]

function size (i) {
  if (i < edges.length) return edges[i]
  // Mostly small, now and then large, one in forty at the full size.
  if (i % 40 === 0) return MIB
  return i % 10 === 0 ? (i * 7919) % 300000 : (i * 7919) % 9000
}

function fail (reason) {
  console.log(reason)
  process.exit(1)
}

function open () {
  return new Promise((resolve) => {
    const socket = new WebSocket(url, { perMessageDeflate: false, headers: { host } })
    socket.on('error', (error) => fail(`socket: ${error.message}`))
    socket.on('unexpected-response', (request, response) => fail(`handshake: ${response.statusCode}`))
    socket.on('open', () => resolve(socket))
  })
}

const quiet = await open()
const quietSince = process.hrtime.bigint()
quiet.on('close', (code) => fail(`the silent connection was closed: ${code}`))

const busy = await open()
const expected = []
let bytes = 0
const allBack = new Promise((resolve) => {
  let got = 0
  busy.on('message', (data, isBinary) => {
    const want = expected[got]
    const hash = createHash('sha256').update(data).digest('hex')
    if (isBinary !== want.binary || hash !== want.hash) fail(`message ${got} (${want.length} bytes) changed on its way`)
    bytes += data.length
    if (++got === count) resolve()
  })
  busy.on('close', () => fail(`closed after ${got} of ${count} messages`))
})
for (let i = 0; i < count; i++) {
  const binary = i % 2 === 0
  const data = binary ? randomBytes(size(i)) : Buffer.from(randomBytes(Math.ceil(size(i) / 2)).toString('hex').slice(0, size(i)))
  expected.push({ binary, length: data.length, hash: createHash('sha256').update(data).digest('hex') })
  // At most 4 MiB under way: it is the tunnel that is tested, not this program's memory.
  while (busy.bufferedAmount > 4 * MIB) await new Promise((resolve) => busy._socket.once('drain', resolve))
  busy.send(data, { binary })
}
await allBack

// The rest of the silence: the wait is what is tested, and nothing but a message may end it early.
const left = silence * 1000 - Number((process.hrtime.bigint() - quietSince) / 1000000n)
await new Promise((resolve) => setTimeout(resolve, Math.max(left, 0)))
const answer = new Promise((resolve) => quiet.once('message', resolve))
quiet.send('still there?')
const text = (await answer).toString()
if (text !== 'still there?') fail(`after the silence: ${text}`)
console.log(JSON.stringify({ messages: count, bytes, silence }))
process.exit(0)
