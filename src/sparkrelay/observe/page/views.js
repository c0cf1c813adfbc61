// Draws a group.
import { byId, head, keyed, list, make, set, svgElement, table, text, tiles } from "./elements.js";
import { drawGraph } from "./graph.js";

const SIGNS = { active: "●", restoring: "◐", created: "◐", standby: "○", warming: "△", nowhere: "✕", unknown: "?" };
const DASHES = ["", "7 3", "2 3", "9 3 2 3", "12 5"];
const MOST_STORIES = 20;
const MOST_BATCHES = 40;
const MINUTES = 10;
const LEAST_MINUTES = 2;
const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const number = (value) => (typeof value === "number" ? whole.format(value) : "–");
const few = (value) => (typeof value === "number" ? (value < 10 && value > 0 ? value.toFixed(1) : whole.format(value)) : "–");
let drawnConfig = "";

// The kind is well, late (rows are dropped) or ill.
export function health(element, kind, words) {
  text(element, words);
  set(element, "class", kind);
}

const numeric = (words) => ({ words, name: "number" });
const long = (words) => ({ words: words ?? "", name: "long" });
const label = (instance) => instance.processes.join(", ") || "no process yet";
const fresh = (instance) => instance.view !== null && instance.problem === null;
const hasPage = (instance) => instance.own || instance.address !== "";
const amber = (count, name = "") => (count > 0 ? `${name} late`.trim() : name);
const dropped = (view) => view.batches.reduce((total, batch) => total + batch.late, 0);

function bytes(value) {
  if (typeof value !== "number") {
    return "–";
  }
  const step = Math.min(4, Math.floor(Math.log2(Math.max(1, value)) / 10));
  return `${(value / 1024 ** step).toFixed(step ? 1 : 0)} ${["B", "KiB", "MiB", "GiB", "TiB"][step]}`;
}

export function clock(ms, day = false) {
  const at = new Date(ms);
  if (Number.isNaN(at.getTime())) {
    return "–";
  }
  const iso = at.toISOString();
  return day ? `${iso.slice(0, 10)} ${iso.slice(11, 19)}` : iso.slice(11, 19);
}

// Records a second between the samples of an instance, and lag: [seconds ago, lag, rate].
function samples(view, age = 0) {
  return view.history.slice(1).map((sample, at) => {
    const before = view.history[at];
    const seconds = Math.max(0.001, sample[0] - before[0]);
    return [view.now - sample[0] + age, sample[1], Math.max(0, sample[2] - before[2]) / seconds];
  }).filter((sample) => sample[0] <= MINUTES * 60);
}

const rate = (view) => samples(view).at(-1)?.[2] ?? null;
const tasksOf = (view, ...roles) => view.tasks.filter((task) => roles.includes(task.role));
// Of tasks that do not run yet it is not known: null.
const lagOf = (view) => tasksOf(view, "restoring", "created").length || tasksOf(view, "active").some((task) => task.lag === null)
  ? null : tasksOf(view, "active").reduce((sum, task) => sum + task.lag, 0);
const lagWords = (views) => views.map(lagOf).includes(null)
  ? "unknown" : number(views.reduce((total, view) => total + lagOf(view), 0));

export function draw(group, filter) {
  document.title = `${group.application} – SparkRelay`;
  text(byId("application"), group.application);
  drawHealth(group);
  drawInstances(group);
  drawTasks(group, filter);
  drawFlow(group);
  drawStories(group);
  drawBatches(group);
  drawGraph(group.instances[0].view.graph);
  drawConfig(group);
}

function drawHealth(group) {
  const silent = group.instances.filter((one) => !fresh(one) && hasPage(one));
  const pageless = group.instances.filter((one) => !hasPage(one));
  const failed = group.instances.filter((one) => fresh(one) && !one.view.alive);
  const troubled = group.instances.filter((one) => fresh(one) && one.view.alive && one.view.trouble);
  const waiting = group.instances.filter((one) => fresh(one) && one.view.alive && !one.view.ready);
  const said = [];
  if (failed.length) {
    said.push(`${failed.length} of ${group.instances.length} instances cannot work: ` +
      failed.map((one) => `${label(one)} is ${one.view.state}`).join(", "));
  }
  if (silent.length) {
    said.push(`${silent.length} of ${group.instances.length} instances do not answer`);
  }
  if (group.missing.length) {
    said.push(`${group.missing.length} tasks run on no instance that answers`);
  }
  if (pageless.length) {
    said.push(`${pageless.length} of ${group.instances.length} instances have no page`);
  }
  if (group.unknown.length) {
    said.push(`${group.unknown.length} tasks may run on an instance without a page`);
  }
  if (waiting.length) {
    said.push(`${waiting.length} instances have tasks that do not run yet`);
  }
  if (troubled.length) {
    said.push(`${troubled.length} instances are hindered`);
  }
  const ill = said.length > 0;
  const late = group.instances.filter(fresh).reduce((total, one) => total + dropped(one.view), 0);
  if (!ill) {
    said.push(`All is well: every task runs, on ${group.instances.length} ${group.instances.length === 1 ? "instance" : "instances"}`);
  }
  if (late) {
    said.push(`${number(late)} late rows were dropped in the newest micro-batches`);
  }
  health(byId("health"), ill ? "ill" : late ? "late" : "well", `${said.join(". ")}.`);
}

function drawInstances(group) {
  const views = group.instances.filter(fresh).map((one) => one.view);
  const sum = (of) => views.reduce((total, view) => total + (of(view) ?? 0), 0);
  const late = sum((view) => view.late);
  tiles("summary", [
    ["Instances that answer", `${views.length} of ${group.instances.length}`],
    ["Tasks running", `${number(sum((view) => tasksOf(view, "active").length))} of ${number(group.instances[0].view.plan.length)}`],
    ["Restoring", number(sum((view) => tasksOf(view, "restoring", "created").length))],
    ["Lag", lagWords(views)],
    ["Records/s", few(sum(rate))],
    ["Late rows", number(late), amber(late)],
    ["Stores on disk", bytes(sum((view) => view.tasks.reduce((total, task) => total + (task.state_bytes ?? 0), 0)))],
  ]);
  table("instances-table", group.instances.map((one) => {
    const view = one.view;
    const name = { words: `${label(one)}${one.own ? " (asked)" : ""}${view ? ` on ${view.host}` : ""}`, name: "long" };
    const state = !view ? "unknown" : fresh(one) ? view.state : `was ${view.state}`;
    const count = (...roles) => numeric(view ? number(tasksOf(view, ...roles).length) : "–");
    return [label(one) + one.address, [
      name, { words: state, name: !hasPage(one) ? "unknown" : fresh(one) && view.alive ? "" : "nowhere" }, count("active"),
      count("restoring", "created"), count("standby"), count("warming"),
      numeric(view ? lagWords([view]) : "–"), numeric(view ? few(rate(view)) : "–"),
      one.age === null ? "never" : fresh(one) && one.age < 10 ? "now" : `${number(one.age)} s ago`,
      long([one.problem, view?.trouble].filter(Boolean).join("; ")),
    ]];
  }));
}

const order = (name) => name.split("_").reduce((total, part) => total * 100000 + (Number(part) || 0), 0);

function drawTasks(group, filter) {
  const held = new Map();
  const columns = [];
  for (const one of group.instances) {
    columns.push(...one.processes.map((process) => ({ process, note: fresh(one) ? "" : hasPage(one) ? " (silent)" : " (no page)" })));
    for (const task of one.view?.tasks ?? []) {
      const places = held.get(task.task) ?? held.set(task.task, new Map()).get(task.task);
      places.set(task.process, { ...task, stale: !fresh(one), age: one.age });
    }
  }
  const names = [...new Set([...group.instances[0].view.plan, ...held.keys()])].sort((a, b) => order(a) - order(b));
  const lost = new Map([
    ...group.missing.map((name) => [name, { words: `${SIGNS.nowhere} nowhere`, name: "role nowhere",
      title: "no instance that answers runs it" }]),
    ...group.unknown.map((name) => [name, { words: `${SIGNS.unknown} unknown`, name: "role unknown",
      title: "no instance that answers runs it; one without a page may run it: set its metrics.port" }]),
  ]);
  const shown = names.filter((name) => {
    const places = [...(held.get(name)?.values() ?? [])];
    const has = (...roles) => places.some((task) => roles.includes(task.role));
    return name.includes(filter.task) && {
      "": true, trouble: lost.has(name) || !places.some((task) => task.role === "active" && !task.stale),
      lag: places.some((task) => task.role === "active" && task.lag > 0), restoring: has("restoring", "created"),
      warming: has("warming"), standby: has("standby"),
    }[filter.role];
  });
  text(byId("task-count"), `${number(shown.length)} of ${number(names.length)} tasks`);
  head("tasks-table", ["Task", "Lag", ...columns.map((at) => at.process + at.note), "Stores on disk", "Watermark (UTC)", "Input"]);
  table("tasks-table", shown.map((name) => {
    const places = held.get(name) ?? new Map();
    const runs = [...places.values()].find((task) => task.role === "active" && !task.stale);
    const any = runs ?? [...places.values()][0];
    const cells = columns.map(({ process }) => {
      const task = places.get(process);
      if (task === undefined) {
        return "";
      }
      const rest = task.role === "active" || task.lag === null ? "" : ` ${number(task.lag)}`;
      const stale = task.stale ? " as last seen" : "";
      return [{ words: `${SIGNS[task.role] ?? "?"} ${task.role}${rest}${stale}`,
        name: `role ${SIGNS[task.role] ? task.role : ""}${task.stale ? " stale" : ""}`,
        title: task.since === null ? "" : `since ${clock(task.since * 1000, true)} UTC` }];
    });
    const marks = Object.values(runs?.watermarks ?? {});
    return [name, [name, lost.has(name) ? [lost.get(name)] : numeric(runs ? number(runs.lag) : "–"), ...cells, numeric(bytes(any?.state_bytes)),
      marks.length ? clock(Math.min(...marks), true) : "–",
      { words: (any?.inputs ?? []).map((input) => input.partition).join(", "), name: "" }]];
  }));
}

function drawFlow(group) {
  const answered = group.instances.filter((one) => one.view !== null);
  const series = answered.map((one, at) => ({ name: label(one), at, samples: samples(one.view, one.age), stale: !fresh(one) }));
  const views = answered.filter(fresh).map((one) => one.view);
  text(byId("lag-now"), lagWords(views));
  text(byId("rate-now"), few(views.reduce((total, view) => total + (rate(view) ?? 0), 0)));
  chart(byId("lag-chart"), series, 1);
  chart(byId("rate-chart"), series, 2);
  keyed(byId("chart-legend"), series.map((one) => one.name), () => {
    const item = make("li");
    const line = svgElement("svg", { viewBox: "0 0 40 10", "aria-hidden": "true" });
    line.append(svgElement("line", { x1: 0, y1: 5, x2: 40, y2: 5, "stroke-width": 3 }));
    item.append(line, make("span"));
    return item;
  }, (item, name) => {
    const { at } = series.find((one) => one.name === name);
    set(item.firstChild.firstChild, "class", `c${at % 5}`);
    set(item.firstChild.firstChild, "stroke-dasharray", DASHES[at % 5]);
    text(item.lastChild, ` ${name}`);
  });
  const topics = new Map();
  const add = (counts, place) => Object.entries(counts).forEach(([topic, count]) => {
    const both = topics.get(topic) ?? topics.set(topic, [0, 0]).get(topic);
    both[place] += count;
  });
  views.forEach((view) => { add(view.records, 0); add(view.skipped, 1); });
  table("topics-table", [...topics].sort().map(([topic, [done, dead]]) => [topic, [topic, numeric(number(done)), numeric(number(dead))]]));
  const sum = (of) => number(views.reduce((total, view) => total + of(view), 0));
  tiles("counts", [
    ["Rows written", sum((view) => view.rows_written)],
    ["Dead records", sum((view) => Object.values(view.skipped).reduce((a, b) => a + b, 0))],
    ["Failed batches", sum((view) => view.errors.batch ?? 0)],
    ["Broker did not answer", sum((view) => view.errors.broker ?? 0)],
    ["Rebalances", sum((view) => view.metrics["rebalance-total"] ?? 0)],
  ]);
}

function chart(svg, series, value) {
  const [width, height, left, bottom] = [600, 180, 84, 24];
  const most = Math.max(1, ...series.flatMap((one) => one.samples.map((sample) => sample[value])));
  const oldest = Math.max(0, ...series.flatMap((one) => one.samples.map((sample) => sample[0])));
  const span = Math.min(MINUTES, Math.max(LEAST_MINUTES, Math.ceil(oldest / 60)));
  const x = (ago) => width - 4 - (ago / (span * 60)) * (width - left - 8);
  const y = (amount) => height - bottom - (amount / most) * (height - bottom - 12);
  const parts = [];
  for (const share of [0, 0.5, 1]) {
    parts.push(svgElement("line", { class: "axis", x1: left, x2: width, y1: y(most * share), y2: y(most * share) }));
    parts.push(svgElement("text", { x: left - 6, y: y(most * share) + 4, "text-anchor": "end", class: "quiet" }, few(most * share)));
  }
  for (const minutes of [span, span / 2, 0]) {
    parts.push(svgElement("text", { x: x(minutes * 60), y: height - 4, class: "quiet",
      "text-anchor": minutes === span ? "start" : minutes ? "middle" : "end" }, minutes ? `${minutes} min ago` : "now"));
  }
  for (const one of series) {
    if (one.samples.length) {
      parts.push(svgElement("polyline", { class: `series c${one.at % 5}`, "stroke-dasharray": DASHES[one.at % 5],
        points: one.samples.map((sample) => `${x(sample[0]).toFixed(1)},${y(sample[value]).toFixed(1)}`).join(" ") }));
    }
  }
  svg.replaceChildren(...parts);
}

function drawStories(group) {
  const stories = new Map();
  for (const one of group.instances) {
    for (const entry of one.view?.rebalances ?? []) {
      const key = entry.generation === null ? `undecided ${entry.at}` : String(entry.generation);
      (stories.get(key) ?? stories.set(key, []).get(key)).push({ ...entry, instance: label(one) });
    }
  }
  const last = (entries) => Math.max(...entries.map((entry) => entry.at));
  const keys = [...stories.keys()].sort((a, b) => last(stories.get(b)) - last(stories.get(a))).slice(0, MOST_STORIES);
  byId("no-rebalances").hidden = keys.length > 0;
  keyed(byId("stories"), keys, () => {
    const item = make("li");
    item.append(make("h3"), make("p"), make("ul"), make("details"));
    item.lastChild.append(make("summary"), make("ul"));
    return item;
  }, (item, key) => {
    const entries = stories.get(key).sort((a, b) => a.at - b.at);
    const [title, why, moves, decisions] = item.children;
    const decided = entries.filter((entry) => entry.kind === "decided").flatMap((entry) => entry.lines);
    const seconds = Math.max(0, ...entries.map((entry) => entry.seconds ?? 0));
    const known = entries.find((entry) => entry.why)?.why ?? "";
    text(title, `${entries[0].generation === null ? "Under way" : `Generation ${key}`}, ${clock(last(entries) * 1000, true)} UTC`);
    text(why, `${known ? `Because ${known}.` : ""} ${seconds ? `Every task in service after ${seconds.toFixed(1)} s.` : ""}`.trim());
    const threads = new Map();
    for (const entry of entries.filter((one) => one.kind !== "decided")) {
      (threads.get(entry.thread) ?? threads.set(entry.thread, []).get(entry.thread)).push(...entry.lines);
    }
    const lines = [...threads].map(([thread, said]) => `${thread}: ${said.join("; ")}`);
    list(moves, lines);
    decisions.hidden = decided.length === 0;
    text(decisions.firstChild, `What the leader decided, and why (${decided.length} lines)`);
    list(decisions.lastChild, decided);
  });
}

function drawBatches(group) {
  const rows = group.instances.filter(fresh).flatMap((one) => one.view.batches.map((batch) => [label(one), batch]));
  rows.sort(([, a], [, b]) => (a.at < b.at ? 1 : -1));
  table("batches-table", rows.slice(0, MOST_BATCHES).map(([name, batch]) => [`${name} ${batch.batch}`, [
    clock(Date.parse(batch.at)), name, numeric(number(batch.batch)), batch.resident ? "resident" : "bulk",
    numeric(number(batch.tasks)), numeric(number(batch.rows_in)), numeric(number(batch.rows_out)),
    { words: number(batch.late), name: amber(batch.late, "number") }, numeric(number(batch.ms.triggerExecution)), numeric(number(batch.ms.latestOffset)),
    numeric(number(batch.ms.addBatch)), numeric(number(batch.ms.commitOffsets)),
  ]]));
}

function drawConfig(group) {
  const answered = group.instances.filter((one) => one.view !== null);
  const wanted = JSON.stringify(answered.map((one) => [label(one), one.view.config]));
  if (wanted === drawnConfig) {
    return;
  }
  drawnConfig = wanted;
  const maps = answered.map((one) => new Map(Object.entries(one.view.config)));
  const keys = [...new Set(maps.flatMap((map) => [...map.keys()]))].sort();
  const same = (key) => maps.every((map) => map.get(key) === maps[0].get(key));
  const differ = keys.some((key) => !same(key));
  head("config-table", ["Setting", ...(differ ? answered.map(label) : ["Value, on every instance that answered"])]);
  table("config-table", keys.map((key) => [key, [key,
    ...(differ ? maps.map((map) => long(map.get(key) ?? "–")) : [long(maps[0].get(key) ?? "–")])]]));
}
