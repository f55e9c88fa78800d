// What pages do beyond links and forms. Everything works without it, only less comfortably.
"use strict";

(() => {
  // Keys: one letter after `g` goes somewhere, `/` to the filter, `?` shows the list.
  const places = { o: "/", g: "/groups", m: "/messages", p: "/plots", a: "/operations" };
  let isGoing = false;

  document.addEventListener("keydown", (event) => {
    const isTyping = event.target.closest("input, textarea, select") !== null;
    if (isTyping || event.ctrlKey || event.metaKey || event.altKey) return;
    if (isGoing) {
      isGoing = false;
      const link = places[event.key] && document.querySelector(`nav a[href="${places[event.key]}"]`);
      if (link) link.click();
      return;
    }
    if (event.key === "g") isGoing = true;
    else if (event.key === "?") document.getElementById("keys")?.showModal();
    else if (event.key === "/") {
      const field = document.querySelector("form.filter input");
      if (!field) return;
      field.closest("details")?.setAttribute("open", "");
      field.focus();
      event.preventDefault();
    }
  });

  document.addEventListener("click", (event) => {
    if (event.target.closest("[data-keys]")) {
      document.getElementById("keys")?.showModal();
      event.preventDefault();
    }
    const all = event.target.closest("input[data-all]");
    if (all) {
      const boxes = all.form.querySelectorAll("input[type=checkbox][name=id]");
      for (const box of boxes) box.checked = all.checked;
    }
    const copy = event.target.closest("button[data-copy]");
    if (copy) {
      navigator.clipboard.writeText(document.getElementById(copy.dataset.copy).textContent).then(
        () => { copy.textContent = "Copied"; },
        () => { copy.textContent = "Can't copy; select the text"; },
      );
    }
  });

  // Only where scripts run: buttons that need them, and nothing is sent twice by a double click.
  for (const element of document.querySelectorAll("[data-needs-script]")) element.hidden = false;
  document.addEventListener("submit", (event) => {
    for (const button of event.target.querySelectorAll("button[data-once]")) {
      setTimeout(() => { button.disabled = true; }, 0);
    }
  });

  // A page that lives says when it can't be refreshed any more.
  const stale = (isStale) => {
    const note = document.getElementById("stale");
    if (note) note.hidden = !isStale;
  };
  document.addEventListener("htmx:responseError", () => stale(true));
  document.addEventListener("htmx:sendError", () => stale(true));
  document.addEventListener("htmx:afterSwap", () => stale(false));
})();
