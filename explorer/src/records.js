// What the records of an example are called, and which of them belong together.

const SUBLAYERS = {
  cross: "cross-attention",
  stack: "stack",
  "receptive-field": "receptive field",
  "source-receptive-field": "receptive field, source",
};

export const BOTTOM = "(bottom)";

// Layers count from 1 in names, as in reports and in the URL.
export function layerKey({ side, layer, sublayer }) {
  return [side, layer + 1, sublayer].filter((part) => part !== undefined).join("-");
}

export function layerLabel({ side, layer, sublayer, mechanism }) {
  const sides = { encoder: "encoder ", decoder: "decoder " };
  const place = `${sides[side] ?? ""}layer ${layer + 1}`;
  const kind = mechanism.replaceAll("_", " ");
  if (mechanism === "receptive_field") return `All layers: ${SUBLAYERS[sublayer] ?? sublayer}`;
  const text = sublayer === "attention" ? `${place}: ${kind}` : `${place}: ${kind}, ${SUBLAYERS[sublayer] ?? sublayer}`;
  return text[0].toUpperCase() + text.slice(1);
}

// Group the records by layer, in order: [{key, label, heads: [record]}].
export function layersOf(records) {
  const layers = new Map();
  for (const record of records) {
    const key = layerKey(record);
    if (!layers.has(key)) layers.set(key, { key, label: layerLabel(record), heads: [] });
    layers.get(key).heads.push(record);
  }
  return [...layers.values()];
}

// One record of each layer with a stack: several stacks of a layer, its heads, take a forced action together.
export const stacksOf = (records) =>
  layersOf(records.filter(({ action_names: actions }) => actions)).map(({ heads }) => heads[0]);

// The tokens of the rows, T of them.
export function queriesOf(example, record) {
  return record.queries === "source" ? example.source : example.tokens;
}

// The tokens of the columns, S of them, the bottom of a stack first.
export function keysOf(example, record) {
  const keys = record.keys === "source" ? example.source : example.tokens;
  return record.bottom ? [BOTTOM, ...keys] : keys;
}

// What a column is called: positions count from 1, and the bottom has none.
export function keyPosition(record, column) {
  return column + 1 - (record.bottom ? 1 : 0);
}

export const isAttention = (record) => record.mechanism !== "receptive_field";
