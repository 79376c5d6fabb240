// Attention as arcs. Within one sequence the tokens stand once, with arcs to earlier tokens on the right and to later
// ones on the left; between two sequences lines join two columns.
import { useMemo } from "preact/hooks";
import { useSize } from "../hooks.js";
import { keyPosition, keysOf, queriesOf } from "../records.js";
import { exact, rounded, short } from "../text.js";
import { listKeys } from "../token-flow.jsx";

const LINE = 24; // pixels from one token to the next
const LABEL = 130;
const MOST = 1200; // arcs in the picture

// The weights of at least `threshold`, the largest last so that they are drawn on top, and how many there are.
export function arcsOf(weights, columns, threshold, most = MOST) {
  const found = [];
  for (let index = 0; index < weights.length; index++)
    if (weights[index] >= threshold && weights[index] > 0)
      found.push({ row: Math.floor(index / columns), column: index % columns, weight: weights[index] });
  found.sort((one, other) => one.weight - other.weight);
  return { arcs: found.slice(-most), number: found.length };
}

// A curve that leaves a column of tokens and comes back; wider for tokens that are farther apart, within the room.
function bow(x, from, to, room) {
  const side = from > to ? 1 : -1;
  const width = room * (1 - Math.exp(-Math.abs(from - to) / (LINE * 5)));
  return `M${x} ${from}C${x + (side * width * 4) / 3} ${from} ${x + (side * width * 4) / 3} ${to} ${x} ${to}`;
}

function Column({ tokens, selected, select, label, left, width, align }) {
  return (
    <div class={`column ${align}`} role="group" aria-label={label} style={{ left: `${left}px`, width: `${width}px` }} onKeyDown={listKeys(tokens.length, selected, select)}>
      {tokens.map((token, index) => (
        <button type="button" data-index={index} aria-pressed={index === selected} aria-label={`${short(token)}, position ${index + 1}`} tabIndex={index === selected ? 0 : -1} onClick={() => select(index)}>
          <bdi>{short(token, 16)}</bdi>
        </button>
      ))}
    </div>
  );
}

function Arcs({ example, record, arrays: { weights }, place, state, update, announce }) {
  const [queries, keys] = [queriesOf(example, record), keysOf(example, record)];
  const threshold = Math.min(1, Math.max(0, Number(state.from ?? 0.05) || 0));
  const same = record.queries === record.keys;
  const shift = record.bottom ? 1 : 0;
  const [box, size] = useSize();
  const { arcs, number } = useMemo(() => arcsOf(weights, keys.length, threshold), [weights, threshold]);
  const forward = useMemo(() => same && arcs.some(({ row, column }) => column > row + shift), [arcs, same, shift]);
  const width = Math.max(280, Math.min(640, size.width));
  const side = same ? (width - LABEL) / (forward ? 2 : 1) : 0;
  const left = same && forward ? side : 0;
  const height = LINE * Math.max(queries.length + (same ? shift : 0), keys.length);
  const y = (index) => (index + 0.5) * LINE;
  const path = ({ row, column }) => {
    if (!same) return `M${LABEL} ${y(row)}C${width / 2} ${y(row)} ${width / 2} ${y(column)} ${width - LABEL} ${y(column)}`;
    const from = y(row + shift);
    const x = column > row + shift ? left : left + LABEL;
    if (column === row + shift) return `M${x} ${from - 4}a5 4 0 1 1 0 8`;
    return bow(x, from, y(column), side - 54);
  };
  const select = (row) => {
    place.select({ row: Math.max(0, row) });
    announce(`${short(queries[Math.max(0, row)])} is selected`);
  };
  const own = arcs.filter(({ row }) => row === place.row);
  return (
    <>
      <div class="row options">
        <label>
          Weights from
          <input type="range" min="0" max="1" step="0.01" value={threshold} aria-valuetext={`${threshold}`} onInput={(event) => update({ from: event.currentTarget.value })} />
          <span class="count">{threshold.toFixed(2)}</span>
        </label>
        <span>{number > arcs.length ? `the largest ${arcs.length} of ${number}` : `${number} of ${weights.length} weights`}</span>
      </div>
      <p class="readout">
        <bdi>{short(queries[place.row])}</bdi> <span class="muted">{place.row + 1} attends to</span>
        {own.length === 0 && <span class="muted">nothing with such a weight</span>}
        {own.slice(-6).reverse().map(({ column, weight }) => (
          <span class="pair-value" title={exact(weight)}>
            <bdi>{short(keys[column], 16)}</bdi> <span class="muted">{keyPosition(record, column) || ""}</span> {rounded(weight)}
          </span>
        ))}
      </p>
      <div ref={box} class="wide-box">
        <div class="arcs" style={{ width: `${width}px`, height: `${height}px` }}>
          <svg width={width} height={height} aria-hidden="true">
            {arcs.map((arc) => (
              <path key={arc.row * keys.length + arc.column} d={path(arc)} class={arc.row === place.row ? "arc own" : "arc"} opacity={arc.row === place.row ? 0.5 + 0.5 * arc.weight : 0.14 + 0.6 * arc.weight} stroke-width={0.8 + 3.2 * Math.min(1, arc.weight)} />
            ))}
          </svg>
          <Column tokens={same ? keys : queries} selected={same ? place.row + shift : place.row} select={(index) => select(same ? index - shift : index)} label="Queries" left={left} width={LABEL} align={same && !forward ? "end" : same ? "centre" : "end"} />
          {!same && <Column tokens={keys} selected={place.column} select={(index) => place.select({ row: place.row, column: index })} label="Keys" left={width - LABEL} width={LABEL} align="start" />}
        </div>
      </div>
    </>
  );
}

export const arcs = {
  id: "arcs",
  label: "Arcs",
  accepts: () => true,
  arrays: (record) => ({ weights: record.weights }),
  Component: Arcs,
  values: ({ example, record, arrays: { weights }, state }) => {
    const [queries, keys] = [queriesOf(example, record), keysOf(example, record)];
    return { queries, keys, arcs: arcsOf(weights, keys.length, Number(state.from ?? 0.05), Infinity).arcs.reverse() };
  },
};
