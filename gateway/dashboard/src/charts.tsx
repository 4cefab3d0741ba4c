// Charts in a page: drawn again when there are new samples, or another colour scheme.
import { useEffect, useRef, useState } from 'preact/hooks'
import type { ChartOf } from './chart.ts'

const dark = matchMedia('(prefers-color-scheme: dark)')

export function Charts<T extends { at: string }> ({ samples, of }: { samples: T[], of: (samples: T[]) => ChartOf[] }) {
  const box = useRef<HTMLDivElement>(null)
  const [chart, setChart] = useState<typeof import('./chart.ts')>()
  const [scheme, setScheme] = useState(dark.matches)
  const [lost, setLost] = useState(false)
  useEffect(() => { import('./chart.ts').then(setChart, () => setLost(true)) }, [])
  useEffect(() => {
    const change = (): void => setScheme(dark.matches)
    dark.addEventListener('change', change)
    return () => dark.removeEventListener('change', change)
  }, [])
  useEffect(() => chart === undefined || box.current === null ? undefined : chart.draw(box.current, of(samples), samples.map(({ at }) => Date.parse(at) / 1000)), [chart, samples, scheme])
  if (lost) return <p class="help">The charts could not be loaded: the gateway may have been upgraded. Reload the page.</p>
  return <div ref={box} class="charts" />
}

/** What a counter grew by in a second, from each sample to the next; null where it began anew. */
export function rates<T extends { at: string }> (samples: T[], of: (sample: T) => number | undefined): (number | null)[] {
  return samples.map((sample, i) => {
    const before = samples[i - 1]
    const [now, then] = [of(sample), before !== undefined ? of(before) : undefined]
    if (before === undefined || now === undefined || then === undefined || now < then) return null
    return (now - then) / Math.max(1, (Date.parse(sample.at) - Date.parse(before.at)) / 1000)
  })
}
