// A real browser at a Vite dev server's preview. One argument: JSON {url, spki, screenshot, from, to}.
// Opens url, waits for `from` in the page, marks the window, prints "ready"; waits until `to` has
// taken its place, and prints JSON: what the page held, and whether the mark survived.
import { chromium } from 'playwright-core'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

const task = JSON.parse(process.argv[2])
const profile = mkdtempSync(join(tmpdir(), 'transom-chromium-'))
const context = await chromium.launchPersistentContext(profile, {
  executablePath: '/usr/bin/chromium',
  headless: true,
  args: ['--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run',
    '--disable-background-networking', '--disable-component-update', '--disable-sync',
    '--disable-dev-shm-usage',
    // The authority is the test's own: its leaf is accepted by its key, and no other.
    ...(task.spki ? ['--ignore-certificate-errors-spki-list=' + task.spki] : [])]
})
let status = 0
try {
  const page = context.pages()[0] ?? await context.newPage()
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
  await page.evaluate(() => { window.transomMark = 'kept' })
  await page.screenshot({ path: task.screenshot })
  console.log('ready')
  await page.getByText(task.to).first().waitFor()
  const mark = await page.evaluate(() => window.transomMark)
  console.log(JSON.stringify({ title, margin: background, mark, loads, sockets, faults }))
} catch (error) {
  console.log(String(error))
  status = 1
} finally {
  await context.close()
  rmSync(profile, { recursive: true, force: true })
}
process.exit(status)
