// What is wrong with the layout of this page in this window, in words. Called with {narrow, wide}: pixels up to which a
// window is a phone's, and from which no column of a table may be cut.
({ narrow, wide }) => {
  const faults = [], window_ = document.scrollingElement.clientWidth, main = document.querySelector("article, main") ?? document.body;
  const style = e => getComputedStyle(e);
  const named = e => {
    const words = (e.textContent || e.getAttribute("alt") || "").trim().replace(/\s+/g, " ").slice(0, 40);
    return `<${e.tagName.toLowerCase()}> ${JSON.stringify(words)}`;
  };
  const shown = e => {
    const r = e.getBoundingClientRect();
    return r.width > 1 && r.height > 1 && style(e).visibility !== "hidden";
  };
  const scroller = e => {
    for (let p = e; p && p !== document.body; p = p.parentElement)
      if (["auto", "scroll"].includes(style(p).overflowX)) return p;
    return null;
  };
  const cut = e => e.scrollWidth > e.clientWidth + 1;

  if (document.scrollingElement.scrollWidth > window_)
    faults.push(`${document.scrollingElement.scrollWidth} pixels in a window of ${window_}`);
  const every = [...main.querySelectorAll("*")].filter(e => !e.parentElement.closest("svg") && shown(e));
  for (const e of every) {
    const r = e.getBoundingClientRect();
    if (["hidden", "clip"].includes(style(e).overflowX) && cut(e)) faults.push(`cuts off: ${named(e)}`);
    if (!scroller(e) && (r.right > window_ + 1 || r.left < -1)) faults.push(`beyond the window: ${named(e)}`);
  }

  // Neighbours in the flow of the page share no pixels.
  const block = e => ["static", "relative"].includes(style(e).position) && style(e).float === "none"
    && ["block", "list-item", "table", "flex", "grid", "table-row", "table-cell"].includes(style(e).display);
  for (const parent of [main, ...every]) {
    if (parent.tagName === "svg") continue;
    const children = [...parent.children].filter(e => shown(e) && block(e)).map(e => [e, e.getBoundingClientRect()]);
    for (let i = 1; i < children.length; i++) {
      const [[a, one], [b, other]] = [children[i - 1], children[i]];
      const across = Math.min(one.right, other.right) - Math.max(one.left, other.left);
      const down = Math.min(one.bottom, other.bottom) - Math.max(one.top, other.top);
      if (across > 2 && down > 2) faults.push(`overlap: ${named(a)} and ${named(b)}`);
    }
  }

  // The words of a picture do not lie on each other.
  for (const svg of document.querySelectorAll("svg")) {
    if (!shown(svg)) continue;
    const words = [...svg.querySelectorAll("text")].filter(e => e.textContent.trim() && shown(e))
      .map(e => [e, e.getBoundingClientRect()]).sort(([, a], [, b]) => a.top - b.top);
    const scale = svg.viewBox.baseVal.width ? svg.getBoundingClientRect().width / svg.viewBox.baseVal.width : 1;
    const frame = svg.getBoundingClientRect();
    words.forEach(([a, one], i) => {
      if (one.left < frame.left - 2 || one.right > frame.right + 2) faults.push(`outside of its picture: ${named(a)}`);
      for (const [b, other] of words.slice(i + 1)) {
        if (other.top > one.bottom) break;
        const across = Math.min(one.right, other.right) - Math.max(one.left, other.left);
        const down = Math.min(one.bottom, other.bottom) - Math.max(one.top, other.top);
        if (across > 3 * scale && down > 5 * scale) faults.push(`words on words: ${named(a)} and ${named(b)}`);
      }
    });
  }

  for (const table of main.querySelectorAll("table")) {
    const around = shown(table) && scroller(table);
    if (!around || !cut(around)) continue;
    if (window_ >= wide || table.matches(".kept")) faults.push(`columns cut: ${named(table)}`);
    const first = table.querySelector("tbody th, tbody td");
    if (window_ <= narrow && first && style(first).position !== "sticky") faults.push(`loses its names: ${named(table)}`);
  }
  for (const image of main.querySelectorAll("img")) {
    const scale = image.getBoundingClientRect().width / image.naturalWidth;
    if (!image.naturalWidth) faults.push(`not there: ${image.getAttribute("src")}`);
    else if (image.src.endsWith(".svg") && scale < 0.6) faults.push(`too small to read: ${named(image)}, ${scale.toFixed(2)}`);
  }
  return faults;
}
