// A real browser at a Vite dev server's preview. One argument: JSON {url, spki, screenshot, from, to}.
// Opens url, waits for `from` in the page, marks the window, prints "ready"; waits until `to` has
// taken its place, and prints JSON: what the page held, and whether the mark survived.
import { browse } from './browser.mjs'

const task = JSON.parse(process.argv[2])
// The authority is the test's own: its leaf is accepted by its key, and no other.
const args = task.spki ? ['--ignore-certificate-errors-spki-list=' + task.spki] : []

async function watch (page) {
  const faults = []
  const sockets = []
  let loads = 0
  page.on('pageerror', (error) => faults.push(String(error)))
  page.on('websocket', (socket) => sockets.push(socket.url()))
  page.on('load', () => loads++)
  page.setDefaultTimeout(240000)
  await page.goto(task.url, { waitUntil: 'load' })
  await page.getByText(task.from).first().waitFor()
  const title = await page.title()
  const background = await page.evaluate(() => getComputedStyle(document.body).margin)
  await page.waitForFunction(() => document.images.length > 0 &&
    [...document.images].every((image) => image.complete && image.naturalWidth > 0))
  await page.evaluate(() => { window.transomMark = 'kept' })
  await page.screenshot({ path: task.screenshot })
  console.log('ready')
  await page.getByText(task.to).first().waitFor()
  const mark = await page.evaluate(() => window.transomMark)
  console.log(JSON.stringify({ title, margin: background, mark, loads, sockets, faults }))
}

try {
  await browse(args, watch)
} catch (error) {
  console.log(String(error))
  process.exit(1)
}
process.exit(0)
