// Sandboxes of all sessions, a page at a time.
import { useState } from 'preact/hooks'
import { queryText, send } from './api.ts'
import { useMayWrite, useWho } from './app.tsx'
import { age, kib, percent, until } from './format.ts'
import { useEvents } from './live.ts'
import { useLoad, useSettled } from './load.ts'
import { Action, Badge, Empty, Fault, Loading, useTick } from './parts.tsx'
import { go, sandboxLink, usePlace } from './router.ts'
import { type ListedSandbox, type SandboxPage, type Session, states } from './types.ts'

const LIMIT = 50

/** In the address: search, state and the labels that pages begin after. */
function listLink (search: string, state: string, after: string[]): string {
  const query = new URLSearchParams()
  if (search !== '') query.set('search', search)
  if (state !== '') query.set('state', state)
  for (const label of after) query.append('after', label)
  return query.size > 0 ? `/?${query.toString()}` : '/'
}

function Row ({ of: sb, owner }: { of: ListedSandbox, owner: boolean }) {
  const used = sb.stats?.mem_total_kb !== undefined && sb.stats.mem_available_kb !== undefined ? sb.stats.mem_total_kb - sb.stats.mem_available_kb : undefined
  const why = sb.idle?.why ?? sb.reason
  return (
    <tr>
      <th scope="row"><a href={sandboxLink(sb.session.id, sb.name)}>{sb.session.name !== '' ? sb.session.name : sb.session.id}</a>
        {sb.name !== 'primary' && <small> {sb.name}</small>}{sb.session.persist && <small> persisted</small>}</th>
      {owner && <td data-label="Owner">{sb.session.owner}</td>}
      <td data-label="State"><Badge state={sb.state} /></td>
      <td data-label="Age">{age(sb.created_at)}</td>
      <td data-label="Why" class="why" title={why}>{why !== '' ? why : '–'}</td>
      <td data-label="Stops in">{until(sb.idle?.deadline_at)}</td>
      <td data-label="CPU" class="number">{percent(sb.stats?.cpu_percent)}</td>
      <td data-label="Memory" class="number">{kib(used)}</td>
    </tr>
  )
}

function Create () {
  return <Action run={async () => { const made = await send<Session>('POST', '/v1/sessions', {}); go(sandboxLink(made.id, 'primary')) }}>New session</Action>
}

export function ListPage () {
  const { query } = usePlace()
  const who = useWho()
  const mayWrite = useMayWrite()
  const search = query.get('search') ?? ''
  const state = query.get('state') ?? ''
  const after = query.getAll('after')
  const params = new URLSearchParams({ limit: String(LIMIT) })
  if (search !== '') params.set('search', search)
  if (state !== '') params.set('state', state)
  if (after.length > 0) params.set('after', after[after.length - 1]!)
  const { value, error, reload, set } = useLoad<SandboxPage>(`/v1/sandboxes?${queryText(params)}`)
  const [typed, setTyped] = useState(search)
  const settle = useSettled(() => go(listLink(typed, state, []), true), 200, true)
  const changed = useSettled(reload, 500)

  useTick(10000)
  useEvents((event) => {
    if (event.type === 'sandbox.stats') {
      if (value?.sandboxes.some(({ label }) => label === event.label) === true && event.stats !== undefined) {
        set({ ...value, sandboxes: value.sandboxes.map((sb) => sb.label === event.label ? { ...sb, stats: event.stats! } : sb) })
      }
    } else if (event.type.startsWith('session.') || event.type.startsWith('sandbox.') || event.type === 'gap') changed()
  }, [value])

  const owner = who.scope === 'admin'
  return (
    <>
      <div class="head">
        <h1>Sandboxes</h1>
        {mayWrite && <Create />}
      </div>
      <form class="filter" role="search" onSubmit={(event) => { event.preventDefault(); go(listLink(typed, state, []), true) }}>
        <label>Search <input type="search" value={typed} maxLength={100} placeholder={owner ? 'name, owner, id' : 'name, id'}
          onInput={(event) => { setTyped(event.currentTarget.value); settle() }} /></label>
        <label>State <select value={state} onChange={(event) => go(listLink(typed, event.currentTarget.value, []), true)}>
          <option value="">any</option>{states.map((name) => <option key={name}>{name}</option>)}</select></label>
        <output aria-live="polite">{value !== undefined && `${value.total} found`}</output>
      </form>
      {error !== undefined && <Fault error={error} retry={after.length > 0 ? () => go(listLink(search, state, [])) : reload} />}
      {value === undefined && error === undefined && <Loading />}
      {value !== undefined && value.sandboxes.length === 0 && (search !== '' || state !== ''
        ? <Empty title="Nothing matches."><p><a href="/" onClick={() => setTyped('')}>Show all sandboxes</a></p></Empty>
        : <Empty title="No sessions yet."><p>{mayWrite ? 'Open one here, or with ' : 'Somebody with a key that may write opens one with '}<code>transom session new</code></p></Empty>)}
      {value !== undefined && value.sandboxes.length > 0 && (
        <table class="list">
          <thead><tr><th scope="col">Session</th>{owner && <th scope="col">Owner</th>}<th scope="col">State</th><th scope="col">Age</th><th scope="col">Why</th>
            <th scope="col">Stops in</th><th scope="col" class="number">CPU</th><th scope="col" class="number">Memory</th></tr></thead>
          <tbody>{value.sandboxes.map((sb) => <Row key={sb.label} of={sb} owner={owner} />)}</tbody>
        </table>
      )}
      <nav class="pager" aria-label="More pages">
        {after.length > 0 && <a href={listLink(search, state, after.slice(0, -1))}>← Newer</a>}
        {value?.next !== undefined && <a href={listLink(search, state, [...after, value.next])}>Older →</a>}
      </nav>
    </>
  )
}
