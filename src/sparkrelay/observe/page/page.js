// Follows /events and has each part of the page drawn. Every text comes from others: it goes into text nodes only.
import { byId, text } from "./elements.js";
import * as views from "./views.js";

const RETRY_MS = 5000;
const SILENT_MS = 15000;
let group = null;
let answeredAt = 0;
let trouble = "";

function draw() {
  if (group !== null) {
    byId("main").removeAttribute("aria-busy");
    views.draw(group, { task: byId("task-filter").value.trim(), role: byId("role-filter").value });
  }
  freshness();
}

function freshness() {
  const age = group === null ? null : Math.round((Date.now() - answeredAt) / 1000);
  const at = group === null ? "" : `Updated at ${views.clock(group.now * 1000)} UTC`;
  const words = age === null ? "" : age < 6 ? `${at}, as ${group.asked} sees it` :
    `${at}, ${age} s ago: ${group.asked} does not answer`;
  text(byId("freshness"), [words, trouble].filter(Boolean).join("; "));
  if (age !== null && age >= 6) {
    views.health(byId("health"), "ill", "The instance that this page comes from does not answer. Ask another one.");
  }
}

function follow() {
  const source = new EventSource("events");
  source.addEventListener("group", (event) => {
    try {
      group = JSON.parse(event.data);
      answeredAt = Date.now();
      trouble = "";
      draw();
    } catch (error) {
      trouble = `the page cannot draw that: ${error}`;
      freshness();
    }
  });
  source.addEventListener("error", () => {
    // The server ends each stream after a minute: the browser asks again by itself, unless it was refused.
    if (source.readyState === EventSource.CLOSED) {
      trouble = "refused; asking again";
      freshness();
      setTimeout(follow, RETRY_MS);
    }
  });
  const watch = setInterval(() => {
    if (source.readyState === EventSource.CLOSED) {
      clearInterval(watch);
    } else if (Date.now() - answeredAt > SILENT_MS && group !== null) {
      // A connection whose other end is gone without a word.
      clearInterval(watch);
      source.close();
      setTimeout(follow, RETRY_MS);
    }
  }, 3000);
}

byId("task-filter").addEventListener("input", draw);
byId("role-filter").addEventListener("change", draw);
new ResizeObserver(draw).observe(byId("graph").parentElement);
setInterval(freshness, 1000);
follow();
