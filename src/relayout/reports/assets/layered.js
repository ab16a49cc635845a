"use strict";
/* A layered drawing (Sugiyama): ranks by longest path, crossings reduced by barycentres, x by least squares in order.
   layered([{id, w, h, key}], [[from, to]]) -> {at: Map id -> {x, y}, bends: [[{x, y}]], w, h}; an edge is drawn from the
   smaller key to the larger, whichever way it is given, so that the drawing has no cycles. The centre is 0, 0. */
function layered(nodes, edges, gapX = 28, gapY = 46, longest = 24) {
  const sorted = nodes.slice().sort((a, b) => a.key - b.key || (a.id < b.id ? -1 : 1));
  const index = new Map(sorted.map((node, i) => [node.id, i]));
  const items = sorted.map(node => ({ w: node.w, h: node.h, up: [], down: [], rank: 0, x: 0, bend: false }));
  const arcs = edges.map(([a, b]) => {
    const i = index.get(a), j = index.get(b);
    return i === undefined || j === undefined || i === j ? null : i < j ? [i, j, false] : [j, i, true];
  });
  for (const arc of arcs) if (arc) { items[arc[0]].down.push(arc[1]); items[arc[1]].up.push(arc[0]); }
  items.forEach(item => { for (const up of item.up) item.rank = Math.max(item.rank, items[up].rank + 1); });
  for (let i = items.length - 1; i >= 0; i--) {
    const item = items[i];
    if (!item.up.length && item.down.length) item.rank = Math.min(...item.down.map(j => items[j].rank)) - 1;
  }
  for (const item of items) { item.up = []; item.down = []; }
  const bends = arcs.map(() => []);
  const connect = (a, b) => { items[a].down.push(b); items[b].up.push(a); };
  arcs.forEach((arc, number) => {
    if (!arc) return;
    let last = arc[0];
    const span = items[arc[1]].rank - items[arc[0]].rank;
    if (span <= longest) for (let rank = items[arc[0]].rank + 1; rank < items[arc[1]].rank; rank++) {
      items.push({ w: 6, h: 0, up: [], down: [], rank, x: 0, bend: true });
      connect(last, items.length - 1);
      last = items.length - 1;
      bends[number].push(last);
    }
    connect(last, arc[1]);
  });
  const layers = [];
  items.forEach((item, i) => (layers[item.rank] = layers[item.rank] || []).push(i));
  const place = new Float64Array(items.length);
  const number = layer => layer.forEach((i, p) => { place[i] = p; });
  layers.forEach(number);
  for (let sweep = 0; sweep < 8; sweep++) {
    const side = sweep % 2 ? "down" : "up";
    const order = sweep % 2 ? layers.slice().reverse() : layers;
    for (const layer of order) {
      const wanted = new Map(layer.map(i => {
        const beside = items[i][side];
        return [i, beside.length ? beside.reduce((sum, j) => sum + place[j], 0) / beside.length : place[i]];
      }));
      layer.sort((a, b) => wanted.get(a) - wanted.get(b) || place[a] - place[b]);
      number(layer);
    }
  }
  for (const layer of layers) {
    const total = layer.reduce((sum, i) => sum + items[i].w + gapX, -gapX);
    let x = -total / 2;
    for (const i of layer) { items[i].x = x + items[i].w / 2; x += items[i].w + gapX; }
  }
  for (let sweep = 0; sweep < 10; sweep++) {
    const side = sweep % 2 ? "down" : "up";
    for (const layer of sweep % 2 ? layers.slice().reverse() : layers) settle(items, layer, side, gapX);
  }
  const heights = layers.map(layer => Math.max(0, ...layer.map(i => items[i].h)));
  const tops = [];
  let y = 0;
  heights.forEach((height, rank) => { tops[rank] = y + height / 2; y += height + gapY; });
  const height = Math.max(0, y - gapY);
  let left = Infinity, right = -Infinity;
  for (const item of items) { left = Math.min(left, item.x - item.w / 2); right = Math.max(right, item.x + item.w / 2); }
  if (!items.length) left = right = 0;
  const spot = i => ({ x: items[i].x - (left + right) / 2, y: tops[items[i].rank] - height / 2 });
  const at = new Map(sorted.map((node, i) => [node.id, spot(i)]));
  const bent = bends.map((list, number) => {
    const points = list.map(spot);
    return arcs[number] && arcs[number][2] ? points.reverse() : points;
  });
  return { at, bends: bent, w: right - left, h: height };
}

/* The x of one layer, in its order and without overlaps, nearest to the mean of the neighbours (pool adjacent violators). */
function settle(items, layer, side, gapX) {
  const blocks = [];
  let offset = 0, before = null;
  for (const i of layer) {
    const item = items[i], beside = item[side];
    offset += before === null ? 0 : (before.w + item.w) / 2 + gapX;
    before = item;
    const wanted = beside.length ? beside.reduce((sum, j) => sum + items[j].x, 0) / beside.length : item.x;
    const weight = item.bend ? 4 : beside.length ? 1 : 0.05;
    blocks.push({ sum: (wanted - offset) * weight, weight, members: [[i, offset]] });
    while (blocks.length > 1) {
      const last = blocks[blocks.length - 1], previous = blocks[blocks.length - 2];
      if (previous.sum / previous.weight <= last.sum / last.weight) break;
      previous.sum += last.sum;
      previous.weight += last.weight;
      previous.members.push(...last.members);
      blocks.pop();
    }
  }
  for (const block of blocks) for (const [i, shift] of block.members) items[i].x = block.sum / block.weight + shift;
}
