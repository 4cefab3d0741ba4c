// A browser at a preview. The script's one argument is JSON: {url, spki, screenshot, domain...}: names
// below domain are this host. visit() runs steps(page, task, seen), then prints `seen` as a line of JSON: faults in the page, requests that
// failed, protocols, WebSockets with the status of their handshake, and whatever the steps added.
import { browse } from './browser.mjs'

async function observe (page, host, seen) {
  page.on('pageerror', (error) => seen.faults.push(String(error)))
  page.on('load', () => seen.loads++)
  const network = await page.context().newCDPSession(page)
  const sockets = new Map()
  network.on('Network.webSocketCreated', ({ requestId, url }) => {
    const socket = { url, status: 0 }
    sockets.set(requestId, socket)
    seen.sockets.push(socket)
  })
  network.on('Network.webSocketHandshakeResponseReceived', ({ requestId, response }) => {
    const socket = sockets.get(requestId)
    if (socket) socket.status = response.status
  })
  network.on('Network.responseReceived', ({ response }) => {
    const at = new URL(response.url)
    if (at.host !== host) return
    const protocol = response.protocol
    // What comes from the browser's own cache has no protocol to speak of.
    if (protocol && !response.fromDiskCache && !seen.protocols.includes(protocol)) seen.protocols.push(protocol)
    if (response.status >= 400) seen.refused.push(`${response.status} ${at.pathname}`)
  })
  await network.send('Network.enable')
}

export async function visit (steps) {
  const task = JSON.parse(process.argv[2])
  const seen = { faults: [], refused: [], protocols: [], sockets: [], loads: 0, screenshot: task.screenshot }
  // The authority is the test's own: its leaf is accepted by its key, and no other.
  const args = task.spki ? ['--ignore-certificate-errors-spki-list=' + task.spki] : []
  if (task.domain) args.push(`--host-resolver-rules=MAP *.${task.domain} 127.0.0.1`)
  let page
  try {
    await browse(args, async (first) => {
      page = first
      page.setDefaultTimeout(120000)
      await observe(page, new URL(task.url).host, seen)
      try {
        await steps(page, task, seen)
      } catch (error) {
        await page.screenshot({ path: task.screenshot }).catch(() => {})
        throw error
      }
    })
  } catch (error) {
    console.log(JSON.stringify(seen))
    console.log(String(error.stack ?? error))
    process.exit(1)
  }
  console.log(JSON.stringify(seen))
  process.exit(0)
}
