// Which inputs a position depends on, layer by layer: the tree of the positions that its heads attend to.
import { useMemo, useState } from "preact/hooks";
import { isAttention, queriesOf } from "../records.js";
import { exact, rounded, short } from "../text.js";
import { Tree } from "../tree.jsx";

const MOST = 600; // nodes

const field = (record) => record.mechanism === "receptive_field";

// The records with attention weights, by side and layer: [{sequence, layer, records: [{record, weights}]}].
function levels(example, arrays, sequence) {
  const found = new Map();
  example.records.forEach((record, index) => {
    if (!isAttention(record) || record.queries !== sequence) return;
    if (!found.has(record.layer)) found.set(record.layer, []);
    found.get(record.layer).push({ record, weights: arrays[index] });
  });
  return [...found.entries()].sort(([one], [other]) => one - other).map(([, records]) => records);
}

// The positions that a position at the output of a layer reads: {sequence, position} with the heads and largest weight.
function read(example, records, position, threshold) {
  const found = new Map();
  const add = (sequence, to, head, weight) => {
    const key = `${sequence}.${to}`;
    if (!found.has(key)) found.set(key, { sequence, position: to, heads: [], weight: 0 });
    const entry = found.get(key);
    if (head !== null) entry.heads.push(head);
    entry.weight = Math.max(entry.weight, weight);
  };
  for (const { record, weights } of records) {
    const shift = record.bottom ? 1 : 0;
    const columns = weights.length / queriesOf(example, record).length;
    const where = record.action_names ? "s" : record.sublayer === "cross" ? "c" : "h";
    for (let column = shift; column < columns; column++) {
      const weight = weights[position * columns + column];
      if (weight >= threshold) add(record.keys, column - shift, `${where}${(record.head ?? 0) + 1}`, weight);
    }
  }
  return found;
}

// Return the root, breadth first, and whether positions were left out.
export function fieldTree(example, arrays, sequence, position, threshold, most = MOST) {
  const layers = { source: levels(example, arrays, "source"), tokens: levels(example, arrays, "tokens") };
  const root = { sequence, position, level: layers[sequence].length, heads: [], weight: 1, children: [] };
  const queue = [root];
  let [number, left] = [1, false];
  while (queue.length > 0) {
    const node = queue.shift();
    if (node.level === 0) continue;
    const below = read(example, layers[node.sequence][node.level - 1], node.position, threshold);
    const own = `${node.sequence}.${node.position}`; // the residual connection
    if (!below.has(own)) below.set(own, { sequence: node.sequence, position: node.position, heads: [], weight: 0 });
    for (const each of [...below.values()].sort((one, other) => one.position - other.position)) {
      if (number >= most) {
        left = true;
        break;
      }
      const level = each.sequence === node.sequence ? node.level - 1 : layers[each.sequence].length;
      const child = { ...each, level, children: [] };
      node.children.push(child);
      queue.push(child);
      number += 1;
    }
  }
  return { root, left };
}

function leaves(node, found = new Set()) {
  if (node.level === 0) found.add(`${node.sequence}.${node.position}`);
  for (const child of node.children) leaves(child, found);
  return found;
}

function ReceptiveField({ example, arrays, state, update, announce }) {
  const sequence = example.records.some((each) => isAttention(each) && each.queries === "tokens") ? "tokens" : "source";
  const tokens = example[sequence];
  const name = sequence === "source" ? "source" : "token";
  const index = Number(state[name]) - 1;
  const position = Number.isInteger(index) && index >= 0 && index < tokens.length ? index : tokens.length - 1;
  const threshold = Math.min(1, Math.max(0.01, Number(state.least ?? 0.3) || 0.3));
  const { root, left } = useMemo(() => fieldTree(example, arrays, sequence, position, threshold), [example, arrays, position, threshold]);
  const reached = leaves(root);
  const [choice, setChoice] = useState(null);
  const chosen = choice?.root === root ? choice.node : null; // that of another tree is forgotten
  const tokenOf = (node) => example[node.sequence][node.position];
  const place = (node) => (node.level === 0 ? "input" : `layer ${node.level}`);
  const describe = (node) => `${short(tokenOf(node))}, position ${node.position + 1}, ${node === root ? "output" : place(node)}${node.heads.length ? `, heads ${node.heads.join(", ")}, weight ${exact(node.weight)}` : node === root ? "" : ", residual connection"}`;
  return (
    <>
      <div class="row options">
        <label>
          Output at{" "}
          <select value={position + 1} onChange={(event) => update({ [name]: event.currentTarget.value })}>
            {tokens.map((token, i) => <option value={i + 1}>{`${i + 1}: ${short(token, 16)}`}</option>)}
          </select>
        </label>
        <label>
          Weights from
          <input type="range" min="0.01" max="1" step="0.01" value={threshold} onInput={(event) => update({ least: event.currentTarget.value })} />
          <span class="count">{threshold.toFixed(2)}</span>
        </label>
      </div>
      <p class="readout">
        {chosen ? describe(chosen) : `${reached.size} of ${tokens.length + (example.source && sequence === "tokens" ? example.source.length : 0)} inputs are reached`}
        {left && <span class="muted">; the tree ends at {MOST} positions: raise the smallest weight</span>}
      </p>
      <Tree
        root={root}
        name={`Positions on which the output at ${short(tokens[position])} depends`}
        label={(node) => `${short(tokenOf(node), 9)} ${node.position + 1}`}
        note={(node) => (node.heads.length ? `${node.heads.length > 3 ? `${node.heads.length} heads` : node.heads.join(",")} ${rounded(node.weight).replace(/^0/, "")}` : "")}
        description={describe}
        emphasis={(node) => node === root || node.heads.length > 0}
        onSelect={(node) => { setChoice({ root, node }); announce(describe(node)); }}
      />
      <p class="muted small">From the output on the left to the inputs on the right. h1: head 1, c1: head 1 of cross-attention, s1: stack 1, with the largest of their weights; grey: residual connections.</p>
    </>
  );
}

export const receptiveField = {
  id: "field",
  label: "Receptive field",
  available: (example) => example.records.some((record) => isAttention(record) && record.sublayer !== "stack"), // recurrent networks read all
  arrays: (_, example) => Object.fromEntries(example.records.map((record, index) => [index, field(record) ? undefined : record.weights])),
  Component: ReceptiveField,
  values: ({ example, arrays, state }) => {
    const sequence = example.records.some((each) => isAttention(each) && each.queries === "tokens") ? "tokens" : "source";
    const size = example[sequence].length;
    const index = Number(state[sequence === "source" ? "source" : "token"] || size) - 1;
    return fieldTree(example, arrays, sequence, Math.min(size - 1, Math.max(0, index)), Number(state.least ?? 0.3)).root;
  },
};
