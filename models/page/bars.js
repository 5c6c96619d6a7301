// Bars: where the step goes (a waterfall from work to the step), and the memory of each stage.
"use strict";

// The purposes of a step, in the order of the waterfall: key of the data, words, colour.
const PURPOSES = [["compute_s", "compute", "compute"], ["recompute_s", "recompute", "recompute"],
  ["exposed_tensor_parallel_s", "exposed tensor parallel", "tensor"],
  ["exposed_expert_parallel_s", "exposed expert parallel", "expert"],
  ["exposed_context_parallel_s", "exposed context parallel", "context"],
  ["exposed_pipeline_parallel_s", "exposed pipeline", "pipeline"],
  ["exposed_data_parallel_s", "exposed data parallel", "data"], ["exposed_offload_s", "exposed offload", "offload"],
  ["bubble_s", "bubble", "bubble"], ["waiting_for_slower_s", "waiting for slower", "waiting"],
  ["optimizer_s", "optimizer", "optimizer"]];

// "exposed TP" of "exposed tensor parallel", where there is little room.
const shorter = (words) => words.replace(/(\w)\w* parallel$/, (_, letter_of) => letter_of.toUpperCase() + "P");

// Those that take time in any of the scenarios.
function purposes_shown() {
  return PURPOSES.filter(([key]) => DATA.scenarios.some((side) =>
    side.simulate.all_chips[key] > 0.0005 * side.simulate.iteration_s ||
    side.simulate.breakdown.some((row) => row[key] > 0.0005 * side.simulate.iteration_s)));
}

function draw_waterfall_of(side, longest_s) {
  const all = side.simulate.all_chips, step_s = side.simulate.iteration_s;
  return plot(`Where the step of ${side.scenario} goes, of all chips`, (svg, width) => {
    const narrow = width < 460, left = narrow ? 112 : 170, right = 128, row = 24, rows = purposes_shown();
    const x = d3.scale.linear().domain([0, longest_s]).range([left, width - right]);
    let begin_s = 0, y = 4;
    const add = (words, from_s, length_s, tint, bold) => {
      const line = svg.append("g");
      line.append("text").attr("x", left - 8).attr("y", y + 15).attr("text-anchor", "end").text(words)
        .style("font-weight", bold ? 600 : null);
      line.append("rect").attr("x", x(from_s)).attr("y", y + 2).attr("height", row - 6)
        .attr("width", Math.max(0.5, x(from_s + length_s) - x(from_s))).style("fill", `var(--${tint})`);
      line.append("text").attr("x", x(from_s + length_s) + 6).attr("y", y + 15).style("font-weight", bold ? 600 : null)
        .text(`${seconds(length_s)}, ${percent(length_s / step_s)}`);
      y += row;
    };
    for (const [key, words, tint] of rows) {
      add(narrow ? shorter(words) : words, begin_s, all[key], tint);
      begin_s += all[key];
      svg.append("line").attr("x1", x(begin_s)).attr("x2", x(begin_s)).attr("y1", y - 4).attr("y2", y + 2)
        .style("stroke", "var(--line)");
    }
    add("step", 0, step_s, "quiet", true);
    add_axis(svg, axis_of(x, "bottom", Math.max(2, Math.floor((width - left - right) / 90)), tick_seconds), 0, y + 4);
    return y + 32;
  });
}

function draw_stage_table(side) {
  const shown = purposes_shown(), simulate = side.simulate;
  const unlike = new Set(simulate.breakdown.map((row) => row.chip)).size > 1;
  return table_of([["stage", (row) => row.stage], ["rank", (row) => row.rank, "number"],
    ...(unlike ? [["on", (row) => row.chip ? `${row.group} (${row.chip})` : ""]] : []),
    ...shown.map(([key, words]) => [shorter(words), (row) => row.share ? percent(row[key] / simulate.iteration_s)
      : seconds(row[key]), "number"]),
    ["sum", (row) => row.share ? "" : seconds(shown.reduce((sum, [key]) => sum + row[key], 0)), "number"]],
  [...simulate.breakdown, {...simulate.all_chips, stage: "all chips", rank: "", share: true,
    attributes: {class: "total"}}]);
}

function finding_of(side) {
  const finding = side.simulate.finding;
  const words = finding.bound_by.replace(/_/g, " ");
  return finding.bound_by === "compute" ? `The step is bound by compute: ${percent(finding.share)} of it.`
    : `Computing is ${percent(side.simulate.all_chips.compute_s / side.simulate.iteration_s)} of the step; most is ` +
      `lost to ${words} (${percent(finding.share)}).`;
}

function draw_waterfall() {
  const longest_s = Math.max(...DATA.scenarios.map((side) => side.simulate.iteration_s));
  const waits = (side) => side.simulate.waits.filter((wait) =>
    wait.waiting_for_slower_s > 0.01 * side.simulate.iteration_s).slice(0, 4).map((wait) =>
    el("p", {class: "quiet"}, `Rank ${wait.rank} (stage ${wait.stage}, ${wait.chip}) waits ` +
      `${percent(wait.waiting_for_slower_s / side.simulate.iteration_s)} of the step for slower ranks, longest for ` +
      `rank ${wait.slower_rank} (stage ${wait.slower_stage}, ${wait.slower_chip}).`));
  return section("where", "Where the step goes",
    el("p", {class: "quiet"}, "The mean of all chips. `Exposed` is communication that no work of the chip hides."),
    el("div", {class: DATA.scenarios.length > 1 ? "pair" : ""}, for_each_side((side) =>
      [el("p", {}, finding_of(side)), draw_waterfall_of(side, longest_s), waits(side)])),
    el("h3", {}, "By stage, of the rank that works most"), for_each_side(draw_stage_table));
}

// What a chip holds: words, colour, bytes of a row.
const HELD = [["parameters", "compute", (row) => row.parameters], ["gradients", "backward", (row) => row.gradients],
  ["optimizer", "optimizer", (row) => row.optimizer], ["activations", "tensor", (row) => row.activations],
  ["beyond tensors", "waiting", (row) => row.buffers + row.buckets + row.runtime + row.fragmentation]];

function draw_memory_of(side, most) {
  return plot(`Memory of the fullest chip of each stage of ${side.scenario}`, (svg, width) => {
    const left = 70, right = 78, row = side.simulate.memory.length > 24 ? 14 : 24;
    const x = d3.scale.linear().domain([0, most]).range([left, width - right]);
    let y = 4;
    for (const stage of side.simulate.memory) {
      svg.append("text").attr("x", left - 8).attr("y", y + row / 2 + 3).attr("text-anchor", "end")
        .text(`stage ${stage.stage}`);
      let held = 0;
      for (const [words, tint, value] of HELD) {
        svg.append("rect").attr("x", x(held)).attr("y", y + 2).attr("height", row - 6)
          .attr("width", Math.max(0, x(held + value(stage)) - x(held))).style("fill", `var(--${tint})`)
          .append("title").text(`stage ${stage.stage}, ${words}: ${bytes(value(stage))}`);
        held += value(stage);
      }
      svg.append("line").attr("x1", x(stage.capacity)).attr("x2", x(stage.capacity))
        .attr("y1", y).attr("y2", y + row - 2).style("stroke", "var(--bad)").style("stroke-width", 2)
        .append("title").text(`capacity ${bytes(stage.capacity)}`);
      svg.append("text").attr("x", width - right + 10).attr("y", y + row / 2 + 3).text(percent(stage.fraction));
      y += row;
    }
    const step = 2 ** Math.ceil(Math.log2(most / Math.max(2, Math.floor((width - left - right) / 80))));
    const axis = axis_of(x, "bottom", 5, (value) => short(bytes(value))).tickValues(d3.range(0, most * 1.0001, step));
    add_axis(svg, axis, 0, y + 4);
    return y + 32;
  });
}

function draw_memory() {
  const most = Math.max(...DATA.scenarios.flatMap((side) =>
    side.simulate.memory.flatMap((row) => [row.capacity, row.peak])));
  const table = (side) => table_of([["stage", (row) => row.stage],
    ...HELD.map(([words, , value]) => [words, (row) => bytes(value(row)), "number"]),
    ["peak", (row) => bytes(row.peak), "number"], ["capacity", (row) => bytes(row.capacity), "number"],
    ["used", (row) => percent(row.fraction), "number"],
    ...(side.simulate.memory.some((row) => row.host > 0) ? [["in the memory of a node", (row) => bytes(row.host) +
      (row.host_capacity > 0 ? " of " + bytes(row.host_capacity) : ""), "number"]] : [])], side.simulate.memory);
  return section("memory", "Memory of a chip, by stage",
    el("p", {class: "quiet"}, "At its peak. The red line is what the chip has. `Beyond tensors` is what buffers of ",
      "the communication library, the driver and fragmentation take."),
    legend_of(HELD.map(([words, tint]) => [words, tint])),
    for_each_side((side) => [draw_memory_of(side, most), table(side)]));
}
