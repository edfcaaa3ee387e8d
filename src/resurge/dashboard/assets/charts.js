// The charts of the overview; uPlot draws them.
import { bytes, element, rows, seconds } from "./format.js";

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const CHARTS = [
  { title: "Input, rows per second", format: rows, lines: [["rows/s", "rows_per_s", "--accent"]] },
  { title: "Latency", format: seconds, lines: [["median", "latency_p50_s", "--live"], ["slowest query", "latency_max_s", "--partly"]] },
  { title: "Queries live, nodes up", format: rows, lines: [["queries", "live_queries", "--live"], ["nodes", "nodes", "--catching"]], step: true },
  { title: "Epoch time", format: seconds, lines: [["longest epoch", "epoch_s", "--accent"]] },
  { title: "Lag, rows that wait", format: rows, lines: [["rows", "lag_rows", "--slow"]] },
  { title: "State", format: bytes, lines: [["bytes", "state_bytes", "--catching"]] },
];
let drawn = [];
let newest = null;

export function drawCharts(history) {
  newest = history;
  const place = document.getElementById("charts");
  if (!drawn.length) {
    // All boxes first: the width of one depends on how many there are.
    const boxes = CHARTS.map((chart) => element("div", { class: "chart" }, element("h3", {}, chart.title)));
    place.append(...boxes);
    drawn = CHARTS.map((chart, i) => ({ plot: lineChart(boxes[i], chart, [[], ...chart.lines.map(() => [])]), chart, box: boxes[i] }));
  }
  for (const { plot, chart } of drawn) plot.setData(data(chart, history));
}

export function redrawCharts() {
  for (const { plot } of drawn) plot.destroy();
  document.getElementById("charts").replaceChildren();
  drawn = [];
  if (newest) drawCharts(newest);
}

function data(chart, history) {
  const columns = history.columns;
  return [columns.at_s ?? [], ...chart.lines.map(([, column]) => columns[column] ?? [])];
}

function hours(plot, ticks, axis, space, step) {
  return ticks.map((at) => new Date(at * 1000).toLocaleTimeString("en-GB", step < 60 ? {} : { hour: "2-digit", minute: "2-digit" }));
}

export function lineChart(place, chart, columns, height = 150) {
  const width = Math.max(260, place.clientWidth - 4);
  const axis = { stroke: colour("--quiet"), grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line") } };
  const zeroed = (plot, low, high) => [0, Math.max(high ?? 0, 1e-9) * 1.08];
  const options = {
    width, height, cursor: { sync: { key: chart.sync ?? "resurge" } }, legend: { live: true },
    scales: { x: { time: true }, y: { range: zeroed } },
    axes: [{ ...axis, space: 70, values: hours }, { ...axis, size: 64, values: (plot, ticks) => ticks.map((tick) => chart.format(tick)) }],
    series: [
      { label: "time", value: "{HH}:{mm}:{ss}" },
      ...chart.lines.map(([label, , name]) => ({
        label, stroke: colour(name), width: 1.6, spanGaps: true, points: { show: false },
        paths: chart.step ? window.uPlot.paths.stepped({ align: 1 }) : undefined,
        value: (plot, value) => (value === null || value === undefined ? "–" : chart.format(value)),
      })),
    ],
  };
  return new window.uPlot(options, columns, place);
}

let pending = 0;
addEventListener("resize", () => {
  clearTimeout(pending);
  pending = setTimeout(() => drawn.forEach(({ plot, box }) => plot.setSize({ width: Math.max(280, box.clientWidth - 4), height: 150 })), 150);
});
