// Why it is alive or not, what it costs, and its figures over time.
import { useEffect, useRef, useState } from 'preact/hooks'
import { sandboxPath } from './api.ts'
import { age, bytes, kib, moment, percent, until } from './format.ts'
import { useEvents } from './live.ts'
import { useLoad } from './load.ts'
import { Empty, Facts, useTick } from './parts.tsx'
import type { SandboxProps } from './sandbox-page.tsx'
import type { Idle, Stats } from './types.ts'

type Chart = typeof import('./chart.ts')
const KEPT = 360 // an hour of samples
const dark = matchMedia('(prefers-color-scheme: dark)')

function Charts ({ samples }: { samples: Stats[] }) {
  const box = useRef<HTMLDivElement>(null)
  const [chart, setChart] = useState<Chart>()
  const [scheme, setScheme] = useState(dark.matches)
  useEffect(() => { void import('./chart.ts').then(setChart) }, [])
  useEffect(() => {
    const change = (): void => setScheme(dark.matches)
    dark.addEventListener('change', change)
    return () => dark.removeEventListener('change', change)
  }, [])
  useEffect(() => chart === undefined || box.current === null ? undefined : chart.draw(box.current, samples), [chart, samples, scheme])
  return <div ref={box} class="charts" />
}

export function Overview ({ session, sandbox }: SandboxProps) {
  const { value: idle, reload } = useLoad<Idle>(`${sandboxPath(session.id, sandbox.name)}/idle`)
  const [samples, setSamples] = useState<Stats[]>(sandbox.stats !== null ? [sandbox.stats] : [])
  const stats = samples[samples.length - 1]
  const running = sandbox.state === 'running'
  const why = [idle?.why, sandbox.idle?.why, sandbox.reason].find((text) => text !== undefined && text !== '') ?? ''
  useTick(5000)
  useEffect(reload, [sandbox.state, sandbox.instance, session.persist])
  useEffect(() => { if (!running) setSamples([]) }, [running])
  useEvents((event) => {
    if (event.label !== sandbox.label) return
    if (event.type === 'sandbox.stats' && event.stats !== undefined) {
      const sample = event.stats
      setSamples((old) => old[old.length - 1]?.at === sample.at ? old : [...old, sample].slice(-KEPT))
    }
    if (event.type !== 'sandbox.state') reload()
  }, [sandbox.label])
  return (
    <>
      <section>
        <h2>{running ? 'Why it is alive' : 'Why it is not running'}</h2>
        <p>{why !== '' ? why : 'It has not been started yet. It starts with the first command, or with Wake.'}</p>
        {idle?.holders !== undefined && idle.holders.length > 0 && (
          <ul>{idle.holders.map((holder, i) => <li key={i}>{holder.kind} {holder.name} {holder.command !== undefined && <code>{holder.command}</code>}</li>)}</ul>
        )}
        {idle?.deadline_at !== undefined && <p>It stops in {until(idle.deadline_at)}, at {moment(idle.deadline_at)}, unless it is used before.</p>}
      </section>
      <section>
        <h2>Figures</h2>
        {running && stats !== undefined
          ? (
            <>
              <Facts of={[
                ['Processor', percent(stats.cpu_percent)], ['Processes', stats.processes ?? '–'],
                ['Memory', stats.mem_total_kb !== undefined ? `${kib(stats.mem_total_kb - (stats.mem_available_kb ?? 0))} of ${kib(stats.mem_total_kb)}` : '–'],
                ['Disk', stats.disk_total_kb !== undefined ? `${kib(stats.disk_used_kb)} of ${kib(stats.disk_total_kb)}` : '–'],
                ['Received', bytes(stats.net_received_bytes)], ['Sent', bytes(stats.net_sent_bytes)],
                ['On the host', `${((stats.host_cpu_ms ?? 0) / 1000).toFixed(1)} s of processor, ${kib(stats.host_memory_kb)}`]
              ]} />
              <Charts samples={samples} />
            </>
            )
          : <Empty title={running ? 'The first figures come within ten seconds.' : 'Figures are taken while it runs.'} />}
      </section>
      <section>
        <h2>About</h2>
        <Facts of={[
          ['Preview', <a key="url" href={sandbox.url} target="_blank" rel="noreferrer">{sandbox.host}</a>],
          ['Access', sandbox.access], ['Session', <code key="id">{session.id}</code>], ['Owner', session.owner],
          ['Machine', `${sandbox.vcpus} processors, ${bytes(sandbox.memory_mb * 1048576)}`],
          ['Instance', sandbox.instance], ['Created', `${age(sandbox.created_at)} ago`],
          ['Started', sandbox.started_at !== undefined ? `${age(sandbox.started_at)} ago` : '–'],
          ['Persisted', session.persist ? 'yes' : 'no']
        ]} />
        {session.sandboxes.length > 1 && <p>Sandboxes of this session: {session.sandboxes.map((sb) => <a key={sb.name} href={`/s/${session.id}/${sb.name}`}>{sb.name} </a>)}</p>}
      </section>
    </>
  )
}
