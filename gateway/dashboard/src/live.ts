// The stream of events, read once for all parts of the page. Read by fetch, not by EventSource,
// which would tell of no event whose type is not known beforehand, and of no status.
import { useEffect, useState } from 'preact/hooks'
import { request } from './api.ts'
import type { LiveEvent } from './types.ts'

export type Connection = 'connecting' | 'live' | 'lost'
type Listener = (event: LiveEvent) => void

const KEPT = 500
const listeners = new Set<Listener>()
const watchers = new Set<(connection: Connection) => void>()
/** The last events, oldest first. */
export const recent: LiveEvent[] = []
let connection: Connection = 'connecting'
let last = '0' // id of the last event seen

function become (now: Connection): void {
  connection = now
  watchers.forEach((watch) => watch(now))
}

function take (block: string): string | undefined {
  const event: LiveEvent = { id: '', type: 'message' }
  let data = ''
  for (const line of block.split('\n')) {
    const colon = line.indexOf(':')
    const value = line.slice(colon + 1).trimStart()
    if (line.startsWith('id:')) event.id = value
    else if (line.startsWith('event:')) event.type = value
    else if (line.startsWith('data:')) data += value
  }
  if (data === '') return undefined
  Object.assign(event, JSON.parse(data), { id: event.id, type: event.type })
  if (event.type !== 'sandbox.stats') {
    recent.push(event)
    if (recent.length > KEPT) recent.shift()
  }
  listeners.forEach((listen) => listen(event))
  return event.id
}

async function read (signal: AbortSignal): Promise<void> {
  const response = await request('GET', `/v1/events?since=${last}`, { signal })
  const reader = response.body!.pipeThrough(new TextDecoderStream()).getReader()
  let rest = ''
  become('live')
  for (;;) {
    const { value, done } = await reader.read().catch(() => ({ value: undefined, done: true }))
    if (done || value === undefined) return
    const blocks = (rest + value).split('\n\n')
    rest = blocks.pop() ?? ''
    for (const block of blocks) last = take(block) ?? last
  }
}

const whenVisible = async (): Promise<void> => {
  while (document.hidden) await new Promise((resolve) => document.addEventListener('visibilitychange', resolve, { once: true }))
}

/** Begin reading; tries again until it is ended by what this returns. A page in the background does
 * not read (without TLS a browser has six connections for all its pages); what happened meanwhile
 * comes when it is looked at again. */
export function startLive (): () => void {
  const ended = new AbortController()
  let reading: AbortController | undefined
  const hide = (): void => { if (document.hidden) reading?.abort() }
  document.addEventListener('visibilitychange', hide, { signal: ended.signal })
  ended.signal.addEventListener('abort', () => reading?.abort())
  recent.length = 0
  void (async () => {
    // A little of what happened before is there to be seen: the last hour, by ids that are times.
    last = String((Date.now() - 3600000) * 1000)
    for (let wait = 500; ;) {
      await whenVisible()
      if (ended.signal.aborted) return
      const begun = Date.now()
      reading = new AbortController()
      await read(reading.signal).catch(() => {})
      if (ended.signal.aborted) return
      if (reading.signal.aborted) continue
      become('lost')
      wait = Date.now() - begun > 10000 ? 500 : Math.min(wait * 2, 15000)
      await new Promise((resolve) => setTimeout(resolve, wait))
    }
  })()
  return () => { ended.abort(); become('connecting') }
}

export function useConnection (): Connection {
  const [now, set] = useState(connection)
  useEffect(() => { watchers.add(set); set(connection); return () => { watchers.delete(set) } }, [])
  return now
}

export function useEvents (listen: Listener, inputs: unknown[]): void {
  useEffect(() => { listeners.add(listen); return () => { listeners.delete(listen) } }, inputs)
}
