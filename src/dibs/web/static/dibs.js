// Looks again at the page while somebody watches, and changes only what differs: focus, scroll and open parts stay.

const main = document.querySelector("#main");
const live = document.querySelector("#live");
const stale = document.querySelector("#stale");
const period = Number(main.dataset.poll) * 1000;
let looking = false;

async function look() {
  if (document.hidden || looking || period <= 0) return;
  looking = true;
  try {
    const url = new URL(location.href);
    for (const told of ["did", "n", "operation", "more", "after", "so_far", "rate", "to"]) url.searchParams.delete(told);
    const answer = await fetch(url, { headers: { "Dibs-Fragment": "live" }, cache: "no-store" });
    if (!answer.ok && answer.status !== 404) throw new Error(answer.status);
    const fresh = document.createElement("div");
    fresh.innerHTML = await answer.text();
    inPlace(() => merge(live, fresh));
    reveal();
    stale.hidden = true;
  } catch {
    stale.hidden = false;
  } finally {
    looking = false;
  }
}

// Keeps what is being read where it is, when something above it grows. At the top of a page, what is new is shown.
function inPlace(change) {
  const inSight = (node) => node.checkVisibility() && node.getBoundingClientRect().top >= 0;
  const read = scrollY > 0 && [...live.querySelectorAll("[id]")].find(inSight);
  const before = read && read.getBoundingClientRect().top;
  change();
  if (read?.isConnected) scrollBy(0, read.getBoundingClientRect().top - before);
}

// Makes `old` look like `fresh`. What has an id is found again wherever it is now. What somebody has typed, chosen or
// opened is theirs, and stays.
function merge(old, fresh) {
  let at = old.firstChild;
  for (const next of [...fresh.childNodes]) {
    const same = alike(at, next) ? at : again(at, next);
    if (!same) {
      old.insertBefore(next, at);
      continue;
    }
    while (at !== same) at = drop(at);
    if (next.nodeType !== Node.ELEMENT_NODE) {
      if (same.data !== next.data) same.data = next.data;
    } else if (!same.matches("input, select, textarea, button[data-copy]")) {
      attributes(same, next);
      merge(same, next);
    }
    at = same.nextSibling;
  }
  while (at) at = drop(at);
}

function alike(node, next) {
  return node && node.nodeType === next.nodeType && node.nodeName === next.nodeName && idOf(node) === idOf(next);
}

// A form's own `id` may be hidden behind a field of that name.
function idOf(node) {
  return node.getAttribute?.("id") ?? "";
}

function again(node, next) {
  if (!idOf(next)) return null;
  while (node && !alike(node, next)) node = node.nextSibling;
  return node;
}

function drop(node) {
  const after = node.nextSibling;
  node.remove();
  return after;
}

function attributes(node, next) {
  const ours = node.nodeName === "DETAILS" ? ["open"] : ["hidden"];
  for (const { name } of [...node.attributes]) if (!ours.includes(name) && !next.hasAttribute(name)) node.removeAttribute(name);
  for (const { name, value } of next.attributes) if (!ours.includes(name) && node.getAttribute(name) !== value) node.setAttribute(name, value);
}

function reveal() {
  for (const button of document.querySelectorAll("button[data-copy][hidden]")) button.hidden = false;
}

// navigator.clipboard exists only on HTTPS and localhost; a selection can be copied anywhere.
function copy(button) {
  const selection = getSelection();
  selection.selectAllChildren(document.getElementById(button.dataset.copy));
  const copied = document.execCommand("copy");
  selection.removeAllRanges();
  button.textContent = copied ? "copied" : "select and copy";
  setTimeout(() => (button.textContent = "copy"), 1500);
}

document.addEventListener("click", (event) => {
  const button = event.target.closest("button");
  if (button?.dataset.copy) copy(button);
  if (button?.id === "theme") toggle();
});

document.addEventListener("submit", (event) => {
  const { confirm: question } = event.target.dataset;
  if (question && !confirm(question)) event.preventDefault();
});

function toggle() {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
  const home = new URL(document.querySelector(".brand").href).pathname;
  document.cookie = `dibs-theme=${root.dataset.theme}; path=${home}; max-age=31536000; SameSite=Strict`;
}

document.querySelector("#theme").hidden = false;
reveal();
document.addEventListener("visibilitychange", look);
if (period > 0) setInterval(look, period);
