// What happens, as it happens.
import { useState } from 'preact/hooks'
import { clock } from './format.ts'
import { recent, useConnection, useEvents } from './live.ts'
import { useSettled } from './load.ts'
import { Empty } from './parts.tsx'
import { sandboxLink } from './router.ts'
import type { LiveEvent } from './types.ts'

const told = new Set(['id', 'type', 'time', 'owner', 'node', 'session', 'sandbox', 'label', 'state', 'reason', 'name', 'instance'])

function text (event: LiveEvent): string {
  if (event.type === 'gap') return 'Earlier ones are not kept any more.'
  const words = [event.state, event.reason, event.name].filter((word) => word !== undefined && word !== '').map(String)
  for (const [name, value] of Object.entries(event)) {
    if (!told.has(name) && value !== null && value !== '') words.push(`${name} ${typeof value === 'object' ? JSON.stringify(value) : String(value)}`)
  }
  return words.join(' · ')
}

const at = (event: LiveEvent): string => clock(event.time ?? new Date(Number(event.id) / 1000).toISOString())

export function Events ({ session, label }: { session?: string, label?: string }) {
  const [, render] = useState(0)
  const [search, setSearch] = useState('')
  const connection = useConnection()
  const changed = useSettled(() => render((n) => n + 1), 100)
  useEvents((event) => { if (event.type !== 'sandbox.stats') changed() }, [])
  const shown = recent.filter((event) => (session === undefined || event.session === session) && (label === undefined || event.label === undefined || event.label === label))
    .filter((event) => search === '' || JSON.stringify(event).toLowerCase().includes(search.toLowerCase())).slice(-200).reverse()
  return (
    <>
      <form class="filter" role="search" onSubmit={(event) => event.preventDefault()}>
        <label>Search <input type="search" value={search} onInput={(event) => setSearch(event.currentTarget.value)} /></label>
        <output>{connection === 'live' ? 'live' : connection === 'lost' ? 'disconnected' : 'connecting …'}</output>
      </form>
      {shown.length === 0
        ? <Empty title="Nothing happened lately."><p>Starts, stops, runs and changes appear here as they happen.</p></Empty>
        : (
          <ul class="events" aria-label="Events, newest first">
            {shown.map((event) => (
              <li key={event.id}>
                <time>{at(event)}</time> <code>{event.type}</code>{' '}
                {session === undefined && event.session !== undefined && <a href={sandboxLink(event.session, event.sandbox ?? 'primary')}>{event.session}</a>} {text(event)}
              </li>
            ))}
          </ul>
          )}
    </>
  )
}

export const EventsPage = () => <><h1>Events</h1><Events /></>
