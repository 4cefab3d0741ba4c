import { useEffect } from 'preact/hooks'
import { useWho } from './app.tsx'
import type { ChartOf } from './chart.ts'
import { Charts } from './charts.tsx'
import { bytes } from './format.ts'
import { useEvents } from './live.ts'
import { useLoad, useSettled } from './load.ts'
import { Empty, Facts, Fault, Loading } from './parts.tsx'
import { type Node, states, type Traffic } from './types.ts'

const perSecond = (samples: Traffic[], of: (sample: Traffic) => number | undefined): (number | null)[] =>
  samples.map((sample) => of(sample) === undefined ? null : of(sample)! / Math.max(1, (sample.interval_ms ?? 10000) / 1000))
const charts = (samples: Traffic[]): ChartOf[] => [
  {
    title: 'Requests',
    unit: 'per second',
    lines: [{ label: 'all', color: '--accent', values: perSecond(samples, (s) => s.requests) },
      { label: '4xx', color: '--warm', values: perSecond(samples, (s) => s.status_4xx) }, { label: '5xx', color: '--danger', values: perSecond(samples, (s) => s.status_5xx) }]
  },
  {
    title: 'Time to a whole answer',
    unit: 'ms, at most',
    lines: [{ label: '50 %', color: '--accent', values: samples.map((s) => s.p50_ms ?? null) },
      { label: '90 %', color: '--warm', values: samples.map((s) => s.p90_ms ?? null) }, { label: '99 %', color: '--danger', values: samples.map((s) => s.p99_ms ?? null) }]
  },
  {
    title: 'Open',
    unit: 'at once',
    lines: [{ label: 'connections', color: '--accent', values: samples.map((s) => s.connections ?? null) }, { label: 'WebSockets', color: '--warm', values: samples.map((s) => s.tunnels ?? null) }]
  }
]

/** For administrators: it is of all owners together. */
function GatewayTraffic () {
  const { value, error, reload } = useLoad<{ samples: Traffic[] }>('/v1/node/traffic')
  useEffect(() => {
    const timer = setInterval(reload, 10000)
    return () => clearInterval(timer)
  }, [])
  return (
    <section>
      <h2>Traffic of the gateway</h2>
      {error !== undefined && <Fault error={error} retry={reload} />}
      {value === undefined && error === undefined && <Loading />}
      {value !== undefined && (value.samples.length === 0 ? <Empty title="The first figures come within ten seconds." /> : <Charts samples={value.samples} of={charts} />)}
    </section>
  )
}

export function NodePage () {
  const { value: node, error, reload } = useLoad<Node>('/v1/node')
  const changed = useSettled(reload, 500)
  const admin = useWho().scope === 'admin'
  useEvents((event) => { if (event.type === 'sandbox.state' || event.type.startsWith('session.')) changed() }, [])
  if (node === undefined) return error !== undefined ? <Fault error={error} retry={reload} /> : <Loading />
  const active = node.sandboxes.running + node.sandboxes.starting + node.sandboxes.stopping
  return (
    <>
      <h1>Node {node.name}</h1>
      {error !== undefined && <Fault error={error} retry={reload} />}
      {!node.redis.up && <div class="fault" role="alert"><p>Redis does not answer. Previews go on by the last known routes; changes reach the gateway when it is back. Look at <code>redis-server</code> at {node.redis.url}.</p></div>}
      {node.image.error !== undefined && <div class="fault" role="alert"><p>No sandbox can start: {node.image.error}</p></div>}
      <section>
        <h2>Capacity</h2>
        <label class="meter">Machines: {active} of {node.max_sandboxes}
          <meter min={0} max={node.max_sandboxes} value={active} high={node.max_sandboxes * 0.9} optimum={0} /></label>
        <Facts of={[
          ['Processors', node.cpus], ['Load', node.load1?.toFixed(2) ?? '–'],
          ['Memory', `${bytes((node.memory_available_mb ?? 0) * 1048576)} free of ${bytes(node.memory_mb * 1048576)}`],
          ['Accelerator', node.accelerator.toUpperCase()],
          ['KVM', node.kvm.usable ? 'usable' : `not usable: ${node.kvm.reason}`]
        ]} />
      </section>
      <section>
        <h2>Sandboxes</h2>
        <Facts of={states.map((state) => [state, <a key={state} href={`/?state=${state}`}>{node.sandboxes[state]}</a>])} />
      </section>
      {admin && <GatewayTraffic />}
      <section>
        <h2>Software</h2>
        <Facts of={[['Version', node.version], ['Redis', node.redis.up ? 'answers' : 'does not answer'], ['Image', node.image.id ?? node.image.path ?? '–']]} />
      </section>
    </>
  )
}
