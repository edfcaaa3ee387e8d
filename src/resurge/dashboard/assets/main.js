// Follows the server's events and hands them to the parts of the page.
import { drawCharts, redrawCharts } from "./charts.js";
import { showHelp } from "./detail.js";
import { updateDecisions, updateHeader, updateNodes, updateRecovery, updateStorage } from "./panels.js";
import { recolour, updateQueries, updateStrips } from "./queries.js";
import { drawTopology, updateTopology } from "./topology.js";

const get = (id) => document.getElementById(id);
const SECTIONS = ["overview", "recovery", "decisions", "topology", "queries", "nodes", "storage"];
let now = null;

function follow() {
  const events = new EventSource("/api/stream");
  events.addEventListener("topology", (message) => drawTopology(JSON.parse(message.data), now));
  events.addEventListener("history", (message) => {
    const history = JSON.parse(message.data);
    drawCharts(history);
    updateStrips(history);
  });
  events.addEventListener("now", (message) => {
    now = JSON.parse(message.data);
    updateHeader(now);
    updateTopology(now);
    updateQueries(now);
    updateNodes(now);
    updateRecovery(now);
    updateDecisions(now);
    updateStorage(now);
    document.body.dataset.version = now.version;
  });
  // The browser connects again by itself; until then the page says that what it shows is old.
  events.addEventListener("error", () => {
    get("driver").textContent = "dashboard not reachable";
    get("driver").className = "badge offline";
  });
}

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  get("theme").textContent = theme === "dark" ? "light" : "dark";
  try { localStorage.setItem("resurge-theme", theme); } catch { /* storage may be off */ }
  redrawCharts();
  recolour();
}

const turnTheme = () => setTheme(document.documentElement.dataset.theme === "dark" ? "light" : "dark");

function goTo(section) {
  get(section).scrollIntoView();
  get(section).focus({ preventScroll: true });
  history.replaceState(null, "", `#${section}`);
}

addEventListener("keydown", (key) => {
  if (key.ctrlKey || key.metaKey || key.altKey || get("detail").open || /^(INPUT|SELECT|TEXTAREA)$/.test(key.target.tagName)) return;
  if (key.key >= "1" && key.key <= "7") goTo(SECTIONS[Number(key.key) - 1]);
  else if (key.key === "d") turnTheme();
  else if (key.key === "?") showHelp();
  else if (key.key === "/") { key.preventDefault(); goTo("queries"); get("query-filter").focus(); }
});

get("theme").addEventListener("click", turnTheme);
get("theme").textContent = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
get("help").addEventListener("click", showHelp);
get("node-filter").addEventListener("input", () => now && updateNodes(now));
get("node-lost").addEventListener("change", () => now && updateNodes(now));
get("decision-kind").addEventListener("change", () => now && updateDecisions(now));
get("detail").addEventListener("click", (click) => { if (click.target === get("detail")) get("detail").close(); });
addEventListener("beforeprint", () => setTheme("light"));

const seen = new IntersectionObserver((entries) => {
  for (const entry of entries) if (entry.isIntersecting) {
    for (const link of document.querySelectorAll("nav a")) link.classList.toggle("here", link.hash === `#${entry.target.id}`);
  }
}, { rootMargin: "-20% 0px -70% 0px" });
for (const section of SECTIONS) seen.observe(get(section));
follow();
