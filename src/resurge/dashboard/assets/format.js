// Numbers as people read them, and elements without markup from data.
export const unknown = "–";

export function rows(value) {
  if (value === null || value === undefined) return unknown;
  for (const [size, unit] of [[1e9, "G"], [1e6, "M"], [1e4, "k"]]) {
    if (Math.abs(value) >= size) return `${(value / (size === 1e4 ? 1e3 : size)).toPrecision(3)} ${unit}`;
  }
  return Math.round(value).toLocaleString("en");
}

export function bytes(value) {
  if (value === null || value === undefined) return unknown;
  for (const [size, unit] of [[1e12, "TB"], [1e9, "GB"], [1e6, "MB"], [1e3, "kB"]]) {
    if (value >= size) return `${(value / size).toPrecision(3)} ${unit}`;
  }
  return `${Math.round(value)} B`;
}

export function seconds(value) {
  if (value === null || value === undefined) return unknown;
  if (value < 0.9995) return `${Math.round(value * 1000)} ms`;
  if (value < 119.5) return `${Number(value.toPrecision(3))} s`;
  const whole = Math.round(value);
  for (const [size, unit, small, word] of [[86400, "d", 3600, "h"], [3600, "h", 60, "min"], [60, "min", 1, "s"]]) {
    if (whole >= size) {
      const rest = Math.floor((whole % size) / small);
      return `${Math.floor(whole / size)} ${unit}${rest ? ` ${rest} ${word}` : ""}`;
    }
  }
  return `${whole} s`;
}

export const times = (value) => (value === null || value === undefined ? unknown : `${value < 10 ? value.toFixed(1) : Math.round(value)}×`);
export const percent = (value) => (value === null || value === undefined ? unknown : `${Math.round(value * 100)} %`);
export const clock = (at) => (at ? new Date(at * 1000).toLocaleTimeString("en-GB") : unknown);
export const moment = (at) => (at ? new Date(at * 1000).toLocaleString("en-GB") : unknown);
export const plural = (count, one, many = `${one}s`) => `${count.toLocaleString("en")} ${count === 1 ? one : many}`;

// Text is set as text and never as markup: names come from users.
export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

export function shape(tag, attributes = {}, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

export function facts(pairs) {
  return element("dl", { class: "facts" }, ...pairs.flatMap(([name, value]) => [element("dt", {}, name), element("dd", {}, value)]));
}

export function table(header, body, numbers = []) {
  const cell = (tag) => (value, index) => element(tag, { class: numbers.includes(index) ? "number" : null }, value);
  return element("table", { class: "plain" },
    element("thead", {}, element("tr", {}, ...header.map(cell("th")))),
    element("tbody", {}, ...body.map((row) => element("tr", {}, ...row.map(cell("td"))))));
}
