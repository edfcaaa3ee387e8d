// The topology as the server laid it out; load and phases are laid over it.
import { percent, plural, rows, shape } from "./format.js";
import { showGroup, showOperator } from "./detail.js";

const WIDTH = 176;
const HEIGHT = 44;
const PHASES = [["live", "live"], ["stalled", "stalled"], ["catching up", "catching"], ["down", "down"]];
let topology = null;
let boxes = new Map();

export function drawTopology(given, now) {
  topology = given;
  const place = document.getElementById("graph");
  if (!given) return;
  const at = new Map(given.boxes.map((box) => [box.id, box]));
  const svg = shape("svg", {
    viewBox: `-6 -6 ${given.width + 12} ${given.height + 12}`, width: given.width + 12, height: given.height + 12, role: "group",
  });
  for (const [from, to] of given.streams) {
    const a = at.get(from), b = at.get(to);
    const x1 = a.x + WIDTH, y1 = a.y + HEIGHT / 2, x2 = b.x, y2 = b.y + HEIGHT / 2, middle = Math.max(30, (x2 - x1) / 2);
    const path = shape("path", { class: "stream", d: `M${x1},${y1} C${x1 + middle},${y1} ${x2 - middle},${y2} ${x2},${y2}` });
    path.dataset.from = from;
    path.dataset.to = to;
    svg.append(path);
  }
  boxes = new Map();
  for (const box of given.boxes) svg.append(drawBox(box));
  place.replaceChildren(svg);
  document.getElementById("topology-note").textContent =
    `${plural(given.boxes.reduce((sum, box) => sum + box.operators.length, 0), "operator")}, ${plural(given.streams.length, "stream")} drawn`;
  if (now) updateTopology(now);
}

function drawBox(box) {
  const many = box.operators.length > 1;
  const name = many ? `${box.operators.length} × ${box.kind}` : box.id;
  const open = () => (many ? showGroup(box) : showOperator(box.operators[0]));
  const group = shape("g", {
    class: many ? "box stack" : "box", transform: `translate(${box.x},${box.y})`, tabindex: 0, role: "button", "aria-label": `${name}, ${box.kind}`,
  });
  if (many) group.append(shape("rect", { class: "back", x: 4, y: -4, width: WIDTH, height: HEIGHT, rx: 6 }));
  const load = shape("rect", { class: "load", x: 8, y: HEIGHT - 7, width: 0, height: 3, rx: 1.5 });
  const dots = shape("g", { transform: "translate(8,4)" });
  const sub = shape("text", { class: "sub", x: 8, y: 33 });
  const label = shape("text", { x: 8, y: 20.5 });
  label.textContent = name.length > 23 ? `${name.slice(0, 22)}…` : name;
  const title = shape("title");
  title.textContent = name;
  group.append(title, shape("rect", { class: "frame", width: WIDTH, height: HEIGHT, rx: 6 }),
    shape("rect", { class: "track", x: 8, y: HEIGHT - 7, width: WIDTH - 16, height: 3, rx: 1.5 }), load, label, sub, dots);
  group.addEventListener("click", open);
  group.addEventListener("keydown", (key) => { if (key.key === "Enter" || key.key === " ") { key.preventDefault(); open(); } });
  for (const [on, off] of [["mouseenter", "mouseleave"], ["focus", "blur"]]) {
    group.addEventListener(on, () => light(box.id));
    group.addEventListener(off, () => light(null));
  }
  boxes.set(box.id, { box, group, load, dots, sub, title });
  return group;
}

function light(id) {
  const near = new Set([id]);
  if (id) {
    for (const next of ["from", "to"]) {
      const waiting = [id];
      while (waiting.length) {
        const at = waiting.pop();
        for (const [from, to] of topology.streams) {
          const other = next === "from" ? (to === at ? from : null) : from === at ? to : null;
          if (other && !near.has(other)) { near.add(other); waiting.push(other); }
        }
      }
    }
  }
  for (const [name, { group }] of boxes) group.classList.toggle("dim", Boolean(id) && !near.has(name));
  for (const path of document.querySelectorAll("#graph path.stream")) {
    path.classList.toggle("dim", Boolean(id) && !(near.has(path.dataset.from) && near.has(path.dataset.to)));
  }
}

export function updateTopology(now) {
  const found = now.operators;
  const index = new Map(found.name.map((name, number) => [name, number]));
  const all = found.cpu_s_per_s.reduce((sum, value) => sum + value, 0);
  for (const { box, load, dots, sub, title } of boxes.values()) {
    const mine = box.operators.map((name) => index.get(name)).filter((number) => number !== undefined);
    const cost = mine.reduce((sum, number) => sum + found.cpu_s_per_s[number], 0);
    const behind = mine.reduce((most, number) => Math.max(most, found.behind[number]), 0);
    load.setAttribute("width", all ? ((WIDTH - 16) * cost) / all : 0);
    const counts = PHASES.map(([phase, name]) => [name, phase, mine.reduce((sum, number) => sum + found[phase][number], 0)]);
    const total = counts.reduce((sum, [, , count]) => sum + count, 0);
    const words = [];
    if (box.queries.length) words.push(`${box.queries.length} Q`);
    if (mine.length) words.push(`${percent(all ? cost / all : 0)} CPU`);
    if (behind) words.push(`${behind} behind`);
    const waiting = box.operators.reduce((sum, name) => sum + (now.lag[name] ?? 0), 0);
    if (waiting) words.push(`${rows(waiting)} rows wait`);
    sub.textContent = words.join(" · ") || box.kind;
    title.textContent = `${box.operators.length > 1 ? box.operators.length + " × " + box.kind : box.id + ", " + box.kind}: ${cost.toFixed(3)} CPU s/s, ` +
      `${behind} epochs behind, ${counts.map(([, phase, count]) => `${count} ${phase}`).join(", ")}`;
    let x = 0;
    dots.replaceChildren(...counts.filter(([, , count]) => count).map(([name, , count]) => {
      const width = ((WIDTH - 16) * count) / total;
      x += width;
      return shape("rect", { class: name, x: x - width, y: 0, width, height: 3 });
    }));
  }
}
