// What would help, why one of two scenarios is faster, and where every figure comes from; then the page as a whole.
"use strict";

function gain(share) {
  return el("span", {class: share < -0.0005 ? "good" : share > 0.0005 ? "bad" : "quiet"}, change(share));
}

const simulated_columns = [["step", (row) => row.iteration_s ? seconds(row.iteration_s) : "", "number"],
  ["change", (row) => row.iteration_s ? gain(row.change) : "", "number"]];

function draw_changes(explain) {
  if (explain.changes.length === 0) return el("p", {}, "No other strategy was simulated.");
  const stands = explain.changes.filter((row) => row.iteration_s);
  const refused = explain.changes.filter((row) => row.refused);
  return [table_of([["change", (row) => el("code", {}, row.what)], ...simulated_columns], stands),
    refused.length === 0 ? null : el("details", {}, el("summary", {}, `${refused.length} changes are impossible`),
      table_of([["change", (row) => el("code", {}, row.what)], ["why", (row) => row.refused, "source"]], refused))];
}

function draw_parts(explain) {
  if (explain.levers.length === 0) return el("p", {}, "No better part was simulated.");
  const figure = (what, value) => value === null ? "" : /FLOP/.test(what) ? flops(value) :
    /latency|overhead/.test(what) ? seconds(value) : rate(value);
  const columns = [["part", (row) => row.what], ["where", (row) => row.where],
    ["is", (row) => figure(row.what, row.value), "number"],
    ["becomes", (row) => figure(row.what, row.better), "number"], ...simulated_columns];
  const together = [...explain.levers_together, ...(explain.all_levers ? [explain.all_levers] : [])];
  const best = explain.levers.slice(0, 8), rest = explain.levers.slice(8);
  return [table_of(columns, best),
    rest.length === 0 ? null : el("details", {}, el("summary", {}, `${rest.length} more parts`),
      table_of(columns, rest)),
    together.length === 0 ? null : el("details", {}, el("summary", {}, "Several parts together"),
      table_of(columns, together))];
}

function draw_remedies() {
  const by = ((DATA.scenarios[0].explain.better_by - 1) * 100).toPrecision(3) * 1;
  return section("remedies", "What would make the step shorter",
    el("p", {class: "quiet"}, "Each row is a simulation with this one thing changed; gains do not add up."),
    for_each_side((side) => [el("h3", {}, "Other strategies"), draw_changes(side.explain),
      el("h3", {}, `Better parts, each by ${by} %`), draw_parts(side.explain)]));
}

function draw_path_difference(why) {
  const name = (row) => row.spent_on + (row.recompute ? " (recompute)" : "") + (row.on ? " on " + row.on : "");
  return table_of([["on the critical path", name], ["A", (row) => seconds(row.a_s), "number"],
    ["B", (row) => seconds(row.b_s), "number"],
    ["B - A", (row) => (row.b_minus_a_s > 0 ? "+" : "") + seconds(row.b_minus_a_s), "number"]],
  why.critical_path.filter((row) => row.a_s > 0 || row.b_s > 0));
}

// What one scenario would take with a part of the other.
function draw_swaps(parts) {
  const result = (trial) => trial.refused ? el("span", {class: "quiet"}, "impossible: ", trial.refused)
    : [seconds(trial.iteration_s), ", ", gain(trial.change)];
  const columns = [["part", (part) => part.part], ["A with this of B", (part) => result(part.a_with_b), "words"],
    ["B with this of A", (part) => result(part.b_with_a), "words"]];
  const stands = parts.filter((part) => !part.a_with_b.refused || !part.b_with_a.refused);
  const refused = parts.filter((part) => !stands.includes(part));
  return [el("h3", {}, "Each with a part of the other, simulated"),
    stands.length ? table_of(columns, stands) : el("p", {}, "No part of one suits the other."),
    refused.length ? el("details", {}, el("summary", {}, `${refused.length} more are impossible both ways`),
      table_of(columns, refused)) : null];
}

function draw_differences(part) {
  const keys = table_of([["key", (row) => el("code", {}, row.key)], ["A", (row) => row.a === null ? "-" : row.a],
    ["B", (row) => row.b === null ? "-" : row.b]], part.keys);
  return [el("h3", {}, `They differ in ${part.part}`),
    part.keys.length <= 12 ? keys : el("details", {}, el("summary", {}, `${part.keys.length} values differ`), keys)];
}

function draw_why() {
  const why = DATA.why, [a, b] = DATA.scenarios.map((side) => side.simulate);
  const shorter = b.iteration_s < a.iteration_s ? "B" : "A";
  const tokens = why.a_tokens === why.b_tokens ? "" :
    ` A step of A has ${count(why.a_tokens)} tokens, one of B ${count(why.b_tokens)}: A makes ` +
    `${count(a.tokens_per_s)} tokens/s, B ${count(b.tokens_per_s)}/s.`;
  return section("why", "Why one is faster",
    el("p", {}, `A step of ${shorter} is shorter: ${seconds(a.iteration_s)} for A, ${seconds(b.iteration_s)} for B.` +
      tokens + " The seconds of the two critical paths add up to the two steps."),
    draw_path_difference(why), draw_swaps(why.parts),
    why.parts.filter((part) => part.keys.length > 0).map(draw_differences));
}

function draw_sources() {
  const by_part = (figures) => d3.nest().key((row) => row.part).entries(figures);
  return section("sources", "Where the figures come from",
    el("p", {class: "quiet"}, "The figures of the chips, nodes and wires that the prediction uses, with the sources ",
      "that their files give."),
    for_each_side((side) => by_part(side.figures).map(({key, values}) =>
      el("details", {}, el("summary", {}, `${key}: ${values.length} ${values.length === 1 ? "figure" : "figures"}`),
        table_of([["figure", (row) => row.figure], ["value", (row) => row.value],
          ["source", (row) => row.source || "its file names none", "source"]], values)))),
    el("p", {class: "quiet"}, `Written by motley ${DATA.version}. Strategy `,
      DATA.scenarios.map((side) => side.simulate.strategy_hash).join(" and "), ", program ",
      DATA.scenarios.map((side) => side.simulate.program_hash).join(" and "), "."));
}

function draw_page() {
  const two = DATA.scenarios.length > 1;
  const sections = [...(two ? [draw_waterfall(), draw_why(), draw_timeline()] : [draw_timeline(), draw_waterfall()]),
    draw_memory(), draw_network(),
    draw_rooflines(), two ? null : draw_remedies(), draw_sources()].filter((each) => each !== null);
  const links = el("nav", {"aria-label": "Sections"}, sections.map((each) =>
    el("a", {href: "#" + each.id}, each.querySelector("h2").textContent)));
  document.getElementById("page").replaceChildren(...draw_headline().flat(3).filter((each) => each !== null), links,
    ...sections);
  const redraw = () => PLOTS.forEach((each) => each());
  redraw();
  let width = window.innerWidth;
  window.addEventListener("resize", () => {
    if (window.innerWidth === width) return;
    width = window.innerWidth;
    redraw();
  });
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
}

document.addEventListener("DOMContentLoaded", draw_page);
