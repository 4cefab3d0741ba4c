// Versions of the session's files, and what changed between one and the files as they are now.
import { useEffect, useState } from 'preact/hooks'
import { request, send, sessionPath } from './api.ts'
import { useMayWrite } from './app.tsx'
import { moment } from './format.ts'
import { useEvents } from './live.ts'
import { useLoad, useSettled } from './load.ts'
import { Action, Confirmed, Empty, Fault, Loading } from './parts.tsx'
import { sandboxLink, usePlace } from './router.ts'
import type { SandboxProps } from './sandbox-page.tsx'

interface Checkpoint { id: string, parent?: string, time: string, cause: string, message: string }

const SHOWN = 400 * 1024

function Diff ({ path }: { path: string }) {
  const [text, setText] = useState<string>()
  const [error, setError] = useState<Error>()
  useEffect(() => {
    const ended = new AbortController()
    request('GET', path, { signal: ended.signal }).then(async (response) => setText(await response.text())).catch((fault: Error) => { if (!ended.signal.aborted) setError(fault) })
    return () => ended.abort()
  }, [path])
  if (error !== undefined) return <Fault error={error} />
  if (text === undefined) return <Loading />
  if (text === '') return <Empty title="Nothing changed." />
  const kind = (line: string): string => line.startsWith('+') ? 'added' : line.startsWith('-') ? 'removed' : line.startsWith('@@') || line.startsWith('diff ') ? 'place' : ''
  return (
    <>
      <pre class="diff" tabIndex={0} aria-label="Changes">{text.slice(0, SHOWN).split('\n').map((line, i) => <span key={i} class={kind(line)}>{line}{'\n'}</span>)}</pre>
      {text.length > SHOWN && <p class="help">Only the beginning is shown. All of it: <code>transom changes</code></p>}
    </>
  )
}

export function Checkpoints ({ session, sandbox }: SandboxProps) {
  const path = sessionPath(session.id)
  const { query } = usePlace()
  const mayWrite = useMayWrite()
  const [before, setBefore] = useState<string>()
  const { value, error, reload } = useLoad<{ checkpoints: Checkpoint[], next?: string }>(`${path}/checkpoints?limit=50${before === undefined ? '' : `&before=${before}`}`)
  const changed = useSettled(reload, 300)
  useEvents((event) => { if (event.session === session.id && event.type === 'session.checkpoint') changed() }, [session.id])
  const shown = query.get('checkpoint')
  const chosen = value?.checkpoints.find(({ id }) => id === shown)
  const link = (to: Record<string, string>): string => `${sandboxLink(session.id, sandbox.name, 'checkpoints')}?${new URLSearchParams(to).toString()}`
  const name = (c: Checkpoint): string => c.message.split('\n')[0] !== '' ? c.message.split('\n')[0]! : c.cause
  return (
    <>
      {mayWrite && <p><Action run={async () => { await send('POST', `${path}/checkpoints`, {}); reload() }}>Make a checkpoint</Action></p>}
      {error !== undefined && <Fault error={error} retry={reload} />}
      {value === undefined && error === undefined && <Loading />}
      {value !== undefined && value.checkpoints.length === 0 && <Empty title="No checkpoints yet."><p>One is made after runs, at stops, and here.</p></Empty>}
      {shown !== null && (
        <section>
          <h2>{chosen !== undefined ? name(chosen) : shown.slice(0, 10)}</h2>
          <p><a href={link({ checkpoint: shown })} aria-current={query.get('with') === null ? 'true' : undefined}>Against now</a>
            {chosen?.parent !== undefined && <> · <a href={link({ checkpoint: shown, with: chosen.parent })} aria-current={query.get('with') !== null ? 'true' : undefined}>What it changed</a></>}
            {' '}· <a href={sandboxLink(session.id, sandbox.name, 'checkpoints')}>All checkpoints</a></p>
          {mayWrite && <p><Confirmed label="Restore" title="Restore this checkpoint?" run={() => send('POST', `${path}/checkpoints/${shown}/restore`, {})}>
            <p>The session's files become as they were then. Those of now are kept in a checkpoint of their own.</p></Confirmed></p>}
          <Diff path={query.get('with') !== null ? `${path}/changes?format=patch&since=${query.get('with')!}&to=${shown}` : `${path}/changes?format=patch&since=${shown}`} />
        </section>
      )}
      {shown === null && value !== undefined && value.checkpoints.length > 0 && (
        <table class="list">
          <thead><tr><th scope="col">Checkpoint</th><th scope="col">Cause</th><th scope="col">Time</th></tr></thead>
          <tbody>{value.checkpoints.map((c) => <tr key={c.id}><th scope="row"><a href={link({ checkpoint: c.id })}>{name(c)}</a> <small>{c.id.slice(0, 8)}</small></th><td data-label="Cause">{c.cause}</td><td data-label="Time">{moment(c.time)}</td></tr>)}</tbody>
        </table>
      )}
      {shown === null && value?.next !== undefined && <p><button onClick={() => setBefore(value.next)}>Older</button></p>}
    </>
  )
}
