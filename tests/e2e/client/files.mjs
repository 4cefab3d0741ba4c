// A listing of files in 28-sse-and-files: follow its links, then download the large one.
import { createHash } from 'node:crypto'
import { createReadStream } from 'node:fs'
import { visit } from './visit.mjs'

await visit(async (page, task, seen) => {
  await page.goto(task.url, { waitUntil: 'load' })
  await page.screenshot({ path: task.screenshot })
  await page.getByText('a folder/').click()
  await page.getByText('read me.txt').click()
  await page.waitForURL('**/*.txt')
  seen.path = new URL(page.url()).pathname
  seen.text = await page.evaluate(() => document.body.textContent)
  await page.goBack()
  await page.goBack()
  const [download] = await Promise.all([page.waitForEvent('download'), page.getByText('big.bin').click()])
  const hash = createHash('sha256')
  seen.size = 0
  for await (const part of createReadStream(await download.path())) {
    hash.update(part)
    seen.size += part.length
  }
  seen.digest = hash.digest('hex')
})
