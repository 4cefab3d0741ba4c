// The windows of a sandbox, and a terminal in front of one of them.
import { useEffect, useRef, useState } from 'preact/hooks'
import { sandboxPath, send } from './api.ts'
import { useMayWrite } from './app.tsx'
import { age } from './format.ts'
import { useEvents } from './live.ts'
import { useLoad, useSettled } from './load.ts'
import { Confirmed, Empty, Fault, Loading } from './parts.tsx'
import { go, sandboxLink, usePlace } from './router.ts'
import type { SandboxProps } from './sandbox-page.tsx'
import type { TerminalState } from './terminal.ts'

interface WindowHead { name: string, busy: boolean, pid?: number, created_at?: string }

function TerminalBox ({ path }: { path: string }) {
  const box = useRef<HTMLDivElement>(null)
  const [state, setState] = useState<TerminalState>({ kind: 'connecting' })
  const [round, setRound] = useState(0)
  useEffect(() => {
    let close = (): void => {}
    let ended = false
    setState({ kind: 'connecting' })
    import('./terminal.ts').then(({ openTerminal }) => { if (!ended) close = openTerminal(box.current!, path, setState) },
      () => setState({ kind: 'over', why: 'The terminal could not be loaded: the gateway may have been upgraded. Reload the page.' }))
    return () => { ended = true; close() }
  }, [path, round])
  return (
    <>
      <p class="help" role="status">
        {state.kind === 'connecting' && 'Connecting … a sandbox that is asleep starts first.'}
        {state.kind === 'open' && <>Connected. <kbd>Ctrl</kbd>+<kbd>Shift</kbd>+<kbd>F6</kbd> leaves the terminal. {state.gap && 'Some output was too much to show.'}</>}
        {state.kind === 'over' && <>{state.why} <button onClick={() => setRound((n) => n + 1)}>Connect again</button></>}
      </p>
      <div ref={box} class="terminal" />
    </>
  )
}

export function Windows ({ session, sandbox }: SandboxProps) {
  const path = sandboxPath(session.id, sandbox.name)
  const { query } = usePlace()
  const mayWrite = useMayWrite()
  const open = query.get('window')
  const { value, error, reload } = useLoad<{ windows: WindowHead[] }>(`${path}/windows`)
  const changed = useSettled(reload, 300)
  useEvents((event) => { if (event.label === sandbox.label && event.type !== 'sandbox.stats') changed() }, [sandbox.label])
  const link = (name: string): string => `${sandboxLink(session.id, sandbox.name, 'windows')}?${new URLSearchParams({ window: name }).toString()}`
  const create = (event: SubmitEvent): void => {
    event.preventDefault()
    const name = String(new FormData(event.currentTarget as HTMLFormElement).get('name')).trim()
    if (name !== '') go(link(name))
  }
  return (
    <>
      {error !== undefined && <Fault error={error} retry={reload} />}
      {value === undefined && error === undefined && <Loading />}
      {value !== undefined && value.windows.length === 0 && open === null && <Empty title="No windows are open."><p>{mayWrite ? 'Open one below; a sandbox that is asleep starts for it.' : 'They appear when somebody runs something.'}</p></Empty>}
      {value !== undefined && value.windows.length > 0 && (
        <ul class="windows">
          {value.windows.map((w) => (
            <li key={w.name}>
              {mayWrite ? <a href={link(w.name)} aria-current={w.name === open ? 'true' : undefined}>{w.name}</a> : <strong>{w.name}</strong>}
              <small>{w.busy ? ' busy' : ' at its prompt'}, {age(w.created_at)} old</small>
              {mayWrite && <Confirmed label="Close" title={`Close the window “${w.name}”?`}
                run={async () => { await send('DELETE', `${path}/windows/${encodeURIComponent(w.name)}`); reload(); if (w.name === open) go(sandboxLink(session.id, sandbox.name, 'windows')) }}>
                <p>What runs in it is ended.</p></Confirmed>}
            </li>
          ))}
        </ul>
      )}
      {mayWrite && (
        <form class="filter" onSubmit={create}>
          <label>Window <input name="name" defaultValue="shell" maxLength={64} required spellcheck={false} /></label>
          <button>Open</button>
        </form>
      )}
      {open !== null && mayWrite && <TerminalBox key={open} path={`${path}/windows/${encodeURIComponent(open)}/attach`} />}
    </>
  )
}
