// Secrets by name; values are never shown, nor does the API give them.
import { send, sessionPath } from './api.ts'
import { useMayWrite } from './app.tsx'
import { age } from './format.ts'
import { useLoad } from './load.ts'
import { Action, Empty, Fault, Loading } from './parts.tsx'
import type { SandboxProps } from './sandbox-page.tsx'

interface Secret { name: string, updated_at: string, note?: string }

export function Secrets ({ session, reload: reloadSession }: SandboxProps) {
  const all = useLoad<{ secrets: Secret[] }>('/v1/secrets')
  const mayWrite = useMayWrite()
  const path = `${sessionPath(session.id)}/secrets`
  const change = (method: string, name: string) => async (): Promise<void> => { await send(method, `${path}/${encodeURIComponent(name)}`); reloadSession() }
  if (all.value === undefined) return all.error !== undefined ? <Fault error={all.error} retry={all.reload} /> : <Loading />
  const others = all.value.secrets.filter(({ name }) => !session.secrets.includes(name))
  return (
    <>
      <section>
        <h2>Active here</h2>
        {session.secrets.length === 0
          ? <Empty title="No secret is active in this session." />
          : <ul class="rows">{session.secrets.map((name) => <li key={name}><code>{name}</code> {mayWrite && <Action run={change('DELETE', name)}>Deactivate</Action>}</li>)}</ul>}
      </section>
      <section>
        <h2>Others of this key's owner</h2>
        {others.length === 0
          ? <Empty title="There are no others."><p>Store one with <code>transom secret set NAME</code></p></Empty>
          : <ul class="rows">{others.map(({ name, updated_at, note }) => <li key={name}><code>{name}</code> <small>changed {age(updated_at)} ago {note}</small> {mayWrite && <Action run={change('PUT', name)}>Activate</Action>}</li>)}</ul>}
      </section>
    </>
  )
}
