"use strict";
(() => {
  const began = performance.now();
  const data = JSON.parse(document.getElementById("data").textContent);
  const SMALL = 60;      // a graph of so many operators is shown open
  const MANY = 1200;     // more elements than this are drawn from a texture while they move
  const SPOT = { w: 172, h: 42 };

  /* Fill, text and border by layout; the last colour is for layouts beyond the palette. Text on fill is above 7:1. */
  const PALETTE = {
    light: [["#cfe3ff", "#0a2a5c", "#2f6fd0"], ["#ffe2bd", "#4d2a00", "#c26a00"], ["#cdeed3", "#0b3b18", "#2f8f4a"],
      ["#ecd7fb", "#3a1259", "#8a4bc2"], ["#c9eff2", "#06383d", "#168a96"], ["#fbd5e3", "#56102f", "#c23a74"],
      ["#eceac0", "#3b3800", "#8c8300"], ["#e0e3e8", "#22282f", "#6d7682"]],
    dark: [["#17355f", "#e6f0ff", "#6fa8ff"], ["#573300", "#fff0dc", "#f0a24a"], ["#124524", "#e2f7e7", "#5fc47d"],
      ["#43205f", "#f4e9fd", "#bd86ee"], ["#0b464d", "#dcf7fa", "#4cc3cf"], ["#5b1837", "#fde7ef", "#f07fab"],
      ["#45400a", "#faf7d8", "#cfc44a"], ["#353b43", "#f1f3f6", "#a3adb9"]],
  };
  const MARK = { light: ["#a3180f", "#ffffff", "#5c0b05"], dark: ["#ffb3a8", "#3b0500", "#ffffff"] };
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const phone = matchMedia("(max-width: 860px)");
  const mode = () => (dark.matches ? "dark" : "light");

  /* The number of each layout's colour, the heaviest layout first. A layout with a name has one colour on every page. */
  const hue = new Map(data.colours);
  const layouts = [...hue.keys()];

  const number = new Intl.NumberFormat("en-US");
  const UNITS = [[1e9, " GB"], [1e6, " MB"], [1e3, " KB"]];
  const bytes = n => {  // as the reports say it: 151 KB
    const [size, unit] = UNITS.find(([size]) => n >= 0.9995 * size) || [1, n === 1 ? " byte" : " bytes"];
    return Number((n / size).toPrecision(3)) + unit;
  };
  const arrow = layout => layout.replace(" -> ", " → ");
  const shortened = (text, most) => {   // as the reports do it: "a/Relu;…", "…block_3/expand/Conv2D"
    const [first, rest] = text.includes("/") ? text.split(";", 2) : [text], omitted = rest ? ";…" : "";
    return (first.length + omitted.length <= most ? first : "…" + first.slice(1 + omitted.length - most)) + omitted;
  };
  /* What shortens names so that those of one kind stay distinct: [kind, name] of all of them. */
  const shortener = (pairs, most) => {
    const names = new Map(), key = (kind, name) => kind + " " + shortened(name, most);
    for (const [kind, name] of pairs) names.set(key(kind, name), (names.get(key(kind, name)) || new Set()).add(name));
    return (kind, name) => (names.get(key(kind, name)).size > 1 ? name : shortened(name, most));
  };
  const element = (tag, text, attributes = {}) => {
    const made = document.createElement(tag);
    if (text !== undefined) made.textContent = text;
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    return made;
  };

  /* Two models instead of one before and after: which operators only one has, and what differs in those that both have. */
  const diff = data.diff;
  const titles = diff ? { before: diff.names[0], after: diff.names[1] } : { before: "Before", after: "After" };
  const only = new Map(diff ? diff.only.flatMap((list, side) => list.map(spot => [spot, titles[["before", "after"][side]]])) : []);
  const changed = new Map(diff ? diff.changed : []);
  const standing = spot => (only.has(spot) ? "only" : changed.has(spot) ? "changed" : "");

  const MARK_WIDTH = mark => 30 + 7.4 * Math.max(19, Math.min(56, mark.layout.length));
  const boxWidth = label => Math.max(190, 26 + 8 * Math.max(...label.split("\n").map(line => line.length)));
  const spots = data.spots.map(([name, operator, fixed, source, outputs]) => ({ name, operator, fixed, source, outputs }));
  const values = data.values.map(([tensor, dtype, shape, layout, stored, others, size]) =>
    ({ tensor, dtype, shape, layout, stored, others, size }));

  const shortSpot = shortener(spots.map(spot => [spot.operator, spot.name]), 60);
  const spotName = spot => shortSpot(spots[spot].operator, spots[spot].name);
  const shortTensor = shortener(values.map(value => ["", value.tensor]), 60);

  function styles() {
    const ink = getComputedStyle(document.body).getPropertyValue("--ink").trim();
    const line = getComputedStyle(document.body).getPropertyValue("--soft").trim();
    const accent = getComputedStyle(document.body).getPropertyValue("--accent").trim();
    const [fill, text, border] = MARK[mode()];
    const colour = part => node => PALETTE[mode()][hue.get(node.data("layout"))][part];
    return [
      { selector: "node", style: { "font-family": "system-ui, sans-serif", "font-size": 12, "text-wrap": "wrap",
        "text-valign": "center", "text-halign": "center", label: "data(label)", shape: "round-rectangle", width: "data(w)",
        height: "data(h)", "background-color": colour(0), color: colour(1), "border-color": colour(2), "border-width": 1.5,
        "min-zoomed-font-size": 6, "overlay-opacity": 0, "text-max-width": 400 } },
      { selector: ".region", style: { "border-width": 3, "font-size": 14 } },
      { selector: ".open", style: { "background-opacity": 0.28, "text-valign": "top", "text-halign": "center", color: ink,
        "text-margin-y": -4, "text-margin-x": "data(shift)", "z-index-compare": "manual", "z-index": -1 } },
      { selector: ".mark", style: { shape: "cut-rectangle", "background-color": fill, color: text, "border-color": border,
        "font-weight": "bold", "min-zoomed-font-size": 4 } },
      { selector: "edge", style: { width: 1.6, "line-color": line, "target-arrow-color": line, "target-arrow-shape": "triangle",
        "arrow-scale": 0.8, "curve-style": "straight", opacity: 0.75 } },
      { selector: ".bent", style: { "curve-style": "round-segments", "segment-distances": "data(distances)",
        "segment-weights": "data(weights)", "edge-distances": "node-position", "segment-radii": 14 } },
      { selector: ".far", style: { "curve-style": "unbundled-bezier", "control-point-distances": 120, "control-point-weights": 0.5,
        "line-style": "dashed" } },
      { selector: ".moves", style: { width: 3, "line-color": fill, "target-arrow-color": fill, opacity: 1 } },
      { selector: ".only", style: { "border-width": 5, "border-style": "double", "border-color": ink } },
      { selector: ".changed", style: { "border-width": 3, "border-style": "dashed", "border-color": ink } },
      { selector: ":selected", style: { "border-width": 4, "border-color": accent, "underlay-color": accent,
        "underlay-opacity": 0.35, "underlay-padding": 7 } },
      { selector: ".open:selected", style: { "underlay-opacity": 0 } },
    ];
  }

  /* One side: which regions are open, and the drawing of what is seen. */
  class Pane {
    constructor(name) {
      this.name = name;
      this.section = document.getElementById(name);
      this.holder = this.section.querySelector(".graph");
      const side = data[name];
      this.regions = side.regions.map(([layout, inside, size]) => ({ layout, spots: inside, size }));
      this.marks = side.marks.map(([value, layout, size, reason]) => ({ value, layout, size, reason }));
      this.edges = side.edges.map(([value, producer, reader, through]) => ({ value, producer, reader, through }));
      this.region = new Map();
      this.regions.forEach((region, i) => region.spots.forEach(spot => this.region.set(spot, i)));
      this.marks.forEach(mark => { mark.key = Infinity; mark.readers = []; });
      for (const edge of this.edges) edge.through.forEach((i, place) => {
        this.marks[i].key = Math.min(this.marks[i].key, edge.producer + 0.5 + place / 1000);
        this.marks[i].readers.push(edge.reader);
      });
      this.inner = new Map();
      this.open = new Set();
      const total = this.marks.reduce((sum, mark) => sum + mark.size, 0);
      this.section.querySelector("small").textContent =
        `${number.format(this.marks.length)} Transpose${this.marks.length === 1 ? "" : "s"}, ${bytes(total)} · ` +
        `${number.format(this.regions.length)} region${this.regions.length === 1 ? "" : "s"}`;
      this.cy = cytoscape({ container: this.holder, style: styles(), elements: [], minZoom: 0.004, maxZoom: 3,
        boxSelectionEnabled: false, autoungrabify: true, selectionType: "single",
        textureOnViewport: spots.length > MANY, hideEdgesOnViewport: spots.length > MANY, pixelRatio: spots.length > MANY ? 1 : "auto" });
      this.cy.on("tap", "node", event => { chosen(this, event.target.id()); });
      this.cy.on("dbltap", ".region", event => { this.toggle(Number(event.target.id().slice(1))); });
      this.cy.on("tap", event => { if (event.target === this.cy) clear(); });
      this.holder.addEventListener("keydown", event => this.key(event));
    }

    /* The operators of a region, laid out once. */
    layout(i) {
      if (!this.inner.has(i)) {
        const inside = new Set(this.regions[i].spots);
        const edges = this.edges.filter(e => inside.has(e.producer) && inside.has(e.reader) && !e.through.length);
        const nodes = this.regions[i].spots.map(spot => ({ id: "s" + spot, w: SPOT.w, h: SPOT.h, key: spot }));
        this.inner.set(i, { edges, ...layered(nodes, edges.map(e => ["s" + e.producer, "s" + e.reader])) });
      }
      return this.inner.get(i);
    }

    /* What a region's box says. */
    title(i) {
      const region = this.regions[i], count = region.spots.length, only = spots[region.spots[0]];
      const what = count === 1 && !this.open.has(i) ? only.operator + " " + shortened(only.name, 20)
        : `${number.format(count)} operator${count === 1 ? "" : "s"}, ${bytes(region.size)}` + this.differing(region);
      return (region.layout || "scalars") + "\n" + what;
    }

    differing(region) {
      const count = region.spots.filter(standing).length;
      return count ? ` · ${number.format(count)} differ` : "";
    }

    /* What an edge of the overview ends at. */
    shown(spot) {
      const region = this.region.get(spot);
      return this.open.has(region) ? "s" + spot : "r" + region;
    }

    draw() {
      const boxes = [], lines = [];
      this.regions.forEach((region, i) => {
        const inner = this.open.has(i) ? this.layout(i) : null;
        boxes.push({ id: "r" + i, key: region.spots[0], w: inner ? inner.w + 48 : boxWidth(this.title(i)), h: inner ? inner.h + 76 : 66 });
      });
      this.marks.forEach((mark, i) => { if (mark.key < Infinity) boxes.push({ id: "t" + i, key: mark.key + i / 1e8, w: MARK_WIDTH(mark), h: 46 }); });
      const seen = new Map();
      const line = (a, b, from, to, moves) => {
        const id = from + ">" + to;
        if (!seen.has(id)) { seen.set(id, true); lines.push({ id, a, b, from, to, moves }); }
      };
      for (const edge of this.edges) {
        const a = this.region.get(edge.producer), b = this.region.get(edge.reader);
        if (!edge.through.length && a === b) continue;
        const stops = [["r" + a, this.shown(edge.producer)], ...edge.through.map(i => ["t" + i, "t" + i]), ["r" + b, this.shown(edge.reader)]];
        for (let i = 1; i < stops.length; i++)
          line(stops[i - 1][0], stops[i][0], stops[i - 1][1], stops[i][1], edge.through.length > 0);
      }
      const over = layered(boxes, lines.map(({ a, b }) => [a, b]), 40, 54);
      this.size = over;
      const elements = [], point = new Map();
      this.regions.forEach((region, i) => {
        const at = over.at.get("r" + i), inner = this.open.has(i) ? this.layout(i) : null;
        const label = this.title(i), size = inner ? { w: inner.w + 24, h: inner.h + 30 } : { w: boxWidth(label), h: 66 };
        const shift = inner ? Math.min(-80, 66 - inner.w / 2) : 0;   // the title beside where edges come in
        elements.push({ data: { id: "r" + i, layout: region.layout, label, shift, ...size },
          classes: inner ? "region open" : region.spots.some(standing) ? "region changed" : "region", position: { x: at.x, y: at.y + (inner ? 10 : 0) } });
        point.set("r" + i, at);
        if (!inner) return;
        for (const spot of region.spots) {
          const place = inner.at.get("s" + spot), where = { x: at.x + place.x, y: at.y + place.y + 10 };
          point.set("s" + spot, where);
          elements.push({ data: { id: "s" + spot, layout: region.layout, ...SPOT,
            label: spots[spot].operator + "\n" + shortened(spots[spot].name, 24) }, classes: standing(spot), position: where });
        }
        inner.edges.forEach((edge, n) => lines.push({ id: `i${i}.${n}`, from: "s" + edge.producer, to: "s" + edge.reader,
          bends: inner.bends[n].map(p => ({ x: at.x + p.x, y: at.y + p.y + 10 })) }));
      });
      this.marks.forEach((mark, i) => {
        const at = over.at.get("t" + i);
        if (!at) return;
        point.set("t" + i, at);
        elements.push({ data: { id: "t" + i, w: MARK_WIDTH(mark), h: 46, label: "Transpose " + bytes(mark.size) + "\n" + shortened(arrow(mark.layout), 56) },
          classes: "mark", position: { ...at } });
      });
      lines.forEach((item, n) => {
        const bends = item.bends || (item.from[0] !== "s" && item.to[0] !== "s" ? over.bends[n] : []);
        elements.push(this.line(item, bends, point));
      });
      this.cy.batch(() => { this.cy.elements().remove(); this.cy.add(elements); });
      this.cy.edges().unselectify();
    }

    line(item, bends, point) {
      const a = point.get(item.from), b = point.get(item.to);
      const entry = { data: { id: item.id, source: item.from, target: item.to }, classes: item.moves ? "moves" : "" };
      const dx = b.x - a.x, dy = b.y - a.y, length = Math.hypot(dx, dy) || 1;
      if (bends.length && bends.some(p => Math.abs((p.x - a.x) * -dy + (p.y - a.y) * dx) / length > 2)) {
        const kept = bends.filter((p, i) => !i || i === bends.length - 1 || Math.abs(p.x - bends[i - 1].x) > 1 || Math.abs(p.x - bends[i + 1].x) > 1);
        entry.data.weights = kept.map(p => ((p.x - a.x) * dx + (p.y - a.y) * dy) / (length * length));
        entry.data.distances = kept.map(p => ((p.x - a.x) * -dy + (p.y - a.y) * dx) / length);
        entry.classes += " bent";
      } else if (item.bends && !bends.length && dy > 12 * SPOT.h) entry.classes += " far";
      return entry;
    }

    /* The whole drawing. */
    fit() {
      this.cy.resize();
      const width = this.holder.clientWidth, height = this.holder.clientHeight;
      if (!width) return;
      const zoom = Math.min(width / (this.size.w + 60), height / (this.size.h + 160), 1.15);
      this.cy.viewport({ zoom, pan: { x: width / 2, y: height / 2 + 10 } });
      this.fitted = { zoom: this.cy.zoom(), pan: { ...this.cy.pan() } };
    }

    /* After the window has another size: fit again what nobody has moved since. */
    resized() {
      const { zoom, pan } = this.fitted ?? { pan: {} }, now = this.cy.pan();
      const moved = this.fitted && (zoom !== this.cy.zoom() || pan.x !== now.x || pan.y !== now.y);
      moved ? this.cy.resize() : this.fit();
    }

    toggle(i, open = !this.open.has(i)) {
      open ? this.open.add(i) : this.open.delete(i);
      this.draw();
      const target = this.cy.getElementById("r" + i);
      if (open && this.regions[i].spots.length > 1) this.focus("s" + this.regions[i].spots[0]); else this.focus("r" + i);
      target.select();
    }

    all(open) {
      this.open = new Set(open ? this.regions.keys() : []);
      this.draw();
      this.fit();
    }

    focus(id) {
      const node = this.cy.getElementById(id);
      if (!node.length || !this.holder.clientWidth) return;
      this.cy.resize();
      if (this.cy.zoom() < 0.5) this.cy.zoom(0.8);
      this.cy.center(node);
    }

    select(id) {
      this.cy.elements(":selected").unselect();
      const node = this.cy.getElementById(id);
      if (node.length) node.select();
      return node.length > 0;
    }

    /* Show an operator, opening its region; where only the other model has it, the nearest around it that both have. */
    reveal(spot) {
      const shown = this.region.has(spot) ? spot : Object.values(panes).find(pane => pane !== this).nearest(spot, this);
      const region = this.region.get(shown);
      if (region !== undefined && !this.open.has(region)) { this.open.add(region); this.draw(); }
      this.select("s" + spot);
      this.focus("s" + shown);
    }

    nearest(spot, other) {
      const seen = new Set([spot]);
      for (const each of seen) {   // grows while it is walked
        if (other.region.has(each)) return each;
        for (const { producer, reader } of this.edges) {
          if (producer === each) seen.add(reader);
          if (reader === each) seen.add(producer);
        }
      }
      return spot;
    }

    key(event) {
      const step = { ArrowLeft: [60, 0], ArrowRight: [-60, 0], ArrowUp: [0, 60], ArrowDown: [0, -60] }[event.key];
      if (step) { this.cy.panBy({ x: step[0], y: step[1] }); event.preventDefault(); }
      else if (event.key === "+" || event.key === "=") this.zoom(1.25);
      else if (event.key === "-") this.zoom(0.8);
    }

    zoom(factor) {
      this.cy.zoom({ level: this.cy.zoom() * factor, renderedPosition: { x: this.holder.clientWidth / 2, y: this.holder.clientHeight / 2 } });
    }
  }

  const details = document.getElementById("details");
  let selected = null;
  const row = (table, head, text) => {
    if (!text) return;
    const line = element("tr");
    line.append(element("th", head), element("td", text));
    table.append(line);
  };

  function valueTable(value) {
    const table = element("table");
    row(table, "tensor", value.tensor);
    row(table, "type", `${value.dtype} [${value.shape.join(", ")}]`);
    row(table, "layout", value.layout === value.stored ? value.layout : `${value.layout}, stored ${value.stored}`);
    row(table, "also as", value.others.join(" and "));
    row(table, "bytes", number.format(value.size));
    return table;
  }

  function describeSpot(pane, spot) {
    const { name, operator, source, outputs, fixed } = spots[spot];
    details.replaceChildren(element("h2", operator));
    const table = element("table");
    row(table, "name", name);
    row(table, "from", source);
    row(table, "layouts", fixed && !diff ? "one only" : "");
    row(table, "only in", only.get(spot));
    row(table, "differs in", (changed.get(spot) || []).map(arrow).join("\n"));
    for (const each of Object.values(panes)) if (each.region.has(spot)) row(table, diff ? titles[each.name] : each.name, each.regions[each.region.get(spot)].layout);
    details.append(table);
    if (outputs.length) details.append(element("h3", "gives"), ...outputs.map(value => valueTable(values[value])));
    const read = [...new Set(pane.edges.filter(edge => edge.reader === spot).map(edge => edge.value))];
    if (read.length) details.append(element("h3", "reads"));
    for (const value of read) details.append(element("div", `${values[value].tensor}  ${values[value].stored}`));
  }

  function describeMark(pane, i) {
    const mark = pane.marks[i];
    details.replaceChildren(element("h2", diff ? "Transpose" : pane.name === "after" ? "Transpose that remains" : "Transpose of the source"));
    const table = element("table");
    row(table, "layouts", arrow(mark.layout));
    row(table, "bytes", number.format(mark.size));
    row(table, "tensor", values[mark.value].tensor);
    row(table, "read by", [...new Set(mark.readers)].map(spot => spots[spot].operator + " " + spots[spot].name).join(", "));
    row(table, "because", mark.reason);
    details.append(table);
  }

  function describeRegion(pane, i) {
    const region = pane.regions[i], count = new Map();
    for (const spot of region.spots) count.set(spots[spot].operator, (count.get(spots[spot].operator) || 0) + 1);
    details.replaceChildren(element("h2", `Region in ${region.layout || "one order"}`));
    const table = element("table");
    row(table, "operators", number.format(region.spots.length));
    row(table, "bytes", number.format(region.size));
    row(table, "which", [...count].sort((a, b) => b[1] - a[1]).slice(0, 12).map(([name, n]) => `${name} ×${n}`).join(", "));
    const button = element("button", pane.open.has(i) ? "Close" : "Open", { id: "toggle" });
    button.addEventListener("click", () => { pane.toggle(i); describeRegion(pane, i); });
    details.append(table, button);
  }

  function chosen(pane, id) {
    selected = { pane, id };
    const i = Number(id.slice(1));
    for (const other of Object.values(panes)) if (other !== pane) other.select(id[0] === "s" && other.cy.getElementById(id).length ? id : "");
    ({ s: describeSpot, t: describeMark, r: describeRegion })[id[0]](pane, i);
  }

  function clear() {
    selected = null;
    for (const pane of Object.values(panes)) pane.cy.elements(":selected").unselect();
    overview();
  }

  function overview() {
    details.replaceChildren(element("h2", diff ? "Side by side" : "Before and after"),
      element("div", "A box is a region: connected operators whose values are stored in one layout. Choose one to see what is in it; open it with a double click, a double tap, or o."));
  }

  function goTo(name, i) {
    show(name);
    const pane = panes[name];
    pane.select("t" + i);
    pane.focus("t" + i);
    chosen(pane, "t" + i);
  }

  function differences(target) {
    const add = (head, items) => {
      target.append(element("h2", `${head}: ${number.format(items.length)}`));
      const list = element("ul", undefined, { class: "transposes differences" });
      for (const [spot, what] of items.slice(0, 200)) {
        const item = element("li"), button = element("button");
        button.append(element("b", spots[spot].operator), " " + spotName(spot), element("small", what.map(arrow).join("; ")));
        button.addEventListener("click", () => pick(spot));
        item.append(button);
        list.append(item);
      }
      target.append(list);
      if (items.length > 200) target.append(element("p", `… and ${number.format(items.length - 200)} more in the graph`));
    };
    add("Both have, and they differ", diff.changed);
    diff.only.forEach((list, side) => add(`Only in ${diff.names[side]}`, list.map(spot => [spot, []])));
  }

  /* What to look at first: what a target runs, and the Transposes that remain, heaviest first. */
  function list() {
    const target = document.getElementById("list");
    if (diff) { differences(target); return; }
    const marks = data.after.marks.map((mark, i) => [mark, i]).sort((a, b) => b[0][2] - a[0][2]);
    target.append(element("h2", marks.length ? `Transposes that remain: ${number.format(marks.length)}` : "No Transpose remains."));
    const items = element("ul", undefined, { class: "transposes" });
    const add = rows => rows.forEach(([[value, layout, size, , reason], i]) => {
      const item = element("li"), button = element("button");
      button.append(element("b", bytes(size)), " " + arrow(layout) + " ", element("small", shortTensor("", values[value].tensor)), element("small", reason));
      button.addEventListener("click", () => goTo("after", i));
      item.append(button);
      items.append(item);
    });
    const few = phone.matches ? 3 : 200;
    add(marks.slice(0, few));
    target.append(items);
    if (marks.length > few) {
      const more = element("button", `All ${number.format(marks.length)}`, { class: "more" });
      more.addEventListener("click", () => { more.remove(); add(marks.slice(few)); items.children[few].firstChild.focus(); });
      target.append(more);
    }
    data.summary.claims.forEach((line, i) => target.append(element(i ? "p" : "h2", line)));
  }

  function legend() {
    const target = document.getElementById("legend");
    target.replaceChildren();
    const add = (text, [fill, , border]) => {
      const item = element("span", ""), patch = element("i");
      patch.style.background = fill;
      patch.style.borderColor = border;
      item.append(patch, text);
      target.append(item);
    };
    add("Transpose", MARK[mode()]);
    const grey = PALETTE.light.length - 1, others = layouts.filter(layout => hue.get(layout) === grey);
    for (const layout of layouts) if (hue.get(layout) !== grey) add(layout || "scalars", PALETTE[mode()][hue.get(layout)]);
    if (others.length) add(others.length > 1 ? `${others.length} other layouts` : others[0] || "scalars", PALETTE[mode()][grey]);
  }

  function figures() {
    if (diff) {
      const same = spots.length - only.size - changed.size;
      document.getElementById("figures").append(element("span", `${number.format(same)} alike, ${number.format(changed.size)} differ, ` +
        diff.only.map((list, side) => `${number.format(list.length)} only in ${diff.names[side]}`).join(", ")));
      return;
    }
    const { source_transposes, source_bytes, transposes, bytes: left, lower_bound, proved, verdict } = data.summary;
    const target = document.getElementById("figures");
    const part = (head, count, size) => {
      const span = element("span", head + " ");
      span.append(element("b", `${number.format(count)} Transpose${count === 1 ? "" : "s"}`), ` ${number.format(size)} bytes`);
      return span;
    };
    const bound = element("span", `lower bound ${number.format(lower_bound)} bytes, `);
    bound.append(element("span", verdict, { class: proved ? "proved" : "" }));
    target.append(part("after", transposes, left), part("before", source_transposes, source_bytes), bound);
  }

  /* Search: every word must occur in an operator's type, name or tensors. */
  const index = spots.map(spot => [spot.operator, spot.name, spot.source, ...spot.outputs.map(value => values[value].tensor)].join("\n").toLowerCase());
  const find = document.getElementById("find"), found = document.getElementById("found");
  let cursor = 0;
  function search() {
    const words = find.value.toLowerCase().split(/\s+/).filter(Boolean);
    const hits = [];
    for (let i = 0; i < index.length && words.length && hits.length < 50; i++) if (words.every(word => index[i].includes(word))) hits.push(i);
    cursor = 0;
    found.replaceChildren(...hits.map(i => {
      const item = element("li", spots[i].operator + " ", { role: "option", "data-spot": i });
      item.append(element("small", spotName(i)));
      item.addEventListener("click", () => pick(i));
      return item;
    }));
    if (words.length && !hits.length) found.append(element("li", "nothing found", { role: "option" }));
    mark();
  }
  const mark = () => {
    [...found.children].forEach((item, i) => item.setAttribute("aria-selected", String(i === cursor)));
    find.setAttribute("aria-expanded", String(found.children.length > 0));
    found.children[cursor]?.scrollIntoView({ block: "nearest" });
  };
  function pick(i) {
    found.replaceChildren();
    mark();
    for (const pane of Object.values(panes)) pane.reveal(i);
    const wanted = phone.matches ? panes[current] : panes.after;
    const pane = wanted.region.has(i) ? wanted : Object.values(panes).find(each => each.region.has(i));
    show(pane.name);
    chosen(pane, "s" + i);
    pane.holder.focus({ preventScroll: true });
  }
  find.addEventListener("input", search);
  find.addEventListener("keydown", event => {
    const count = found.children.length;
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      cursor = count ? (cursor + (event.key === "ArrowDown" ? 1 : count - 1)) % count : 0;
      mark();
      event.preventDefault();
    } else if (event.key === "Enter" && found.children[cursor]?.dataset.spot) pick(Number(found.children[cursor].dataset.spot));
    else if (event.key === "Escape") { found.replaceChildren(); mark(); find.blur(); }
  });

  let current = "after";
  function show(name) {
    current = name;
    for (const button of document.querySelectorAll(".tabs button")) button.setAttribute("aria-pressed", String(button.dataset.side === name));
    for (const [each, pane] of Object.entries(panes)) {
      const hidden = pane.section.classList.contains("hidden");
      pane.section.classList.toggle("hidden", phone.matches && each !== name);
      if (hidden && each === name) pane.fit();
    }
  }
  for (const button of document.querySelectorAll(".tabs button")) button.addEventListener("click", () => show(button.dataset.side));

  if (diff) {   // the first model is on the left; of one model the result is
    document.body.classList.add("diff");
    for (const [first, other] of [["#before", "#after"], [".tabs [data-side=before]", ".tabs [data-side=after]"]])
      document.querySelector(other).before(document.querySelector(first));
  }
  if (diff) for (const name of ["before", "after"]) {
    document.getElementById(name).querySelector("h2").firstChild.data = titles[name] + " ";
    document.querySelector(`.tabs [data-side=${name}]`).textContent = titles[name];
  }
  const panes = {};
  for (const name of ["before", "after"]) {
    const pane = new Pane(name);
    panes[name] = pane;
    if (spots.length <= SMALL) pane.open = new Set(pane.regions.keys());
    pane.draw();
  }
  const both = act => { for (const pane of Object.values(panes)) act(pane); };
  document.getElementById("open").addEventListener("click", () => both(pane => pane.all(true)));
  document.getElementById("close").addEventListener("click", () => both(pane => pane.all(false)));
  document.getElementById("fit").addEventListener("click", () => both(pane => pane.fit()));
  let next = -1;
  document.addEventListener("keydown", event => {
    if (event.target === find || event.ctrlKey || event.metaKey || event.altKey) return;
    const keys = {
      "/": () => { find.focus(); find.select(); },
      t: () => { if (data.after.marks.length) { next = (next + 1) % data.after.marks.length; goTo("after", next); } },
      o: () => { if (selected) { const i = selected.id[0] === "r" ? Number(selected.id.slice(1)) : selected.pane.region.get(Number(selected.id.slice(1)));
        if (i !== undefined && selected.id[0] !== "t") { selected.pane.toggle(i); chosen(selected.pane, "r" + i); } } },
      a: () => both(pane => pane.all(true)), c: () => both(pane => pane.all(false)), f: () => both(pane => pane.fit()), Escape: clear,
    };
    if (keys[event.key]) { keys[event.key](); event.preventDefault(); }
  });
  dark.addEventListener("change", () => { both(pane => pane.cy.style(styles())); legend(); });
  phone.addEventListener("change", () => { show(current); both(pane => pane.fit()); });
  addEventListener("resize", () => both(pane => pane.resized()));

  figures();
  legend();
  overview();
  list();
  show("after");
  both(pane => pane.fit());
  /* For tests and for the curious. */
  window.relayout = { panes, spots, values, PALETTE, MARK, ready: performance.now() - began };
})();
