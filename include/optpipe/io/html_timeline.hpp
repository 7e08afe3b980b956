#pragma once

#include "optpipe/core/standard.hpp"

#include <string_view>

namespace optpipe::detail {

/// The first half of the script of the page that `html.hpp` writes. The first half reads the element `data`, draws the
/// timeline, and handles its events. `html_panels` continues the same function.
inline constexpr std::string_view html_timeline = R"js(
"use strict";
(() => {
const data = JSON.parse(document.getElementById("data").textContent);
const kinds = ["F", "I", "W", "B", "OFFLOAD", "RELOAD", "RECOMPUTE"];
const names = ["forward", "backward for the input", "backward for the weights", "backward", "copy to the host",
               "copy from the host", "recomputation"];
const [F, I, W, B, OFFLOAD, RELOAD, RECOMPUTE] = kinds.keys();
const element = (id) => document.getElementById(id);
const unit = (text) => (text ? " " + text : "");
// As `format_number` writes it.
const number = (value) => {
  const rounded = Number(value.toPrecision(6));
  return Math.abs(rounded) < 1e15 ? String(rounded) : rounded.toExponential();
};
const time = (value) => number(value) + unit(data.timeUnit);
const percent = (value) => (100 * value).toFixed(2) + " %";
const size = (value) => number(value) + unit(data.memoryUnit);
const spell = (op) => op.s + kinds[op.k] + op.m;

// The data: operations come as flat lists of stage, kind, microbatch, start, end and storage option.
const cell = (s, k, m) => (k * data.stageRank.length + s) * data.microbatches + m;
// A forward and a backward at the same time are a pair: the upper and the lower half of a box.
function join(first, second) {
  const together = first && first.k === F && (second.k === I || second.k === B) && first.start === second.start &&
    first.end === second.end && first.end > first.start;
  if (!together) return;
  [first.half, first.partner] = [0, second];
  [second.half, second.partner] = [1, first];
}
function unpack(schedule) {
  schedule.by = new Map();
  schedule.lanes = schedule.ranks.map((flat, rank) => {
    const lanes = { compute: [], copies: [] };
    for (let i = 0; i < flat.length; i += 6) {
      const [s, k, m, start, end, o] = flat.slice(i, i + 6);
      const op = { s, k, m, start, end, o, rank };
      const lane = op.k === OFFLOAD || op.k === RELOAD ? lanes.copies : lanes.compute;
      join(lane[lane.length - 1], op);
      lane.push(op);
      schedule.by.set(cell(op.s, op.k, op.m), op);
    }
    return lanes;
  });
  schedule.copies = schedule.lanes.some((lane) => lane.copies.length > 0);
  schedule.usesHost = schedule.host.some((curve) => curve.length > 0);
  schedule.find = (s, k, m) => schedule.by.get(cell(s, k, m));
  schedule.gradient = (s, m) => schedule.find(s, B, m) || schedule.find(s, I, m);
}
data.schedules.forEach(unpack);
const end = Math.max(...data.schedules.map((schedule) => schedule.end));
const topMemory = Math.max(1e-300, ...data.schedules.flatMap((s) => s.peak), ...data.limit.map((limit) => limit || 0));
const topHost = Math.max(1e-300, ...data.schedules.flatMap((s) => s.hostPeak));

// What the rules say of a stage and microbatch: microbatches with equal rules share them.
const rulesOf = ({ s, m }) => data.rules[data.rulesOf[m] ?? 0][s];
const isGradient = (k) => k === I || k === B;
const byDirection = (op, lists) => (op.k === F ? lists[0] : isGradient(op.k) ? lists[1] : []);

// "2.1" is slice 1 of sequence 2.
const slice = (m) => data.slices[m] && data.slices[m].join(".");
const sequence = (m) => (data.slices[m] ? data.slices[m][0] : null);
function microbatchText(m) {
  const [of, number] = data.slices[m] ?? [];
  return `microbatch ${m}` + (data.slices[m] ? `, slice ${number} of sequence ${of}` : "");
}

// Why an operation waits for one of another stage or microbatch; empty if an edge between the two stages is the reason.
function reason(op, other) {
  if (isGradient(op.k) && other.k === F) return "of the group";
  if (op.m !== other.m) return op.m > other.m ? "the slice before" : "the slice after";
  return "";
}
function inputsOfOthers(schedule, op) {
  return byDirection(op, rulesOf(op).inputs).map(([s, k, later, delay]) => {
    const other = k === F ? schedule.find(s, F, op.m + later) : schedule.gradient(s, op.m + later);
    return other && { op: other, ready: other.end + delay, why: reason(op, other) };
  }).filter(Boolean);
}
// The operations that an operation waits for: its inputs, and those that its rank computes before.
function inputs(schedule, op) {
  const { s, k, m } = op;
  const own = (kind) => schedule.find(s, kind, m);
  const from = { [F]: [], [W]: [own(I)], [OFFLOAD]: [own(F)], [RELOAD]: [own(OFFLOAD)],
                 [RECOMPUTE]: [own(F), own(RELOAD)], [I]: [own(F), own(RELOAD), own(RECOMPUTE)] };
  from[B] = from[I];
  const lane = schedule.lanes[op.rank].compute;
  const before = lane[lane.indexOf(op.half === 1 ? op.partner : op) - 1];
  const found = inputsOfOthers(schedule, op);
  const add = (other, more) => {
    if (other && !found.some((each) => each.op === other)) found.push({ op: other, ready: other.end, ...more });
  };
  from[k].forEach((other) => add(other));
  add(before, { lane: true });
  return found.sort((a, b) => b.ready - a.ready);
}

// The storage option of a stage and microbatch.
const optionOf = (schedule, s, m) => data.options[s][schedule.find(s, F, m)?.o ?? 0];

function effectText(op) {
  const effect = rulesOf(op).effects[op.o][op.k];
  const where = ["device", "device", "host", "host"];
  const verb = ["takes", "frees", "takes", "frees"];
  const when = ["at its start", "at its end", "at its start", "at its end"];
  const own = effect.map((amount, i) =>
      (amount > 0 ? `${verb[i]} ${size(amount)} of ${where[i]} memory ${when[i]}` : ""));
  const others = byDirection(op, rulesOf(op).frees).map(([rank, amount]) =>
      `frees ${size(amount)} of device memory of rank ${rank} at its end`);
  return [...own, ...others].filter(Boolean);
}

function tipText(schedule, op) {
  const lines = [`${spell(op)}: ${names[op.k]}`,
                 `rank ${op.rank}, stage ${op.s}, ${microbatchText(op.m)}`,
                 `${number(op.start)} to ${time(op.end)}, takes ${time(op.end - op.start)}`, ...effectText(op)];
  if (op.partner) lines.push(`in a pair with ${spell(op.partner)}`);
  if (data.options[op.s].length > 1) lines.push(`storage: ${optionOf(schedule, op.s, op.m)}`);
  const waits = inputs(schedule, op);
  const slack = 1e-6 * end;
  for (const { op: other, ready, lane, why } of waits)
    lines.push(`${lane ? "after" : "waits for"} ${spell(other)}, ${why ? why + ", " : ""}` +
               `${ready > other.end ? "there" : "done"} at ${time(ready)}` +
               (Math.abs(ready - op.start) <= slack ? " ◂" : ""));
  if (waits.length && op.start - waits[0].ready > slack)
    lines.push(`starts ${time(op.start - waits[0].ready)} after all that`);
  return lines.join("\n");
}

// The state, and the positions of elements.
const pad = 5, peakFont = "10.5px system-ui, sans-serif", peakLeft = 22;
// The gutter is as wide as the text of the highest peak, within limits.
const gutter = (() => {
  const c = document.createElement("canvas").getContext("2d");
  c.font = peakFont;
  const peaks = data.schedules.flatMap((schedule) => [...schedule.peak, ...schedule.hostPeak]);
  const widest = Math.max(...peaks.map((peak) => c.measureText(size(peak)).width));
  return Math.ceil(Math.max(92, Math.min(180, peakLeft + widest + 8)));
})();
const state = { from: 0, to: end, shown: 0, open: new Set(), chosen: null, hover: null };
const manyRanks = 8; // more start collapsed
if (data.ranks <= manyRanks) for (let r = 0; r < data.ranks; ++r) state.open.add(r);
const rowsCanvas = element("rows"), chart = element("chart");
let colours = {}, width = 0, rows = [];
const shownSchedules = () => (state.shown === 2 ? data.schedules : [data.schedules[state.shown]]);
const x = (t) => gutter + ((t - state.from) / (state.to - state.from)) * (width - gutter);
const timeAt = (px) => state.from + ((px - gutter) / (width - gutter)) * (state.to - state.from);

function layout() {
  rows = [];
  let y = 0;
  for (let r = 0; r < data.ranks; ++r) {
    const row = { y, rank: r, lanes: [] };
    const open = state.open.has(r);
    y += pad;
    for (const schedule of shownSchedules()) {
      const lane = { schedule, compute: { y, h: open ? 26 : 13 } };
      y += lane.compute.h;
      if (schedule.copies) { lane.copies = { y: y + 1, h: open ? 12 : 4 }; y += lane.copies.h + 1; }
      if (open) {
        lane.memory = { y: y + 4, h: 34 }; y += 38;
        if (schedule.usesHost) { lane.host = { y: y + 3, h: 20 }; y += 23; }
      }
      y += 3;
      row.lanes.push(lane);
    }
    y += pad - 3;
    row.h = y - row.y;
    rows.push(row);
  }
  return y;
}

function prepare(canvas, height) {
  const ratio = window.devicePixelRatio || 1;
  width = element("figure").clientWidth;
  canvas.style.height = height + "px";
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  return context;
}

function readColours() {
  const style = getComputedStyle(document.documentElement);
  for (const name of [...kinds, ...kinds.map((kind) => "on-" + kind), "page", "panel", "text", "faint", "line", "lane",
                      "memory", "memory-line", "host", "host-line", "limit", "mark", "accent"])
    colours[name] = style.getPropertyValue("--" + name).trim();
}

// The first operation of a lane that ends after a time; a lane's ends rise with its starts.
function firstAfter(list, t) {
  let low = 0, high = list.length;
  while (low < high) { const mid = (low + high) >> 1; if (list[mid].end <= t) low = mid + 1; else high = mid; }
  return low;
}
function box(op, place) {
  const h = op.partner ? place.h / 2 : place.h;
  return { x: x(op.start), y: place.y + (op.half === 1 ? h : 0), w: Math.max(0.6, x(op.end) - x(op.start)), h };
}

// How strongly an operation is drawn: its microbatch is chosen, or another slice of the same sequence, or neither.
function emphasis(op, least) {
  if (state.chosen === null || state.chosen === op.m) return 1;
  return sequence(op.m) !== null && sequence(op.m) === sequence(state.chosen) ? 0.55 : least;
}

function drawOperation(c, op, place) {
  const b = box(op, place);
  c.globalAlpha = emphasis(op, 0.22);
  c.fillStyle = colours[kinds[op.k]];
  c.fillRect(b.x, b.y, b.w > 3 ? b.w - 0.7 : b.w, b.h);
  const brief = slice(op.m) ?? String(op.m);
  const full = spell(op) + (slice(op.m) ? ` · ${brief}` : "");
  const fits = (text, least = 0) => b.w > Math.max(least, 4 + 6.2 * text.length);
  const text = fits(full, 46) ? full : brief;
  if (place.h > 20 && fits(text)) {
    c.fillStyle = colours["on-" + kinds[op.k]];
    c.fillText(text, b.x + b.w / 2, b.y + b.h / 2 + 0.5);
  }
  if (state.hover === op) {
    c.globalAlpha = 1;
    c.strokeStyle = colours.mark; c.lineWidth = 1.5; c.strokeRect(b.x + 0.5, b.y + 0.5, Math.max(1, b.w - 1), b.h - 1);
  }
}

function drawLane(c, list, place) {
  c.globalAlpha = 1;
  c.fillStyle = colours.lane;
  c.fillRect(gutter, place.y, width - gutter, place.h);
  for (let i = firstAfter(list, state.from); i < list.length && list[i].start < state.to; ++i)
    drawOperation(c, list[i], place);
  c.globalAlpha = 1;
}

function drawCurve(c, curve, place, top, limit, fill, line) {
  const level = (value) => place.y + place.h * (1 - Math.min(1, value / (1.06 * top)));
  c.beginPath();
  c.moveTo(x(0), place.y + place.h);
  let last = 0;
  for (let i = 0; i < curve.length; i += 2) {
    c.lineTo(x(curve[i]), level(last));
    last = curve[i + 1];
    c.lineTo(x(curve[i]), level(last));
  }
  c.lineTo(x(end), level(last));
  c.lineTo(x(end), place.y + place.h);
  c.fillStyle = fill; c.fill();
  c.strokeStyle = line; c.lineWidth = 1; c.stroke();
  if (limit !== null) {
    c.setLineDash([5, 3]); c.strokeStyle = colours.limit;
    c.beginPath(); c.moveTo(gutter, level(limit)); c.lineTo(width, level(limit)); c.stroke(); c.setLineDash([]);
  }
}

// The way of the chosen microbatch along the edges: its forwards through the stages, and its gradients back. A gradient
// that waits for no other gradient comes from its own forward.
function drawWay(c, number) {
  const place = new Map(rows.map((row) => [row.rank, row.lanes[number]]));
  const schedule = rows[0].lanes[number].schedule;
  const middle = (op) => place.get(op.rank).compute.y + place.get(op.rank).compute.h / 2;
  c.strokeStyle = colours.mark; c.lineWidth = 1.4; c.globalAlpha = 0.8;
  c.beginPath();
  for (let s = 0; s < data.stageRank.length; ++s) {
    const forward = schedule.find(s, F, state.chosen), gradient = schedule.gradient(s, state.chosen);
    for (const op of [forward, gradient].filter(Boolean)) {
      const from = inputsOfOthers(schedule, op).filter((each) => !each.why).map((each) => each.op);
      if (op === gradient && from.length === 0 && forward) from.push(forward);
      for (const other of from) { c.moveTo(x(other.end), middle(other)); c.lineTo(x(op.start), middle(op)); }
      c.moveTo(x(op.start), middle(op)); c.lineTo(x(op.end), middle(op));
    }
  }
  c.stroke();
  c.globalAlpha = 1;
}

function drawRows() {
  const c = prepare(rowsCanvas, layout());
  c.font = "11px system-ui, sans-serif"; c.textAlign = "center"; c.textBaseline = "middle";
  c.save();
  c.beginPath(); c.rect(gutter, 0, width - gutter, 1e6); c.clip();
  for (const row of rows) {
    if (row.y > 0) { c.fillStyle = colours.line; c.fillRect(gutter, row.y, width, 0.7); }
    for (const lane of row.lanes) {
      drawLane(c, lane.schedule.lanes[row.rank].compute, lane.compute);
      if (lane.copies) drawLane(c, lane.schedule.lanes[row.rank].copies, lane.copies);
      if (lane.memory) drawCurve(c, lane.schedule.device[row.rank], lane.memory, topMemory, data.limit[row.rank],
                                 colours.memory, colours["memory-line"]);
      if (lane.host) drawCurve(c, lane.schedule.host[row.rank], lane.host, topHost, null, colours.host,
                               colours["host-line"]);
    }
  }
  if (state.chosen !== null) shownSchedules().forEach((_, i) => drawWay(c, i));
  c.restore();
  c.textAlign = "left";
  for (const row of rows) {
    c.fillStyle = colours.text; c.font = "12px system-ui, sans-serif";
    const { y, h } = row.lanes[0].compute;
    c.fillText((state.open.has(row.rank) ? "▾ " : "▸ ") + "rank " + row.rank, 8, y + h / 2 + 1);
    c.fillStyle = colours.faint; c.font = peakFont;
    for (const lane of row.lanes) {
      const peaks = (place, peak) =>
          place && c.fillText(size(peak), peakLeft, place.y + place.h / 2, gutter - peakLeft - 4);
      peaks(lane.memory, lane.schedule.peak[row.rank]);
      peaks(lane.host, lane.schedule.hostPeak[row.rank]);
    }
  }
}

function roundStep(least) {
  const power = 10 ** Math.floor(Math.log10(least));
  return [1, 2, 5, 10].map((f) => f * power).find((step) => step >= least);
}

function drawAxis() {
  const c = prepare(element("axis"), 22);
  c.font = "11px system-ui, sans-serif"; c.fillStyle = colours.faint; c.textBaseline = "middle"; c.textAlign = "center";
  const step = roundStep(((state.to - state.from) * 90) / (width - gutter));
  for (let i = Math.ceil(state.from / step); i * step <= state.to; ++i) {
    const at = x(i * step);
    c.fillRect(at, 17, 1, 5);
    if (at > gutter + 10 && at < width - 16) c.fillText(number(i * step), at, 9);
  }
  c.textAlign = "left";
  c.fillText("time" + (data.timeUnit ? ` [${data.timeUnit}]` : ""), 8, 10);
}

const mapHeight = Math.max(36, Math.min(96, 2.5 * data.ranks));
function drawMap() {
  const c = prepare(element("map"), mapHeight);
  const at = (t) => gutter + (t / end) * (width - gutter);
  const each = (mapHeight - 6) / data.ranks;
  const schedule = shownSchedules()[0];
  schedule.lanes.forEach(({ compute }, r) => {
    for (const op of compute) {
      c.globalAlpha = emphasis(op, 0.15);
      c.fillStyle = colours[kinds[op.k]];
      const b = box(op, { y: 3 + r * each, h: Math.max(0.8, each - 0.6) });
      c.fillRect(at(op.start), b.y, Math.max(0.5, at(op.end) - at(op.start)), b.h);
    }
  });
  c.globalAlpha = 0.6; c.fillStyle = colours.panel;
  c.fillRect(gutter, 0, at(state.from) - gutter, mapHeight);
  c.fillRect(at(state.to), 0, width - at(state.to), mapHeight);
  c.globalAlpha = 1; c.strokeStyle = colours.accent; c.lineWidth = 1.5;
  c.strokeRect(at(state.from), 1, at(state.to) - at(state.from), mapHeight - 2);
  c.fillStyle = colours.faint; c.font = "11px system-ui, sans-serif"; c.textBaseline = "middle";
  c.fillText("whole step", 8, mapHeight / 2);
}

function draw() {
  readColours();
  drawMap(); drawAxis(); drawRows();
}
let waiting = false;
function redraw() {
  if (waiting) return;
  waiting = true;
  requestAnimationFrame(() => { waiting = false; draw(); });
}

// Zooming and panning.
function show(from, to) {
  const least = 1e-5 * end;
  const span = Math.min(end, Math.max(least, to - from));
  state.from = Math.min(Math.max(0, from), end - span);
  state.to = state.from + span;
  redraw();
}
function zoom(factor, px = (gutter + width) / 2) {
  const t = timeAt(Math.max(gutter, px));
  show(t - (t - state.from) / factor, t + (state.to - t) / factor);
}
const pan = (share) => { const by = share * (state.to - state.from); show(state.from + by, state.to + by); };
function choose(m) {
  state.chosen = m;
  element("chosen").textContent = m === null ? "" : microbatchText(m);
  redraw();
}
function select(shown) {
  state.shown = shown;
  document.querySelectorAll("#which button").forEach((b, i) => b.setAttribute("aria-pressed", String(i === shown)));
  facts(); storage(); redraw();
}

function hit(px, py) {
  const row = rows.find((each) => py >= each.y && py < each.y + each.h);
  if (!row) return null;
  if (px < gutter) return { row };
  for (const lane of row.lanes)
    for (const [place, list] of [[lane.compute, lane.schedule.lanes[row.rank].compute],
                                 [lane.copies, lane.schedule.lanes[row.rank].copies]]) {
      if (!place || py < place.y || py >= place.y + place.h) continue;
      const op = list.find((each) => {
        const b = box(each, place);
        return px >= b.x && px < b.x + b.w && py >= b.y && py < b.y + b.h;
      });
      if (op) return { row, op, schedule: lane.schedule };
    }
  return { row };
}
function hover(event, found) {
  const op = found && found.op ? found.op : null;
  const tip = element("tip");
  tip.hidden = !op;
  if (op) {
    tip.textContent = tipText(found.schedule, op);
    const { width: w, height: h } = tip.getBoundingClientRect();
    tip.style.left = Math.max(4, Math.min(event.clientX + 14, innerWidth - w - 8)) + "px";
    tip.style.top = (event.clientY + 18 + h > innerHeight ? event.clientY - h - 12 : event.clientY + 18) + "px";
  }
  if (op !== state.hover) { state.hover = op; redraw(); }
}

function local(event) {
  const canvas = rowsCanvas.getBoundingClientRect();
  return [event.clientX - canvas.left, event.clientY - canvas.top];
}
const pointers = new Map();
let moved = 0;
const clickSlack = 5; // pixels that a pointer may move in a click
rowsCanvas.addEventListener("pointerdown", (event) => {
  if (pointers.size === 0) moved = 0;
  pointers.set(event.pointerId, event);
  try { rowsCanvas.setPointerCapture(event.pointerId); } catch { /* an event of a test has no pointer */ }
});
rowsCanvas.addEventListener("pointermove", (event) => {
  const before = pointers.get(event.pointerId);
  if (!before) return hover(event, hit(...local(event)));
  const [dx, dy] = [event.clientX - before.clientX, event.clientY - before.clientY];
  moved += Math.abs(dx) + Math.abs(dy);
  const other = [...pointers.values()].find((each) => each.pointerId !== event.pointerId);
  pointers.set(event.pointerId, event);
  if (other) {
    const apart = (a, b) => Math.max(8, Math.abs(a.clientX - b.clientX));
    // Zooming keeps the point under the resting finger in its place. So two fingers zoom, and also pan if both move.
    return zoom(apart(event, other) / apart(before, other), local(other)[0]);
  }
  if (moved <= clickSlack) return;
  element("tip").hidden = true;
  chart.scrollTop -= dy;
  pan(-dx / (width - gutter));
});
function release(event) {
  const down = pointers.delete(event.pointerId);
  if (!down || pointers.size > 0 || moved > clickSlack || event.type === "pointercancel") return;
  const found = hit(...local(event));
  if (!found) return;
  hover(event, found);
  if (found.op) return choose(state.chosen === found.op.m ? null : found.op.m);
  if (local(event)[0] >= gutter) return choose(null);
  const r = found.row.rank;
  if (!state.open.delete(r)) state.open.add(r);
  redraw();
}
rowsCanvas.addEventListener("pointerup", release);
rowsCanvas.addEventListener("pointercancel", release);
rowsCanvas.addEventListener("pointerleave", (event) => {
  if (event.pointerType !== "touch") hover(event, null); // a finger leaves when it is lifted; its tooltip stays
});
chart.addEventListener("wheel", (event) => {
  if (event.ctrlKey || event.altKey) return; // the browser's own zoom, and a way to scroll the rows
  event.preventDefault();
  const px = event.clientX - rowsCanvas.getBoundingClientRect().left;
  if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY))
    pan((event.deltaX || event.deltaY) / (width - gutter));
  else if (px < gutter) chart.scrollTop += event.deltaY;
  else zoom(Math.exp(-event.deltaY / 400), px);
}, { passive: false });
element("map").addEventListener("pointerdown", (event) => moveMap(event));
element("map").addEventListener("pointermove", (event) => { if (event.buttons) moveMap(event); });
function moveMap(event) {
  const t = ((event.clientX - element("map").getBoundingClientRect().left - gutter) / (width - gutter)) * end;
  const half = (state.to - state.from) / 2;
  show(t - half, t + half);
}
chart.addEventListener("keydown", (event) => {
  const keys = {
    ArrowLeft: () => pan(-0.15), ArrowRight: () => pan(0.15), "+": () => zoom(1.5), "=": () => zoom(1.5),
    "-": () => zoom(1 / 1.5), Home: () => pan(-1e9), End: () => pan(1e9),
    0: () => show(0, end), Escape: () => { choose(null); show(0, end); },
    "]": () => choose(state.chosen === null ? 0 : (state.chosen + 1) % data.microbatches),
    "[": () => choose(state.chosen === null ? 0 : (state.chosen + data.microbatches - 1) % data.microbatches),
  };
  if (!keys[event.key] || event.ctrlKey || event.metaKey) return;
  event.preventDefault();
  keys[event.key]();
});
)js";

} // namespace optpipe::detail
