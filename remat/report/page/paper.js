// SPDX-License-Identifier: Apache-2.0
// What is drawn on a canvas is drawn again where its place or its colours change: light or dark, screen or paper.

const drawings = new Set();  // functions that fit a drawing into its place and draw it, at once

function drawAll() {
  for (const draw of drawings) draw();
}

// A browser divides a page into sheets without a word to its script, and a canvas keeps the size that it had.
// So the page gets the width of a sheet before that.
function usePaper(on) {
  const { classList } = document.documentElement;
  if (classList.contains("paper") === on) return;
  classList.toggle("paper", on);
  drawAll();
}

const printing = matchMedia("print");
printing.addEventListener("change", () => usePaper(printing.matches));
usePaper(printing.matches);
addEventListener("beforeprint", () => usePaper(true));
addEventListener("afterprint", () => usePaper(false));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);
