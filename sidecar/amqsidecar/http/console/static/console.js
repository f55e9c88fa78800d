// What pages do beyond links and forms. Everything works without it, only less comfortably.
"use strict";

(() => {
  const places = { o: "/", g: "/groups", m: "/messages", p: "/plots", a: "/operations" };
  const typed = "input:not([type=checkbox], [type=radio]), textarea, select";
  let isGoing = false;

  // Rows of tables: the one that has the focus is the current one.
  const rows = () => [...document.querySelectorAll("table.rows tbody tr:has(a)")];
  const current = () => document.activeElement.closest("table.rows tbody tr");
  const move = (by) => {
    const all = rows();
    const at = all.indexOf(current());
    const next = at < 0 ? all.at(by > 0 ? 0 : -1) : all[Math.min(Math.max(at + by, 0), all.length - 1)];
    next?.querySelector("th a")?.focus();
  };

  // An element with data-key: a link or a button that leads to a preview is pressed, others get the focus.
  const act = (key) => {
    const chosen = document.querySelector("form[data-chosen]:has(input[name=id]:checked)");
    const found = (chosen ?? document).querySelector(`[data-key="${key}"]`);
    if (found === null) return false;
    if (found.matches("a") || found.closest("form[data-chosen]")) found.click();
    else {
      found.closest("details")?.setAttribute("open", "");
      found.focus();
    }
    return true;
  };

  const search = () => {
    const field = document.querySelector("form.filter input");
    if (!field) return document.querySelector('nav a[href="/messages"]')?.click();
    field.closest("details")?.setAttribute("open", "");
    field.focus();
  };

  const keys = {
    g: () => { isGoing = true; },
    j: () => move(1),
    k: () => move(-1),
    o: () => document.activeElement.closest("table.rows") && document.activeElement.click(),
    x: () => current()?.querySelector("input[name=id]")?.click(),
    "/": search,
    "?": () => document.getElementById("keys")?.showModal(),
  };

  document.addEventListener("keydown", (event) => {
    if (event.target.closest(`${typed}, dialog`) || event.ctrlKey || event.metaKey || event.altKey) return;
    if (isGoing) {
      isGoing = false;
      document.querySelector(`nav a[href="${places[event.key]}"]`)?.click();
    } else if (Object.hasOwn(keys, event.key)) {
      keys[event.key]();
      event.preventDefault();
    } else if (/^[a-z]$/.test(event.key) && act(event.key)) event.preventDefault();
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

  // Times: the browser's zone stands beside UTC, where it is another one.
  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
  const here = new Intl.DateTimeFormat("sv-SE", { dateStyle: "short", timeStyle: "medium" });
  const isUtc = new Date().getTimezoneOffset() === 0;
  const sayHere = (root) => {
    for (const time of isUtc ? [] : root.querySelectorAll("time[datetime]:not([data-here])")) {
      const at = new Date(time.dateTime);
      if (Number.isNaN(at.getTime())) continue;
      const text = here.format(at);
      time.dataset.here = "";
      time.title = `${time.title || time.textContent} · ${text} ${zone}`;
      if (!time.classList.contains("clock")) continue;
      const beside = document.createElement("span");
      beside.className = "faint";
      beside.textContent = ` (${text.slice(-8)} here)`;
      time.append(beside);
    }
  };

  // A field for a time is in the zone that stands beside it; the server wants its offset.
  const offset = (field) => -(field.value ? new Date(field.value) : new Date()).getTimezoneOffset();
  for (const select of document.querySelectorAll("select[data-zones]")) {
    if (isUtc) continue;
    const field = document.getElementById(select.dataset.zones);
    const own = new Option(zone, offset(field));
    if (!field.value) own.selected = true;
    select.add(own);
    field.addEventListener("change", () => { own.value = offset(field); });
  }

  // Only where scripts run: buttons that need them, and nothing is sent twice by a double click.
  const begin = (root) => {
    for (const note of root.querySelectorAll("[data-zone-note]")) {
      note.textContent = isUtc ? ", which is your browser's zone" : `; beside them those of ${zone}, your browser's zone`;
    }
    for (const element of root.querySelectorAll("[data-needs-script]")) element.hidden = false;
    sayHere(root);
  };
  begin(document);
  document.addEventListener("htmx:afterSwap", () => begin(document));
  document.addEventListener("submit", (event) => {
    for (const button of event.target.querySelectorAll("button[data-once]")) {
      setTimeout(() => { button.disabled = true; }, 0);
    }
  });

  // A page that lies open says how old it is.
  let readAt = Date.now();
  setInterval(() => {
    const minutes = Math.floor((Date.now() - readAt) / 60000);
    for (const age of minutes ? document.querySelectorAll("[data-age]") : []) age.textContent = `, ${minutes} min ago`;
  }, 5000);
  document.addEventListener("htmx:afterSwap", () => { readAt = Date.now(); });

  // A page that lives says when it can't be refreshed any more.
  const stale = (isStale) => {
    const note = document.getElementById("stale");
    if (note) note.hidden = !isStale;
  };
  document.addEventListener("htmx:responseError", () => stale(true));
  document.addEventListener("htmx:sendError", () => stale(true));
  document.addEventListener("htmx:afterSwap", () => stale(false));
})();
