// The page of 24-socketio: three connections, one after the other; for each what it was carried by at
// first and at last, and whether what was sent came back.
import { visit } from './visit.mjs'

const kinds = { upgraded: ['polling', 'websocket'], websocket: ['websocket'], polling: ['polling'] }

// Runs in the page.
async function talk (transports) {
  const socket = window.io({ transports, forceNew: true, reconnection: false })
  const once = (emitter, event) => new Promise((resolve) => emitter.once(event, resolve))
  // The upgrade may come before the word that the connection is accepted.
  const engine = socket.io.engine
  const result = {}
  engine.once('open', () => { result.first = engine.transport.name })
  const upgrade = transports.length > 1 ? once(engine, 'upgrade') : null
  await Promise.race([once(socket, 'connect'),
    once(socket, 'connect_error').then((error) => { throw error })])
  await upgrade
  const echo = await socket.timeout(30000).emitWithAck('echo', 'ok')
  const bytes = new Uint8Array(300000).map((_, i) => (i * 31) & 255)
  const back = new Uint8Array((await socket.timeout(30000).emitWithAck('echo', bytes)))
  const same = back.length === bytes.length && back.every((value, i) => value === bytes[i])
  const numbers = []
  await new Promise((resolve) => {
    socket.on('number', (i) => { if (numbers.push(i) === 200) resolve() })
    socket.emit('count', 200)
  })
  const end = once(socket, 'disconnect')
  socket.emit('leave')
  return { ...result, last: engine.transport.name, echo, binary: same ? back.length : 'changed',
    numbers: numbers.length, inOrder: numbers.every((value, i) => value === i), end: await end }
}

await visit(async (page, task, seen) => {
  await page.goto(task.url, { waitUntil: 'load' })
  for (const [name, transports] of Object.entries(kinds)) {
    seen[name] = await page.evaluate(talk, transports)
    await page.evaluate((name) => { document.getElementById('text').textContent += name + ' ' }, name)
  }
  await page.screenshot({ path: task.screenshot })
})
