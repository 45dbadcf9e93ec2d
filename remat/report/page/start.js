// SPDX-License-Identifier: Apache-2.0
// The last of the files: fills the page from its data.

{
  const data = JSON.parse(document.getElementById("data").textContent);
  const main = document.getElementById("main");
  pages[document.body.dataset.page](data, main);
  main.append(el("footer", {}, "Made by remat. This file needs nothing but itself: no server, no network."));
  document.body.dataset.ready = "";
  // After the frame in which all of it is seen first: ms since the page was asked for.
  requestAnimationFrame(() => requestAnimationFrame(() => { document.body.dataset.seen = performance.now(); }));
}
