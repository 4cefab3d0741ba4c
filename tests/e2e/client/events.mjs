// The page of 28-sse-and-files: an event stream, each event caused when the one before it was seen.
// Task, besides visit.mjs': count.
import { visit } from './visit.mjs'

await visit(async (page, task, seen) => {
  await page.goto(task.url, { waitUntil: 'load' })
  seen.events = await page.evaluate(async (count) => {
    const events = []
    const source = new EventSource('/events')
    const cause = () => fetch('/', { method: 'POST' })
    await new Promise((resolve) => { source.onopen = resolve })
    await new Promise((resolve) => {
      source.onmessage = ({ data }) => {
        document.getElementById('list').insertAdjacentHTML('beforeend', `<li>${data}`)
        if (events.push(data) === count) resolve()
        else cause()
      }
      cause()
    })
    return events
  }, task.count)
  seen.asked_after = await page.evaluate(async () => (await (await fetch('/state')).json()).asked_after)
  await page.screenshot({ path: task.screenshot })
})
