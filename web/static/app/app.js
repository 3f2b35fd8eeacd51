// Conveniences on top of pages that work without them: live parts, times in the reader's zone, copy buttons, JSON checks.
"use strict";

function localTimes(root) {
  for (const time of root.querySelectorAll("time[datetime]")) {
    const at = new Date(time.dateTime);
    time.title = at.toLocaleString(undefined, { dateStyle: "full", timeStyle: "long" });
  }
}

function showCopies(root) {
  if (!navigator.clipboard) return;
  for (const button of root.querySelectorAll("[data-copy]")) button.hidden = false;
}

document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-copy]");
  if (!button) return;
  event.preventDefault();
  await navigator.clipboard.writeText(document.getElementById(button.dataset.copy).textContent);
  const before = button.textContent;
  button.textContent = "Copied";
  setTimeout(() => { button.textContent = before; }, 1200);
});

// The page is asked for again as it is, and the parts that changed are exchanged. Nothing is touched that the reader uses.
function isBusy(part) {
  return part.contains(document.activeElement) && document.activeElement.matches("input:not([type=checkbox]), select, textarea, summary")
    || part.querySelector("input:checked[name=ids], details[open]") !== null
    || !window.getSelection().isCollapsed && part.contains(window.getSelection().anchorNode);
}

// The keyboard stays where it was: on the same link, box or button of the new part.
function exchange(part, other) {
  const focused = part.contains(document.activeElement) ? document.activeElement : null;
  const scrolled = [...part.querySelectorAll("pre")].map((each) => each.scrollTop);
  const same = (each) => focused && each.tagName === focused.tagName && each.textContent === focused.textContent
    && each.getAttribute("href") === focused.getAttribute("href") && each.value === focused.value;
  part.replaceChildren(...other.childNodes);
  part.querySelectorAll("pre").forEach((each, index) => { each.scrollTop = scrolled[index] || 0; });
  [...part.querySelectorAll("a, button, input")].find(same)?.focus({ preventScroll: true });
  localTimes(part);
  showCopies(part);
}

function keepLive(seconds) {
  const mark = document.querySelector(".live");
  mark.hidden = false;
  async function refresh() {
    mark.classList.toggle("paused", document.hidden);
    if (document.hidden) return;
    try {
      const response = await fetch(location.href, { headers: { Accept: "text/html" } });
      if (!response.ok || response.redirected) throw new Error(String(response.status));
      const fresh = new DOMParser().parseFromString(await response.text(), "text/html");
      for (const part of document.querySelectorAll("[data-part]")) {
        const other = fresh.querySelector(`[data-part="${part.dataset.part}"]`);
        if (!other || isBusy(part) || other.innerHTML === part.dataset.shown) continue;
        part.dataset.shown = other.innerHTML;
        exchange(part, other);
      }
      if (!fresh.body.dataset.live) { mark.hidden = true; return; }
    } catch {
      mark.classList.add("paused");
    }
    timer = setTimeout(refresh, seconds * 1000);
  }
  let timer = setTimeout(refresh, seconds * 1000);
  document.addEventListener("visibilitychange", () => {
    clearTimeout(timer);
    if (document.hidden) mark.classList.add("paused"); else refresh();
  });
}

function watchSelection(form) {
  const all = form.querySelector("[data-all]");
  const count = form.querySelector("[data-count]");
  if (!all) return;
  all.hidden = false;
  const boxes = () => [...form.querySelectorAll("input[name=ids]")];
  const update = () => {
    const ticked = boxes().filter((box) => box.checked).length;
    count.textContent = ticked ? `${ticked} ticked` : "Tick jobs, or act on all that match:";
  };
  all.addEventListener("change", () => { boxes().forEach((box) => { box.checked = all.checked; }); update(); });
  form.addEventListener("change", update);
}

// Says whether the payload is JSON, and else where it stops being so.
function checkJson(area) {
  const told = document.querySelector("[data-validity]");
  const update = () => {
    told.hidden = false;
    try {
      const value = JSON.parse(area.value.trim() || "{}");
      const isObject = value !== null && typeof value === "object" && !Array.isArray(value);
      told.className = `validity ${isObject ? "good" : "bad"}`;
      told.textContent = isObject ? "Valid JSON" : "JSON, but not an object";
    } catch (error) {
      // Chromium and Safari count characters, Firefox lines and columns.
      const lines = /line (\d+) column (\d+)/.exec(error.message);
      const found = /position (\d+)/.exec(error.message);
      const before = area.value.slice(0, found ? Number(found[1]) : area.value.length).split("\n");
      const [line, column] = lines ? lines.slice(1) : [before.length, before[before.length - 1].length + 1];
      told.className = "validity bad";
      told.textContent = `Not JSON: line ${line}, column ${column}`;
    }
  };
  area.addEventListener("input", update);
  update();
}

// Shows the request that a program would send. The payload stays text, so that big numbers stay what they are.
function preview(details) {
  const form = details.closest("form");
  details.hidden = false;
  const update = () => {
    const given = new FormData(form);
    const parts = [];
    const members = {};
    for (const [name, value] of given) {
      if (name === "token" || name === "as_json" || value === "") continue;
      if (name.startsWith("payload.")) members[name.slice(8)] = value;
      else if (name === "payload") parts.push(`"payload": ${value.trim() || "{}"}`);
      else if (name === "max_attempts") parts.push(`"max_attempts": ${value}`);
      else parts.push(`"${name}": ${JSON.stringify(name === "run_at" ? `${value}:00Z` : value)}`);
    }
    if (Object.keys(members).length) parts.push(`"payload": ${JSON.stringify(members)}`);
    details.querySelector("pre").textContent = `POST ${location.origin}/api/v1/jobs\nContent-Type: application/json\n\n{${parts.join(",\n ")}}`;
  };
  form.addEventListener("input", update);
  update();
}

function countDown(button) {
  let left = Number(button.dataset.locked);
  const told = document.querySelector("[data-countdown]");
  button.disabled = true;
  const tick = setInterval(() => {
    left -= 1;
    told.textContent = String(Math.max(left, 0));
    if (left <= 0) { clearInterval(tick); button.disabled = false; }
  }, 1000);
}

localTimes(document);
showCopies(document);
if (document.body.dataset.live) keepLive(Number(document.body.dataset.live));
document.querySelectorAll("form[data-select]").forEach(watchSelection);
document.querySelectorAll("textarea[data-json]").forEach(checkJson);
document.querySelectorAll("details[data-preview]").forEach(preview);
document.querySelectorAll("button[data-locked]").forEach(countDown);
document.querySelectorAll("form[data-auto] select").forEach((select) => {
  select.addEventListener("change", () => select.form.submit());
});
