// A table to work with: words to filter by, a choice for each facet, columns to sort by, all of it kept in the address.
// Without this file the table is the same, still. Rows are moved, never written: no text is read as HTML.
"use strict";
(() => {
  const make = (tag, properties = {}, children = []) => {
    const made = document.createElement(tag);
    for (const [key, value] of Object.entries(properties)) {
      if (key.startsWith("aria-") || key === "class") made.setAttribute(key, value);
      else made[key] = value;
    }
    made.append(...children);
    return made;
  };
  const plain = text => text.trim().toLowerCase();

  function start(mark) {
    const table = [...document.querySelectorAll("table")].find(each => mark.compareDocumentPosition(each) & Node.DOCUMENT_POSITION_FOLLOWING);
    if (!table || mark.dataset.started) return;
    mark.dataset.started = "yes";
    const body = table.tBodies[0];
    const heads = [...table.tHead.rows[0].cells];
    const names = heads.map(head => head.textContent.trim());
    const rows = [...body.rows].map((row, place) => ({ row, place, cells: [...row.cells].map(cell => cell.textContent.trim()) }));
    const said = new URLSearchParams(location.hash.slice(1));
    const state = { q: said.get("q") || "", sort: said.get("sort") || "", facets: {} };
    const told = make("output", { "aria-live": "polite" });
    const filter = make("input", { type: "search", id: "table-filter", value: state.q, autocomplete: "off", placeholder: "words" });
    const controls = make("div", { class: "table-controls" }, [make("label", {}, ["filter", filter])]);
    const choices = {};
    for (const name of (mark.dataset.facets || "").split(" ").filter(each => names.includes(each))) {
      const at = names.indexOf(name);
      const parts = row => (name === "topics" ? row.cells[at].split(" · ") : [row.cells[at]]);
      const values = [...new Set(rows.flatMap(parts))].filter(Boolean).sort();
      const choice = make("select", { id: `table-${name}` }, [make("option", { value: "", textContent: "any" }), ...values.map(value => make("option", { value, textContent: value }))]);
      state.facets[name] = values.includes(said.get(name)) ? said.get(name) : "";
      choice.value = state.facets[name];
      choice.onchange = () => { state.facets[name] = choice.value; update(); };
      choices[name] = parts;
      controls.append(make("label", {}, [name, choice]));
    }
    controls.append(told);
    mark.append(controls);
    heads.forEach((head, at) => {
      const button = make("button", { type: "button", textContent: names[at] });
      button.onclick = () => { state.sort = state.sort === names[at] ? `-${names[at]}` : names[at]; update(); };
      head.replaceChildren(button);
    });

    function update() {
      const words = plain(state.q).split(/\s+/).filter(Boolean);
      const kept = rows.filter(each => words.every(word => plain(each.cells.join(" ")).includes(word))
        && Object.entries(state.facets).every(([name, value]) => !value || choices[name](each).includes(value)));
      const [key, sign] = state.sort.startsWith("-") ? [state.sort.slice(1), -1] : [state.sort, 1];
      const at = names.indexOf(key);
      if (at >= 0) kept.sort((a, b) => (!a.cells[at] - !b.cells[at]) || sign * a.cells[at].localeCompare(b.cells[at], "en", { numeric: true }) || a.place - b.place);
      body.replaceChildren(...kept.map(each => each.row));
      heads.forEach((head, place) => head.setAttribute("aria-sort", place !== at ? "none" : sign > 0 ? "ascending" : "descending"));
      told.textContent = `${kept.length} of ${rows.length}`;
      const inAddress = new URLSearchParams(Object.entries({ q: state.q, sort: state.sort, ...state.facets }).filter(([, value]) => value));
      if (`${inAddress}` || location.hash.includes("=")) history.replaceState(null, "", `#${inAddress}`);
    }
    filter.oninput = () => { state.q = filter.value; update(); };
    update();
  }

  const startAll = () => document.querySelectorAll("[data-table]").forEach(start);
  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", startAll);
  else startAll();
})();
