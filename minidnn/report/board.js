"use strict";
// A policy that is picked stands out in all pictures and tables; Escape, or picking it again, ends that.
(() => {
  const main = document.querySelector("main"), buttons = [...document.querySelectorAll(".picks button")];
  const told = document.querySelector("output");
  const pick = name => {
    main.classList.toggle("chosen", name !== null);
    for (const button of buttons) button.setAttribute("aria-pressed", String(button.dataset.policy === name));
    for (const one of document.querySelectorAll("[data-policy]")) one.classList.toggle("on", one.dataset.policy === name);
    const button = buttons.find(b => b.dataset.policy === name);
    told.textContent = button ? button.dataset.told : told.dataset.told;
  };
  for (const button of buttons)
    button.addEventListener("click", () => pick(button.getAttribute("aria-pressed") === "true" ? null : button.dataset.policy));
  document.addEventListener("keydown", event => { if (event.key === "Escape") pick(null); });
  for (const line of document.querySelectorAll("g.line"))
    line.addEventListener("click", () => pick(line.classList.contains("on") ? null : line.dataset.policy));
})();
