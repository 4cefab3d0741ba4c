// One sandbox: its head with the actions, and a tab for each side of it.
import { useEffect } from 'preact/hooks'
import { sandboxPath, send, sessionPath } from './api.ts'
import { useMayWrite } from './app.tsx'
import { Access } from './access-tab.tsx'
import { Checkpoints } from './checkpoints-tab.tsx'
import { Events } from './events-page.tsx'
import { Files } from './files-tab.tsx'
import { useEvents } from './live.ts'
import { useLoad, useSettled } from './load.ts'
import { Overview } from './overview-tab.tsx'
import { Action, Badge, Confirmed, Empty, Fault, Loading } from './parts.tsx'
import { go, sandboxLink } from './router.ts'
import { Secrets } from './secrets-tab.tsx'
import type { Sandbox, Session } from './types.ts'
import { Windows } from './windows-tab.tsx'

export interface SandboxProps { session: Session, sandbox: Sandbox, reload: () => void }

const tabs: [string, string, (props: SandboxProps) => preact.JSX.Element][] = [
  ['', 'Overview', Overview],
  ['windows', 'Windows', Windows],
  ['files', 'Files', Files],
  ['checkpoints', 'Checkpoints', Checkpoints],
  ['access', 'Access', Access],
  ['secrets', 'Secrets', Secrets],
  ['events', 'Events', ({ session, sandbox }) => <Events session={session.id} label={sandbox.label} />]
]

function Actions ({ session, sandbox, reload }: SandboxProps) {
  const path = sandboxPath(session.id, sandbox.name)
  const then = async (method: string, to: string, body?: unknown): Promise<void> => { await send(method, to, body); reload() }
  const stopped = sandbox.state === 'asleep' || sandbox.state === 'failed'
  return (
    <div class="actions" role="group" aria-label="Actions">
      {stopped
        ? <Action run={() => then('POST', `${path}/start`)}>Wake</Action>
        : <Action disabled={sandbox.state === 'stopping'} run={() => then('POST', `${path}/stop`)}>Stop</Action>}
      <Confirmed label="Reset" title="Reset this sandbox?" run={() => then('POST', `${path}/reset`, { confirm: true })}>
        <p>The machine is ended and a new one starts with the session's files. What runs in it is lost, and what was installed outside the home folder.</p>
      </Confirmed>
      <Action run={() => then('PATCH', sessionPath(session.id), { persist: !session.persist })}>{session.persist ? 'Do not persist' : 'Persist'}</Action>
      <Confirmed label="Delete" title="Delete this session?" run={async () => { await send('DELETE', sessionPath(session.id)); go('/') }}>
        <p>Its machines, files and checkpoints go with it. This cannot be undone.</p>
      </Confirmed>
    </div>
  )
}

export function SandboxPage ({ session: id, name, tab }: { session: string, name: string, tab: string }) {
  const { value: session, error, reload } = useLoad<Session>(sessionPath(id))
  const changed = useSettled(reload, 200)
  const mayWrite = useMayWrite()
  useEvents((event) => { if (event.session === id && event.type !== 'sandbox.stats' && event.type !== 'session.deleted') changed() }, [id])
  const title = session?.name !== undefined && session.name !== '' ? session.name : id
  useEffect(() => { document.title = `${title} · Transom` }, [title, tab])
  if (session === undefined) return error !== undefined ? <Fault error={error} retry={reload} /> : <Loading />
  const sandbox = session.sandboxes.find((sb) => sb.name === name)
  if (sandbox === undefined) return <Empty title={`This session has no sandbox “${name}”.`}><p><a href={sandboxLink(id, 'primary')}>Show the primary one</a></p></Empty>
  const found = tabs.find(([key]) => key === tab)
  const Tab = found?.[2]
  const props = { session, sandbox, reload }
  return (
    <>
      <div class="head">
        <h1>{title} {name !== 'primary' && <small>{name}</small>} <Badge state={sandbox.state} /></h1>
        {mayWrite && <Actions {...props} />}
      </div>
      {error !== undefined && <Fault error={error} retry={reload} />}
      <nav class="tabs" aria-label="Of this sandbox">
        {tabs.map(([key, label]) => <a key={key} href={sandboxLink(id, name, key)} aria-current={key === tab ? 'page' : undefined}>{label}</a>)}
      </nav>
      {Tab !== undefined ? <Tab key={sandbox.label} {...props} /> : <Empty title="There is no such tab." />}
    </>
  )
}
