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
let stop: AbortController | undefined

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

async function read (since: string, signal: AbortSignal): Promise<string> {
  const response = await request('GET', '/v1/events' + (since === '' ? '' : `?since=${since}`), { signal })
  const reader = response.body!.pipeThrough(new TextDecoderStream()).getReader()
  let rest = ''
  become('live')
  for (;;) {
    const { value, done } = await reader.read().catch(() => ({ value: undefined, done: true }))
    if (done || value === undefined) return since
    const blocks = (rest + value).split('\n\n')
    rest = blocks.pop() ?? ''
    for (const block of blocks) since = take(block) ?? since
  }
}

/** Begin reading; what comes next replaces it. Tries again until it is ended. */
export function startLive (): () => void {
  const ended = stop = new AbortController()
  recent.length = 0
  void (async () => {
    // A little of what happened before is there to be seen: the last hour, by ids that are times.
    let since = String((Date.now() - 3600000) * 1000)
    for (let wait = 500; !ended.signal.aborted; wait = Math.min(wait * 2, 15000)) {
      const begun = Date.now()
      since = await read(since, ended.signal).catch(() => since)
      if (ended.signal.aborted) return
      become('lost')
      if (Date.now() - begun > 10000) wait = 500
      await new Promise((resolve) => setTimeout(resolve, wait))
    }
  })()
  return () => { ended.abort(); if (stop === ended) become('connecting') }
}

export function useConnection (): Connection {
  const [now, set] = useState(connection)
  useEffect(() => { watchers.add(set); set(connection); return () => { watchers.delete(set) } }, [])
  return now
}

export function useEvents (listen: Listener, inputs: unknown[]): void {
  useEffect(() => { listeners.add(listen); return () => { listeners.delete(listen) } }, inputs)
}
