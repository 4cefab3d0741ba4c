// The session's files, whether a machine runs or not: folders, text and pictures; text can be edited.
import { useEffect, useState } from 'preact/hooks'
import { filePath, request, sessionPath } from './api.ts'
import { useMayWrite } from './app.tsx'
import { bytes } from './format.ts'
import { useEvents } from './live.ts'
import { useLoad } from './load.ts'
import { Action, Confirmed, Empty, Fault, Loading } from './parts.tsx'
import { go, sandboxLink, usePlace } from './router.ts'
import type { SandboxProps } from './sandbox-page.tsx'

interface Entry { path: string, path_b64?: string, type: 'file' | 'directory' | 'symlink' | 'other', size: number, target?: string }
interface Listing { dir: string, entries: Entry[], next?: string }
type Content = { kind: 'text', text: string, etag: string } | { kind: 'image', url: string } | { kind: 'other', url: string, size: number }

const VIEW_MAX = 1 << 20
const images = ['image/png', 'image/jpeg', 'image/webp', 'image/gif']

async function load (path: string, signal: AbortSignal): Promise<Content> {
  const response = await request('GET', path, { signal })
  const data = await response.arrayBuffer()
  const type = (response.headers.get('content-type') ?? '').split(';')[0]!.trim()
  const blob = (kind: string): string => URL.createObjectURL(new Blob([data], { type: kind }))
  if (images.includes(type)) return { kind: 'image', url: blob(type) }
  if (data.byteLength <= VIEW_MAX) {
    try {
      const text = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(data)
      if (!text.includes('\0')) return { kind: 'text', text, etag: response.headers.get('etag') ?? '' }
    } catch {} // not text
  }
  return { kind: 'other', url: blob('application/octet-stream'), size: data.byteLength }
}

function NewFile ({ session, dir, onMade }: { session: string, dir: string, onMade: (path: string) => void }) {
  const [error, setError] = useState('')
  const make = (event: SubmitEvent): void => {
    event.preventDefault()
    const name = String(new FormData(event.currentTarget as HTMLFormElement).get('name')).trim().replace(/^\/+/, '')
    const path = dir === '' ? name : `${dir}/${name}`
    setError('')
    request('PUT', `${sessionPath(session)}/files/${filePath(path)}`, { body: '', headers: { 'content-type': 'application/octet-stream', 'if-none-match': '*' } })
      .then(() => onMade(path), (fault: Error & { status?: number }) => setError(fault.status === 412 ? 'There is something of this name already.' : fault.message))
  }
  return (
    <form class="filter" onSubmit={make}>
      <label>New file <input name="name" required maxLength={200} spellcheck={false} autocomplete="off" /></label>
      <button>Create</button>
      {error !== '' && <span class="error" role="alert">{error}</span>}
    </form>
  )
}

function File ({ session, path, onGone }: { session: string, path: string, onGone: () => void }) {
  const url = `${sessionPath(session)}/files/${filePath(path)}`
  const mayWrite = useMayWrite()
  const [content, setContent] = useState<Content>()
  const [error, setError] = useState<Error>()
  const [text, setText] = useState('')
  const [saved, setSaved] = useState(false)
  const [round, setRound] = useState(0)
  useEffect(() => {
    const ended = new AbortController()
    setError(undefined)
    load(url, ended.signal).then((got) => { setContent(got); if (got.kind === 'text') setText(got.text) }, (fault: Error) => { if (!ended.signal.aborted) setError(fault) })
    return () => ended.abort()
  }, [url, round])
  useEffect(() => () => { if (content !== undefined && content.kind !== 'text') URL.revokeObjectURL(content.url) }, [content])
  if (error !== undefined) return <Fault error={error} retry={() => setRound((n) => n + 1)} />
  if (content === undefined) return <Loading />
  const name = path.split('/').pop()!
  const remove = mayWrite && <Confirmed label="Delete" title={`Delete ${name}?`} run={async () => { await request('DELETE', url); onGone() }}><p>Checkpoints still hold it as it was when they were made.</p></Confirmed>
  if (content.kind === 'image') return <><img class="picture" src={content.url} alt={name} /><div class="row">{remove}</div></>
  if (content.kind === 'other') return <Empty title={`This is no text and no picture (${bytes(content.size)}).`}><p><a href={content.url} download={name}>Download</a></p>{remove}</Empty>
  const save = async (): Promise<void> => {
    const response = await request('PUT', url, { body: text, headers: { 'content-type': 'application/octet-stream', ...(content.etag !== '' ? { 'if-match': content.etag } : {}) } })
      .catch((fault: Error & { status?: number }) => { throw fault.status === 412 ? new Error('The file was changed meanwhile. Copy your text, then load it anew.') : fault })
    const entry = await response.json() as { etag?: string }
    setContent({ kind: 'text', text, etag: entry.etag ?? '' })
    setSaved(true)
  }
  return (
    <>
      <textarea class="editor" aria-label={`Content of ${name}`} spellcheck={false} readOnly={!mayWrite} value={text} onInput={(event) => { setText(event.currentTarget.value); setSaved(false) }} />
      <div class="row">
        {mayWrite && <Action disabled={text === content.text} run={save}>Save</Action>}
        <button onClick={() => setRound((n) => n + 1)}>Load anew</button>
        {remove}
        <span role="status">{saved && text === content.text ? 'Saved.' : text !== content.text ? 'Not saved yet.' : ''}</span>
      </div>
    </>
  )
}

function Folder ({ session, dir, link }: { session: string, dir: string, link: (query: Record<string, string>) => string }) {
  const [after, setAfter] = useState<string>()
  const [before, setBefore] = useState<Entry[]>([])
  const { value, error, reload } = useLoad<Listing>(`${sessionPath(session)}/files?limit=200&dir=${encodeURIComponent(dir)}${after === undefined ? '' : `&after=${encodeURIComponent(after)}`}`)
  useEvents((event) => { if (event.session === session && (event.type.startsWith('sandbox.sync') || event.type === 'session.checkpoint')) reload() }, [session])
  if (value === undefined) return error !== undefined ? <Fault error={error} retry={reload} /> : <Loading />
  const entries = [...before, ...value.entries]
  if (entries.length === 0) return <Empty title="No files here."><p>What is written in the sandbox's home folder appears here, and what is put here appears there.</p></Empty>
  return (
    <>
      <table class="list files">
        <thead><tr><th scope="col">Name</th><th scope="col" class="number">Size</th></tr></thead>
        <tbody>
          {entries.map((entry) => {
            const name = entry.path.split('/').pop()!
            const to = entry.type === 'directory' ? link({ dir: entry.path }) : link({ file: entry.path })
            return (
              <tr key={entry.path}>
                <th scope="row">{entry.path_b64 !== undefined || entry.type === 'other' ? name : entry.type === 'symlink' ? `${name} → ${entry.target ?? ''}` : <a href={to}>{name}{entry.type === 'directory' && '/'}</a>}</th>
                <td class="number">{entry.type === 'file' ? bytes(entry.size) : ''}</td>
              </tr>
            )
          })}
        </tbody>
      </table>
      {value.next !== undefined && <p><button onClick={() => { setBefore(entries); setAfter(decodeURIComponent(value.next!)) }}>Show more</button></p>}
    </>
  )
}

export function Files ({ session, sandbox }: SandboxProps) {
  const { query } = usePlace()
  const mayWrite = useMayWrite()
  const file = query.get('file')
  const dir = file !== null ? file.split('/').slice(0, -1).join('/') : query.get('dir') ?? ''
  const link = (to: Record<string, string>): string => `${sandboxLink(session.id, sandbox.name, 'files')}?${new URLSearchParams(to).toString()}`
  const parts = dir.split('/').filter(Boolean)
  return (
    <>
      <nav class="crumbs" aria-label="Folders">
        <a href={link({ dir: '' })}>Home</a>
        {parts.map((part, i) => <span key={i}> / <a href={link({ dir: parts.slice(0, i + 1).join('/') })}>{part}</a></span>)}
        {file !== null && <span> / {file.split('/').pop()}</span>}
      </nav>
      {file !== null
        ? <File key={file} session={session.id} path={file} onGone={() => go(link({ dir }))} />
        : <><Folder key={dir} session={session.id} dir={dir} link={link} />{mayWrite && <NewFile session={session.id} dir={dir} onMade={(path) => go(link({ file: path }))} />}</>}
    </>
  )
}
