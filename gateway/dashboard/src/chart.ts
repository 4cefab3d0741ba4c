// Lines over time, by uPlot. Loaded when there is something to draw.
import uPlot from 'uplot'

export interface Line { label: string, color: '--accent' | '--warm' | '--danger', values: (number | null)[] }
export interface ChartOf { title: string, unit: string, max?: number, lines: Line[] }

const HEIGHT = 160
const SPAN_S = 300 // shown at least
const color = (name: string): string => getComputedStyle(document.documentElement).getPropertyValue(name).trim()

function one (box: HTMLElement, { title, unit, max, lines }: ChartOf, times: number[]): uPlot {
  const axis = { stroke: color('--muted'), grid: { stroke: color('--line'), width: 1 }, ticks: { stroke: color('--line'), width: 1 }, font: '12px system-ui' }
  return new uPlot({
    title: `${title} (${unit})`,
    width: Math.max(240, box.clientWidth),
    height: HEIGHT,
    cursor: { drag: { x: false, y: false } },
    legend: { show: lines.length > 1 },
    scales: { x: { range: (_, low, high) => [Math.min(low ?? 0, (high ?? 0) - SPAN_S), high ?? 0] }, y: { range: (_, __, high) => [0, max ?? Math.max(high ?? 0, 1)] } },
    axes: [axis, { ...axis, size: 48, values: (_, splits) => splits.map((n) => n >= 1000 ? `${n / 1000}k` : String(n)) }],
    series: [{}, ...lines.map((line) => ({ label: line.label, stroke: color(line.color), width: 2, points: { show: times.length < 30, fill: color('--back') } }))]
  }, [times, ...lines.map(({ values }) => values)] as uPlot.AlignedData, box)
}

/** times: seconds. Returns what removes the charts again. */
export function draw (box: HTMLElement, charts: ChartOf[], times: number[]): () => void {
  const boxes = charts.map(() => box.appendChild(document.createElement('div')))
  const drawn = charts.map((chart, i) => one(boxes[i]!, chart, times))
  const resize = new ResizeObserver(() => drawn.forEach((chart, i) => {
    const width = Math.max(240, boxes[i]!.clientWidth)
    if (chart.width !== width) chart.setSize({ width, height: HEIGHT })
  }))
  resize.observe(box)
  return () => { resize.disconnect(); drawn.forEach((chart) => chart.destroy()); box.replaceChildren() }
}
