// Who did what, and what was denied to whom; for administrators.
import { useState } from 'preact/hooks'
import { moment } from './format.ts'
import { useLoad } from './load.ts'
import { Empty, Fault, Loading } from './parts.tsx'
import type { AuditEntry } from './types.ts'

export function AuditPage () {
  const [before, setBefore] = useState<string>()
  const { value, error, reload } = useLoad<{ entries: AuditEntry[], next?: string }>(`/v1/audit?limit=100${before === undefined ? '' : `&before=${before}`}`)
  return (
    <>
      <div class="head"><h1>Audit</h1><button onClick={() => { setBefore(undefined); reload() }}>Newest</button></div>
      {error !== undefined && <Fault error={error} retry={reload} />}
      {value === undefined && error === undefined && <Loading />}
      {value !== undefined && value.entries.length === 0 && <Empty title="Nobody did anything yet." />}
      {value !== undefined && value.entries.length > 0 && (
        <table class="list">
          <thead><tr><th scope="col">What</th><th scope="col">Who</th><th scope="col">Answer</th><th scope="col">From</th><th scope="col">Time</th></tr></thead>
          <tbody>
            {value.entries.map((entry) => (
              <tr key={entry.id}>
                <th scope="row"><code>{entry.method} {entry.path}</code></th>
                <td data-label="Who">{entry.owner} {entry.key !== '' && <small>key {entry.key}</small>}</td>
                <td data-label="Answer">{entry.status}</td>
                <td data-label="From">{entry.from !== undefined && entry.from !== '' ? entry.from : entry.uid !== undefined ? `uid ${entry.uid}` : '–'}</td>
                <td data-label="Time">{moment(entry.time)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
      {value?.next !== undefined && <p><button onClick={() => setBefore(value.next)}>Older</button></p>}
    </>
  )
}
