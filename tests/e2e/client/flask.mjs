// The app of 25-flask, used by somebody: log in, be redirected, upload, crash, and see it change.
import { visit } from './visit.mjs'

await visit(async (page, task, seen) => {
  const me = async () => ({ url: page.url(), ...JSON.parse(await page.textContent('body')) })
  // The app may be starting anew: the gateway's page says so, with 502. It ends without a goodbye: an
  // answer that was under way is cut, and the browser is told. Of one that it had begun to show it
  // says no "load", ever.
  const reason = (error) => error.name === 'TimeoutError' ? 'cut' : String(error).match(/net::\w+/)?.[0] ?? String(error)
  seen.statuses = []
  const until = async (text) => {
    for (;;) {
      const status = await page.goto(task.url, { waitUntil: 'load', timeout: 20000 })
        .then((answer) => answer.status(), reason)
      if (!seen.statuses.includes(status)) seen.statuses.push(status)
      if ((await page.content()).includes(text)) return
    }
  }

  await until(task.from)
  seen.title = await page.title()
  await page.fill('[name=name]', 'Ann')
  await page.click('#login')
  await page.waitForURL('**/me')
  seen.login = await me()
  seen.jar = Object.fromEntries((await page.context().cookies())
    .map(({ name, domain, secure }) => [name, [domain, secure]]).sort())

  await page.goto(task.url)
  await page.evaluate(() => { document.forms[0].action += '?absolute=1' })
  await page.fill('[name=name]', 'Ann')
  await page.click('#login')
  await page.waitForURL('**/me')
  seen.absolute = await me()
  await page.goto(task.url + 'loopback')
  seen.loopback = await me()

  await page.goto(task.url)
  await page.setInputFiles('[name=file]', task.upload)
  await page.click('#upload')
  await page.waitForURL('**/upload')
  seen.digest = await page.textContent('body')

  const crash = await page.goto(task.url + 'crash')
  const said = (await page.textContent('body')).includes('crashed on purpose, 42')
  // The debugger's console: its scripts came, and an expression is evaluated in the frame.
  await page.locator('.frame').last().locator('pre img').first().dispatchEvent('click')
  await page.locator('.console input').fill('secret_of_the_frame')
  await page.keyboard.press('Enter')
  seen.crash = { status: crash.status(), said, evaluated: await page.locator('.console .output .number').textContent() }
  await page.screenshot({ path: task.screenshot })

  console.log('ready')
  await until(task.to)
})
