// The notebook of 26-jupyter: log in with the token, run its cells, use a terminal. Task, besides
// visit.mjs': token.
import { visit } from './visit.mjs'

await visit(async (page, task, seen) => {
  page.setDefaultTimeout(task.patience ?? 120000)
  await page.goto(task.url, { waitUntil: 'load' })
  await page.waitForURL('**/login?next=**')
  await page.fill('#password_input', task.token)
  await page.click('#login_submit')
  await page.waitForURL('**/notebooks/**')
  await page.locator('#kernel_indicator_icon.kernel_idle_icon').waitFor()

  const cell = (i) => page.locator('.code_cell').nth(i)
  await cell(0).locator('.CodeMirror').click()
  await page.keyboard.press('Shift+Enter')
  const first = (await cell(0).locator('.output_text pre').textContent()).trim()
  await cell(1).locator('.CodeMirror').click()
  await page.keyboard.press('Shift+Enter')
  await cell(1).locator('input.raw_input').fill('Ann')
  await page.keyboard.press('Enter')
  const second = (await cell(1).locator('.output_result pre').textContent()).trim()
  await page.screenshot({ path: task.screenshot })
  await cell(2).locator('.CodeMirror').click()
  await page.keyboard.press('Shift+Enter')
  const third = (await cell(2).locator('.output_text pre').textContent()).trim()
  seen.outputs = [first, second, third.replace(/^x*$/, '') === '' ? third.length : 'changed']

  // Debian's page of a terminal is broken whatever is between ("exports is not defined"): its socket is
  // used without it.
  seen.terminal = await page.evaluate(async () => {
    const xsrf = document.cookie.match(/_xsrf=([^;]*)/)[1]
    const answer = await fetch('/api/terminals', { method: 'POST', headers: { 'X-XSRFToken': xsrf } })
    const { name } = await answer.json()
    const socket = new WebSocket(`${location.origin.replace(/^http/, 'ws')}/terminals/websocket/${name}`)
    let text = ''
    await new Promise((resolve, reject) => {
      socket.onclose = ({ code }) => reject(new Error('closed: ' + code))
      socket.onmessage = ({ data }) => {
        const [kind, value] = JSON.parse(data)
        if (kind === 'setup') socket.send(JSON.stringify(['stdin', 'echo terminal says $((6 * 7))\r']))
        if (kind === 'stdout') text += value
        if (text.includes('says 42')) resolve()
      }
    })
    return text
  })
})
