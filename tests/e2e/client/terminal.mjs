// xterm.js in front of a window, by the WebSocket of the API. The one argument is JSON: {socket, key,
// screenshot}. Prints what was seen as a line of JSON.
import { createRequire } from 'node:module'
import { dirname, join } from 'node:path'
import { browse } from './browser.mjs'

const task = JSON.parse(process.argv[2])
const folder = dirname(createRequire(import.meta.url).resolve('@xterm/xterm/package.json'))
const limit = { timeout: 120000 }

async function attach (page, rows, cols) {
  await page.setContent('<!doctype html><title>Terminal</title><div id=terminal></div>')
  await page.addStyleTag({ path: join(folder, 'css/xterm.css') })
  await page.addScriptTag({ path: join(folder, 'lib/xterm.js') })
  await page.evaluate(({ socket, key, rows, cols }) => {
    const term = window.term = new window.Terminal({ rows, cols })
    const ws = new WebSocket(`${socket}?rows=${rows}&cols=${cols}`, ['transom.v1', 'transom.key.' + key])
    window.told = []
    ws.binaryType = 'arraybuffer'
    ws.onmessage = ({ data }) => {
      if (typeof data === 'string') window.told.push(JSON.parse(data))
      else term.write(new Uint8Array(data))
    }
    ws.onclose = ({ code }) => window.told.push({ type: 'over', code })
    term.onData((text) => ws.send(new TextEncoder().encode(text)))
    term.onResize(({ rows, cols }) => ws.send(JSON.stringify({ type: 'resize', rows, cols })))
    term.open(document.getElementById('terminal'))
    term.focus()
    window.screenLines = () => Array.from({ length: term.rows }, (_, i) =>
      term.buffer.active.getLine(term.buffer.active.viewportY + i)?.translateToString(true) ?? '')
  }, { ...task, rows, cols })
  await page.waitForFunction(() => window.told.some(({ type }) => type === 'hello'), null, limit)
}

const lines = (page) => page.evaluate(() => window.screenLines())
const shows = (page, text) => page.waitForFunction((text) => window.screenLines().some((line) => line.includes(text)), text, limit)
const buffer = (page, type) => page.waitForFunction((type) => window.term.buffer.active.type === type, type, limit)

await browse([], async (page) => {
  const seen = { faults: [] }
  page.on('pageerror', (error) => seen.faults.push(String(error)))
  await attach(page, 24, 80)
  await shows(page, '$')
  await page.keyboard.type('echo $((6*7))-typed ä€\n')
  await shows(page, '42-typed ä€')
  await page.evaluate(() => window.term.resize(100, 30))
  await page.keyboard.type('stty size\n')
  await shows(page, '30 100')

  // An editor: another viewer who comes now sees the same screen.
  await page.keyboard.type('vim -u NONE -i NONE note\n')
  await buffer(page, 'alternate')
  await page.keyboard.type('iwritten in a browser')
  await page.keyboard.press('Escape')
  await shows(page, 'written in a browser')
  const late = await page.context().newPage()
  late.on('pageerror', (error) => seen.faults.push(String(error)))
  await attach(late, 30, 100)
  await buffer(late, 'alternate')
  await shows(late, 'written in a browser')
  seen.screens = [await lines(page), await lines(late)]
  await late.screenshot({ path: task.screenshot })
  await late.keyboard.type(':wq\n')
  await Promise.all([buffer(page, 'normal'), buffer(late, 'normal')])

  // What was replayed has asked the terminal nothing that it would have answered into the shell.
  await late.keyboard.type('echo $((6*7))-left\n')
  await shows(late, '42-left')
  await shows(page, '42-left')
  seen.after = await lines(page)
  seen.told = await page.evaluate(() => window.told)
  console.log(JSON.stringify(seen))
})
process.exit(0)
