// The timeline: a canvas with a row for each stage, from which a part of the step can be chosen.
"use strict";

// Kinds of instructions, in the order of the data: words, colour, lane of the row.
const KINDS = [["forward", "compute", 0], ["backward", "backward", 0], ["weight gradient", "weight", 0],
  ["optimizer", "optimizer", 0], ["collective", "collective", 1], ["transfer", "transfer", 2],
  ["offload", "offload", 3]];
const LANES = [20, 7, 7, 7];  // heights, in pixels
const GAP = 8;

class Timeline {
  constructor(side) {
    this.data = side.timeline;
    // By row, where stages stand on unlike nodes: the group of the cluster.
    const groups = side.simulate.breakdown.map((row) => row.group);
    this.groups = new Set(groups).size > 1 ? groups : [];
    this.lanes = [0, 1, 2, 3].filter((lane) => this.data.rows.some((row) =>
      row.marks.kind.some((kind) => KINDS[kind][2] === lane)));
    this.tops = {};
    let top = 0;
    for (const lane of this.lanes) {
      this.tops[lane] = top;
      top += LANES[lane] + 1;
    }
    this.row_height = top + GAP;
    this.height = this.data.rows.length * this.row_height + 30;
    this.canvas = el("canvas", {tabindex: 0, role: "img",
      "aria-label": `Timeline of a step of ${side.scenario}, a row for each stage; the table below has it as text`});
    this.hint = el("div", {class: "hint", hidden: ""});
    this.figure = el("figure", {}, this.canvas, this.hint);
    this.whole_s = Math.max(...DATA.scenarios.map((each) => each.timeline.span_s));  // two begin on one axis
    this.begin_s = 0;
    this.end_s = this.whole_s;
    this.listen();
  }

  draw() {
    const width = Math.max(280, this.figure.clientWidth || 1100), dots = window.devicePixelRatio || 1;
    this.left = 66;
    this.x = d3.scale.linear().domain([this.begin_s, this.end_s]).range([this.left, width - 12]);
    this.canvas.width = width * dots;
    this.canvas.height = this.height * dots;
    this.canvas.style.width = width + "px";
    this.canvas.style.height = this.height + "px";
    const ink = this.canvas.getContext("2d");
    ink.scale(dots, dots);
    const tints = KINDS.map(([, tint]) => colour(tint)), ground = colour("panel"), words = colour("ink");
    ink.font = '11px system-ui, "DejaVu Sans", sans-serif';
    this.data.rows.forEach((row, place) => {
      const y = place * this.row_height;
      ink.fillStyle = words;
      ink.textAlign = "right";
      ink.fillText(`stage ${row.stage}`, this.left - 8, y + 14);
      if (this.groups.length && this.row_height > 30) {
        ink.fillStyle = colour("quiet");
        ink.fillText(this.groups[place].slice(0, 9), this.left - 8, y + 27);
      }
      ink.fillStyle = ground;
      ink.fillRect(this.left, y, width - 12 - this.left, LANES[0]);
      this.draw_marks(ink, row.marks, y, tints);
    });
    this.draw_axis(ink, width);
  }

  draw_marks(ink, marks, y, tints) {
    // Numbers are drawn where the longest of the row has room, so that none is missing among others.
    const number_ink = colour("ground"), digits = String(Math.max(0, ...marks.micro_batch)).length;
    ink.textAlign = "center";
    for (let i = 0; i < marks.kind.length; ++i) {
      const begin_s = marks.begin_s[i], end_s = begin_s + marks.length_s[i];
      if (end_s < this.begin_s || begin_s > this.end_s) continue;
      const kind = marks.kind[i], lane = KINDS[kind][2];
      const from = Math.max(this.left, this.x(begin_s)), to = Math.min(this.x.range()[1], this.x(end_s));
      const wide = to - from;
      ink.fillStyle = tints[kind];
      ink.fillRect(from, y + this.tops[lane], Math.max(0.6, wide > 3 ? wide - 0.6 : wide), LANES[lane]);
      if (lane === 0 && marks.micro_batch[i] >= 0 && wide > 6.4 * digits + 2) {
        ink.fillStyle = number_ink;
        ink.fillText(marks.micro_batch[i], (from + to) / 2, y + 14);
      }
    }
  }

  draw_axis(ink, width) {
    const y = this.height - 26;
    ink.fillStyle = ink.strokeStyle = colour("quiet");
    ink.textAlign = "center";
    for (const tick of this.x.ticks(Math.max(2, Math.floor((width - this.left) / 110)))) {
      ink.fillRect(this.x(tick), y, 1, 5);
      ink.fillText(tick_seconds(tick), Math.min(this.x(tick), width - 26), y + 18);
    }
  }

  // The instruction under a point of the canvas: [row, its place], or nothing.
  at(x, y) {
    const row = this.data.rows[Math.floor(y / this.row_height)];
    if (!row || x < this.left) return null;
    const inside = y % this.row_height, time_s = this.x.invert(x), slack_s = this.x.invert(x + 1.5) - time_s;
    const lane = this.lanes.find((each) => inside >= this.tops[each] && inside < this.tops[each] + LANES[each] + 1);
    if (lane === undefined) return null;
    let best = null;
    row.marks.kind.forEach((kind, i) => {
      const begin_s = row.marks.begin_s[i], end_s = begin_s + row.marks.length_s[i];
      if (KINDS[kind][2] === lane && time_s >= begin_s - slack_s && time_s <= end_s + slack_s) best = i;
    });
    return best === null ? null : [row, best];
  }

  show_hint(event) {
    const box = this.canvas.getBoundingClientRect();
    const x = event.clientX - box.left, y = event.clientY - box.top, mark = this.at(x, y);
    this.hint.hidden = !mark;
    if (!mark) return;
    const [row, i] = mark, marks = row.marks;
    this.hint.replaceChildren(el("strong", {}, this.data.names[marks.name[i]]), el("br"),
      marks.micro_batch[i] >= 0 ? `micro-batch ${marks.micro_batch[i]}, ` : "", `stage ${row.stage}, rank ${row.rank}`,
      el("br"), `begins at ${seconds(marks.begin_s[i])}, takes ${seconds(marks.length_s[i])}`,
      marks.bytes[i] > 0 ? `, ${bytes(marks.bytes[i])}` : "");
    this.hint.style.left = Math.max(0, Math.min(x + 12, box.width - this.hint.offsetWidth - 4)) + "px";
    this.hint.style.top = y + 16 + "px";
  }

  look_at(begin_s, end_s) {
    const length_s = Math.min(this.whole_s, Math.max(end_s - begin_s, this.whole_s * 1e-5));
    this.begin_s = Math.max(0, Math.min(begin_s, this.whole_s - length_s));
    this.end_s = this.begin_s + length_s;
    this.hint.hidden = true;
    this.draw();
  }

  zoom(factor, middle_s = (this.begin_s + this.end_s) / 2) {
    this.look_at(middle_s - (middle_s - this.begin_s) * factor, middle_s + (this.end_s - middle_s) * factor);
  }
  move(share) {
    const by_s = (this.end_s - this.begin_s) * share;
    this.look_at(this.begin_s + by_s, this.end_s + by_s);
  }

  listen() {
    let grabbed = null;
    const canvas = this.canvas;
    canvas.addEventListener("mousemove", (event) => {
      if (!grabbed) return this.show_hint(event);
      const by_s = this.x.invert(grabbed.x) - this.x.invert(event.clientX);
      return this.look_at(grabbed.begin_s + by_s, grabbed.end_s + by_s);
    });
    canvas.addEventListener("click", (event) => this.show_hint(event));
    canvas.addEventListener("mouseleave", () => { this.hint.hidden = true; });
    canvas.addEventListener("mousedown", (event) => {
      grabbed = {x: event.clientX, begin_s: this.begin_s, end_s: this.end_s};
    });
    window.addEventListener("mouseup", () => { grabbed = null; });
    canvas.addEventListener("dblclick", (event) =>
      this.zoom(0.5, this.x.invert(event.clientX - canvas.getBoundingClientRect().left)));
    canvas.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && !event.metaKey) return;  // the page scrolls
      event.preventDefault();
      this.zoom(event.deltaY > 0 ? 1.25 : 0.8, this.x.invert(event.clientX - canvas.getBoundingClientRect().left));
    }, {passive: false});
    canvas.addEventListener("keydown", (event) => {
      const does = {ArrowLeft: () => this.move(-0.2), ArrowRight: () => this.move(0.2), "+": () => this.zoom(0.6),
        "-": () => this.zoom(1 / 0.6), "0": () => this.look_at(0, this.whole_s)}[event.key];
      if (!does || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      does();
    });
  }

  controls() {
    const button = (words, does) => {
      const control = el("button", {type: "button"}, words);
      control.addEventListener("click", does);
      return control;
    };
    return el("div", {}, button("Zoom in", () => this.zoom(0.5)), button("Zoom out", () => this.zoom(2)),
      button("Left", () => this.move(-0.4)), button("Right", () => this.move(0.4)),
      button("Whole step", () => this.look_at(0, this.whole_s)));
  }
}

// What the timeline shows, as text: instructions and seconds of each kind, by stage.
function timeline_table(timeline) {
  const rows = timeline.rows.map((row) => {
    const sums = KINDS.map(() => [0, 0]);
    row.marks.kind.forEach((kind, i) => {
      sums[kind][0] += 1;
      sums[kind][1] += row.marks.length_s[i];
    });
    return {row, sums};
  });
  const shown = KINDS.map((kind, place) => place).filter((place) => rows.some(({sums}) => sums[place][0] > 0));
  return el("details", {}, el("summary", {}, "The same as text"), table_of([
    ["stage", ({row}) => row.stage], ["rank", ({row}) => row.rank, "number"],
    ["stands for ranks", ({row}) => grouped(row.stands_for), "number"],
    ...shown.map((place) => [KINDS[place][0],
      ({sums}) => sums[place][0] ? `${grouped(sums[place][0])}: ${seconds(sums[place][1])}` : "-", "number"])], rows));
}

function draw_timeline() {
  const used = KINDS.filter((kind, place) => DATA.scenarios.some((side) =>
    side.timeline.rows.some((row) => row.marks.kind.includes(place))));
  const inside = DATA.scenarios.some((side) => side.network.some((use) => use.inside_computes));
  return section("timeline", "The step in time",
    el("p", {class: "quiet"}, "A row is the rank of a stage that works most; a number is the micro-batch. Under the ",
      "computes lie collectives and transfers, from when all sides were ready. ",
      inside ? "Collectives of tensor-parallel groups lie inside the computes. " : "",
      "Drag to move; double-click, Ctrl and wheel, or + and - to zoom."),
    legend_of(used.map(([words, tint]) => [words, tint])),
    for_each_side((side) => {
      const timeline = new Timeline(side);
      PLOTS.push(() => timeline.draw());
      return [timeline.controls(), timeline.figure,
        side.timeline.span_s > 1.0001 * side.timeline.step_s ? el("p", {class: "quiet"}, "Ranks begin the next step " +
          `before others have ended this one, so this one spans ${seconds(side.timeline.span_s)}.`) : null,
        side.timeline.left_out > 0 ? el("p", {class: "quiet"}, `${grouped(side.timeline.left_out)} instructions of ` +
          `at most ${seconds(side.timeline.shortest_s)} are left out.`) : null,
        timeline_table(side.timeline)];
    }));
}
