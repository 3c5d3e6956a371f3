"use strict";
// Draws a picture: the same axes and marks that a static page draws as SVG. What it draws comes as numbers.

const GREY_DASHES = [undefined, [8, 3], [2, 3], [8, 3, 2, 3], [12, 4], [4, 2], [1, 2]];
const COLOURS = { simulated: "--simulated", median: "--ink", arrived: "--quiet", observed: "--observed" };

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function short(value) {
  if (value === null || value === undefined) return "-";
  return Number(value.toPrecision(4)).toLocaleString("en");
}

// One table of x and y for uPlot out of lines that each have an x of their own.
function joined(lines) {
  return uPlot.join(lines.map((line) => [line.x, line.y.map((value) => value)]), lines.map(() => [1]));
}

// Another answer's picture in the units of this one: its times may be in s where these are in ms.
function inUnitsOf(picture, other) {
  const [byX, byY] = ["x", "y"].map((of) => (picture[of].in_us && other[of].in_us ? other[of].in_us / picture[of].in_us : 1));
  const times = (values, factor) => (factor === 1 ? values : values.map((value) => (value === null ? null : value * factor)));
  const axis = (each, factor) => (factor === 1 ? each : { ...each, low: each.low * factor, high: each.high * factor, ticks: [] });
  const marks = other.marks.filter((mark) => mark.kind === "line").map((mark) => ({ ...mark, x: times(mark.x, byX), y: times(mark.y, byY) }));
  return { ...other, x: axis(other.x, byX), y: axis(other.y, byY), marks };
}

// Round values between the ends of an axis, where no answer's own ticks are of its unit and kind.
function roundTicks(low, high, isLog) {
  const found = [];
  if (isLog) {
    for (let decade = Math.floor(Math.log10(low)); decade <= Math.log10(high); decade += 1) found.push(...[1, 3].map((step) => step * 10 ** decade));
  } else {
    const rough = (high - low) / 5;
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = power * [1, 2, 5, 10].find((each) => each * power >= rough);
    for (let at = Math.ceil(low / step); at * step <= high; at += 1) found.push(at * step);
  }
  return found.filter((value) => value >= low && value <= high).map((value) => [value, short(value)]);
}

function axisOf(axis, others, { isX }) {
  const all = [axis, ...others].filter((each) => !axis.is_log || each.low > 0);
  const wider = all.reduce((a, b) => (b.high > a.high ? b : a), axis);
  const low = Math.min(axis.low, ...all.map((each) => each.low));
  const isItsKind = wider.is_log === axis.is_log && wider.ticks.length > 0;
  const ticks = (isItsKind ? wider.ticks : roundTicks(low, wider.high, axis.is_log)).filter(([value]) => value >= low && value <= wider.high);
  return {
    scale: { time: false, distr: axis.is_log ? 3 : 1, range: () => [low, wider.high] },
    axis: {
      stroke: () => colour("--quiet"),
      font: "12px system-ui, sans-serif",
      grid: { stroke: () => colour("--hair"), width: 1, show: !isX },
      ticks: { stroke: () => colour("--hair"), width: 1, size: 4 },
      splits: () => ticks.map(([value]) => value),
      values: () => ticks.map(([, text]) => text),
      size: isX ? 30 : 52,
      filter: (_, splits) => splits,
    },
  };
}

function drawRule(plot, rule) {
  const { left, top, width, height } = plot.bbox;
  const isAcross = rule.start[1] === rule.end[1];
  const isUp = rule.start[0] === rule.end[0];
  const [x0, x1] = isAcross ? [left, left + width] : [rule.start[0], rule.end[0]].map((value) => plot.valToPos(value, "x", true));
  const [y0, y1] = isUp ? [top + height, top] : [rule.start[1], rule.end[1]].map((value) => plot.valToPos(value, "y", true));
  const context = plot.ctx;
  const [name, dash] = rule.name === "capacity" ? ["--accent", []] : ["--simulated", [4, 4]];
  context.save();
  context.strokeStyle = colour(name);
  context.lineWidth = devicePixelRatio * (rule.name === "capacity" ? 1.6 : 1);
  context.setLineDash(dash.map((each) => each * devicePixelRatio));
  context.beginPath();
  context.moveTo(x0, y0);
  context.lineTo(x1, y1);
  context.stroke();
  if (rule.label) {
    context.fillStyle = colour(name);
    context.font = `${11.5 * devicePixelRatio}px system-ui, sans-serif`;
    context.textAlign = isAcross ? "left" : "right";
    context.fillText(rule.label, x0 + (isAcross ? 6 : -4) * devicePixelRatio, (isAcross ? y0 : top + height) - 5 * devicePixelRatio);
  }
  context.restore();
}

function drawBand(plot, band) {
  const left = plot.valToPos(band.x[0], "x", true);
  const right = plot.valToPos(band.x[band.x.length - 1], "x", true);
  plot.ctx.save();
  plot.ctx.globalAlpha = 0.13;
  plot.ctx.fillStyle = colour("--quiet");
  plot.ctx.fillRect(left, plot.bbox.top, right - left, plot.bbox.height);
  plot.ctx.restore();
}

function seriesOf(line, label, isGrey, greyAt) {
  const of = COLOURS[line.name] || "--quiet";
  return {
    label,
    stroke: () => colour(isGrey ? "--before" : of),
    width: isGrey ? 1.2 : 1.8,
    dash: isGrey ? GREY_DASHES[greyAt % GREY_DASHES.length] : line.name === "arrived" ? [5, 4] : undefined,
    spanGaps: true,
    points: { show: line.x.length < 20 && !isGrey, size: 5 },
    paths: line.steps ? uPlot.paths.stepped({ align: 1 }) : undefined,
    value: (_, value) => short(value),
  };
}

function tableOf(picture) {
  const table = document.createElement("table");
  const head = table.createTHead().insertRow();
  const lines = picture.marks.filter((mark) => mark.kind === "line");
  for (const text of [picture.x.label || "x", ...lines.map((line) => `${line.label}${picture.y.label ? `, ${picture.y.label}` : ""}`)]) {
    const cell = document.createElement("th");
    cell.scope = "col";
    cell.textContent = text;
    head.append(cell);
  }
  if (!lines.length) return table;
  const rows = joined(lines);
  const every = Math.max(1, Math.floor(rows[0].length / 40));
  const body = table.createTBody();
  for (let at = 0; at < rows[0].length; at += every) {
    const row = body.insertRow();
    for (const column of rows) row.insertCell().textContent = short(column[at]);
  }
  return table;
}

// The figure of a picture: a caption, a plot, and its numbers as a table. Redrawn in place.
class ChartFigure {
  constructor(within) {
    this.figure = document.createElement("figure");
    this.caption = document.createElement("figcaption");
    this.place = document.createElement("div");
    this.place.className = "plot";
    this.place.setAttribute("role", "img");
    this.numbers = document.createElement("details");
    const summary = document.createElement("summary");
    this.summary = summary;
    this.numbers.append(summary);
    this.numbers.addEventListener("toggle", () => this.fill());
    this.figure.append(this.caption, this.place, this.numbers);
    within.append(this.figure);
    this.plot = null;
  }

  // Draws a picture, at once if it is on the screen, else when there is time. `grey`: those beside it, by name.
  show(picture, grey) {
    this.picture = picture;
    this.grey = grey;
    this.name(picture);
    const at = this.figure.getBoundingClientRect();
    ChartFigure.later.delete(this);
    if (at.top < innerHeight && at.bottom > 0) this.draw(picture, grey);
    else ChartFigure.drawLater(this);
  }

  static drawLater(figure) {
    ChartFigure.later.add(figure);
    if (ChartFigure.later.size > 1) return;
    const some = (deadline) => {
      for (const each of ChartFigure.later) {
        if (deadline.timeRemaining() < 8) break;
        ChartFigure.later.delete(each);
        each.draw(each.picture, each.grey);
      }
      if (ChartFigure.later.size) requestIdleCallback(some);
    };
    requestIdleCallback(some);
  }

  // What is drawn later has its name at once: readers of screens come to it before.
  name(picture) {
    this.caption.textContent = picture.title;
    const unit = document.createElement("span");
    unit.textContent = [picture.y.label, picture.y.is_log ? "log scale" : ""].filter(Boolean).join(", ");
    this.caption.append(unit);
    this.place.setAttribute("aria-label", `${picture.title}. Its numbers stand below.`);
    this.summary.textContent = `Numbers: ${picture.title}`;
  }

  draw(picture, others) {
    const grey = others.map(([name, other]) => [name, inUnitsOf(picture, other)]);
    const own = picture.marks.filter((mark) => mark.kind === "line" && mark.x.length);
    const beside = grey.flatMap(([name, other]) =>
      other.marks.filter((mark) => mark.x.length && mark.name !== "median" && mark.name !== "arrived").map((mark) => [name, mark]));
    const lines = [...beside.map(([, mark]) => mark), ...own];
    if (this.plot) this.plot.destroy();
    this.plot = null;
    if (!lines.length) return;
    const x = axisOf(picture.x, grey.map(([, other]) => other.x), { isX: true });
    const y = axisOf(picture.y, grey.map(([, other]) => other.y), { isX: false });
    const labels = [...beside.map(([name]) => name), ...own.map((line) => (line.label === "simulated" ? "now" : line.label))];
    const options = {
      width: Math.max(200, this.place.clientWidth),
      height: 230 - 34,
      scales: { x: x.scale, y: y.scale },
      axes: [{ ...x.axis, label: undefined }, y.axis],
      series: [{ label: picture.x.label || "x", value: (_, value) => short(value) }, ...lines.map((line, at) => seriesOf(line, labels[at], at < beside.length, at))],
      cursor: { drag: { x: false, y: false } },
      hooks: {
        drawClear: [(plot) => picture.marks.filter((mark) => mark.kind === "band").forEach((mark) => drawBand(plot, mark))],
        draw: [(plot) => picture.marks.filter((mark) => mark.kind === "rule").forEach((mark) => drawRule(plot, mark))],
      },
    };
    this.plot = new uPlot(options, joined(lines), this.place);
    this.fill();
  }

  // The table is made when somebody opens it: a turn draws many figures.
  fill() {
    if (!this.numbers.open || !this.picture) return;
    const table = tableOf(this.picture);
    const scroll = document.createElement("div");
    scroll.className = "scroll";
    scroll.tabIndex = 0;
    scroll.setAttribute("role", "region");
    scroll.setAttribute("aria-label", `Numbers: ${this.picture.title}`);
    scroll.append(table);
    this.numbers.replaceChildren(this.summary, scroll);
  }

  again() {
    if (this.picture) this.draw(this.picture, this.grey);
  }
}

ChartFigure.later = new Set();
window.ChartFigure = ChartFigure;
