// Who may see the preview, and which path and host name leads to which port.
import { useState } from 'preact/hooks'
import { sandboxPath, send } from './api.ts'
import { useMayWrite } from './app.tsx'
import { moment } from './format.ts'
import { useLoad } from './load.ts'
import { Action, Confirmed, Empty, Fault, Loading } from './parts.tsx'
import type { SandboxProps } from './sandbox-page.tsx'

interface Access { mode: 'public' | 'private', wake: boolean, embed: boolean, generation: number }
interface Routes { port: number, protocol?: string, rules: { prefix: string, port: number, strip?: boolean }[] }
interface Ports { ports: { port: number, url: string }[] }
interface Link { url: string, expires_at: string }

function Share ({ path }: { path: string }) {
  const [link, setLink] = useState<Link>()
  const [copied, setCopied] = useState(false)
  const make = async (): Promise<void> => { setCopied(false); setLink(await send<Link>('POST', `${path}/links`, { expires_s: 86400 })) }
  return (
    <>
      <p><Action run={make}>Make a link</Action></p>
      {link !== undefined && (
        <p class="row">
          <label class="wide">Whoever has it sees the preview until {moment(link.expires_at)}
            <input readOnly value={link.url} onFocus={(event) => event.currentTarget.select()} /></label>
          <Action run={async () => { await navigator.clipboard.writeText(link.url); setCopied(true) }}>{copied ? 'Copied' : 'Copy'}</Action>
        </p>
      )}
    </>
  )
}

export function Access ({ session, sandbox, reload }: SandboxProps) {
  const path = sandboxPath(session.id, sandbox.name)
  const access = useLoad<Access>(`${path}/access`)
  const routes = useLoad<Routes>(`${path}/routes`)
  const ports = useLoad<Ports>(`${path}/ports`)
  const mayWrite = useMayWrite()
  const fault = access.error ?? routes.error ?? ports.error
  if (fault !== undefined) return <Fault error={fault} retry={() => { access.reload(); routes.reload(); ports.reload() }} />
  if (access.value === undefined || routes.value === undefined || ports.value === undefined) return <Loading />
  const { mode, wake, embed } = access.value
  const put = (change: Partial<Access>) => async (): Promise<void> => { access.set(await send<Access>('PUT', `${path}/access`, { mode, wake, embed, ...change })); reload() }
  return (
    <>
      <section>
        <h2>Access</h2>
        <p>The preview at <a href={sandbox.url} target="_blank" rel="noreferrer">{sandbox.host}</a> is <strong>{mode}</strong>: {mode === 'public' ? 'whoever has the address sees it.' : 'only who has a link or token sees it.'}
          {' '}{wake ? 'A visit wakes the sandbox.' : 'A visit does not wake the sandbox.'}</p>
        {mayWrite && (
          <div class="actions">
            <Action run={put({ mode: mode === 'public' ? 'private' : 'public' })}>{mode === 'public' ? 'Make private' : 'Make public'}</Action>
            <Action run={put({ wake: !wake })}>{wake ? 'Do not wake on visits' : 'Wake on visits'}</Action>
            {mode === 'private' && <Confirmed label="Revoke links" title="Revoke all links?" run={async () => { await send('POST', `${path}/access/revoke`); access.reload() }}><p>Everybody who has a link loses access at once.</p></Confirmed>}
          </div>
        )}
        {mayWrite && mode === 'private' && <Share path={path} />}
      </section>
      <section>
        <h2>Paths</h2>
        <table>
          <thead><tr><th scope="col">Path</th><th scope="col">Port</th><th scope="col">Prefix</th></tr></thead>
          <tbody>
            {routes.value.rules.map((rule) => <tr key={rule.prefix}><th scope="row"><code>{rule.prefix}</code></th><td>{rule.port}</td><td>{rule.strip === true ? 'taken off' : 'kept'}</td></tr>)}
            <tr><th scope="row"><code>/</code></th><td>{routes.value.port}</td><td /></tr>
          </tbody>
        </table>
      </section>
      <section>
        <h2>Opened ports</h2>
        {ports.value.ports.length === 0
          ? <Empty title="None besides the preview itself."><p>Open one with <code>transom port open -s {session.id} PORT</code></p></Empty>
          : <ul class="rows">{ports.value.ports.map((p) => <li key={p.port}>{p.port}: <a href={p.url} target="_blank" rel="noreferrer">{p.url}</a></li>)}</ul>}
      </section>
    </>
  )
}
