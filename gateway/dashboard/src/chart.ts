// Samples as lines, by uPlot. Loaded when there is something to draw.
import uPlot from 'uplot'
import type { Stats } from './types.ts'

const color = (name: string): string => getComputedStyle(document.documentElement).getPropertyValue(name).trim()

/** Bytes per second between two samples. */
function rates (samples: Stats[], of: (sample: Stats) => number | undefined): (number | null)[] {
  return samples.map((sample, i) => {
    const before = samples[i - 1]
    const [now, then] = [of(sample), before !== undefined ? of(before) : undefined]
    if (before === undefined || now === undefined || then === undefined || now < then) return null
    return (now - then) / Math.max(1, (Date.parse(sample.at) - Date.parse(before.at)) / 1000) / 1024
  })
}

function one (box: HTMLElement, title: string, unit: string, series: [string, string, (number | null)[]][], times: number[], max?: number): uPlot {
  const axis = { stroke: color('--muted'), grid: { stroke: color('--line'), width: 1 }, ticks: { stroke: color('--line'), width: 1 }, font: '12px system-ui' }
  return new uPlot({
    title: `${title} (${unit})`,
    width: Math.max(240, box.clientWidth),
    height: 160,
    cursor: { drag: { x: false, y: false } },
    legend: { show: series.length > 1 },
    scales: { y: { range: (_, __, high) => [0, max ?? Math.max(high ?? 0, 1)] } },
    axes: [axis, { ...axis, size: 44 }],
    series: [{}, ...series.map(([label, stroke]) => ({ label, stroke: color(stroke), width: 2, points: { show: times.length < 30, fill: color('--back') } }))]
  }, [times, ...series.map(([, , values]) => values)] as uPlot.AlignedData, box)
}

export function draw (box: HTMLElement, samples: Stats[]): () => void {
  const times = samples.map(({ at }) => Date.parse(at) / 1000)
  const memory = samples.map((s) => s.mem_total_kb !== undefined ? (s.mem_total_kb - (s.mem_available_kb ?? 0)) / 1024 : null)
  const boxes = [0, 1, 2].map(() => box.appendChild(document.createElement('div')))
  const charts = [
    one(boxes[0]!, 'Processor', '%', [['processor', '--accent', samples.map((s) => s.cpu_percent ?? null)]], times, 100),
    one(boxes[1]!, 'Memory', 'MiB', [['memory', '--accent', memory]], times),
    one(boxes[2]!, 'Network', 'KiB/s', [['received', '--accent', rates(samples, (s) => s.net_received_bytes)], ['sent', '--warm', rates(samples, (s) => s.net_sent_bytes)]], times)
  ]
  const resize = new ResizeObserver(() => charts.forEach((chart, i) => {
    const width = Math.max(240, boxes[i]!.clientWidth)
    if (chart.width !== width) chart.setSize({ width, height: 160 })
  }))
  resize.observe(box)
  return () => { resize.disconnect(); charts.forEach((chart) => chart.destroy()); box.replaceChildren() }
}
