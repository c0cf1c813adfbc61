// Draws the topology over the whole width that it has. Where two columns fit, layers are columns from left to right; the
// columns that do not fit continue in the next band, as lines of text do. Else layers are rows from top to bottom.
import { byId, list, set, svgElement } from "./elements.js";

const HIGH = 44;
const MARGIN = 12;
const ROW_GAP = 18;
const COLUMN_GAP = 44;
const BAND_GAP = 48;
const LAYER_GAP = 36;
// A source or sink is drawn beside its topics: their names need not be in its box too.
const title = (node) => node.label.replace(/ \(topics?: .*\)$/, "");
const short = (words, most = 38) => (words.length > most ? `${words.slice(0, most - 1)}…` : words);
let drawn = "";

export function drawGraph(graph) {
  const room = byId("graph").parentElement.clientWidth;
  const wanted = JSON.stringify([room, graph]);
  if (wanted === drawn) {
    return;
  }
  drawn = wanted;
  const nodes = new Map(graph.nodes.map((node) => [node.id, { ...node, layer: 0 }]));
  const edges = graph.edges.filter(([from, to]) => nodes.has(from) && nodes.has(to))
    .map(([from, to]) => [nodes.get(from), nodes.get(to)]);
  const layers = layered(nodes, edges);
  const place = positioned(layers, edges, room);
  const svg = byId("graph");
  set(svg, "width", place.width);
  set(svg, "height", place.height);
  svg.replaceChildren(...edges.flatMap(([from, to]) => edge(from, to, place.across)), ...[...nodes.values()].map(box));
  list(byId("graph-list"), [...nodes.values()].map((node) => {
    const after = edges.filter(([from]) => from === node).map(([, to]) => to.label);
    return `${node.kind}: ${node.label}${node.box ? `, in ${node.box}` : ""}${node.notes.length ? `; ${node.notes.join("; ")}` : ""}` +
      `${after.length ? `; leads to ${after.join(", ")}` : ""}`;
  }));
}

// Puts each node on the longest way from a beginning; a topic that a pipeline writes and reads again may close a circle.
function layered(nodes, edges) {
  for (let round = 0; round < Math.min(nodes.size, 200); round += 1) {
    let moved = false;
    for (const [from, to] of edges) {
      if (to.layer <= from.layer && from.layer < nodes.size) {
        to.layer = from.layer + 1;
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
  return layers.filter(Boolean);
}

function positioned(layers, edges, room) {
  for (const node of layers.flat()) {
    const letters = Math.max(short(title(node)).length, short(node.notes[0] ?? node.kind, 44).length * 0.86);
    node.width = Math.min(Math.max(90, 16 + 7 * letters), room - 2 * MARGIN);
  }
  const widths = layers.map((layer) => Math.max(...layer.map((node) => node.width)));
  const bands = [];
  let left = 0;
  widths.forEach((width, level) => {
    if (level === 0 || left < width) {
      bands.push([]);
      left = room - 2 * MARGIN;
    }
    bands.at(-1).push(level);
    left -= width + COLUMN_GAP;
  });
  const across = bands.some((band) => band.length > 1);
  return across ? placeAcross(layers, edges, room, widths, bands) : placeDown(layers, edges, room);
}

// Where a node would best be: in the middle of those that lead to it.
function wish(node, edges, middle) {
  const before = edges.filter(([from, to]) => to === node && from.x !== undefined && from.band === node.band);
  return before.length ? before.reduce((sum, [from]) => sum + middle(from), 0) / before.length : 0;
}

function placeAcross(layers, edges, room, widths, bands) {
  const middle = (node) => node.y + HIGH / 2;
  let gap = COLUMN_GAP;
  let top = MARGIN;
  bands.forEach((band, number) => {
    const spare = room - 2 * MARGIN - band.reduce((sum, level) => sum + widths[level], 0);
    // The last band is not spread wider than the others.
    gap = number > 0 && number === bands.length - 1 ? Math.min(gap, spare / Math.max(1, band.length - 1))
      : spare / Math.max(1, band.length - 1);
    let x = MARGIN;
    let lowest = top;
    for (const level of band) {
      layers[level].forEach((node) => { node.band = number; });
      const wishes = new Map(layers[level].map((node) => [node, wish(node, edges, middle)]));
      layers[level].sort((a, b) => wishes.get(a) - wishes.get(b));
      let y = top;
      for (const node of layers[level]) {
        node.x = x;
        node.y = Math.max(y, wishes.get(node) - HIGH / 2);
        y = node.y + HIGH + ROW_GAP;
        lowest = Math.max(lowest, node.y + HIGH);
      }
      x += widths[level] + gap;
    }
    layers.forEach((layer, level) => band.includes(level) && layer.forEach((node) => { node.lowest = lowest; }));
    top = lowest + BAND_GAP;
  });
  return { across: true, width: room, height: top - BAND_GAP + MARGIN };
}

function placeDown(layers, edges, room) {
  layers.forEach((layer, level) => {
    const wishes = new Map(layer.map((node) => [node, wish(node, edges, (from) => from.x + from.width / 2)]));
    layer.sort((a, b) => wishes.get(a) - wishes.get(b));
    const share = (room - 2 * MARGIN - ROW_GAP * (layer.length - 1)) / layer.length;
    layer.forEach((node, at) => {
      node.width = Math.max(90, Math.min(node.width, share));
      node.x = MARGIN + Math.max(share, 90) * (at + 0.5) + ROW_GAP * at - node.width / 2;
      node.y = MARGIN + level * (HIGH + LAYER_GAP);
    });
  });
  const widest = Math.max(room, ...layers.flat().map((node) => node.x + node.width + MARGIN));
  return { across: false, width: widest, height: 2 * MARGIN + layers.length * (HIGH + LAYER_GAP) - LAYER_GAP };
}

function edge(from, to, across) {
  if (!across) {
    const [x1, y1, x2, y2] = [from.x + from.width / 2, from.y + HIGH, to.x + to.width / 2, to.y];
    return line(`M${x1},${y1} C${x1},${y1 + 22} ${x2},${y2 - 26} ${x2},${y2 - 6}`,
      `M${x2 - 4},${y2 - 7} L${x2 + 4},${y2 - 7} L${x2},${y2} Z`);
  }
  const [x1, y1, x2, y2] = [from.x + from.width, from.y + HIGH / 2, to.x, to.y + HIGH / 2];
  const end = `M${x2 - 7},${y2 - 4} L${x2 - 7},${y2 + 4} L${x2},${y2} Z`;
  if (from.band === to.band && x1 < x2) {
    const bend = (x2 - x1) / 2;
    return line(`M${x1},${y1} C${x1 + bend},${y1} ${x2 - bend},${y2} ${x2 - 6},${y2}`, end);
  }
  // To another band, or back: through the gap below the band that it leaves. A topic per row of it keeps them apart.
  const below = from.lowest + BAND_GAP / 4 + ((from.y / (HIGH + ROW_GAP)) % 4) * (BAND_GAP / 8);
  const [right, left] = [Math.min(x1 + 8, from.x + from.width + MARGIN - 2), Math.max(x2 - 10, 2)];
  return line(`M${x1},${y1} H${right} V${below} H${left} V${y2} H${x2 - 6}`, end);
}

function line(way, arrow) {
  return [svgElement("path", { class: "edge", d: way }), svgElement("path", { class: "arrow", d: arrow })];
}

function box(node) {
  const topic = node.kind === "topic";
  const letters = (node.width - 16) / 7 + 0.01;
  const group = svgElement("g", {});
  group.append(svgElement("title", {}, [`${node.kind}: ${node.label}`, ...node.notes].join("\n")));
  group.append(svgElement("rect", { class: `box ${topic ? "topic" : ""}`, x: node.x, y: node.y, width: node.width,
    height: HIGH, rx: topic ? 20 : 5 }));
  const middle = node.x + node.width / 2;
  group.append(svgElement("text", { x: middle, y: node.y + 18, "text-anchor": "middle" }, short(title(node), Math.floor(letters))));
  group.append(svgElement("text", { class: "quiet", x: middle, y: node.y + 34, "text-anchor": "middle" },
    short(node.notes[0] ?? node.kind, Math.floor(letters / 0.86))));
  return group;
}
