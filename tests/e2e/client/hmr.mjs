// A dev server's preview and its hot reload. Task, besides visit.mjs': from, to, and
// if wanted images (true: wait for them), click (a selector: `clicked` is its text at the end).
// Opens url, waits for `from` in the page, marks the window, prints "ready"; waits until `to` has
// taken its place: `mark` tells whether the window is still the same.
import { visit } from './visit.mjs'

await visit(async (page, task, seen) => {
  page.setDefaultTimeout(240000)
  await page.goto(task.url, { waitUntil: 'load' })
  await page.getByText(task.from).first().waitFor()
  seen.title = await page.title()
  seen.margin = await page.evaluate(() => getComputedStyle(document.body).margin)
  if (task.images) {
    await page.waitForFunction(() => document.images.length > 0 &&
      [...document.images].every((image) => image.complete && image.naturalWidth > 0))
  }
  if (task.click) await page.click(task.click)
  await page.evaluate(() => { window.transomMark = 'kept' })
  await page.screenshot({ path: task.screenshot })
  console.log('ready')
  await page.getByText(task.to).first().waitFor()
  seen.mark = await page.evaluate(() => window.transomMark)
  if (task.click) seen.clicked = await page.textContent(task.click)
})
