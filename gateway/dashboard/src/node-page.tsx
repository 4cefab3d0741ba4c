import { bytes } from './format.ts'
import { useEvents } from './live.ts'
import { useLoad, useSettled } from './load.ts'
import { Facts, Fault, Loading } from './parts.tsx'
import { type Node, states } from './types.ts'

export function NodePage () {
  const { value: node, error, reload } = useLoad<Node>('/v1/node')
  const changed = useSettled(reload, 500)
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
          ['Processors', node.cpus], ['Memory', bytes(node.memory_mb * 1048576)],
          ['Accelerator', node.accelerator.toUpperCase()],
          ['KVM', node.kvm.usable ? 'usable' : `not usable: ${node.kvm.reason}`]
        ]} />
      </section>
      <section>
        <h2>Sandboxes</h2>
        <Facts of={states.map((state) => [state, <a key={state} href={`/?state=${state}`}>{node.sandboxes[state]}</a>])} />
      </section>
      <section>
        <h2>Software</h2>
        <Facts of={[['Version', node.version], ['Redis', node.redis.up ? 'answers' : 'does not answer'], ['Image', node.image.id ?? node.image.path ?? '–']]} />
      </section>
    </>
  )
}
