// The speedrun board, to work with: sort, filter, choose columns, switch the axis of cost, compare, keep all of it in the address.
// Without this file the page has the same table and figure, still. Its data are in a script beside the page, not fetched, so that
// it works from file:// as well. No text of a submission is ever read as HTML: all goes through textContent.
"use strict";
(() => {
  const ROWS_AT_ONCE = 100;
  const CIRCLES = 500; // beside the front; of more, those with the lowest loss are drawn, as more are a cloud
  const COMPARED = 4;

  const make = (tag, properties = {}, children = []) => {
    const made = document.createElement(tag);
    for (const [key, value] of Object.entries(properties)) {
      if (key.startsWith("aria-") || key === "role" || key === "for" || key === "class" || key.startsWith("data-")) made.setAttribute(key, value);
      else made[key] = value;
    }
    made.append(...children);
    return made;
  };

  // --- the data: columns with one value for all, with few by their number, or with a value for each -------------------------
  const reader = column => ("same" in column ? () => column.same : column.words ? at => column.words[column.at[at]] : at => column.values[at]);
  function withRows(board) {
    const readers = board.columns.map(reader);
    board.rows ??= Array.from({ length: board.count }, (_, at) => readers.map(read => read(at)));
    return board;
  }
  const pageOf = (board, name) => (Object.hasOwn(board.pages, name) ? board.pages[name] : `${name.replaceAll("/", "~")}.html`);

  // --- what a value looks like -------------------------------------------------------------------------------------------
  const shown = {
    text: value => value,
    count: value => (value >= 1e9 ? `${digits(value / 1e9)}B` : value >= 1e6 ? `${digits(value / 1e6)}M` : value >= 1e3 ? `${digits(value / 1e3)}k` : `${value}`),
    power: value => value.toExponential(2).replace("e+", "e").replace(/\.?0+e/, "e"),
    loss: value => value.toFixed(4),
    number: value => `${Number(value.toPrecision(3))}`,
    yes: value => (value ? "yes" : ""),
  };
  const digits = value => value.toPrecision(3);
  const text = (column, value) => (value === null || value === undefined ? "" : shown[column.kind](value));
  const isNumber = column => !["text", "yes"].includes(column.kind);

  // --- filtering: words, field:words, field<number, field>number ----------------------------------------------------------
  const terms = query => query.match(/(?:[^\s"]|"[^"]*")+/g) || [];
  const plain = value => `${value ?? ""}`.toLowerCase();
  function predicate(board, term) {
    const match = /^([A-Za-z_ ]+?)([:<>])(.*)$/.exec(term.replaceAll('"', ""));
    const place = match ? board.columns.findIndex(column => [column.key, column.label].some(name => plain(name).startsWith(plain(match[1])))) : -1;
    if (place < 0) {
      const word = plain(term.replaceAll('"', ""));
      return row => row.some(value => plain(value).includes(word));
    }
    const wanted = match[3];
    if (match[2] === ":") return row => plain(row[place]).includes(plain(wanted));
    const bound = Number(wanted);
    if (match[2] === "<") return row => row[place] !== null && row[place] < bound;
    return row => row[place] !== null && row[place] > bound;
  }
  function filtered(board, query) {
    const tests = terms(query).map(term => predicate(board, term));
    return board.rows.filter(row => tests.every(test => test(row)));
  }

  // --- sorting: what is not known comes last, either way --------------------------------------------------------------------
  function sorted(board, rows, key, descending) {
    const place = board.columns.findIndex(column => column.key === key);
    if (place < 0) return rows;
    const known = rows.filter(row => row[place] !== null && row[place] !== "");
    const unknown = rows.filter(row => row[place] === null || row[place] === "");
    const sign = descending ? -1 : 1;
    const numbers = isNumber(board.columns[place]);
    const byWords = (a, b) => (a[place] < b[place] ? -sign : a[place] > b[place] ? sign : 0);
    known.sort(numbers ? (a, b) => sign * (a[place] - b[place]) : byWords);
    return known.concat(unknown);
  }

  // --- the address: board=…&q=…&sort=…&axis=…&hide=…&compare=… after the # ---------------------------------------------------
  const KEYS = { query: "q", sort: "sort", axis: "axis", hidden: "hide", compared: "compare" };
  function readAddress(name, state) {
    const said = new URLSearchParams(location.hash.slice(1));
    if (said.get("board") !== name) return state;
    const list = key => (said.get(key) || "").split("\u0020").filter(Boolean);
    return {
      query: said.get("q") || "",
      sort: said.get("sort") || state.sort,
      axis: said.get("axis") || state.axis,
      hidden: new Set(list("hide")),
      compared: new Set(list("compare")),
    };
  }
  function writeAddress(name, state, usual) {
    const said = new URLSearchParams({ board: name });
    for (const [key, short] of Object.entries(KEYS)) {
      const value = state[key] instanceof Set ? [...state[key]].join(" ") : state[key];
      if (value && value !== usual[key]) said.set(short, value);
    }
    const usually = [...said].length === 1;
    const other = new URLSearchParams(location.hash.slice(1)).get("board") || name;
    if (usually && other !== name) return; // a board of which there is nothing to say leaves the address to the others
    history.replaceState(null, "", usually ? "#" : `#${said}`);
  }

  // --- the figure: the spec of the page's own, with other data, drawn by Vega -------------------------------------------------
  const PLACES = ["on the front", "tied at the front", "beaten"];
  const [LABELS, LABEL] = [7, 24]; // names across the figure, and how long one may be
  function figure(board, rows, axis) {
    const at = key => board.columns.findIndex(column => column.key === key);
    const [cost, loss, name, by] = [at(axis.key), at("bits_per_byte"), at("name"), at("authors")];
    const has = (row, key) => (row[at(key)] || "").split(", ").includes(axis.label);
    const wanted = new Set(rows);
    const points = board.rows.filter(row => row[cost] > 0).map(row => ({
      cost: row[cost], loss: row[loss], name: row[name], by: row[by], shown: wanted.has(row), front: has(row, "on_front"), label: "",
      place: PLACES[has(row, "tied") ? 1 : has(row, "on_front") ? 0 : 2],
    }));
    const front = points.filter(point => point.front).sort((a, b) => a.cost - b.cost || b.loss - a.loss);
    const gap = front.length ? Math.log(front.at(-1).cost / front[0].cost) / LABELS : 0;
    let last = -Infinity;
    for (const point of front) {
      if (Math.log(point.cost) < last + gap) continue;
      [point.label, last] = [point.name.length > LABEL ? `…${point.name.slice(1 - LABEL)}` : point.name, Math.log(point.cost)];
    }
    const beaten = points.filter(point => !point.front);
    const best = beaten.sort((a, b) => b.shown - a.shown || a.loss - b.loss).slice(0, CIRCLES);
    const spec = structuredClone(window.marinScalingFigure);
    spec.encoding.x.title = axis.label;
    const costs = points.map(point => point.cost);
    const [least, most] = [Math.min(...costs), Math.max(...costs)];
    if (points.length && most < 1.5 * least) spec.encoding.x.scale.domain = [least / 1.3, most * 1.3]; // nearly the same for all
    spec.description = `Bits per byte against ${axis.label}`; // Vega makes it the label for screen readers
    spec.title = !points.length ? `No entry says its ${axis.label}.` : best.length < beaten.length ? `the front, and the ${best.length} best of ${beaten.length} others` : "";
    spec.datasets = { entries: [...best, ...front] };
    return spec;
  }

  // --- downloads ---------------------------------------------------------------------------------------------------------------
  function save(name, content, type) {
    const address = URL.createObjectURL(new Blob([content], { type }));
    make("a", { href: address, download: name }).click();
    setTimeout(() => URL.revokeObjectURL(address), 1000);
  }
  const quoted = value => (/[",\n]/.test(value) ? `"${value.replaceAll('"', '""')}"` : value);
  const asCsv = (board, rows) => [board.columns.map(column => column.key), ...rows.map(row => row.map(value => `${value ?? ""}`))].map(line => line.map(quoted).join(",")).join("\n") + "\n";
  const asJson = (board, rows) => JSON.stringify(rows.map(row => Object.fromEntries(board.columns.map((column, place) => [column.key, row[place]]))), null, 1);

  // --- the whole -----------------------------------------------------------------------------------------------------------------
  function start(mark) {
    const name = mark.dataset.board;
    const known = (window.marinScalingBoards || {})[name];
    const table = [...document.querySelectorAll("table")].find(each => mark.compareDocumentPosition(each) & Node.DOCUMENT_POSITION_FOLLOWING);
    const still = [...document.querySelectorAll("img")].find(each => mark.compareDocumentPosition(each) & Node.DOCUMENT_POSITION_FOLLOWING);
    if (!known || !table || mark.dataset.started) return;
    mark.dataset.started = "yes";
    const board = withRows(known);
    const axes = board.columns.filter(column => column.axis);
    const usual = { query: "", sort: "bits_per_byte", axis: axes[0].key, hidden: "", compared: "" };
    let state = readAddress(name, { query: "", sort: usual.sort, axis: usual.axis, hidden: new Set(board.columns.filter(column => column.hidden).map(column => column.key)), compared: new Set() });
    usual.hidden = board.columns.filter(column => column.hidden).map(column => column.key).join(" ");
    let limit = ROWS_AT_ONCE;
    const id = `board-${name.replaceAll(/[^A-Za-z0-9]/g, "-")}`;
    const filter = make("input", { type: "search", id: `${id}-filter`, value: state.query, placeholder: "llama author:Ada model_flops<1e12", autocomplete: "off" });
    const axis = make("select", { id: `${id}-axis` }, axes.map(column => make("option", { value: column.key, textContent: column.label })));
    const told = make("output", { "aria-live": "polite" });
    const columns = make("div", { class: "board-columns" });
    const place = make("div", { class: "board-place" });
    const rows = make("tbody");
    const heads = make("tr");
    const more = make("button", { type: "button", textContent: "Show more" });
    const compared = make("div", { class: "board-compared", "aria-live": "polite" });
    const button = (label, act) => make("button", { type: "button", textContent: label, onclick: act });
    let [current, drawn, view] = [[], "", null];
    const controls = make("div", { class: "board-controls" }, [
      make("label", { for: filter.id, textContent: "Filter" }), filter,
      make("label", { for: axis.id, textContent: "Cost" }), axis,
      make("details", {}, [make("summary", { textContent: "Columns" }), columns]),
      make("details", {}, [make("summary", { textContent: "Download" }), make("div", { class: "board-columns" }, [
        button("CSV", () => save(`${name}.csv`, asCsv(board, current), "text/csv")),
        button("JSON", () => save(`${name}.json`, asJson(board, current), "application/json")),
        button("SVG", () => view.toSVG().then(drawn => save(`${name}.svg`, drawn, "image/svg+xml"))),
        button("PNG", () => view.toCanvas(2).then(canvas => canvas.toBlob(blob => save(`${name}.png`, blob, "image/png")))),
      ])]),
      told,
    ]);
    const shownTable = make("table", { class: "board-table" }, [make("caption", { textContent: `Entries of the track ${name}` }), make("thead", {}, [heads]), rows]);
    const whole = make("div", { class: "board-live", "data-track": name }, [place, controls, make("div", { class: "board-scroll", tabIndex: 0, role: "region", "aria-label": `Entries of the track ${name}` }, [shownTable]), more, compared]);
    (table.closest(".md-typeset__scrollwrap") || table).remove();
    if (still) (still.closest("figure") || still.closest("p") || still).remove();
    const link = [...document.querySelectorAll("a[href$='interactive.html']")].find(each => mark.compareDocumentPosition(each) & Node.DOCUMENT_POSITION_FOLLOWING);
    link?.closest("p").remove(); // this figure is interactive
    mark.replaceWith(whole);

    const visible = () => board.columns.filter(column => !state.hidden.has(column.key));
    function fillHeads() {
      const [key, descending] = state.sort.startsWith("-") ? [state.sort.slice(1), true] : [state.sort, false];
      heads.replaceChildren(make("th", { scope: "col", class: "board-pick", textContent: "\u2713", title: "compare" }), ...visible().map(column => {
        const head = make("th", { scope: "col", class: isNumber(column) ? "board-number" : "", "aria-sort": column.key === key ? (descending ? "descending" : "ascending") : "none" });
        head.append(make("button", { type: "button", textContent: `${column.label}${column.key === key ? (descending ? " \u25be" : " \u25b4") : ""}`, onclick: () => {
          state.sort = column.key === key && !descending ? `-${column.key}` : column.key;
          update();
          heads.querySelector(`[aria-sort]:not([aria-sort="none"]) button`).focus();
        } }));
        return head;
      }));
    }
    function fillRows() {
      const cells = visible().map(column => [column, board.columns.indexOf(column)]);
      const nameAt = board.columns.findIndex(column => column.key === "name");
      rows.replaceChildren(...current.slice(0, limit).map(row => {
        const pick = make("input", { type: "checkbox", checked: state.compared.has(row[nameAt]), "aria-label": `compare ${row[nameAt]}`, onchange: () => {
          if (pick.checked && state.compared.size >= COMPARED) pick.checked = false;
          else if (pick.checked) state.compared.add(row[nameAt]);
          else state.compared.delete(row[nameAt]);
          fillCompared();
          writeAddress(name, state, usual);
        } });
        return make("tr", {}, [make("td", { class: "board-pick" }, [pick]), ...cells.map(([column, at]) => {
          const value = text(column, row[at]);
          if (column.key !== "name") return make("td", { class: isNumber(column) ? "board-number" : value.length > 24 ? "board-long" : "board-short", textContent: value });
          return make("td", {}, [make("a", { href: pageOf(board, value), textContent: value })]);
        })]);
      }));
      more.hidden = current.length <= limit;
    }
    function fillCompared() {
      const nameAt = board.columns.findIndex(column => column.key === "name");
      const chosen = board.rows.filter(row => state.compared.has(row[nameAt]));
      compared.replaceChildren();
      if (chosen.length < 2) return;
      const differing = board.columns.filter((_, at) => new Set(chosen.map(row => `${row[at]}`)).size > 1);
      compared.append(make("h3", { textContent: "Compared" }), make("div", { class: "board-scroll", tabIndex: 0, role: "region", "aria-label": "Compared" }, [make("table", { class: "board-table" }, differing.map(column => {
        const at = board.columns.indexOf(column);
        return make("tr", {}, [make("th", { scope: "row", textContent: column.label }), ...chosen.map(row => make("td", { textContent: text(column, row[at]) }))]);
      }))]));
    }
    async function redraw(wanted, axis) {
      const holder = make("div", { class: "board-figure" });
      const spec = { ...figure(board, current, axis), width: Math.max(220, Math.min(980, place.clientWidth - 100)) };
      const made = await vegaEmbed(holder, spec, { renderer: "svg", actions: false });
      if (wanted !== drawn) return made.finalize(); // another was asked for meanwhile
      view?.finalize();
      view = made.view;
      place.replaceChildren(holder);
    }
    function update() {
      const [key, descending] = state.sort.startsWith("-") ? [state.sort.slice(1), true] : [state.sort, false];
      current = sorted(board, filtered(board, state.query), key, descending);
      told.textContent = `${current.length} of ${board.rows.length}`;
      axis.value = state.axis;
      fillHeads();
      fillRows();
      if (drawn !== `${state.axis} ${state.query}`) { // an order changes no figure
        drawn = `${state.axis} ${state.query}`;
        redraw(drawn, axes.find(column => column.key === state.axis) || axes[0]);
      }
      writeAddress(name, state, usual);
    }
    for (const column of board.columns.filter(each => each.key !== "name")) {
      const box = make("input", { type: "checkbox", checked: !state.hidden.has(column.key), onchange: () => {
        if (box.checked) state.hidden.delete(column.key);
        else state.hidden.add(column.key);
        update();
      } });
      columns.append(make("label", {}, [box, ` ${column.label}`]));
    }
    filter.oninput = () => { state.query = filter.value; limit = ROWS_AT_ONCE; update(); };
    axis.onchange = () => { state.axis = axis.value; update(); };
    more.onclick = () => { limit += ROWS_AT_ONCE; fillRows(); };
    update();
    fillCompared();
  }

  const startAll = () => document.querySelectorAll("[data-board]").forEach(start);
  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", startAll);
  else startAll();
})();
