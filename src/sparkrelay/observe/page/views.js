// Draws a group. Rows that stay keep their elements, so that focus, selection and scrolling stay where they are.
const SVG = "http://www.w3.org/2000/svg";
const SIGNS = { active: "●", restoring: "◐", created: "◐", standby: "○", warming: "△", nowhere: "✕" };
const DASHES = ["", "7 3", "2 3", "9 3 2 3", "12 5"];
const MOST_STORIES = 20;
const MOST_BATCHES = 40;
const MINUTES = 10;
const LEAST_MINUTES = 2;
const byId = (id) => document.getElementById(id);
const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const number = (value) => (typeof value === "number" ? whole.format(value) : "–");
const few = (value) => (typeof value === "number" ? (value < 10 && value > 0 ? value.toFixed(1) : whole.format(value)) : "–");
let drawnGraph = "";
let drawnConfig = "";

export function text(element, words) {
  if (element.textContent !== words) {
    element.textContent = words;
  }
}

function set(element, name, value) {
  if (element.getAttribute(name) !== String(value)) {
    element.setAttribute(name, value);
  }
}

function make(tag, words = "", name = "") {
  const element = document.createElement(tag);
  element.textContent = words;
  if (name) {
    element.className = name;
  }
  return element;
}

function svgElement(tag, attributes, words = "") {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) {
    element.setAttribute(name, value);
  }
  element.textContent = words;
  return element;
}

export function health(element, well, words) {
  text(element, words);
  set(element, "class", well ? "well" : "ill");
}

// Has a parent's children be those of the keys, in their order.
function keyed(parent, keys, create, fill) {
  const there = new Map([...parent.children].map((child) => [child.dataset.key, child]));
  keys.forEach((key, at) => {
    let child = there.get(key);
    if (child === undefined) {
      child = create(key);
      child.dataset.key = key;
    }
    there.delete(key);
    if (parent.children[at] !== child) {
      parent.insertBefore(child, parent.children[at] ?? null);
    }
    fill(child, key);
  });
  for (const left of there.values()) {
    left.remove();
  }
}

// One row: the first cell is its header. A cell is a text, or {words, name, title}.
function row(element, cells) {
  cells.forEach((cell, at) => {
    let place = element.children[at];
    if (place === undefined) {
      place = element.appendChild(document.createElement(at === 0 ? "th" : "td"));
      if (at === 0) {
        place.scope = "row";
      }
    }
    const parts = Array.isArray(cell) ? cell : null;
    const wanted = parts === null ? (typeof cell === "object" ? cell : { words: cell }) : { words: "" };
    set(place, "class", wanted.name ?? "");
    if (parts === null) {
      text(place, wanted.words);
    } else {
      if (place.firstChild !== null && place.firstElementChild === null) {
        place.textContent = ""; // it was a text before
      }
      keyed(place, parts.map((_, index) => String(index)), () => make("span"), (span, index) => {
        text(span, parts[index].words);
        set(span, "class", parts[index].name);
        set(span, "title", parts[index].title);
      });
    }
  });
  while (element.children.length > cells.length) {
    element.lastChild.remove();
  }
}

function table(id, rows) {
  const found = new Map(rows.map(([key, cells]) => [key, cells]));
  keyed(byId(id).tBodies[0], [...found.keys()], () => document.createElement("tr"), (tr, key) => row(tr, found.get(key)));
}

function head(id, names) {
  const thead = byId(id).tHead;
  const tr = thead.rows[0] ?? thead.insertRow();
  names.forEach((name, at) => {
    let th = tr.children[at];
    if (th === undefined) {
      th = tr.appendChild(document.createElement("th"));
      th.scope = "col";
    }
    text(th, name);
  });
  while (tr.children.length > names.length) {
    tr.lastChild.remove();
  }
}

function tiles(id, pairs) {
  const values = new Map(pairs);
  keyed(byId(id), [...values.keys()], (key) => {
    const tile = make("div");
    tile.append(make("dt", key), make("dd"));
    return tile;
  }, (tile, key) => text(tile.lastChild, values.get(key)));
}

const numeric = (words) => ({ words, name: "number" });
const long = (words) => ({ words: words ?? "", name: "long" });
const label = (instance) => instance.processes.join(", ") || "no process yet";
const fresh = (instance) => instance.view !== null && instance.problem === null;

function bytes(value) {
  if (typeof value !== "number") {
    return "–";
  }
  const step = Math.min(4, Math.floor(Math.log2(Math.max(1, value)) / 10));
  return `${(value / 1024 ** step).toFixed(step ? 1 : 0)} ${["B", "KiB", "MiB", "GiB", "TiB"][step]}`;
}

function clock(ms, day = false) {
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
const lagOf = (view) => tasksOf(view, "active").reduce((sum, task) => sum + (task.lag ?? 0), 0);

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
  const silent = group.instances.filter((one) => !fresh(one));
  const ill = group.instances.filter((one) => fresh(one) && !one.view.alive);
  const troubled = group.instances.filter((one) => fresh(one) && one.view.alive && one.view.trouble);
  const waiting = group.instances.filter((one) => fresh(one) && one.view.alive && !one.view.ready);
  const said = [];
  if (ill.length) {
    said.push(`${ill.length} of ${group.instances.length} instances cannot work: ` +
      ill.map((one) => `${label(one)} is ${one.view.state}`).join(", "));
  }
  if (silent.length) {
    said.push(`${silent.length} of ${group.instances.length} instances do not answer`);
  }
  if (group.missing.length) {
    said.push(`${group.missing.length} tasks run on no instance that answers`);
  }
  if (waiting.length) {
    said.push(`${waiting.length} instances have tasks that do not run yet`);
  }
  if (troubled.length) {
    said.push(`${troubled.length} instances are hindered`);
  }
  health(byId("health"), said.length === 0, said.length === 0
    ? `All is well: every task runs, on ${group.instances.length} ${group.instances.length === 1 ? "instance" : "instances"}.`
    : `${said.join(". ")}.`);
}

function drawInstances(group) {
  const views = group.instances.filter(fresh).map((one) => one.view);
  const sum = (of) => views.reduce((total, view) => total + (of(view) ?? 0), 0);
  tiles("summary", [
    ["Instances that answer", `${views.length} of ${group.instances.length}`],
    ["Tasks running", `${number(sum((view) => tasksOf(view, "active").length))} of ${number(group.instances[0].view.plan.length)}`],
    ["Restoring", number(sum((view) => tasksOf(view, "restoring", "created").length))],
    ["Lag", number(sum(lagOf))],
    ["Records/s", few(sum(rate))],
    ["State on disk", bytes(sum((view) => view.tasks.reduce((total, task) => total + (task.state_bytes ?? 0), 0)))],
  ]);
  table("instances-table", group.instances.map((one) => {
    const view = one.view;
    const name = { words: `${label(one)}${one.own ? " (asked)" : ""}${view ? ` on ${view.host}` : ""}`, name: "long" };
    const state = !view ? "unknown" : fresh(one) ? view.state : `was ${view.state}`;
    const count = (...roles) => numeric(view ? number(tasksOf(view, ...roles).length) : "–");
    return [label(one) + one.address, [
      name, { words: state, name: fresh(one) && view.alive ? "" : "nowhere" }, count("active"),
      count("restoring", "created"), count("standby"), count("warming"),
      numeric(view ? number(lagOf(view)) : "–"), numeric(view ? few(rate(view)) : "–"),
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
    columns.push(...one.processes.map((process) => ({ process, stale: !fresh(one) })));
    for (const task of one.view?.tasks ?? []) {
      const places = held.get(task.task) ?? held.set(task.task, new Map()).get(task.task);
      places.set(task.process, { ...task, stale: !fresh(one), age: one.age });
    }
  }
  const names = [...new Set([...group.instances[0].view.plan, ...held.keys()])].sort((a, b) => order(a) - order(b));
  const missing = new Set(group.missing);
  const shown = names.filter((name) => {
    const places = [...(held.get(name)?.values() ?? [])];
    const has = (...roles) => places.some((task) => roles.includes(task.role));
    return name.includes(filter.task) && {
      "": true, trouble: missing.has(name) || !places.some((task) => task.role === "active" && !task.stale),
      lag: places.some((task) => task.role === "active" && task.lag > 0), restoring: has("restoring", "created"),
      warming: has("warming"), standby: has("standby"),
    }[filter.role];
  });
  text(byId("task-count"), `${number(shown.length)} of ${number(names.length)} tasks`);
  head("tasks-table", ["Task", "Lag", ...columns.map((at) => at.process + (at.stale ? " (silent)" : "")), "State", "Watermark", "Input"]);
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
    const nowhere = missing.has(name) ? [{ words: `${SIGNS.nowhere} nowhere`, name: "role nowhere", title: "no instance that answers runs it" }] : null;
    const marks = Object.values(runs?.watermarks ?? {});
    return [name, [name, nowhere ?? numeric(runs ? number(runs.lag) : "–"), ...cells, numeric(bytes(any?.state_bytes)),
      marks.length ? clock(Math.min(...marks), true) : "–",
      { words: (any?.inputs ?? []).map((input) => input.partition).join(", "), name: "" }]];
  }));
}

function drawFlow(group) {
  const answered = group.instances.filter((one) => one.view !== null);
  const series = answered.map((one, at) => ({ name: label(one), at, samples: samples(one.view, one.age), stale: !fresh(one) }));
  const views = answered.filter(fresh).map((one) => one.view);
  text(byId("lag-now"), number(views.reduce((total, view) => total + lagOf(view), 0)));
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
    ["Late rows (newest batches)", sum((view) => view.late)],
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
    const lines = entries.filter((entry) => entry.kind !== "decided").map((entry) =>
      `${entry.thread}: ${entry.kind === "in service" ? `in service after ${(entry.seconds ?? 0).toFixed(3)} s, ` : ""}${entry.lines.join("; ")}`);
    list(moves, lines);
    decisions.hidden = decided.length === 0;
    text(decisions.firstChild, `What the leader decided, and why (${decided.length} lines)`);
    list(decisions.lastChild, decided);
  });
}

function list(element, lines) {
  keyed(element, lines.map((_, at) => String(at)), () => make("li"), (item, at) => text(item, lines[at]));
}

function drawBatches(group) {
  const rows = group.instances.filter(fresh).flatMap((one) => one.view.batches.map((batch) => [label(one), batch]));
  rows.sort(([, a], [, b]) => (a.at < b.at ? 1 : -1));
  table("batches-table", rows.slice(0, MOST_BATCHES).map(([name, batch]) => [`${name} ${batch.batch}`, [
    clock(Date.parse(batch.at)), name, numeric(number(batch.batch)), batch.resident ? "resident" : "bulk",
    numeric(number(batch.tasks)), numeric(number(batch.rows_in)), numeric(number(batch.rows_out)),
    numeric(number(batch.late)), numeric(number(batch.ms.triggerExecution)), numeric(number(batch.ms.latestOffset)),
    numeric(number(batch.ms.addBatch)), numeric(number(batch.ms.commitOffsets)),
  ]]));
}

const short = (words, most = 38) => (words.length > most ? `${words.slice(0, most - 1)}…` : words);

function drawGraph(graph) {
  const wanted = JSON.stringify(graph);
  if (wanted === drawnGraph) {
    return;
  }
  drawnGraph = wanted;
  const nodes = new Map(graph.nodes.map((node) => [node.id, { ...node, layer: 0 }]));
  const edges = graph.edges.filter(([from, to]) => nodes.has(from) && nodes.has(to));
  // Longest way from a beginning; a topic that a pipeline writes and reads again may close a circle.
  for (let round = 0; round < Math.min(nodes.size, 200); round += 1) {
    let moved = false;
    for (const [from, to] of edges) {
      if (nodes.get(to).layer <= nodes.get(from).layer && nodes.get(from).layer < nodes.size) {
        nodes.get(to).layer = nodes.get(from).layer + 1;
        moved = true;
      }
    }
    if (!moved) {
      break;
    }
  }
  const layers = [];
  for (const node of nodes.values()) {
    (layers[node.layer] ??= []).push(node);
  }
  const [high, down, gap] = [44, 84, 18];
  const width = (node) => Math.max(90, 16 + 7 * Math.max(short(node.label).length, short(node.notes[0] ?? "", 44).length * 0.86));
  let widest = 0;
  layers.filter(Boolean).forEach((layer, level) => {
    const wish = (node) => {
      const before = edges.filter(([, to]) => to === node.id).map(([from]) => nodes.get(from)).filter((one) => one.x !== undefined);
      return before.length ? before.reduce((sum, one) => sum + one.x + width(one) / 2, 0) / before.length : 0;
    };
    layer.sort((a, b) => wish(a) - wish(b));
    let x = 8;
    for (const node of layer) {
      node.x = Math.max(x, wish(node) - width(node) / 2);
      node.y = 8 + level * down;
      x = node.x + width(node) + gap;
      widest = Math.max(widest, x);
    }
  });
  const svg = byId("graph");
  const tall = 8 + layers.filter(Boolean).length * down;
  set(svg, "width", widest);
  set(svg, "height", tall);
  const parts = [];
  for (const [from, to] of edges) {
    const [a, b] = [nodes.get(from), nodes.get(to)];
    const [x1, y1, x2, y2] = [a.x + width(a) / 2, a.y + high, b.x + width(b) / 2, b.y];
    parts.push(svgElement("path", { class: "edge", d: `M${x1},${y1} C${x1},${y1 + 24} ${x2},${y2 - 28} ${x2},${y2 - 6}` }));
    parts.push(svgElement("path", { class: "arrow", d: `M${x2 - 4},${y2 - 7} L${x2 + 4},${y2 - 7} L${x2},${y2} Z` }));
  }
  for (const node of nodes.values()) {
    const place = svgElement("g", {});
    place.append(svgElement("title", {}, [`${node.kind}: ${node.label}`, ...node.notes].join("\n")));
    place.append(svgElement("rect", { class: `box ${node.kind === "topic" ? "topic" : ""}`, x: node.x, y: node.y,
      width: width(node), height: high, rx: node.kind === "topic" ? 20 : 5 }));
    place.append(svgElement("text", { x: node.x + width(node) / 2, y: node.y + 18, "text-anchor": "middle" }, short(node.label)));
    place.append(svgElement("text", { class: "quiet", x: node.x + width(node) / 2, y: node.y + 34, "text-anchor": "middle" },
      short(node.notes[0] ?? node.kind, 44)));
    parts.push(place);
  }
  svg.replaceChildren(...parts);
  const items = [...nodes.values()].map((node) => {
    const after = edges.filter(([from]) => from === node.id).map(([, to]) => nodes.get(to).label);
    return `${node.kind}: ${node.label}${node.box ? `, in ${node.box}` : ""}${node.notes.length ? `; ${node.notes.join("; ")}` : ""}` +
      `${after.length ? `; leads to ${after.join(", ")}` : ""}`;
  });
  list(byId("graph-list"), items);
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
