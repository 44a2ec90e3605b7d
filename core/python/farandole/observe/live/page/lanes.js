// The picture of the lanes: a part of the time, and the operations of each rank in it. Knows nothing of the connection.
"use strict";

const LABEL = 92, RULER = 22, SHORTEST_US = 20, LONGEST_US = 600e6;

class Lanes {
  constructor(store) {
    this.store = store;
    this.canvas = document.getElementById("lanes");
    this.scroll = document.getElementById("scroll");
    this.spacer = document.getElementById("spacer");
    this.tip = document.getElementById("tip");
    this.span = 5e6; // microseconds from the left to the right
    this.end = null; // the time at the right; null: the latest
    this.readColours();
    this.listen();
  }

  readColours() {
    const style = getComputedStyle(document.documentElement);
    const names = ["ink", "faint", "line", "stripe", "sheet", "data", "waits", "queue", "failed"];
    this.colours = Object.fromEntries(names.map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
  }

  listen() {
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { this.readColours(); this.draw(); });
    new ResizeObserver(() => this.draw()).observe(this.scroll);
    this.scroll.addEventListener("scroll", () => this.draw());
    this.canvas.addEventListener("wheel", (event) => this.onWheel(event), { passive: false });
    this.canvas.addEventListener("pointerdown", (event) => this.onDown(event));
    this.canvas.addEventListener("pointermove", (event) => this.onMove(event));
    this.canvas.addEventListener("pointerup", () => this.onUp());
    this.canvas.addEventListener("pointerleave", () => { this.tip.hidden = true; });
  }

  get right() { return this.end ?? this.store.now; }

  get laneHeight() { return Math.max(12, Math.min(40, 320 / Math.max(1, this.store.ranks.length))); }

  timeAt(x) { return this.right - this.span * (1 - (x - LABEL) / Math.max(1, this.width - LABEL)); }

  zoom(factor, x = this.width) {
    const fixed = this.timeAt(x), wasAtEnd = this.end === null && x >= this.width - 1;
    const share = (x - LABEL) / Math.max(1, this.width - LABEL);
    this.span = Math.min(LONGEST_US, Math.max(SHORTEST_US, this.span * factor));
    if (!wasAtEnd) this.end = fixed + this.span * (1 - share);
    this.draw();
  }

  follow() { this.end = null; this.draw(); }

  onWheel(event) {
    if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      this.end = this.right + (event.deltaX || event.deltaY) / this.width * this.span;
    } else if (event.ctrlKey || event.metaKey || this.spacer.offsetHeight <= this.scroll.clientHeight) {
      this.zoom(Math.exp(event.deltaY / 400), event.offsetX);
    } else {
      return; // the lanes scroll
    }
    event.preventDefault();
    this.draw();
  }

  onDown(event) {
    this.dragged = { x: event.clientX, end: this.right };
    this.canvas.setPointerCapture(event.pointerId);
    this.canvas.classList.add("dragged");
  }

  onMove(event) {
    if (!this.dragged) { this.explain(event); return; }
    this.tip.hidden = true;
    this.end = this.dragged.end - (event.clientX - this.dragged.x) / Math.max(1, this.width - LABEL) * this.span;
    this.draw();
  }

  onUp() { this.dragged = null; this.canvas.classList.remove("dragged"); }

  draw() {
    if (this.asked) return;
    this.asked = requestAnimationFrame(() => { this.asked = 0; this.paint(); });
  }

  fit() {
    const total = Math.ceil(this.laneHeight * this.store.ranks.length) + RULER;
    this.spacer.style.height = `${total}px`;
    this.width = this.scroll.clientWidth;
    this.height = Math.min(total, Math.max(RULER + 40, Math.floor(innerHeight * 0.52)));
    const dots = devicePixelRatio || 1;
    if (this.canvas.width !== Math.round(this.width * dots) || this.canvas.height !== Math.round(this.height * dots)) {
      this.canvas.width = Math.round(this.width * dots);
      this.canvas.height = Math.round(this.height * dots);
      this.canvas.style.height = `${this.height}px`;
    }
    const context = this.canvas.getContext("2d");
    context.setTransform(dots, 0, 0, dots, 0, 0);
    return context;
  }

  paint() {
    const context = this.fit();
    context.fillStyle = this.colours.sheet;
    context.fillRect(0, 0, this.width, this.height);
    const top = this.scroll.scrollTop, lane = this.laneHeight;
    const first = Math.max(0, Math.floor(top / lane)), last = Math.ceil((top + this.height) / lane);
    this.store.ranks.slice(first, last + 1).forEach((rank, place) => {
      this.paintLane(context, rank, RULER + (first + place) * lane - top, lane, (first + place) % 2 === 1);
    });
    this.paintRuler(context);
    document.getElementById("scale").textContent = `${duration(this.span)} wide`;
  }

  paintLane(context, rank, y, lane, striped) {
    if (striped) {
      context.fillStyle = this.colours.stripe;
      context.fillRect(0, y, this.width, lane);
    }
    const from = this.right - this.span, scale = (this.width - LABEL) / this.span, gap = lane > 20 ? 4 : 1.5;
    const box = (begin, end, colour, least) => {
      const left = Math.max(LABEL, LABEL + (begin - from) * scale), to = Math.min(this.width, LABEL + (end - from) * scale);
      if (to < LABEL || left > this.width || to - left < 0) return;
      context.fillStyle = colour;
      context.fillRect(left, y + gap, Math.max(least, to - left), lane - 2 * gap);
    };
    for (const each of this.store.between(rank.rank, from, this.right)) {
      const end = each.at + each.took;
      const agreed = each.agreed < 0 ? each.at : each.at + each.agreed;
      const started = each.started < 0 ? agreed : each.at + each.started;
      box(each.at, end, each.failed ? this.colours.failed : this.colours.data, 1);
      if (agreed > each.at) box(each.at, agreed, this.colours.waits, 0);
      if (started > agreed) box(agreed, started, this.colours.queue, 0);
    }
    if (rank.in && rank.state === "running") box(rank.since, Math.max(rank.since, this.store.now), this.colours.waits, 1);
    this.paintLabel(context, rank, y, lane);
  }

  paintLabel(context, rank, y, lane) {
    context.fillStyle = this.colours.sheet;
    context.fillRect(0, y, LABEL - 1, lane);
    context.fillStyle = this.colours.line;
    context.fillRect(LABEL - 1, y, 1, lane);
    const isCulprit = this.store.culprits.has(rank.rank), isWaiting = this.store.waiting.has(rank.rank);
    context.fillStyle = isCulprit ? this.colours.failed : isWaiting ? this.colours.waits : this.colours.data;
    context.beginPath();
    context.arc(16, y + lane / 2, Math.min(4, lane / 3), 0, 7);
    context.fill();
    context.fillStyle = this.colours.ink;
    context.font = `${lane < 16 ? 10 : 12}px system-ui, 'DejaVu Sans', sans-serif`;
    context.textBaseline = "middle";
    context.textAlign = "left";
    context.fillText(`rank ${rank.rank}`, 28, y + lane / 2);
  }

  paintRuler(context) {
    context.fillStyle = this.colours.sheet;
    context.fillRect(0, 0, this.width, RULER);
    context.fillStyle = this.colours.line;
    context.fillRect(0, RULER - 1, this.width, 1);
    const step = niceStep(this.span / Math.max(2, (this.width - LABEL) / 120)), from = this.right - this.span;
    context.font = "12px system-ui, 'DejaVu Sans', sans-serif";
    context.textAlign = "center";
    context.textBaseline = "middle";
    for (let at = Math.ceil(from / step) * step; at <= this.right; at += step) {
      const x = LABEL + (at - from) / this.span * (this.width - LABEL);
      context.fillStyle = this.colours.line;
      context.fillRect(Math.round(x), RULER - 5, 1, this.height);
      context.fillStyle = this.colours.faint;
      if (x > LABEL + 30 && x < this.width - 30) context.fillText(moment(at, step), x, RULER / 2 - 1);
    }
  }

  explain(event) {
    const y = event.offsetY - RULER + this.scroll.scrollTop, rank = this.store.ranks[Math.floor(y / this.laneHeight)];
    const at = this.timeAt(event.offsetX), near = 3 * this.span / this.width;
    const found = !rank || event.offsetX < LABEL ? null
      : this.store.between(rank.rank, at - near, at + near).sort((one, other) => one.took - other.took)[0];
    this.tip.hidden = !found;
    if (!found) return;
    this.tip.textContent = describe(found);
    this.tip.style.left = `${Math.min(event.clientX + 14, innerWidth - 430)}px`;
    this.tip.style.top = `${event.clientY + 16}px`;
  }
}

function describe(each) {
  const lines = [each.name, `${duration(each.took)}, ${amount(each.bytes)}${each.failed ? ", failed" : ""}`];
  if (each.agreed >= 0) lines.push(`waited ${duration(each.agreed)} for the other ranks`);
  if (each.started >= 0) lines.push(`and ${duration(each.started - Math.max(0, each.agreed))} for its turn`);
  return lines.join("\n");
}

function niceStep(least) {
  const power = 10 ** Math.floor(Math.log10(Math.max(1, least)));
  return [1, 2, 5, 10].map((each) => each * power).find((each) => each >= least) ?? 10 * power;
}

function moment(us, step) {
  const digits = Math.max(0, Math.min(6, Math.ceil(6 - Math.log10(step))));
  return `${(us / 1e6).toFixed(digits)} s`;
}

function duration(us) {
  if (us >= 60e6) return `${Math.floor(us / 60e6)} min ${Math.round(us / 1e6) % 60} s`;
  if (us >= 1e6) return `${(us / 1e6).toFixed(us < 10e6 ? 2 : 1)} s`;
  if (us >= 1e3) return `${(us / 1e3).toFixed(us < 10e3 ? 2 : 1)} ms`;
  return `${Math.round(us)} µs`;
}

function amount(bytes) {
  for (const [unit, size] of [["GB", 1e9], ["MB", 1e6], ["kB", 1e3]]) {
    if (bytes >= size) return `${(bytes / size).toFixed(bytes < 10 * size ? 2 : bytes < 100 * size ? 1 : 0)} ${unit}`;
  }
  return `${Math.round(bytes)} B`;
}

/** A small line of the latest values, from 0 to the largest. */
function plot(canvas, values, colour) {
  const width = canvas.clientWidth, height = canvas.clientHeight, dots = devicePixelRatio || 1;
  canvas.width = width * dots;
  canvas.height = height * dots;
  const context = canvas.getContext("2d"), most = Math.max(...values, 1e-9), apart = width / Math.max(1, values.length - 1);
  context.scale(dots, dots);
  context.strokeStyle = colour;
  context.lineWidth = 1.5;
  context.beginPath();
  values.forEach((value, place) => context.lineTo(place * apart, height - 3 - (height - 6) * value / most));
  context.stroke();
}
