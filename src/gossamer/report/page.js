"use strict";
(() => {
  const { config, specs } = JSON.parse(document.getElementById("charts").textContent);
  const theme = window.matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  const drawn = [...document.querySelectorAll("[data-chart]")].map((place) => ({
    chart: window.drawChart(place, specs[place.dataset.chart], {
      actions: false, config, renderer: "svg", bind: place.nextElementSibling, tooltip: { theme },
    }),
    follows: specs[place.dataset.chart].params?.some((one) => one.name === "across"),
  }));
  Promise.all(drawn.map(({ chart }) => chart)).then(() => { document.documentElement.dataset.drawn = "all"; });
  // A chart that was drawn where nothing was shown has no width yet.
  for (const folded of document.querySelectorAll("details.all")) {
    folded.addEventListener("toggle", () => window.dispatchEvent(new Event("resize")));
  }
  const across = document.getElementById("across");
  across?.addEventListener("change", () => {
    for (const { chart, follows } of drawn) {
      if (follows) { chart.then(({ view }) => view.signal("across", across.value).runAsync()); }
    }
  });
})();
