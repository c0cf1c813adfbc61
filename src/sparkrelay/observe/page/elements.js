// Elements of the page: made once, and filled again. Rows that stay keep their elements, so that focus, selection and
// scroll position survive an update. Every text comes from others: it goes into text nodes only.
const SVG = "http://www.w3.org/2000/svg";

export const byId = (id) => document.getElementById(id);

export function text(element, words) {
  if (element.textContent !== words) {
    element.textContent = words;
  }
}

export function set(element, name, value) {
  if (element.getAttribute(name) !== String(value)) {
    element.setAttribute(name, value);
  }
}

export function make(tag, words = "", name = "") {
  const element = document.createElement(tag);
  element.textContent = words;
  if (name) {
    element.className = name;
  }
  return element;
}

export function svgElement(tag, attributes, words = "") {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) {
    element.setAttribute(name, value);
  }
  element.textContent = words;
  return element;
}

// Makes a parent's children those of the keys, in their order.
export function keyed(parent, keys, create, fill) {
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

// One row: the first cell is its header. A cell is a text, {words, name, title}, or a list of such.
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

export function table(id, rows) {
  const found = new Map(rows.map(([key, cells]) => [key, cells]));
  keyed(byId(id).tBodies[0], [...found.keys()], () => document.createElement("tr"), (tr, key) => row(tr, found.get(key)));
}

export function head(id, names) {
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

// Each tile is [title, words] or [title, words, class].
export function tiles(id, all) {
  const found = new Map(all.map(([title, ...rest]) => [title, rest]));
  keyed(byId(id), [...found.keys()], (title) => {
    const tile = make("div");
    tile.append(make("dt", title), make("dd"));
    return tile;
  }, (tile, title) => {
    const [words, name] = found.get(title);
    text(tile.lastChild, words);
    set(tile, "class", name ?? "");
  });
}

export function list(element, lines) {
  keyed(element, lines.map((_, at) => String(at)), () => make("li"), (item, at) => text(item, lines[at]));
}
