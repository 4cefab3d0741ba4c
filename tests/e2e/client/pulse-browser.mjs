// As pulse.mjs, with the WebSocket held by a page in a real browser. Argument: URL of the page, whose
// host also answers the WebSocket.
import { createInterface } from 'node:readline'
import { browse } from './browser.mjs'

const [url] = process.argv.slice(2)

await browse([], async (page) => {
  await page.exposeFunction('say', (text) => console.log(text))
  await page.goto(url)
  await page.evaluate(() => new Promise((resolve, reject) => {
    const socket = window.socket = new WebSocket(location.href.replace(/^http/, 'ws'))
    socket.onopen = () => { window.say('open'); resolve() }
    socket.onmessage = async ({ data }) => window.say('got ' + (data instanceof Blob ? await data.text() : data))
    socket.onclose = () => { window.say('closed'); reject(new Error('closed')) }
  }))
  // Not earlier: lines that come before they are asked for would be lost.
  for await (const line of createInterface({ input: process.stdin })) {
    await page.evaluate((text) => window.socket.send(text), line)
  }
})
process.exit(0)
