// The table of queries: only the rows in sight are in the page, so 500 are as quick as 15.
import { element, plural, rows, seconds, times, unknown } from "./format.js";
import { showQuery } from "./detail.js";

const ROW = 28;
const COLOURS = ["--none", "--live", "--slow", "--partly", "--down"];
const NUMBERS = ["priority", "latency_s", "relative", "rows", "outage_s"];
const RANK = { down: 0, "partly down": 1, "coming back": 2, slow: 3, live: 4 };
const COLUMNS = [
  ["name", "query", (all, i) => all.name[i]], ["priority", "priority", (all, i) => -all.priority[i]],
  ["status", "status", (all, i) => RANK[all.status[i]] ?? 9], ["latency_s", "latency", (all, i) => -(all.latency_s[i] ?? -1)],
  ["relative", "relative", (all, i) => -(all.relative[i] ?? -1)], ["rows", "rows", (all, i) => -all.rows[i]],
  ["outage_s", "outage", (all, i) => -all.outage_s[i]], ["strip", "over time", null],
];
let queries = null;
let strips = {};
let order = [];
let sorting = { column: "priority", turned: false };
let body = null;
let colours = [];

export function updateQueries(now) {
  queries = now.queries;
  arrange();
}

export function updateStrips(history) {
  strips = history.strips;
  recolour();
}

export function recolour() {
  const style = getComputedStyle(document.documentElement);
  colours = COLOURS.map((name) => style.getPropertyValue(name).trim());
  draw();
}

function arrange() {
  if (!queries) return;
  if (!body) build();
  const wanted = document.getElementById("query-filter").value.toLowerCase();
  const status = document.getElementById("query-status").value;
  order = queries.name.map((_, i) => i)
    .filter((i) => (!wanted || queries.name[i].toLowerCase().includes(wanted)) && (!status || queries.status[i] === status));
  const value = COLUMNS.find(([id]) => id === sorting.column)[2];
  order.sort((a, b) => {
    const x = value(queries, a), y = value(queries, b);
    const sign = x < y ? -1 : x > y ? 1 : queries.name[a] < queries.name[b] ? -1 : 1;
    return sorting.turned ? -sign : sign;
  });
  const live = queries.status.filter((word) => word === "live" || word === "slow").length;
  document.getElementById("queries-note").textContent =
    `${live} of ${plural(queries.name.length, "query", "queries")} live${order.length < queries.name.length ? `, ${order.length} shown` : ""}`;
  draw();
}

function build() {
  const head = element("div", { class: "head", role: "row" }, ...COLUMNS.map(([id, title, value]) => element("span", { role: "columnheader", class: NUMBERS.includes(id) ? "number" : "" },
    value ? element("button", { type: "button", "data-column": id, onclick: () => sort(id) }, title) : element("span", { class: "quiet" }, title))));
  body = element("div", { class: "body", role: "rowgroup", tabindex: 0, "aria-label": "Queries; arrow keys move, Enter opens" });
  body.append(element("div", { class: "space" }));
  body.addEventListener("scroll", draw);
  body.addEventListener("keydown", move);
  document.getElementById("query-table").replaceChildren(head, body);
  document.getElementById("query-filter").addEventListener("input", arrange);
  document.getElementById("query-status").addEventListener("change", arrange);
  sort("priority", false);
}

function sort(column, turned = sorting.column === column && !sorting.turned) {
  sorting = { column, turned };
  for (const button of document.querySelectorAll("#query-table .head button")) {
    const mine = button.dataset.column === column;
    button.textContent = button.textContent.replace(/ [▲▼]$/, "") + (mine ? (turned ? " ▲" : " ▼") : "");
    if (mine) button.setAttribute("aria-sort", turned ? "ascending" : "descending"); else button.removeAttribute("aria-sort");
  }
  arrange();
}

function draw() {
  if (!body || !queries) return;
  body.style.height = `${Math.min(order.length * ROW + 4, 432)}px`;
  body.firstChild.style.height = `${order.length * ROW}px`;
  const first = Math.max(0, Math.floor(body.scrollTop / ROW) - 3);
  const last = Math.min(order.length, first + Math.ceil(432 / ROW) + 6);
  const kept = new Map([...body.querySelectorAll(".row")].map((row) => [Number(row.dataset.at), row]));
  for (const [at, row] of kept) if (at < first || at >= last) row.remove();
  for (let at = first; at < last; at += 1) fill(kept.get(at)?.isConnected ? kept.get(at) : add(at), order[at], at);
}

function add(at) {
  const row = element("div", { class: "row", role: "row", tabindex: -1, "data-at": at, style: `top:${at * ROW}px` },
    ...COLUMNS.map(([id]) => element("span", { role: "cell", class: id === "name" ? "name" : NUMBERS.includes(id) ? "number" : "" })));
  row.lastChild.append(element("canvas", { height: 14, width: 480, role: "img" }));
  row.children[2].append(element("span", { class: "status" }));
  row.addEventListener("click", () => showQuery(row.dataset.query));
  row.addEventListener("keydown", (key) => { if (key.key === "Enter") showQuery(row.dataset.query); });
  body.append(row);
  return row;
}

function fill(row, i, at) {
  const cells = row.children, name = queries.name[i], status = queries.status[i];
  row.dataset.query = name;
  row.setAttribute("aria-rowindex", at + 1);
  cells[0].textContent = name;
  cells[1].textContent = queries.priority[i];
  const word = cells[2].firstChild;
  word.className = `status ${status.replaceAll(" ", "-")}`;
  word.textContent = status;
  cells[3].textContent = seconds(queries.latency_s[i]);
  cells[4].textContent = times(queries.relative[i]);
  cells[5].textContent = rows(queries.rows[i]);
  cells[6].textContent = queries.outages[i] ? `${seconds(queries.outage_s[i])}${queries.outages[i] > 1 ? ` (${queries.outages[i]})` : ""}` : unknown;
  paint(cells[7].firstChild, strips[name] ?? "");
}

export function paint(canvas, strip) {
  const key = `${strip}|${colours[0]}`;
  if (canvas.dataset.key === key) return;
  canvas.dataset.key = key;
  canvas.width = Math.max(strip.length, 1);
  const context = canvas.getContext("2d");
  for (let i = 0; i < strip.length; i += 1) {
    context.fillStyle = colours[Number(strip[i])] ?? colours[0];
    context.fillRect(i, 0, 1, 14);
  }
  const down = [...strip].filter((digit) => digit >= "3").length;
  canvas.setAttribute("aria-label", down ? `down or partly down in ${down} of ${strip.length} stretches` : "no outage");
}

export const stripOf = (name) => strips[name] ?? "";

function move(key) {
  const rowsInPage = [...body.querySelectorAll(".row")];
  const focused = document.activeElement?.classList.contains("row") ? Number(document.activeElement.dataset.at) : -1;
  const to = { ArrowDown: focused + 1, ArrowUp: focused - 1, Home: 0, End: order.length - 1, PageDown: focused + 14, PageUp: focused - 14 }[key.key];
  if (to === undefined || !rowsInPage.length) return;
  key.preventDefault();
  const at = Math.max(0, Math.min(order.length - 1, to));
  if (at * ROW < body.scrollTop) body.scrollTop = at * ROW;
  if ((at + 1) * ROW > body.scrollTop + body.clientHeight) body.scrollTop = (at + 1) * ROW - body.clientHeight;
  draw();
  body.querySelector(`.row[data-at="${at}"]`)?.focus({ preventScroll: true });
}
