// The drawer at the right: one query, node, operator, group of operators, or decision.
import { clock, element, facts, moment, percent, plural, rows, seconds, table } from "./format.js";
import { lineChart } from "./charts.js";

const get = (id) => document.getElementById(id);

async function open(title, url, fill) {
  get("detail-title").textContent = title;
  get("detail-body").replaceChildren(element("p", { class: "quiet" }, "loading"));
  if (!get("detail").open) get("detail").showModal();
  if (!url) return fill(get("detail-body"));
  const answer = await fetch(url).then((found) => found.json()).catch((error) => ({ problem: String(error) }));
  get("detail-body").replaceChildren();
  if (answer.problem) return get("detail-body").append(element("p", { class: "warning" }, answer.problem));
  return fill(get("detail-body"), answer);
}

const link = (words, action) => element("button", { type: "button", onclick: action }, words);
const links = (names, action) => element("span", {}, ...(names.length ? names.flatMap((name) => [link(name, () => action(name)), " "]) : ["–"]));

function decisionsOf(place, found) {
  if (!found.length) return;
  place.append(element("h3", {}, "Decisions and incidents"), element("ol", { class: "decisions" }, ...found.toReversed().map((known) =>
    element("li", {}, element("button", { type: "button", onclick: () => showDecision(known.id) },
      element("span", { class: "quiet" }, clock(known.at_s)), element("span", {}, known.text), element("span", { class: "quiet" }, "why?"))))));
}

export function showQuery(name) {
  return open(`Query ${name}`, `/api/query/${encodeURIComponent(name)}`, (place, query) => {
    place.append(facts([
      ["status", `${query.status}${query.parts_down ? ` (${query.parts_down} of ${query.parts} parts down)` : ""}`], ["priority", String(query.priority)],
      ["latency", `${seconds(query.latency_s)}, usually ${seconds(query.usual_latency_s)}`], ["rows published", rows(query.rows)],
      ["reads", query.operator ? link(query.operator, () => showOperator(query.operator)) : "–"],
      ["depends on", links(query.upstream.slice(1), showOperator)],
    ]));
    if (query.latencies.length && query.latencies[0].length > 1) {
      place.append(element("h3", {}, "Latency"));
      const box = element("div", {});
      place.append(box);
      lineChart(box, { format: seconds, lines: [["latency", "", "--accent"]], sync: "detail" }, query.latencies, 170);
    }
    place.append(element("h3", {}, "Outages"), query.outages.length
      ? table(["from", "to", "took"], query.outages.toReversed().map((known) => [moment(known.from_s), known.to_s === null ? "now" : moment(known.to_s), seconds(known.took_s)]), [2])
      : element("p", { class: "quiet" }, "none"));
    decisionsOf(place, query.decisions);
  });
}

export function showNode(name) {
  return open(`Node ${name}`, `/api/node/${encodeURIComponent(name)}`, (place, node) => {
    get("detail-title").textContent = node.executor === null ? `Node ${node.label}` : node.label;
    place.append(facts([
      ...(node.executor === null ? [] : [["executor", node.executor]]),
      ["status", node.is_up ? "up" : "lost"], ["since", moment(node.since_s)],
      ["utilisation", node.capacity ? `${percent(node.cpu_s_per_s / node.capacity)} (${node.cpu_s_per_s.toFixed(3)} of ${node.capacity.toFixed(2)} CPU seconds per second)` : "–"],
      ["partitions", String(node.holds.reduce((sum, [, count]) => sum + count, 0))],
    ]));
    if (node.holds.length) place.append(element("h3", {}, "Holds"), table(["operator", "partitions"], node.holds.map(([operator, count]) => [link(operator, () => showOperator(operator)), String(count)]), [1]));
    decisionsOf(place, node.decisions);
  });
}

export function showOperator(name) {
  return open(`Operator ${name}`, `/api/operator/${encodeURIComponent(name)}`, (place, operator) => {
    place.append(facts([
      ["kind", `${operator.kind}${operator.is_stateful ? ", with state" : ""}`],
      ["load", operator.cpu_s_per_s === null ? "counted with the sources" : `${operator.cpu_s_per_s.toFixed(3)} CPU seconds per second`],
      ["epochs behind", operator.epochs_behind === null ? "–" : String(operator.epochs_behind)],
      ["partitions", Object.entries(operator.phases).map(([phase, count]) => `${count} ${phase}`).join(", ") || "none of its own"],
      ["reads", links(operator.inputs, showOperator)], ["is read by", links(operator.readers, showOperator)], ["queries", links(operator.queries, showQuery)],
    ]));
    if (operator.lag.length) place.append(element("h3", {}, "Rows that wait, by partition"), table(["partition", "rows"], operator.lag.map(([partition, waiting]) => [partition, rows(waiting)]), [1]));
    if (operator.nodes.length) place.append(element("h3", {}, "Where its partitions are"), table(["node", "partitions"], operator.nodes.map(([node, label, count]) => [link(label, () => showNode(node)), String(count)]), [1]));
  });
}

export function showGroup(box) {
  return open(`${box.operators.length} × ${box.kind}`, null, (place) => {
    place.replaceChildren(element("p", { class: "quiet" }, `These ${plural(box.operators.length, "operator")} are alike and drawn as one.`),
      links(box.operators.slice(0, 500), showOperator));
  });
}

export function showDecision(id) {
  return open("Why", `/api/decision/${id}`, (place, found) => {
    get("detail-title").textContent = found.text;
    place.append(element("p", { class: "quiet" }, moment(found.at_s)));
    place.append(found.why.length ? element("ul", { class: "why" }, ...found.why.map((line) => element("li", {}, line))) : element("p", { class: "quiet" }, "There is no more to say."));
    if (found.table.length) {
      const [header, ...rest] = found.table;
      place.append(element("h3", {}, "What was chosen from"), table(header, rest, [1, 2, 3, 4]));
    }
  });
}

export function showHelp() {
  return open("Keys", null, (place) => {
    place.replaceChildren(facts([
      [element("kbd", {}, "1"), "to 7: go to a section"], [element("kbd", {}, "/"), "filter queries"], [element("kbd", {}, "d"), "dark or light"],
      [element("kbd", {}, "Tab"), "go through everything that can be opened; Enter opens it"],
      [element("kbd", {}, "↓"), "and ↑, Home, End: move in the table of queries"], [element("kbd", {}, "Esc"), "close"],
    ]), element("p", { class: "quiet" }, "The page only reads. The same facts as JSON: /api/now, /api/history, /api/topology."));
  });
}
