// The editor of 27-code-server: open a file, add to it, save it, and ask a terminal. Task, besides
// visit.mjs': file, text (which it holds), add.
import { visit } from './visit.mjs'

// A click, and the keys go there. Ctrl+` alone is not enough: pressed while the workbench still starts,
// it opens a terminal and leaves the keys with the editor.
async function enter (page, part, place) {
  await page.locator(place).click()
  await page.waitForFunction((selector) => document.activeElement?.closest(selector), part)
}

await visit(async (page, task, seen) => {
  await page.goto(task.url, { waitUntil: 'load' })
  await page.locator('.monaco-workbench').waitFor()
  await page.locator(`.explorer-folders-view [role=treeitem][aria-label^="${task.file}"]`).dblclick()
  // Spaces are drawn as other characters.
  await page.waitForFunction((text) => document.querySelector('.editor-instance .view-lines')?.textContent
    .replaceAll('\u00a0', ' ').includes(text), task.text)
  await enter(page, '.editor-instance', '.editor-instance .view-lines')
  await page.keyboard.press('Control+Home')
  await page.keyboard.type(task.add)
  await page.locator('.tab.dirty').waitFor()
  await page.keyboard.press('Control+s')
  await page.locator('.tab.dirty').waitFor({ state: 'detached' })

  await page.keyboard.press('Control+Backquote')
  const rows = page.locator('.xterm-rows')
  await page.waitForFunction(() => /[#$][\s\u00a0]*$/.test(document.querySelector('.xterm-rows')?.textContent ?? ''))
  await enter(page, '.xterm', '.xterm-screen')
  await page.keyboard.type('echo terminal says $((6 * 7))')
  await page.keyboard.press('Enter')
  await page.waitForFunction(() => document.querySelector('.xterm-rows').textContent
    .replaceAll('\u00a0', ' ').includes('says 42'))
  seen.terminal = (await rows.textContent()).replaceAll('\u00a0', ' ')
  await page.screenshot({ path: task.screenshot })
})
