// The head of the page: what is predicted, the figures that people ask for first, and two scenarios side by side.
"use strict";

const fullest = (side) => side.simulate.memory.reduce((most, each) => each.fraction > most.fraction ? each : most);

function software_of(side) {
  const interval = side.simulate.interval;
  if (!interval) return "The step is predicted by the chips' own figures; no published run is like it.";
  if (interval.regime === "measured")
    return "Kernels of its chips were measured; below stands how far the step rests on them.";
  if (interval.software === "usual")
    return "The scenario names no software, so the usual one is predicted: the mean of those whose runs are published.";
  return interval.software ? `The software that is predicted is ${interval.software}.`
    : "The step is predicted by the chips' own figures, without any software's.";
}

function job_of(side) {
  const simulate = side.simulate;
  return `${side.model} on ${side.cluster}: ${grouped(simulate.chips)} chips, ${side.degrees}, schedule ` +
    `${side.schedule}, ${grouped(side.global_batch)} sequences of ${grouped(side.sequence)} tokens a step.`;
}

// A price at both ends of the likely interval.
function likely_price(usd, simulate) {
  const interval = simulate.interval;
  if (!interval) return "";
  const at = (step_s) => dollars(usd * step_s / simulate.iteration_s);
  return `likely ${at(interval.low_s)} to ${at(interval.high_s)}; `;
}

// [label, text, further text, figure to compare, whether less is better].
function headline_rows(side) {
  const simulate = side.simulate, spending = simulate.spending, full = fullest(side), interval = simulate.interval;
  const rows = [["Step", seconds(simulate.iteration_s),
    interval ? `likely ${seconds(interval.low_s)} to ${seconds(interval.high_s)}` : "no interval is known",
    simulate.iteration_s]];
  if (simulate.own_figures_s)
    rows.push(["At best", seconds(simulate.own_figures_s), "by the chips' own figures: a bound, software comes on top",
      simulate.own_figures_s]);
  rows.push(["Tokens", count(simulate.tokens_per_s) + "/s", count(simulate.tokens_per_s_per_chip) + "/s a chip",
    simulate.tokens_per_s]);
  rows.push(["MFU", percent(simulate.mfu),
    `HFU ${percent(simulate.hfu)}, ${flops(simulate.tflops_per_chip * 1e12)} a chip`, simulate.mfu]);
  const usd = spending.usd_per_billion_tokens;
  rows.push(["A billion tokens", usd === null ? "price unknown" : dollars(usd),
    usd === null ? `no price: ${spending.unpriced.join(", ")}`
      : `${likely_price(usd, simulate)}${dollars(spending.usd_per_step)} a step, list prices`, usd]);
  const kwh = spending.kwh_per_billion_tokens;
  if (kwh !== null) rows.push(["Energy", amount(kwh, "kWh"), "a billion tokens, estimated", kwh]);
  const carbon = spending.kg_co2e_per_billion_tokens;
  if (carbon !== null) rows.push(["Carbon", amount(carbon, "kg CO2e"), "a billion tokens, estimated", carbon]);
  rows.push(["Fullest chip", percent(full.fraction),
    `stage ${full.stage}: ${bytes(full.peak)} of ${bytes(full.capacity)}`, full.fraction]);
  rows.push(["Chips", grouped(simulate.chips), `${grouped(side.ranks)} ranks`, simulate.chips]);
  return rows;
}

function variation_of(side) {
  const spread = side.simulate.variation;
  if (!spread) return null;
  return el("p", {}, `Speeds vary (${spread.parts}): ${seconds(spread.mean_s)} on average, ` +
    `${seconds(spread.p5_s)} to ${seconds(spread.p95_s)} in 9 of 10 draws; ` +
    `${seconds(spread.alike_s)} if all were alike.`);
}

// What a measured chip's prediction rests on, other draws of the routes, and a whole run, where they are known.
function further_of(side) {
  const {coverage, route_draws: draws, spending} = side.simulate, run = spending.run, lines = [];
  if (coverage)
    lines.push("The busy seconds of all ranks are " + Object.entries(coverage).filter(([, share]) => share > 0)
      .map(([known, share]) => `${percent(share)} ${known}`).join(", ") + ".");
  if (draws && draws.others)
    lines.push(`Routes are chosen by a hash: ${draws.others} other draws take ${seconds(draws.least_s)} to ` +
      `${seconds(draws.most_s)}.`);
  if (run)
    lines.push(`The whole run of ${count(run.tokens)} tokens takes ${grouped(run.steps)} steps and ` +
      `${seconds(run.seconds)}, at a goodput of ${run.goodput}` + (run.usd === null ? "." : `; ${dollars(run.usd)}.`));
  for (const note of side.simulate.notes || []) lines.push(`Note: ${note}.`);
  return lines.map((words) => el("p", {}, words));
}

function describe_side(side) {
  return [el("p", {}, job_of(side)),
    side.settings.length ? el("p", {class: "quiet"}, "With ", side.settings.join(", "), ".") : null,
    el("p", {class: "quiet"}, software_of(side), " ",
      side.likely ? `The step is likely ${side.likely.split(";")[0]}.` : ""), variation_of(side), further_of(side)];
}

function draw_cards(side) {
  return el("div", {class: "cards"}, headline_rows(side).map(([label, value, more]) =>
    el("div", {class: "card"}, el("div", {class: "label"}, label), el("div", {class: "value"}, value),
      el("div", {class: "more"}, more))));
}

function draw_comparison() {
  const [a, b] = DATA.scenarios.map(headline_rows);
  const labels = [...new Set([...a, ...b].map(([label]) => label))];
  const cell = (rows, label) => rows.find((row) => row[0] === label);
  const words = (row) => row ? [row[1], el("br"), el("span", {class: "quiet"}, row[2])] : "unknown";
  const ratio = (label) => {
    const left = cell(a, label), right = cell(b, label);
    return left && right && left[3] > 0 && right[3] !== null ? three_digits(right[3] / left[3]) : "";
  };
  return table_of([["", (row) => row.label],
    ["A: " + DATA.scenarios[0].scenario, (row) => words(cell(a, row.label)), "words"],
    ["B: " + DATA.scenarios[1].scenario, (row) => words(cell(b, row.label)), "words"],
    ["B / A", (row) => ratio(row.label), "number"]], labels.map((label) => ({label})));
}

function draw_headline() {
  const sides = DATA.scenarios;
  const title = el("h1", {}, sides.map((side) => side.scenario).join(" beside "));
  if (sides.length === 1) return [title, describe_side(sides[0]), draw_cards(sides[0])];
  return [title, sides.map((side, place) => [el("h3", {}, letter(place) + ": " + side.scenario), describe_side(side)]),
    draw_comparison()];
}
