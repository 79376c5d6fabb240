// Two runs on one example: which tokens differ, and by how much their surprisals, weights and actions differ.
import { useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { align } from "../align.js";
import { colour, cssScale, divergingScale } from "../colours.js";
import { useSize, useThemeVersion } from "../hooks.js";
import { keysOf, queriesOf } from "../records.js";
import { direction, exact, rounded, short } from "../text.js";
import { sentence } from "./surprisal.jsx";

const signed = (value) => (value > 0 ? "+" : "") + rounded(value);

// Weights of the first run minus those of the second, where both have the row and the column; NaN elsewhere.
export function weightDifferences(first, second) {
  const [rows, columns] = [first.queries.length, first.keys.length];
  const rowOf = align(first.queries, second.queries);
  const columnOf = align(first.keys, second.keys);
  const found = new Float32Array(rows * columns).fill(NaN);
  for (let row = 0; row < rows; row++)
    for (let column = 0; column < columns; column++)
      if (rowOf[row] >= 0 && columnOf[column] >= 0)
        found[row * columns + column] = first.weights[row * columns + column] - second.weights[rowOf[row] * second.keys.length + columnOf[column]];
  return { values: found, rowOf, columnOf };
}

function largestMagnitude(values) {
  let found = 0;
  for (const value of values) if (Math.abs(value) > found) found = Math.abs(value);
  return found;
}

function differenceImage(values, rows, columns) {
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [columns, rows];
  const image = new ImageData(columns, rows);
  const pixels = new Uint32Array(image.data.buffer);
  const palette = divergingScale();
  const most = largestMagnitude(values) || 1;
  values.forEach((value, index) => {
    pixels[index] = Number.isNaN(value) ? 0 : palette[Math.round(127.5 + 127.5 * (value / most))];
  });
  canvas.getContext("2d").putImageData(image, 0, 0);
  return canvas;
}

function DifferenceMap({ first, second }) {
  const canvas = useRef(null);
  const [box, size] = useSize();
  const theme = useThemeVersion();
  const [cell, setCell] = useState({ row: 0, column: 0 });
  const { values, rowOf, columnOf } = useMemo(() => weightDifferences(first, second), [first.weights, second.weights]);
  const [rows, columns] = [first.queries.length, first.keys.length];
  const pixels = Math.max(1, Math.min(26, Math.min(size.width || 300, 560) / columns));
  const image = useMemo(() => differenceImage(values, rows, columns), [values, theme]);
  useLayoutEffect(() => {
    const element = canvas.current;
    [element.width, element.height] = [Math.ceil(columns * pixels), Math.ceil(rows * pixels)];
    const context = element.getContext("2d");
    context.imageSmoothingEnabled = false;
    context.fillStyle = colour("--sunken");
    context.fillRect(0, 0, element.width, element.height);
    context.drawImage(image, 0, 0, columns * pixels, rows * pixels);
    context.strokeStyle = colour("--ink");
    context.strokeRect(cell.column * pixels + 0.5, cell.row * pixels + 0.5, Math.max(2, pixels - 1), Math.max(2, pixels - 1));
  });
  const point = (event) => {
    const bounds = canvas.current.getBoundingClientRect();
    const row = Math.floor((event.clientY - bounds.top) / pixels);
    const column = Math.floor((event.clientX - bounds.left) / pixels);
    if (row >= 0 && column >= 0 && row < rows && column < columns) setCell({ row, column });
  };
  const onKeyDown = (event) => {
    const moves = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
    if (!(event.key in moves)) return;
    event.preventDefault();
    const [down, right] = moves[event.key];
    setCell({ row: Math.max(0, Math.min(rows - 1, cell.row + down)), column: Math.max(0, Math.min(columns - 1, cell.column + right)) });
  };
  const value = values[cell.row * columns + cell.column];
  const other = Number.isNaN(value) ? NaN : second.weights[rowOf[cell.row] * second.keys.length + columnOf[cell.column]];
  const most = largestMagnitude(values);
  return (
    <>
      <p class="readout" aria-live="polite" data-row={cell.row} data-column={cell.column}>
        <bdi>{short(first.queries[cell.row])}</bdi> <span class="muted">{cell.row + 1} attends to</span> <bdi>{short(first.keys[cell.column])}</bdi>
        <span class="muted">{exact(first.weights[cell.row * columns + cell.column])} in run 1, {exact(other)} in run 2:</span> <span class="value">{signed(value)}</span>
      </p>
      <div ref={box}>
        <canvas ref={canvas} class="difference" tabIndex={0} role="application" aria-roledescription="heat map" aria-label="Differences of weights. Arrow keys move the cell." onPointerMove={point} onPointerDown={point} onKeyDown={onKeyDown} />
      </div>
      <p class="legend">
        <span class="muted">run 2 more, −{rounded(most)}</span>
        <span class="legend-bar" style={{ background: cssScale("--diverging") }} aria-hidden="true" />
        <span class="muted">run 1 more, +{rounded(most)}</span>
      </p>
    </>
  );
}

// The sentence of the first run with the differences of surprisal, and what only one of the runs has.
export function surprisalDifferences(first, second) {
  const names = (cells) => cells.map(({ token }) => token);
  const forwards = align(names(first), names(second));
  const aligned = new Set(forwards);
  const rows = first.map((cell, index) => ({ token: cell.token, one: cell.value, other: forwards[index] < 0 ? NaN : second[forwards[index]].value, only: forwards[index] < 0 ? 1 : 0, after: forwards[index] }));
  second.forEach((cell, index) => {
    if (aligned.has(index)) return;
    const place = rows.findIndex(({ after }) => after > index);
    rows.splice(place < 0 ? rows.length : place, 0, { token: cell.token, one: NaN, other: cell.value, only: 2, after: index });
  });
  return rows;
}

function Surprisals({ rows }) {
  const most = largestMagnitude(rows.map(({ one, other }) => one - other)) || 1;
  return (
    <ol class="tokens plain" dir={direction(rows.map(({ token }) => token))} aria-label="Differences of surprisal, run 1 minus run 2, in nats">
      {rows.map(({ token, one, other, only }) => {
        const difference = one - other;
        return (
          <li class={`token${only ? " marked" : ""}`} title={`${exact(one)} in run 1, ${exact(other)} in run 2`}>
            <bdi>{short(token)}</bdi>
            <span class="under">
              <span class={`depth ${Number.isNaN(difference) ? "absent" : difference > 0 ? "more" : "less"}`} style={{ "--size": `${(30 * Math.abs(difference || 0)) / most}px` }} />
              <span class="small">{only ? `only run ${only}` : signed(difference)}</span>
            </span>
          </li>
        );
      })}
    </ol>
  );
}

// The steps at which the most probable actions of two stacks differ.
export function actionDifferences(first, second) {
  const names = [first, second].map(({ record }) => record.action_names);
  const rowOf = align(first.queries, second.queries);
  const likeliest = ({ actions }, count, t) => {
    const row = Array.from(actions.subarray(t * count, (t + 1) * count));
    return row.indexOf(Math.max(...row));
  };
  return first.queries.flatMap((token, t) => {
    if (rowOf[t] < 0) return [];
    const one = names[0][likeliest(first, names[0].length, t)];
    const other = names[1][likeliest(second, names[1].length, rowOf[t])];
    return one === other ? [] : [{ token, position: t + 1, one, other }];
  });
}

function ActionDifferences({ first, second }) {
  const found = actionDifferences(first, second);
  return (
    <div role="group" aria-label="Actions">
      <h3>Most probable actions</h3>
      {found.length === 0 ? <p class="muted">The same at every step.</p> : (
        <table class="narrow">
          <thead><tr><th scope="col">Token</th><th scope="col" class="number">Position</th><th scope="col">Run 1</th><th scope="col">Run 2</th></tr></thead>
          <tbody>{found.map(({ token, position, one, other }) => <tr><th scope="row"><bdi>{short(token)}</bdi></th><td class="number">{position}</td><td>{one}</td><td>{other}</td></tr>)}</tbody>
        </table>
      )}
    </div>
  );
}

const sideOf = ({ recording, example, record, arrays }) => ({ run: recording.run, example, record, queries: record ? queriesOf(example, record) : [], keys: record ? keysOf(example, record) : [], weights: arrays.weights, actions: arrays.actions, surprisal: arrays.surprisal });
const sentenceOf = ({ run, example, surprisal }) => sentence(example, surprisal, run.task);

function Differences({ contexts }) {
  const [first, second] = contexts.map(sideOf);
  const rows = surprisalDifferences(sentenceOf(first), sentenceOf(second));
  const total = rows.reduce((sum, { one, other }) => sum + (Number.isNaN(one - other) ? 0 : one - other), 0);
  return (
    <>
      <h3>Surprisal, run 1 minus run 2</h3>
      <p class="muted">{signed(total)} nats in total over the tokens that both have. Outlined: in one run only.</p>
      <Surprisals rows={rows} />
      {first.record && second.record && (
        <>
          <h3>Weights, run 1 minus run 2</h3>
          {first.record.queries === second.record.queries && first.record.keys === second.record.keys
            ? <DifferenceMap key={`${first.record.weights.array}-${second.record.weights.array}`} first={first} second={second} />
            : <p class="muted">These layers attend between different sequences.</p>}
          {first.actions && second.actions && <ActionDifferences first={first} second={second} />}
        </>
      )}
    </>
  );
}

export const differences = {
  id: "differences",
  label: "Differences",
  joint: true,
  accepts: () => true,
  available: () => true,
  arrays: (record, example) => ({ weights: record?.weights, actions: record?.prefix_actions ?? record?.actions, surprisal: example.surprisal }),
  Component: Differences,
  values: ({ contexts }) => {
    const [first, second] = contexts.map(sideOf);
    const finite = (value) => (Number.isFinite(value) ? value : null);
    const rows = surprisalDifferences(sentenceOf(first), sentenceOf(second));
    return { surprisal: rows.map(({ token, one, other }) => ({ token, first: finite(one), second: finite(other) })), actions: first.actions && second.actions ? actionDifferences(first, second) : undefined };
  },
};
