// What a budget buys, by a slider: the numbers of the page's law, forecast when the page was made. Computes nothing itself.
// Without this file the page has the same forecasts at a few budgets as a table.
"use strict";
(() => {
  const short = value => value.toExponential(2).replace("e+", "e").replace(/\.?0+e/, "e");
  const count = value => {
    const [unit, power] = value >= 1e12 ? ["T", 1e12] : value >= 1e9 ? ["B", 1e9] : value >= 1e6 ? ["M", 1e6] : value >= 1e3 ? ["k", 1e3] : ["", 1];
    return `${(value / power).toPrecision(3)}${unit}`;
  };
  const said = (law, number) => {
    const [flops, low, median, high, params, tokens] = law.points[number];
    const beyond = flops / law.largest;
    const where = beyond > 1.001 ? `${Number(beyond.toPrecision(3))} times the largest budget` : "within the ladder";
    return [
      `${short(flops)} FLOPs (${where})`,
      `loss ${median.toFixed(4)}, 90 % interval ${low.toFixed(4)} to ${high.toFixed(4)}`,
      `${count(params)} parameters, ${count(tokens)} tokens`,
    ];
  };

  for (const [index, place] of document.querySelectorAll("[data-law]").entries()) {
    const law = JSON.parse(place.dataset.law);
    const label = document.createElement("label");
    const slider = document.createElement("input");
    const output = document.createElement("output");
    Object.assign(slider, { type: "range", id: `budget-${index}`, min: 0, max: law.points.length - 1, value: law.start });
    slider.style.width = "100%";
    label.htmlFor = slider.id;
    label.textContent = "Budget";
    output.htmlFor = slider.id;
    const show = () => {
      const lines = said(law, Number(slider.value));
      output.replaceChildren(...lines.map(line => Object.assign(document.createElement("div"), { textContent: line })));
      slider.setAttribute("aria-valuetext", lines.join("; "));
    };
    slider.addEventListener("input", show);
    place.append(label, slider, output);
    show();
  }
})();
