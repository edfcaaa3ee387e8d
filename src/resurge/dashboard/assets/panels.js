// Figures, nodes, recovery, decisions and storage.
import { bytes, clock, element, facts, moment, percent, plural, rows, seconds, table, unknown } from "./format.js";
import { showDecision, showNode, showQuery } from "./detail.js";

const get = (id) => document.getElementById(id);
let decisions = "";
let kept = [];

export function updateHeader(now) {
  const driver = now.driver, figures = now.figures;
  get("job").textContent = driver.job || "Resurge";
  document.title = `${driver.job || "Resurge"}${figures.queries ? ` ${figures.queries_live}/${figures.queries}` : ""}`;
  const badge = get("driver");
  const words = driver.status === "unresponsive" ? `no news for ${seconds(driver.quiet_s)}` : driver.status;
  if (badge.textContent !== words) badge.textContent = words;
  badge.className = `badge ${driver.status.replaceAll(" ", "-")}`;
  badge.title = driver.reason || "";
  get("master").textContent = driver.master ? `${driver.master}, generation ${driver.generation}` : "";
  get("clock").textContent = clock(now.at_s);
  const lost = figures.queries - figures.queries_live;
  const pairs = [
    ["queries live", `${figures.queries_live} of ${figures.queries}`, lost ? "bad" : ""],
    ["nodes up", `${figures.nodes_up}${figures.nodes_lost ? ` (${figures.nodes_lost} lost)` : ""}`, figures.nodes_up ? "" : "bad"],
    ["epoch", rows(figures.epoch)],
    ["rows per second", rows(figures.rows_per_s)],
    ["latency, median", seconds(figures.latency_p50_s)],
    ["latency, slowest", seconds(figures.latency_max_s)],
    ["lag, rows", `${rows(figures.lag_rows)}`, figures.lag_rows && figures.row_limit ? "note" : ""],
    ["state", bytes(figures.state_bytes)],
    ["checkpoint", figures.checkpoint_epoch === null ? unknown : `${seconds(figures.checkpoint_age_s)} ago`],
    ["buffers", figures.is_buffering || figures.buffered_bytes ? bytes(figures.buffered_bytes) : "off", figures.is_buffering ? "note" : ""],
  ];
  if (figures.late_rows || figures.bad_rows) pairs.push(["late, malformed", `${rows(figures.late_rows)}, ${rows(figures.bad_rows)}`, "note"]);
  const list = get("figures");
  if (list.children.length !== pairs.length) {
    list.replaceChildren(...pairs.map(([name]) => element("div", {}, element("dt", {}, name), element("dd", {}))));
  }
  pairs.forEach(([name, value, kind], i) => {
    const [dt, dd] = list.children[i].children;
    dt.textContent = name;
    dd.textContent = value;
    dd.title = value;
    dd.className = kind || "";
  });
}

const label = (known) => (known.kind === "planned" ? "plan" : known.kind);
const rest = (known) => (known.text.startsWith(label(known)) ? known.text.slice(label(known).length).replace(/^:? /, "") : known.text);

let nodes = null;
export function updateNodes(now) {
  nodes = now.nodes;
  const wanted = get("node-filter").value.toLowerCase(), lostToo = get("node-lost").checked;
  const shown = nodes.name.map((_, i) => i).filter((i) => (nodes.is_up[i] || lostToo) && nodes.label[i].toLowerCase().includes(wanted));
  const grid = get("node-grid");
  const tiles = new Map([...grid.children].map((tile) => [tile.dataset.node, tile]));
  const inOrder = shown.map((i) => {
    const tile = tiles.get(nodes.name[i]) ?? element("button", { type: "button", class: "node", "data-node": nodes.name[i], onclick: () => showNode(nodes.name[i]) },
      element("b", {}), element("div", { class: "meter" }, element("i", {})), element("span", {}));
    const share = nodes.capacity[i] ? nodes.used[i] / nodes.capacity[i] : null;
    const suspected = nodes.unanswered_s[i] !== null;
    tile.className = nodes.is_up[i] ? (suspected ? "node suspected" : "node") : "node lost";
    tile.children[0].textContent = nodes.label[i];
    const bar = tile.children[1].firstChild;
    bar.style.width = `${Math.min(100, (share ?? 0) * 100)}%`;
    bar.className = share > 1 ? "hot" : share > 0.8 ? "warm" : "";
    tile.children[2].textContent = suspected ? "does not answer" : nodes.is_up[i] ? `${percent(share)} · ${plural(nodes.partitions[i], "partition")}` : "lost";
    tile.title = `${nodes.label[i]}: ${nodes.is_up[i] ? `${(nodes.used[i] ?? 0).toFixed(3)} of ${(nodes.capacity[i] ?? 0).toFixed(2)} CPU s/s, ${plural(nodes.operators[i], "operator")}` : "lost"}`;
    return tile;
  });
  if (inOrder.length !== grid.children.length || inOrder.some((tile, i) => grid.children[i] !== tile)) grid.replaceChildren(...inOrder);
  const up = nodes.is_up.filter(Boolean).length;
  get("nodes-note").textContent = `${up} up, ${nodes.name.length - up} lost`;
}

export function updateRecovery(now) {
  const place = get("recovery-body"), found = now.recovery;
  if (!found) return;
  const stage = (name, value, state) => element("li", { class: state }, element("b", {}, name), element("span", {}, value));
  const detected = found.lost.length > 0 || found.detected_after_s !== null, planned = found.planned_after_s !== null, stepped = found.steps_in_all > 0;
  const state = (done, doing) => (done || found.is_over ? "done" : doing ? "doing" : "");
  const phases = Object.entries(found.phases), total = phases.reduce((sum, [, count]) => sum + count, 0);
  const longest = Math.max(found.took_s, 0.001);
  const returns = [
    ...found.back.map((back) => [back.query, back.priority, back.after_s, seconds(back.after_s)]),
    ...found.waiting.map((query) => [query, null, found.took_s, "waits"]),
  ];
  const scrolled = place.querySelector(".returns")?.scrollTop ?? 0;
  const last = found.steps.at(-1);
  place.replaceChildren(
    element("p", {}, found.is_over
      ? `Over: ${found.cause} at ${moment(found.began_s)}; all ${plural(found.failed, "query", "queries")} were back after ${seconds(found.took_s)}.`
      : `Under way for ${seconds(found.took_s)}: ${found.cause} at ${clock(found.began_s)}. ${found.back.length} of ${plural(found.failed, "query", "queries")} back.`),
    element("ol", { class: "stages" },
      stage("seen after", seconds(found.detected_after_s), state(detected, !detected)),
      stage("first plan after", seconds(found.planned_after_s), state(planned, detected && !planned)),
      stage("restoring, in all", seconds(found.restore_s), state(stepped, planned && !stepped)),
      stage("catching up, in all", seconds(found.catch_up_s), state(found.is_over, stepped && !found.is_over)),
      stage("queries back", `${found.back.length} of ${found.failed}`, state(found.is_over, false))),
    element("div", { class: "quiet" }, `Partitions now: ${phases.map(([phase, count]) => `${count} ${phase}`).join(", ")}`),
    element("div", { class: "progress" }, ...phases.filter(([, count]) => count).map(([phase, count]) => element("i", { class: phase.split(" ")[0], style: `width:${(100 * count) / total}%`, title: `${count} ${phase}` }))),
    element("div", { class: "quiet" }, `${plural(found.lost.length, "node")} lost (${found.lost.slice(0, 8).map((known) => known.node).join(", ")}${found.lost.length > 8 ? ", …" : ""}), ` +
      `${found.joined.length} joined; ${plural(found.plans.length, "plan")}, ${plural(found.steps_in_all, "catch-up step")}` +
      (last ? `; the last took epochs ${last.first} to ${last.last} for ${plural(last.partitions, "partition")} in ${seconds(last.took_s)}` : "")),
    element("h3", {}, "Queries, in the order in which they came back"),
    element("div", { class: "returns" }, ...returns.map(([query, priority, after, words]) => element("div", {},
      element("button", { type: "button", class: "name linkish", style: "display:block;padding:0", onclick: () => showQuery(query), title: query }, `${query}${priority ? ` (${priority})` : ""}`),
      element("span", { class: "track" }, element("i", { style: `width:${Math.max(0.5, (100 * after) / longest)}%` })), element("span", {}, words)))),
  );
  place.querySelector(".returns").scrollTop = scrolled;
}

export function updateDecisions(now) {
  kept = now.incidents ?? kept;
  const kinds = get("decision-kind").value;
  const shown = kept.filter((known) => !kinds || kinds.split(",").includes(known.kind));
  const key = `${kinds}|${shown[0]?.id}|${shown.length}`;
  if (key === decisions) return;
  decisions = key;
  get("decision-list").replaceChildren(...shown.map((known) => element("li", {},
    element("button", { type: "button", onclick: () => showDecision(known.id), "data-decision": known.id },
      element("span", { class: "quiet" }, clock(known.at_s)),
      element("span", {}, element("span", { class: `kind ${known.kind}` }, `${label(known)} `), rest(known)),
      element("span", { class: "quiet" }, known.has_why ? "why?" : "")))));
}

export function updateStorage(now) {
  const figures = now.figures, store = now.store;
  const pairs = [
    ["buffering", figures.is_buffering ? `on, ${bytes(figures.buffered_bytes)} kept for partitions that are not live` : "off"],
    ["last checkpoint", figures.checkpoint_epoch === null ? "none yet in this log" : `epoch ${rows(figures.checkpoint_epoch)}, ${seconds(figures.checkpoint_age_s)} ago, published in ${seconds(figures.checkpoint_took_s)}`],
  ];
  if (figures.checkpoint_absent) pairs.push(["kept for what is down", `${plural(figures.checkpoint_absent, "partition")}: all input since epoch ${rows(figures.kept_since)}`]);
  if (figures.local_store) {
    const local = figures.local_store;
    pairs.push(["local stores", `${bytes(local.used_bytes)} in ${local.place} on all nodes${local.limit_bytes ? `, at most ${bytes(local.limit_bytes)} each` : ""}${local.overflow_bytes ? `; ${bytes(local.overflow_bytes)} on disk beyond it` : ""}`]);
  }
  if (store) {
    pairs.push(["durable store", store.url]);
    if (store.problem) pairs.push(["problem", store.problem]);
    if (store.topology) {
      pairs.push(["generation", store.generation], ["planned, committed", `epoch ${rows(store.planned_epoch)}, epoch ${rows(store.committed_epoch)}`],
        ["journal", `${plural(store.journal_records, "record")} (${Object.entries(store.journal_kinds).map(([kind, count]) => `${count} ${kind}`).join(", ")})`],
        ["checkpoint data", `${bytes(store.data_bytes)}, ${plural(store.partitions, "partition")}`]);
    }
  }
  const made = [facts(pairs.map(([name, value]) => [name, String(value)]))];
  if (store?.checkpoints?.length) {
    made.push(element("h3", {}, "Checkpoints in the store"),
      table(["epoch", "written", "manifest"], store.checkpoints.map((known) => [rows(known.epoch), moment(known.written_s), known.manifest]), [0]));
  }
  if (!store) made.push(element("p", { class: "quiet" }, "A telemetry log was given, so the durable store is not shown."));
  get("storage-body").replaceChildren(...made);
}
