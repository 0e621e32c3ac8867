/* The theme gives its search no name that a screen reader could say. */
document.querySelector("[data-md-component=search]")?.setAttribute("aria-label", "Search");
