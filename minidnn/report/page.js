// Zoom, search and selection for the steps of a page. The page is whole without this script: it draws the same bars anew
// for a part of the time, from the data in the page.
"use strict";
(() => {
  const { names, words, left, plot, height, lane: LANE, gap: GAP, most, longest, panels } =
    JSON.parse(document.getElementById("steps").textContent);
  const pictures = [...document.querySelectorAll("svg.step")];
  const view = { from: 0, to: longest };  // nanoseconds
  const LEAST = 1000;  // nanoseconds: no closer
  let chosen = null, wanted = "";  // [panel, bar], and the word that is looked for

  const escaped = text => text.replace(/[&<>"]/g, c => `&#${c.charCodeAt(0)};`);
  const threeDigits = v => v.toFixed(v < 9.995 ? 2 : v < 99.95 ? 1 : 0);
  function duration(ns) {
    const [unit, scale] = ns >= 999.5e6 ? ["s", 1e9] : ns >= 999.5e3 ? ["ms", 1e6] : ["µs", 1e3];
    return `${threeDigits(ns / scale)} ${unit}`;
  }
  function size(n) {
    let unit = 0;
    while (n >= 1024 && unit < 3) { n /= 1024; unit++; }
    return unit ? `${threeDigits(n)} ${["KiB", "MiB", "GiB"][unit - 1]}` : `${n} B`;
  }
  const x = ns => left + plot * (ns - view.from) / (view.to - view.from);
  const y = bytes => height * (1 - bytes / most);
  const bars = panels.map(p => p.bars.map(([lane, kind, name, start, took, bytes, layer, tensors, on, wait, how], i) =>
    ({ i, lane, kind, name: names[name], start, end: start + took, bytes, layer: names[layer], on, wait,
      tensors: tensors.map(t => names[t]), how: names[how] })));
  const matching = b => wanted && [b.name, b.layer, ...b.tensors].some(name => name.toLowerCase().includes(wanted));

  function said(p, b) {
    const parts = [`${b.name}: ${words[b.kind]}, ${duration(b.end - b.start)} from ${duration(b.start)} on`];
    if (b.layer) parts.push(`layer ${b.layer}`);
    if (b.how) parts.push(`algorithm ${b.how}`);
    parts.push(b.layer ? `${size(b.bytes)} read and written: ${b.tensors.join(", ")}` : size(b.bytes));
    if (b.on >= 0) {
      const other = bars[p][b.on];
      parts.push(`waited ${duration(b.wait)} for ${words[other.kind]} of ${other.name}`);
    }
    return `${parts.join("; ")}.`;
  }

  // ---- drawing

  function curve(memory, seconds) {
    const [times, bytes] = memory;
    let first = 0, last = times.length;
    while (last - first > 1) {
      const middle = (first + last) >> 1;
      if (times[middle] <= view.from) first = middle; else last = middle;
    }
    let path = `M${left} ${y(bytes[first]).toFixed(1)}`, at = -1, high, low, end;
    const flush = () => { if (at >= 0) path += `H${at / 2}V${high}V${low}V${end}`; };
    for (let i = first + 1; i < times.length && times[i] <= view.to; i++) {
      const column = Math.round(x(times[i]) * 2), here = +y(bytes[i]).toFixed(1);
      if (column !== at) { flush(); at = column; high = low = here; }
      high = Math.min(high, here); low = Math.max(low, here); end = here;
    }
    flush();
    return `${path}H${x(Math.min(seconds, view.to)).toFixed(1)}`;
  }

  // Bars of a lane, neighbours of one kind that are too narrow to be seen joined: [first, last].
  function shown(all, lane) {
    const least = 1.2 * (view.to - view.from) / plot, found = [];
    const narrow = b => b.end - b.start < least;
    for (const b of all) {
      if (b.lane !== lane || b.end < view.from || b.start > view.to) continue;
      const last = found.at(-1);
      if (last && last.narrow && narrow(b) && last.kind === b.kind && b.start - last.end < least / 2) {
        last.end = b.end; last.of.push(b);
      } else found.push({ start: b.start, end: b.end, kind: b.kind, narrow: narrow(b), of: [b] });
    }
    return found;
  }

  function rectangle(start, end, top, attributes, title) {
    const from = Math.max(x(start), left), to = Math.min(x(end), left + plot);
    const w = Math.max(to - from, 0.35);
    return `<rect ${attributes} x="${from.toFixed(2)}" y="${top}" width="${(w > 2.5 ? w - 0.5 : w).toFixed(2)}" ` +
      `height="${LANE}"><title>${escaped(title)}</title></rect>`;
  }

  // About seven round moments, in steps of 1, 2 or 5 times a power of ten.
  function ticks() {
    const about = (view.to - view.from) / 7, power = 10 ** Math.floor(Math.log10(about));
    const step = [1, 2, 5, 10].map(part => part * power).find(s => s >= about);
    const found = [];
    for (let at = Math.ceil(view.from / step) * step; at <= view.to; at += step) found.push(at);
    return found;
  }

  function draw(p) {
    const panel = panels[p], out = [], path = curve(panel.memory, panel.seconds);
    const bottom = height + 10 + panel.lanes.length * (LANE + GAP);
    if (panel.turn !== null && panel.turn >= view.from && panel.turn <= view.to) {
      const at = x(panel.turn).toFixed(1);
      out.push(`<line class="turn" x1="${at}" x2="${at}" y1="-11" y2="${bottom}"/>` +
        `<text class="soft" x="${at - 6}" y="-4" text-anchor="end">forward</text>` +
        `<text class="soft" x="${+at + 6}" y="-4">backward</text>`);
    }
    out.push(`<path class="area" d="${path}V${height}H${left}Z"/><path class="curve" d="${path}"/>`);
    const base = panels.findIndex(other => other.base);
    if (base >= 0 && base !== p) out.push(`<path class="base" d="${curve(panels[base].memory, panels[base].seconds)}"/>`);
    panel.lanes.forEach((lane, row) => {
      const top = height + 10 + row * (LANE + GAP), end = Math.min(x(panel.seconds), left + plot);
      out.push(`<rect class="lane" x="${left}" y="${top}" width="${Math.max(end - left, 0)}" height="${LANE}"/>`);
      if (lane === "compute") for (const [a, b] of panel.stalls) {
        if (b > view.from && a < view.to) out.push(rectangle(a, b, top, 'class="stall"', `stalled for ${duration(b - a)}`));
      }
      for (const group of shown(bars[p], lane)) {
        const [first, many] = [group.of[0], group.of.length];
        const marks = [group.kind];
        if (group.of.some(matching)) marks.push("found");
        if (chosen && chosen[0] === p && group.of.some(b => b.i === chosen[1])) marks.push("chosen");
        const title = many > 1 ? `${first.name} … ${group.of.at(-1).name} (${many} ops)` : first.name;
        out.push(rectangle(group.start, group.end, top, `class="${marks.join(" ")}" data-i="${first.i}"`,
          `${title}: ${duration(group.end - group.start)}`));
      }
    });
    for (const at of ticks()) {
      const place = x(at).toFixed(1);
      out.push(`<line class="axis" x1="${place}" x2="${place}" y1="${bottom - 2}" y2="${bottom + 2}"/>` +
        `<text class="soft" x="${place}" y="${bottom + 14}" text-anchor="middle">${at ? duration(at) : "0"}</text>`);
    }
    pictures[p].querySelector(".moving").innerHTML = out.join("");
    pictures[p].classList.toggle("searching", Boolean(wanted));
  }
  let due = 0;
  const redraw = () => { due ||= requestAnimationFrame(() => { due = 0; panels.forEach((_, p) => draw(p)); }); };

  // ---- moving

  function look(from, to) {
    const span = Math.min(Math.max(to - from, LEAST), longest);
    view.from = Math.min(Math.max(from, 0), longest - span);
    view.to = view.from + span;
    redraw();
  }
  function zoom(factor, about) {
    const middle = about ?? (chosen ? bars[chosen[0]][chosen[1]].start : (view.from + view.to) / 2);
    look(middle - (middle - view.from) * factor, middle + (view.to - middle) * factor);
  }
  function show(p, i) {
    chosen = [p, i];
    const b = bars[p][i], span = view.to - view.from;
    if (b.start < view.from || b.end > view.to) look(b.start - span / 3, b.start + span * 2 / 3);
    live.textContent = said(p, b);
    redraw();
  }
  function timeAt(picture, clientX) {
    const box = picture.getBoundingClientRect();
    const place = (clientX - box.left) * picture.viewBox.baseVal.width / box.width;
    return view.from + (place - left) / plot * (view.to - view.from);
  }

  // ---- the tools

  const hint = "Press Tab to reach a picture. Arrow keys move between its bars, + and - zoom, 0 shows the whole step. " +
    "The wheel with Ctrl and two fingers zoom, too.";
  const tools = document.createElement("div");
  tools.className = "told tools";
  const live = document.createElement("output");
  live.setAttribute("aria-live", "polite");
  live.textContent = hint;
  const button = (text, label, act) => {
    const made = document.createElement("button");
    made.type = "button"; made.textContent = text; made.setAttribute("aria-label", label); made.onclick = act;
    return made;
  };
  const find = document.createElement("input");
  find.type = "search";
  find.placeholder = "find a layer or a tensor";
  find.setAttribute("aria-label", "Find a layer or a tensor; Enter goes to the next bar");
  tools.append(button("−", "Zoom out", () => zoom(2)), button("+", "Zoom in", () => zoom(0.5)),
    button("all", "Show the whole step", () => look(0, longest)), find, live);
  pictures[0].closest("section").querySelector(".scroll").before(tools);

  find.addEventListener("input", () => {
    wanted = find.value.trim().toLowerCase();
    const count = bars.flat().filter(matching).length;
    live.textContent = !wanted ? hint : count ? `${count} bars have ${find.value} in a name. Enter goes to the next one.`
      : `No layer and no tensor has ${find.value} in its name.`;
    redraw();
  });
  find.addEventListener("keydown", event => {
    if (event.key !== "Enter") return;
    const every = bars.flatMap((all, p) => all.filter(matching).map(b => [p, b.i]));
    const at = chosen ? every.findIndex(([p, i]) => p === chosen[0] && i === chosen[1]) : -1;
    if (every.length) show(...every[(at + 1) % every.length]);
  });

  pictures.forEach((picture, p) => {
    picture.setAttribute("tabindex", "0");
    picture.setAttribute("role", "application");
    picture.setAttribute("aria-roledescription", "timeline");
    const lanes = panels[p].lanes;
    function walk(step) {
      if (!chosen || chosen[0] !== p) return show(p, bars[p].findIndex(b => b.lane === lanes[0]));
      const b = bars[p][chosen[1]];
      for (let i = b.i + step; bars[p][i]; i += step) if (bars[p][i].lane === b.lane) return show(p, i);
    }
    function across(step) {
      if (!chosen || chosen[0] !== p) return walk(0);
      const b = bars[p][chosen[1]];
      const lane = lanes[lanes.indexOf(b.lane) + step];
      const there = bars[p].filter(other => other.lane === lane);
      if (there.length) show(p, there.reduce((a, c) => Math.abs(c.start - b.start) < Math.abs(a.start - b.start) ? c : a).i);
    }
    const keys = {
      ArrowRight: () => walk(1), ArrowLeft: () => walk(-1), ArrowDown: () => across(1), ArrowUp: () => across(-1),
      "+": () => zoom(0.5), "=": () => zoom(0.5), "-": () => zoom(2), 0: () => look(0, longest),
      Escape: () => { chosen = null; live.textContent = hint; redraw(); },
    };
    picture.addEventListener("keydown", event => {
      if (!(event.key in keys) || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      keys[event.key]();
    });
    const barOf = event => event.target.dataset.i === undefined ? null : bars[p][Number(event.target.dataset.i)];
    let seen = "";  // where the pointer was: a bar that comes to lie below a pointer at rest says nothing
    picture.addEventListener("pointermove", event => {
      const b = barOf(event), here = `${event.clientX} ${event.clientY}`;
      if (b && here !== seen) live.textContent = said(p, b);
      seen = here;
    });
    picture.addEventListener("click", event => { const b = barOf(event); if (b) show(p, b.i); });
    picture.addEventListener("wheel", event => {
      if (!event.ctrlKey) return;
      event.preventDefault();
      zoom(Math.exp(event.deltaY / 300), timeAt(picture, event.clientX));
    }, { passive: false });
    const fingers = new Map();
    picture.addEventListener("pointerdown", event => fingers.set(event.pointerId, event.clientX));
    picture.addEventListener("pointermove", event => {
      if (!fingers.has(event.pointerId)) return;
      const before = [...fingers.values()];
      fingers.set(event.pointerId, event.clientX);
      const now = [...fingers.values()];
      if (now.length === 2) {
        const apart = ([a, b]) => Math.max(Math.abs(a - b), 10);
        zoom(apart(before) / apart(now), timeAt(picture, (now[0] + now[1]) / 2));
      } else if (event.pointerType === "mouse") {
        const moved = timeAt(picture, before[0]) - timeAt(picture, now[0]);
        look(view.from + moved, view.to + moved);
      }
    });
    for (const end of ["pointerup", "pointercancel", "pointerleave"]) {
      picture.addEventListener(end, event => fingers.delete(event.pointerId));
    }
  });
  redraw();
})();
