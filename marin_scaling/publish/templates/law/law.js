// What a budget buys, by a slider: the numbers of the page's law, forecast when the page was made. Only time and cost are computed.
// Without this file the page has the same forecasts at a few budgets as a table.
"use strict";
(() => {
  const H100 = 3.96e14; // FLOP/s of one at 40 % of its dense bf16 peak, 9.895e14
  const make = (tag, properties, children = []) => {
    const made = Object.assign(document.createElement(tag), properties);
    made.append(...children);
    return made;
  };
  const short = value => value.toExponential(2).replace("e+", "e").replace(/\.?0+e/, "e");
  const count = value => {
    const [unit, power] = value >= 1e12 ? ["T", 1e12] : value >= 1e9 ? ["B", 1e9] : value >= 1e6 ? ["M", 1e6] : value >= 1e3 ? ["k", 1e3] : ["", 1];
    return `${(value / power).toPrecision(3)}${unit}`;
  };
  const duration = seconds => {
    const [unit, length] = seconds >= 2 * 86400 ? ["days", 86400] : seconds >= 2 * 3600 ? ["hours", 3600] : seconds >= 120 ? ["minutes", 60] : ["seconds", 1];
    return `${Number((seconds / length).toPrecision(3)).toLocaleString("en")} ${unit}`;
  };
  const lines = (law, number, rate, price) => {
    const [flops, low, median, high, params, tokens] = law.points[number];
    const beyond = flops / law.largest;
    const where = beyond > 1.001 ? `${Number(beyond.toPrecision(3))} times the largest budget` : "within the ladder";
    const seconds = flops / rate;
    const cost = price > 0 ? `, cost ${Number((seconds / 3600 * price).toPrecision(3)).toLocaleString("en")}` : "";
    return [
      `${short(flops)} FLOPs (${where})`,
      `loss ${median.toFixed(4)}, 90 % interval ${low.toFixed(4)} to ${high.toFixed(4)}`,
      `${count(params)} parameters, ${count(tokens)} tokens`,
      ...(law.settings?.[number] ? [`recipe ${law.recipe}: ${law.settings[number]}`] : []),
      ...(rate > 0 ? [`training time ${duration(seconds)}${cost}`] : []),
    ];
  };

  for (const [index, place] of document.querySelectorAll("[data-law]").entries()) {
    const law = JSON.parse(place.dataset.law);
    const slider = make("input", { type: "range", id: `budget-${index}`, min: 0, max: law.points.length - 1, value: law.start });
    const rate = make("input", { type: "text", inputMode: "decimal", id: `rate-${index}`, value: short(law.rate || H100) });
    const price = make("input", { type: "text", inputMode: "decimal", id: `price-${index}`, value: law.price || "" });
    const output = make("output", {});
    output.htmlFor = slider.id;
    const label = (input, text) => make("label", { htmlFor: input.id, textContent: text });
    const show = () => {
      const said = lines(law, Number(slider.value), Number(rate.value), Number(price.value));
      output.replaceChildren(...said.map(line => make("div", { textContent: line })));
      slider.setAttribute("aria-valuetext", said.join("; "));
    };
    for (const input of [slider, rate, price]) input.addEventListener("input", show);
    const machine = law.rate ? "Sustained FLOP/s" : "Sustained FLOP/s (one H100 at 40 %)";
    place.append(label(slider, "Budget"), slider, output, make("div", { className: "machine" }, [label(rate, machine), rate, label(price, "Price per hour"), price]));
    show();
  }
})();
