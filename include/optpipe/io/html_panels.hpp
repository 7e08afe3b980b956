#pragma once

#include "optpipe/core/standard.hpp"

#include <string_view>

namespace optpipe::detail {

/// The second half of the page's script, after `html_timeline`. The second half makes the elements around the timeline,
/// and starts the page. `window.optpipe` is for tests and embedding pages: `find(spelling)` returns an operation's
/// rectangle on the screen. `view()` returns the visible times, the chosen microbatch, the schedule and the number of
/// opened ranks.
inline constexpr std::string_view html_panels = R"js(
// The elements around the timeline.
function make(tag, text, parent) {
  const made = document.createElement(tag);
  made.textContent = text;
  parent.append(made);
  return made;
}
function facts() {
  const box = element("facts");
  box.textContent = "";
  const fact = (name, value) => { const line = make("div", "", box); make("span", name, line); line.append(value); };
  const schedule = shownSchedules()[0];
  fact("method", schedule.method);
  fact(data.objective, time(schedule.objective));
  if (data.bound !== null) {
    fact("bound", time(data.bound));
    fact("gap", percent((schedule.objective - data.bound) / schedule.objective));
  }
  fact("bubble", percent(schedule.bubble));
  fact("peak memory", size(Math.max(...schedule.peak)));
  if (schedule.usesHost) fact("on the host", size(Math.max(...schedule.hostPeak)));
  const slices = data.slices.length ? `, slices of ${sequence(data.microbatches - 1) + 1} sequences` : "";
  fact("ranks × stages × microbatches", `${data.ranks} × ${data.stageRank.length} × ${data.microbatches}${slices}`);
  if (data.schedules.length > 1) {
    const [a, b] = data.schedules;
    const longer = (a.objective - b.objective) / b.objective;
    fact("against " + b.title, `${time(b.objective)}, ${longer > 0 ? "+" : ""}${percent(longer)}`);
  }
}
function legend() {
  const used = new Set(data.schedules.flatMap((schedule) => [...schedule.by.values()].map((op) => op.k)));
  for (const k of [...used].sort()) {
    const item = make("span", "", element("legend"));
    make("i", "", item).style.background = `var(--${kinds[k]})`;
    item.append(`${kinds[k]} ${names[k]}`);
  }
  if (data.slices.length) make("span", "2.1: slice 1 of sequence 2", element("legend"));
}

// A grid of the storage options that stages and microbatches use. If there are more options than colours, colours recur
// with bars, first across, then upright.
const mostAcross = 3;
function paintOption(c, i, x, y, w, h) {
  c.fillStyle = data.optionColours[i % data.optionColours.length];
  c.fillRect(x, y, w, h);
  const bars = Math.floor(i / data.optionColours.length);
  const across = bars % (mostAcross + 1), upright = Math.floor(bars / (mostAcross + 1));
  c.fillStyle = colours.panel;
  for (let bar = 1; bar <= across; ++bar) c.fillRect(x, y + (h * bar) / (across + 1) - 0.8, w, 1.6);
  for (let bar = 1; bar <= upright; ++bar) c.fillRect(x + (w * bar) / (upright + 1) - 0.6, y, 1.2, h);
}
function sharp(canvas, w, h) {
  const ratio = window.devicePixelRatio || 1;
  canvas.style.width = w + "px";
  canvas.style.height = h + "px";
  canvas.width = ratio * w;
  canvas.height = ratio * h;
  const context = canvas.getContext("2d");
  context.scale(ratio, ratio);
  return context;
}
function storage() {
  const section = element("storage");
  section.hidden = data.options.every((list) => list.length < 2);
  if (section.hidden) return;
  const stages = [...data.options.keys()].filter((s) => data.options[s].length > 1);
  const all = [...new Set(stages.flatMap((s) => data.options[s]))];
  const counts = new Map(all.map((name) => [name, 0]));
  const step = Math.max(3, Math.min(16, (section.clientWidth - 66) / data.microbatches));
  const height = Math.max(step, 11);
  const c = sharp(element("grid"), 66 + step * data.microbatches, height * stages.length);
  c.font = "10.5px system-ui, sans-serif"; c.textBaseline = "middle";
  const schedule = shownSchedules()[0];
  readColours();
  stages.forEach((s, row) => {
    const y = row * height;
    c.fillStyle = colours.faint;
    c.fillText("stage " + s, 4, y + height / 2);
    for (let m = 0; m < data.microbatches; ++m) {
      const name = optionOf(schedule, s, m);
      counts.set(name, counts.get(name) + 1);
      paintOption(c, all.indexOf(name), 66 + m * step, y, step - 0.7, height - 0.7);
    }
  });
  const box = element("options");
  box.textContent = "";
  all.forEach((name, i) => {
    const item = make("span", "", box);
    paintOption(sharp(make("canvas", "", item), 22, 14), i, 0, 0, 22, 14);
    item.append(`${name} ${counts.get(name)}`);
  });
}

// Why each rank of the plan computes nothing, and for how long.
function idle() {
  const section = element("idle");
  section.hidden = data.idle.length === 0;
  if (section.hidden) return;
  const used = data.causes.map((name, i) => i).filter((i) => data.idle.some((times) => times[i + 1] > 0));
  const table = make("table", "", section), heads = make("tr", "", table);
  const unit = data.timeUnit ? ` [${data.timeUnit}]` : "";
  for (const text of ["rank", "computes" + unit, "idle", ...used.map((i) => data.causes[i])]) make("th", text, heads);
  data.idle.forEach(([computes, ...causes], r) => {
    const line = make("tr", "", table);
    make("td", r, line);
    const total = causes.reduce((sum, each) => sum + each, 0);
    for (const t of [computes, total, ...used.map((i) => causes[i])])
      make("td", t > 0 ? number(t) : "", line).className = "n";
  });
}

// Objective and bound over time.
function history() {
  element("search").hidden = data.history.length === 0;
  if (data.history.length === 0) return;
  const w = 760, h = 190, left = 66, bottom = 26;
  const known = data.history.filter((step) => step[1] !== null);
  const values = [...known.map((step) => step[1]), ...data.history.map((step) => step[2]).filter((v) => v > 0)];
  const low = Math.min(...values), high = Math.max(...values), rise = high - low || 0.05 * high;
  const last = Math.max(data.seconds, ...data.history.map((step) => step[0]), 1e-3);
  const px = (t) => left + (w - left - 12) * Math.sqrt(t / last);
  const py = (v) => 10 + (h - 10 - bottom) * (1 - (v - low + 0.06 * rise) / (1.12 * rise));
  const path = (steps, index) => {
    let text = "", y = 0;
    for (const step of steps) {
      text += text ? `H${px(step[0]).toFixed(1)}` : `M${px(step[0]).toFixed(1)} `;
      y = py(step[index]).toFixed(1);
      text += text.includes("H") ? `V${y}` : y;
    }
    return text + `H${px(last).toFixed(1)}`;
  };
  const line = (d, colour) => `<path d="${d}" fill="none" stroke="var(--${colour})" stroke-width="2"/>`;
  let svg = "";
  const step = roundStep((1.12 * rise) / 4);
  for (let v = Math.ceil(low / step) * step; v <= high + 1e-9 * high; v += step)
    svg += `<path d="M${left} ${py(v)}H${w - 12}" stroke="var(--line)"/>` +
           `<text x="${left - 6}" y="${py(v) + 4}" text-anchor="end">${number(v)}</text>`;
  for (const share of [0, 0.04, 0.16, 0.36, 0.64, 1])
    svg += `<text x="${px(share * last)}" y="${h - 6}" text-anchor="middle">` +
           `${number(Number((share * last).toPrecision(2)))} s</text>`;
  const bounds = data.history.filter((each) => each[2] > 0);
  if (bounds.length) svg += line(path(bounds, 2), "I");
  if (known.length) svg += line(path(known, 1), "B");
  for (const [name, colour, at] of [["objective", "B", 0], ["bound", "I", 86]])
    svg += `<rect x="${w - 170 + at}" y="2" width="11" height="11" rx="2" fill="var(--${colour})"/>` +
           `<text x="${w - 154 + at}" y="12">${name}</text>`;
  svg = `<svg viewBox="0 0 ${w} ${h}" width="${w}" style="max-width:100%">${svg}</svg>`;
  element("plot").innerHTML = svg;
  const dots = element("plot").firstChild;
  for (const [t, objective, bound, by] of data.history) {
    const dot = document.createElementNS("http://www.w3.org/2000/svg", "circle");
    dot.setAttribute("cx", px(t)); dot.setAttribute("cy", py(objective === null ? bound : objective));
    dot.setAttribute("r", 3); dot.style.fill = "var(--text)";
    const title = document.createElementNS("http://www.w3.org/2000/svg", "title");
    const known = objective === null ? "no schedule yet" : "objective " + time(objective);
    title.textContent = `${number(t)} s, ${data.strategies[by]}: ${known}, bound ${time(bound)}`;
    dot.append(title);
    dots.append(dot);
  }
}

function theme(name) {
  document.documentElement.dataset.theme = name;
  element("theme").textContent = name === "dark" ? "light" : "dark";
  if (width > 0) { redraw(); storage(); }
}
const system = matchMedia("(prefers-color-scheme: dark)");
system.addEventListener("change", () => theme(system.matches ? "dark" : "light"));
element("theme").onclick = () => theme(document.documentElement.dataset.theme === "dark" ? "light" : "dark");
element("all").onclick = () => {
  if (state.open.size < data.ranks) for (let r = 0; r < data.ranks; ++r) state.open.add(r);
  else state.open.clear();
  redraw();
};
element("in").onclick = () => zoom(1.5);
element("out").onclick = () => zoom(1 / 1.5);
element("fit").onclick = () => show(0, end);
if (data.schedules.length > 1)
  [...data.schedules.map((schedule) => schedule.title), "both"].forEach((title, i) => {
    make("button", title, element("which")).onclick = () => select(i);
  });
theme(system.matches ? "dark" : "light");
legend(); idle(); history(); select(0); draw();
addEventListener("resize", () => { redraw(); storage(); });

window.optpipe = {
  find(text, number = 0) {
    const [, s, k, m] = /^(\d+)([A-Z]+)(\d+)$/.exec(text);
    const schedule = shownSchedules()[number];
    const op = schedule.find(Number(s), kinds.indexOf(k), Number(m));
    if (!op) return null;
    const lane = rows[op.rank].lanes[number];
    const b = box(op, op.k === OFFLOAD || op.k === RELOAD ? lane.copies : lane.compute);
    const canvas = rowsCanvas.getBoundingClientRect();
    return { x: canvas.left + b.x, y: canvas.top + b.y, w: b.w, h: b.h };
  },
  view: () => ({ from: state.from, to: state.to, chosen: state.chosen, shown: state.shown, open: state.open.size }),
  draw,
};
})();
)js";

} // namespace optpipe::detail
