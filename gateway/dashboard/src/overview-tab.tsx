// Why it is alive or not, what it costs, and its figures over time.
import { useEffect, useMemo, useState } from 'preact/hooks'
import { sandboxPath } from './api.ts'
import type { ChartOf } from './chart.ts'
import { Charts, rates } from './charts.tsx'
import { age, bytes, kib, moment, percent, until } from './format.ts'
import { useEvents } from './live.ts'
import { useLoad } from './load.ts'
import { Empty, Facts, useTick } from './parts.tsx'
import type { SandboxProps } from './sandbox-page.tsx'
import type { Idle, Stats } from './types.ts'

const KEPT = 360 // an hour of samples

const kilo = (values: (number | null)[]): (number | null)[] => values.map((value) => value === null ? null : value / 1024)
const charts = (samples: Stats[]): ChartOf[] => [
  { title: 'Processor', unit: '%', max: 100, lines: [{ label: 'processor', color: '--accent', values: samples.map((s) => s.cpu_percent ?? null) }] },
  { title: 'Memory', unit: 'MiB', lines: [{ label: 'memory', color: '--accent', values: samples.map((s) => s.mem_total_kb !== undefined ? (s.mem_total_kb - (s.mem_available_kb ?? 0)) / 1024 : null) }] },
  {
    title: 'Network',
    unit: 'KiB/s',
    lines: [{ label: 'received', color: '--accent', values: kilo(rates(samples, (s) => s.net_received_bytes)) },
      { label: 'sent', color: '--warm', values: kilo(rates(samples, (s) => s.net_sent_bytes)) }]
  }
]

export function Overview ({ session, sandbox }: SandboxProps) {
  const { value: idle, reload } = useLoad<Idle>(`${sandboxPath(session.id, sandbox.name)}/idle`)
  const past = useLoad<{ samples: Stats[] }>(`${sandboxPath(session.id, sandbox.name)}/stats`)
  const [fresh, setFresh] = useState<Stats[]>([])
  const samples = useMemo(() => {
    const last = past.value?.samples[past.value.samples.length - 1]
    return [...past.value?.samples ?? [], ...fresh.filter(({ at }) => last === undefined || at > last.at)].slice(-KEPT)
  }, [past.value, fresh])
  const stats = fresh[fresh.length - 1] ?? sandbox.stats
  const running = sandbox.state === 'running'
  const why = [idle?.why, sandbox.idle?.why, sandbox.reason].find((text) => text !== undefined && text !== '') ?? ''
  useTick(5000)
  useEffect(reload, [sandbox.state, sandbox.instance, session.persist])
  useEvents((event) => {
    if (event.label !== sandbox.label) return
    if (event.type === 'sandbox.stats' && event.stats !== undefined) {
      const sample = event.stats
      setFresh((old) => old[old.length - 1]?.at === sample.at ? old : [...old, sample].slice(-KEPT))
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
        {running && stats !== null && (
              <Facts of={[
                ['Processor', percent(stats.cpu_percent)], ['Processes', stats.processes ?? '–'],
                ['Memory', stats.mem_total_kb !== undefined ? `${kib(stats.mem_total_kb - (stats.mem_available_kb ?? 0))} of ${kib(stats.mem_total_kb)}` : '–'],
                ['Disk', stats.disk_total_kb !== undefined ? `${kib(stats.disk_used_kb)} of ${kib(stats.disk_total_kb)}` : '–'],
                ['Received', bytes(stats.net_received_bytes)], ['Sent', bytes(stats.net_sent_bytes)],
                ['On the host', `${((stats.host_cpu_ms ?? 0) / 1000).toFixed(1)} s of processor, ${kib(stats.host_memory_kb)}`]
              ]} />
        )}
        {samples.length > 0
          ? <><Charts samples={samples} of={charts} />{!running && <p class="help">These are of the last time that it ran.</p>}</>
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
