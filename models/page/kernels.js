// The network and the kernels: what a step moves over which wire, and a roofline of each chip.
"use strict";

function draw_network() {
  const busy = (side) => (use) => {
    const share = use.busy_s / side.simulate.iteration_s;
    return el("span", {}, el("span", {class: "swatch", style: "height: 10px; " +
      `background: var(--tensor); width: ${Math.max(1, 90 * Math.min(1, share))}px`}), percent(share));
  };
  return section("network", "What moves between chips",
    el("p", {class: "quiet"}, "Payload that a step is expected to use, of all ranks: messages count once, collectives ",
      "once for each member, whatever their algorithm sends of it. Busy is the share of the step in which bytes of a ",
      "rank that uses the wire are under way, hidden or not, the mean. A collective stands at the slowest edge of its ",
      "group."),
    for_each_side((side) => side.network.length === 0 ? el("p", {}, "Nothing moves between chips.") :
      table_of([["for", (use) => use.purpose + (use.inside_computes ? ", inside computes" : "")],
        ["wire", (use) => use.on], ["of", (use) => use.group],
        ["ranks", (use) => grouped(use.ranks), "number"],
        ["payload a step", (use) => bytes(use.bytes), "number"],
        ["messages", (use) => count(use.count), "number"],
        ["one flow alone", (use) => rate(use.rate), "number"],
        ["busy", busy(side)]], side.network)));
}

const BOUNDS = {compute: ["compute", "FLOP/s"], memory: ["backward", "memory bandwidth"],
  overhead: ["tensor", "overhead"]};

function roofline_scales(roof, points, width, height, box) {
  const intensities = points.map((point) => point.flops / point.bytes);
  const ridge = Math.max(...roof.peaks.map((peak) => peak.flops)) / roof.memory_bandwidth;
  const reached = points.map((point) => point.flops / point.seconds);
  const least = Math.min(...intensities, ridge / 4) / 2, most = Math.max(...intensities, ridge * 4) * 2;
  const top = Math.max(...roof.peaks.map((peak) => peak.flops)) * 2;
  return [d3.scale.log().domain([least, most]).range([box.left, width - box.right]),
    d3.scale.log().domain([Math.min(...reached, top / 20) / 1.5, top]).range([height - box.bottom, box.top])];
}

// A ceiling: along the bandwidth up to the peak, then along the peak.
function add_ceiling(svg, x, y, bandwidth, peak, words, dashed) {
  const [least, most] = x.domain(), low = y.domain()[0], from = Math.max(least, low / bandwidth);
  const corner = peak / bandwidth;
  const line = [[from, bandwidth * from], [corner, peak], [most, peak]];
  svg.append("path").attr("d", d3.svg.line().x((d) => x(d[0])).y((d) => y(d[1]))(line))
    .style({fill: "none", stroke: "var(--quiet)", "stroke-width": 1.5, "stroke-dasharray": dashed ? "4 4" : null});
  if (words)
    svg.append("text").attr("class", "quiet").attr("x", x(least) + 8).attr("y", y(peak) + 4).text(words);
}

// Points that lie on one another, as one: their place and their names; those that take longest first.
function heaps_of(points, x, y) {
  const heaps = [];
  for (const point of points) {
    const cx = x(point.flops / point.bytes), cy = y(point.flops / point.seconds);
    const heap = heaps.find((other) => Math.hypot(other.cx - cx, other.cy - cy) < 5);
    if (heap) heap.name += ", " + point.kernel;
    else heaps.push({cx, cy, name: point.kernel});
  }
  return heaps;
}

// Names of the points that take longest, where there is room for them.
function add_names(svg, x, y, points, width) {
  const heaps = heaps_of(points, x, y), taken = heaps.map(({cx, cy}) => [cx - 6, cy - 6, cx + 6, cy + 6]);
  for (const {cx, cy, name} of heaps.slice(0, 8)) {
    const wide = 6.3 * name.length;
    for (const [dx, dy] of [[11, 4], [-11 - wide, 4], [-wide / 2, 22], [-wide / 2, -14], [9, 20], [-9 - wide, 20],
      [9, -12], [-9 - wide, -12], [-wide / 2, 38], [-wide, 22], [-wide, 38], [-wide, -14], [-wide / 2, 54],
      [-wide, 54]]) {
      const box = [cx + dx, cy + dy - 10, cx + dx + wide, cy + dy + 3];
      if (box[0] < x.range()[0] || box[2] > width - 4 || box[3] > y.range()[0] ||
          taken.some((other) => box[0] < other[2] && box[2] > other[0] && box[1] < other[3] && box[3] > other[1]))
        continue;
      taken.push(box);
      svg.append("text").attr("class", "name").attr("x", cx + dx).attr("y", cy + dy).text(name);
      break;
    }
  }
}

function draw_roofline_of(roof) {
  const points = roof.kernels.filter((point) => point.flops > 0 && point.bytes > 0 && point.seconds > 0);
  if (points.length === 0 || roof.peaks.length === 0) return null;
  return plot(`Roofline of ${roof.chip}; the table below has its points`, (svg, width) => {
    const height = 300, box = {left: 88, right: 14, top: 16, bottom: 44};
    const [x, y] = roofline_scales(roof, points, width, height, box);
    for (const peak of roof.peaks) {
      add_ceiling(svg, x, y, roof.memory_bandwidth, peak.flops, `${peak.format}: ${flops(peak.flops)}`, false);
      if (peak.reachable > 0 && roof.reachable_bandwidth > 0)
        add_ceiling(svg, x, y, roof.memory_bandwidth * roof.reachable_bandwidth, peak.flops * peak.reachable, "", true);
    }
    const size = d3.scale.sqrt().domain([0, d3.max(points, (point) => point.seconds)]).range([2.5, 9]);
    svg.selectAll("circle").data(points).enter().append("circle")
      .attr("cx", (point) => x(point.flops / point.bytes)).attr("cy", (point) => y(point.flops / point.seconds))
      .attr("r", (point) => size(point.seconds))
      .style({"fill-opacity": 0.75, stroke: "var(--ground)"})
      .style("fill", (point) => `var(--${BOUNDS[point.bound_by][0]})`)
      .append("title").text((point) => `${point.kernel}: ${flops(point.flops / point.seconds)}, ` +
        `${three_digits(point.flops / point.bytes)} FLOP a byte, ${seconds(point.seconds)} of a step`);
    add_names(svg, x, y, points, width);
    const powers = (scale) => d3.range(Math.ceil(Math.log10(scale.domain()[0]) - 1e-9),
      Math.floor(Math.log10(scale.domain()[1]) + 1e-9) + 1).map((power) => 10 ** power);
    const below = axis_of(x, "bottom", 5, (value) => short(count(value))).tickValues(powers(x));
    add_axis(svg, below, 0, height - box.bottom);
    add_axis(svg, axis_of(y, "left", 5, (value) => short(flops(value))).tickValues(powers(y)), box.left, 0);
    svg.append("text").attr("class", "quiet").attr("x", width - box.right).attr("y", height - 6)
      .attr("text-anchor", "end").text("FLOP for each byte of memory");
    return height;
  });
}

function kernel_table(roof) {
  const all_s = roof.kernels.reduce((sum, point) => sum + point.seconds, roof.network_s + roof.optimizer_s);
  const bandwidth = (point) => point.bytes > 0 && point.seconds > 0 ? rate(point.bytes / point.seconds) : "-";
  const further = [["collectives", roof.network_s], ["optimizer", roof.optimizer_s]]
    .filter(([, s]) => s > 0).map(([kernel, s]) => ({kernel, seconds: s, further: true}));
  const unless = (words) => (point) => point.further ? "" : words(point);
  const reached = (point) => point.flops > 0 && point.seconds > 0 ? flops(point.flops / point.seconds) : "-";
  const columns = [["kernel", (point) => point.kernel], ["count", unless((point) => grouped(point.count)), "number"],
    ["time", (point) => seconds(point.seconds), "number"],
    ["share", (point) => percent(point.seconds / all_s), "number"],
    ["bound by", unless((point) => point.bound_by)],
    ["FLOP", unless((point) => point.flops > 0 ? count(point.flops) : "-"), "number"],
    ["bytes", unless((point) => bytes(point.bytes)), "number"],
    ["reaches", unless(reached), "number"], ["moves", unless(bandwidth), "number"]];
  const rows = [...roof.kernels, ...further].sort((a, b) => b.seconds - a.seconds);
  const shown = DATA.scenarios.length === 1 && DATA.scenarios[0].rooflines.length === 1 ? 10 : 0;
  const hidden = rows.slice(shown);
  return [shown ? table_of(columns, rows.slice(0, shown)) : null, hidden.length === 0 ? null
    : el("details", {}, el("summary", {}, shown ? `${hidden.length} more` : `All kernels on ${roof.chip}, as text`),
      table_of(columns, hidden))];
}

function draw_rooflines() {
  return section("kernels", "Kernels beside the chip's peaks",
    el("p", {class: "quiet"}, "A point is all kernels of one kind in a step of one rank of each stage on the chip, by ",
      "the cost models; its size is the time they take. The solid line is the datasheet, the dashed line what large ",
      "matrix products and element-wise kernels reach. Kernels without counted FLOPs are in the table only."),
    legend_of(Object.entries(BOUNDS).filter(([bound]) => DATA.scenarios.some((side) => side.rooflines.some((roof) =>
      roof.kernels.some((point) => point.flops > 0 && point.bound_by === bound))))
      .map(([, [tint, words]]) => ["bound by " + words, tint])),
    for_each_side((side) => el("div", {class: side.rooflines.length > 1 ? "pair" : ""}, side.rooflines.map((roof) =>
      el("div", {}, el("h3", {}, `${roof.chip}, memory ${rate(roof.memory_bandwidth)}`), draw_roofline_of(roof),
        kernel_table(roof))))));
}
