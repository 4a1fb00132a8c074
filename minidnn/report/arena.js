// Walks the rectangles of each map by keyboard and search, and says below the map what its <title> says. The page is
// whole without this script.
"use strict";
for (const map of document.querySelectorAll("svg.arena")) {
  const all = [...map.querySelectorAll(".lives rect")].map(element => {
    const [x, y, w, h] = ["x", "y", "width", "height"].map(name => Number(element.getAttribute(name)));
    return { element, x, y, right: x + w, low: y + h, text: element.querySelector("title").textContent };
  });
  const of = new Map(all.map((life, i) => [life.element, i]));
  const hint = "Arrow keys walk the tensors: left and right in time, up and down in the arena.";
  const told = document.createElement("div");
  told.className = "told";
  const live = document.createElement("output");
  live.setAttribute("aria-live", "polite");
  live.textContent = hint;
  const find = document.createElement("input");
  find.type = "search";
  find.placeholder = "find a tensor, Enter: next";
  find.setAttribute("aria-label", "Find a tensor; Enter goes to the next one");
  told.append(live, find);
  map.closest(".scroll").after(told);
  map.setAttribute("tabindex", "0");
  map.setAttribute("role", "application");
  map.setAttribute("aria-roledescription", "map");

  let at = -1;
  function go(i) {
    if (i < 0 || i >= all.length) return;
    if (at >= 0) all[at].element.classList.remove("found");
    at = i;
    all[i].element.classList.add("found");
    all[i].element.scrollIntoView({ block: "nearest", inline: "nearest" });
    live.textContent = all[i].text;
  }
  // The nearest neighbour above (-1) or below (1) that lives in the middle of the present one's life.
  function beside(step) {
    const { x, right, y, low } = all[at];
    const middle = (x + right) / 2, edge = step < 0 ? y : low;
    let best = -1, least = Infinity;
    all.forEach((life, i) => {
      if (i === at || life.x > middle || life.right < middle) return;
      const away = step < 0 ? edge - life.low : life.y - edge;
      if (away > -0.6 && away < least) [best, least] = [i, away];
    });
    return best;
  }
  const keys = {
    ArrowRight: () => at + 1, ArrowLeft: () => at - 1, Home: () => 0, End: () => all.length - 1,
    ArrowUp: () => at < 0 ? 0 : beside(-1), ArrowDown: () => at < 0 ? 0 : beside(1),
  };
  map.addEventListener("keydown", event => {
    if (!(event.key in keys)) return;
    event.preventDefault();
    go(keys[event.key]());
  });
  map.addEventListener("pointerover", event => {
    const i = of.get(event.target);
    if (i !== undefined) live.textContent = all[i].text;
  });
  map.addEventListener("click", event => { if (of.has(event.target)) go(of.get(event.target)); });
  function seek(from) {
    const word = find.value.toLowerCase();
    for (let k = 0; word && k < all.length; k++) {
      const i = (from + k) % all.length;
      if (all[i].text.split(": ")[0].toLowerCase().includes(word)) return go(i);
    }
    live.textContent = word ? `no tensor has ${find.value} in its name` : hint;
  }
  find.addEventListener("input", () => seek(0));
  find.addEventListener("keydown", event => { if (event.key === "Enter") seek(at + 1); });
}
