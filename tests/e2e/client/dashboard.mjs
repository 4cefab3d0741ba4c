// A page for a test to drive: reads lines {do, args}, answers each with {value} or {fault, seen}. What
// the page must never do is counted all along: faults, console errors, violations of its policy,
// requests to anybody else.
import { createRequire } from 'node:module'
import { createInterface } from 'node:readline'
import { browse } from './browser.mjs'

const { args = [], size, dark = false } = JSON.parse(process.argv[2])
let limit = 45000 // ms, of the task under way

/** "role=button[name='Save']" and "label=..." besides Playwright's own selectors. */
function locate (page, what) {
  const role = what.match(/^role=(\w+)\[name='(.*)'\]$/)
  if (role !== null) return page.getByRole(role[1], { name: role[2], exact: true })
  return what.startsWith('label=') ? page.getByLabel(what.slice(6)) : page.locator(what)
}

await browse(args, async (page) => {
  const seen = { faults: [], violations: [], foreign: [] }
  let origin = ''
  await page.setViewportSize({ width: size[0], height: size[1] })
  await page.emulateMedia({ colorScheme: dark ? 'dark' : 'light' })
  await page.exposeFunction('__violation', (text) => seen.violations.push(text))
  await page.addInitScript(() => {
    addEventListener('securitypolicyviolation', (event) => window.__violation(`${event.violatedDirective} ${event.blockedURI} ${event.sourceFile}:${event.lineNumber}`))
    new PerformanceObserver((list) => { for (const { duration } of list.getEntries()) (window.__longTasks ??= []).push(Math.round(duration)) }).observe({ type: 'longtask', buffered: true })
  })
  page.on('pageerror', (error) => seen.faults.push(String(error)))
  page.on('console', (message) => { if (message.type() === 'error' && !/Failed to load resource/.test(message.text())) seen.faults.push(message.text()) })
  page.on('request', (request) => { if (origin !== '' && !request.url().startsWith(origin) && !/^(blob|data):/.test(request.url())) seen.foreign.push(request.url()) })

  const can = {
    /** As a browser that was never here. */
    fresh: async (size) => {
      origin = ''
      await page.goto('about:blank')
      await page.context().clearCookies()
      await page.setViewportSize({ width: size[0], height: size[1] })
      await page.emulateMedia({ colorScheme: 'light' })
      await can.forget()
    },
    goto: async (url) => { origin = new URL(url).origin; await page.goto(url) },
    fill: async (what, text) => { await locate(page, what).fill(text) },
    click: async (what) => { await locate(page, what).click() },
    select: async (what, value) => { await locate(page, what).selectOption(value) },
    press: async (key) => { await page.keyboard.press(key) },
    type: async (text) => { await page.keyboard.type(text) },
    see: async (what) => { await locate(page, what).first().waitFor({ state: 'visible' }) },
    gone: async (what) => { await locate(page, what).first().waitFor({ state: 'hidden' }) },
    text: async (what) => await locate(page, what).first().innerText(),
    count: async (what) => await locate(page, what).count(),
    // Not waitForFunction(), which the page's policy forbids: it would be an eval() of the page's own.
    until: async (code) => {
      for (const end = Date.now() + limit; !await page.evaluate(code); await new Promise((resolve) => setTimeout(resolve, 50))) {
        if (Date.now() > end) throw new Error('this did not come true')
      }
    },
    evaluate: async (code) => await page.evaluate(code),
    // Long ones whole: what is below the fold counts, too.
    shot: async (path) => { await page.screenshot({ path, fullPage: true }) },
    url: async () => page.url(),
    resize: async (width, height) => { await page.setViewportSize({ width, height }) },
    scheme: async (colorScheme) => { await page.emulateMedia({ colorScheme }) },
    cookies: async () => await page.context().cookies(),
    seen: async () => seen,
    forget: async () => { for (const list of Object.values(seen)) list.length = 0 },
    /** Findings of axe that are serious or worse. It comes in by way of the debugger: the policy stays as it is. */
    axe: async () => {
      const source = createRequire(import.meta.url)('axe-core').source
      const session = await page.context().newCDPSession(page)
      await session.send('Runtime.evaluate', { expression: source })
      const { result, exceptionDetails } = await session.send('Runtime.evaluate', {
        expression: "axe.run(document).then((r) => JSON.stringify(r.violations.filter((v) => v.impact === 'serious' || v.impact === 'critical').map((v) => [v.id, v.impact, v.nodes.map((n) => n.html.slice(0, 200) + ' ' + n.failureSummary)])))",
        awaitPromise: true,
        returnByValue: true
      })
      await session.detach()
      if (exceptionDetails !== undefined) throw new Error(JSON.stringify(exceptionDetails))
      return JSON.parse(result.value)
    }
  }
  for await (const line of createInterface({ input: process.stdin })) {
    const task = JSON.parse(line)
    let answer
    page.setDefaultTimeout(limit = task.ms)
    try {
      answer = { value: await can[task.do](...task.args) ?? null }
    } catch (error) {
      answer = { fault: String(error), seen: { ...seen, url: page.url(), text: await page.locator('body').innerText({ timeout: 5000 }).catch(() => '') } }
    }
    process.stdout.write(JSON.stringify(answer) + '\n')
  }
})
process.exit(0)
