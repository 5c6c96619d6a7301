// What all parts of the page share: the data, elements, and numbers as `motley` prints them. Every text of the data
// becomes a text node, never markup. The functions draw_*() of the other files each make one section.
"use strict";

const DATA = JSON.parse(document.getElementById("data").textContent);

// el("td", {class: "number"}, "4"): an element with attributes, and with texts or elements inside.
function el(tag, attributes, ...inside) {
  const element = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes || {}))
    if (value !== undefined && value !== null) element.setAttribute(key, value);
  for (const each of inside.flat(Infinity))
    if (each !== undefined && each !== null && each !== "")
      element.append(each instanceof Node ? each : String(each));
  return element;
}

function three_digits(value) {
  const size = Math.abs(value);
  if (size >= 99.95) return value.toFixed(0);
  return value.toFixed(size >= 9.995 ? 1 : size >= 0.9995 || size === 0 ? 2 : 3);
}

function with_unit(value, base, units) {
  let unit = 0;
  while (unit + 1 < units.length && Math.abs(value) >= base * 0.9995) {
    value /= base;
    ++unit;
  }
  return (unit === 0 && Number.isInteger(value) ? String(value) : three_digits(value)) + " " + units[unit];
}

function seconds(s) {
  const size = Math.abs(s);
  if (s === 0) return "0 s";
  if (size < 0.9995e-6) return three_digits(s * 1e9) + " ns";
  if (size < 0.9995e-3) return three_digits(s * 1e6) + " us";
  if (size < 0.9995) return three_digits(s * 1e3) + " ms";
  if (size < 120) return three_digits(s) + " s";
  if (size < 7200) return three_digits(s / 60) + " min";
  return size < 172800 ? three_digits(s / 3600) + " h" : three_digits(s / 86400) + " d";
}

// What an axis needs: "2 s" of "2.00 s".
const short = (words) => words.replace(/\.0+ /, " ").replace(/(\.\d*[1-9])0+ /, "$1 ");
const tick_seconds = (s) => short(seconds(s));

const bytes = (value) => with_unit(value, 1024, ["B", "KiB", "MiB", "GiB", "TiB", "PiB"]);
const rate = (value) => with_unit(value, 1000, ["B/s", "kB/s", "MB/s", "GB/s", "TB/s", "PB/s"]);
const flops = (value) =>
  with_unit(value, 1000, ["FLOP/s", "kFLOP/s", "MFLOP/s", "GFLOP/s", "TFLOP/s", "PFLOP/s", "EFLOP/s"]);
const percent = (share) => (100 * share).toFixed(1) + " %";
const change = (share) => (share > 0 ? "+" : "") + percent(share);
const grouped = (value) => String(value).replace(/\B(?=(\d{3})+(?!\d))/g, ",");

function count(value) {
  const units = ["", " k", " M", " B", " T"];
  let unit = 0;
  while (unit + 1 < units.length && Math.abs(value) >= 999.95) {
    value /= 1000;
    ++unit;
  }
  return unit === 0 && Number.isInteger(value) ? String(value) : value.toFixed(1) + units[unit];
}

// Three significant digits of an amount of money or energy.
function amount(value, unit) {
  if (value >= 1e6) return `${count(value)} ${unit}`;
  return `${value >= 100 ? grouped(value.toPrecision(3) * 1) : value.toPrecision(3)} ${unit}`;
}
const dollars = (value) => amount(value, "USD");

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();

// A table. Columns: [heading, function of a row, class]. A function returns a text, an element or a list of them.
function table_of(columns, rows, attributes) {
  const head = el("tr", {}, columns.map(([heading, , kind]) => el("th", {class: kind, scope: "col"}, heading)));
  const body = rows.map((row) => el("tr", row.attributes,
    columns.map(([, cell, kind]) => el("td", {class: kind}, cell(row)))));
  return el("div", {class: "wide"}, el("table", attributes, el("thead", {}, head), el("tbody", {}, body)));
}

function legend_of(items) {
  return el("div", {class: "legend"}, items.map(([name, tint]) =>
    el("span", {}, el("span", {class: "swatch", style: `background: var(--${tint})`}), name)));
}

function section(id, title, ...inside) {
  return el("section", {id}, el("h2", {}, title), inside);
}

// One block for each scenario; its name stands above it where there are two.
function for_each_side(draw) {
  return DATA.scenarios.map((side, place) =>
    el("div", {}, DATA.scenarios.length > 1 ? el("h3", {}, letter(place) + ": " + side.scenario) : null,
      draw(side, place)));
}
const letter = (place) => "AB"[place];

// A plot: an svg that is drawn anew in the width it has. draw(svg, width) returns its height.
const PLOTS = [];
function plot(label, draw) {
  const figure = el("figure", {});
  const redraw = () => {
    const width = Math.max(280, Math.floor(figure.clientWidth || 1100));
    figure.querySelectorAll("svg").forEach((old) => old.remove());
    const svg = d3.select(figure).insert("svg", ":first-child").attr("width", width)
      .attr("role", "img").attr("aria-label", label);
    svg.attr("height", draw(svg, width));
  };
  PLOTS.push(redraw);
  return figure;
}

function axis_of(scale, orient, ticks, words) {
  return d3.svg.axis().scale(scale).orient(orient).ticks(ticks).tickFormat(words).tickSize(5, 0).tickPadding(5);
}

function add_axis(svg, axis, x, y) {
  return svg.append("g").attr("class", "axis").attr("transform", `translate(${x},${y})`).call(axis);
}
