/* The theme gives its search no name that a screen reader could say, and no key reaches what of a wide table is out of sight. */
document.querySelector("[data-md-component=search]")?.setAttribute("aria-label", "Search");

const reach = () => {
  document.querySelectorAll(".md-code__nav").forEach((nav, at) => nav.setAttribute("aria-label", `Code ${at + 1}`));
  let wide = 0;
  for (const box of document.querySelectorAll(".md-typeset__scrollwrap, .md-typeset table, .md-typeset pre, .md-typeset p")) {
    if (box.scrollWidth <= box.clientWidth) continue;
    box.tabIndex = 0;
    if (box.tagName === "DIV") {
      box.setAttribute("role", "region");
      box.setAttribute("aria-label", `Table ${wide += 1}, wider than the page`);
    }
  }
};
addEventListener("load", reach);
addEventListener("resize", reach);
