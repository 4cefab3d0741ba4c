// Who is signed in, and which page is shown.
import { createContext } from 'preact'
import { useContext, useEffect, useRef, useState } from 'preact/hooks'
import { ApiError, get, request, whenSignedOut } from './api.ts'
import { AuditPage } from './audit-page.tsx'
import { EventsPage } from './events-page.tsx'
import { ListPage } from './list-page.tsx'
import { startLive, useConnection } from './live.ts'
import { NodePage } from './node-page.tsx'
import { Empty, Fault, Loading } from './parts.tsx'
import { followLinks, usePlace } from './router.ts'
import { SandboxPage } from './sandbox-page.tsx'
import { SignInPage } from './signin-page.tsx'
import type { Identity } from './types.ts'

const Who = createContext<Identity | undefined>(undefined)
export const useWho = (): Identity => useContext(Who)!
/** Whether the key may change anything. */
export const useMayWrite = (): boolean => useWho().scope !== 'read'

function Connected () {
  const connection = useConnection()
  if (connection !== 'lost') return null
  return <p class="banner" role="status">Disconnected: what you see may be old. Trying again; check that the gateway and the manager run.</p>
}

function Page () {
  const { path } = usePlace()
  if (path.length === 0) return <ListPage />
  if (path[0] === 'events' && path.length === 1) return <EventsPage />
  if (path[0] === 'audit' && path.length === 1) return <AuditPage />
  if (path[0] === 'node' && path.length === 1) return <NodePage />
  if (path[0] === 's' && path[1] !== undefined) return <SandboxPage session={path[1]} name={path[2] ?? 'primary'} tab={path[3] ?? ''} />
  return <Empty title="There is no such page."><p><a href="/">Sandboxes</a></p></Empty>
}

function Frame ({ who, onSignOut }: { who: Identity, onSignOut: () => void }) {
  const { path } = usePlace()
  const first = path[0] ?? ''
  const links: [string, string, boolean][] = [['/', 'Sandboxes', first === '' || first === 's'], ['/events', 'Events', first === 'events'], ['/node', 'Node', first === 'node']]
  if (who.scope === 'admin') links.push(['/audit', 'Audit', first === 'audit'])
  // Who does not see the page change must hear it; within a sandbox the focus stays where it is.
  const where = path.slice(0, 3).join('/')
  const shown = useRef(where)
  useEffect(() => {
    if (shown.current !== where) document.getElementById('main')?.focus()
    shown.current = where
  }, [where])
  useEffect(() => { document.title = `${links.find(([, , current]) => current)?.[1] ?? 'Transom'} · Transom` }, [first])
  return (
    <>
      <a class="skip" href="#main" onClick={(event) => { event.preventDefault(); document.getElementById('main')?.focus() }}>Skip to content</a>
      <header>
        <nav aria-label="Pages">
          <a class="brand" href="/">Transom</a>
          {links.map(([to, name, current]) => <a key={to} href={to} aria-current={current ? 'page' : undefined}>{name}</a>)}
        </nav>
        <div class="who"><span>{who.owner} <small>({who.scope})</small></span><button onClick={onSignOut}>Sign out</button></div>
      </header>
      <Connected />
      <main id="main" tabIndex={-1}><Page /></main>
    </>
  )
}

export function App () {
  const [who, setWho] = useState<Identity | null>()
  const [why, setWhy] = useState('')
  const [error, setError] = useState<Error>()
  const load = (): void => {
    setError(undefined)
    get<Identity>('/v1/whoami').then(setWho, (fault: Error) => {
      if (fault instanceof ApiError && fault.status === 401) setWho(null)
      else setError(fault)
    })
  }
  useEffect(() => {
    whenSignedOut(() => setWho((old) => { if (old != null) setWhy('Your sign-in has ended. Sign in again.'); return null }))
    addEventListener('click', followLinks)
    load()
    return () => removeEventListener('click', followLinks)
  }, [])
  useEffect(() => who == null ? undefined : startLive(), [who])

  if (error !== undefined) return <main><Fault error={error} retry={load} /></main>
  if (who === undefined) return <main><Loading /></main>
  if (who === null) return <SignInPage why={why} onSignedIn={(identity) => { setWhy(''); setWho(identity) }} />
  const signOut = (): void => { void request('POST', '/signout').catch(() => {}).then(() => { setWhy(''); setWho(null) }) }
  return <Who.Provider value={who}><Frame who={who} onSignOut={signOut} /></Who.Provider>
}
