// A stack: its actions over time, and what lies on it after the selected step.
import { useEffect, useMemo, useRef } from "preact/hooks";
import { useSize } from "../hooks.js";
import { keyPosition, keysOf, queriesOf } from "../records.js";
import { cut, exact, FONT, rounded, short } from "../text.js";
import { cellsOf, largestOf, traceOf } from "./stack-trace.js";

const BARS = 90; // pixels, of the actions
const HEIGHTS = 46; // pixels, of the curve of the expected height
const LABELS = 64;
const LEAST = 0.0005; // of what is shown

const GLYPHS = { push: "+", replace: "~", "no-op": "·", pop: "−" };

// The number of an action's colour: that of pop is always the last.
const colourOf = (names, action) => (names[action] === "pop" ? 2 : action);

const partOf = (value) => Math.min(1, Math.max(0, value || 0));

// The probability of each action at each step as stacked bars, the expected height above, the tokens below.
function Timeline({ queries, names, arrays: { actions, best_run: run, height }, column, step, select }) {
  const top = height ? HEIGHTS + 8 : 4;
  const bars = useMemo(() => {
    if (!actions) return null;
    return queries.map((_, t) => {
      let y = top + BARS;
      return names.map((_, action) => {
        const size = BARS * partOf(actions[t * names.length + action]);
        y -= size;
        return <rect class={`action-${colourOf(names, action)}`} x={t * column + 0.5} y={y} width={Math.max(1, column - 1)} height={size} />;
      });
    });
  }, [actions, column, top]);
  const curve = useMemo(() => {
    if (!height) return null;
    const most = height.reduce((one, other) => Math.max(one, other), 1);
    const y = (value) => 4 + (HEIGHTS - 4) * (1 - value / most);
    const points = Array.from(height, (value, t) => `${(t + 0.5) * column},${y(value).toFixed(2)}`);
    return { line: points.join(" "), most, y };
  }, [height, column]);
  const labels = useMemo(() => {
    const context = document.createElement("canvas").getContext("2d");
    context.font = `bold ${FONT}`; // that of the selected step
    return queries.map((token) => cut(context, short(token, 16), LABELS - 4));
  }, [queries]);
  const every = Math.max(1, Math.ceil(14 / column));
  const runTop = top + BARS + 14;
  const labelTop = top + BARS + (run ? 24 : 8);
  const width = queries.length * column;
  return (
    <svg class="timeline" width={width} height={labelTop + LABELS} aria-hidden="true" onClick={(event) => {
      const x = event.clientX - event.currentTarget.getBoundingClientRect().left;
      select(Math.max(0, Math.min(queries.length - 1, Math.floor(x / column))));
    }}>
      <rect class="step" x={step * column} y="0" width={column} height={labelTop + LABELS} />
      {bars}
      {curve && <polyline class="curve" points={curve.line} />}
      {curve && <circle class="dot" cx={(step + 0.5) * column} cy={curve.y(height[step])} r="3.5" />}
      {run && column >= 7 && queries.map((_, t) => <text class={`glyph action-text-${colourOf(names, run[3 * t])}`} x={(t + 0.5) * column} y={runTop}>{GLYPHS[names[run[3 * t]]] ?? "?"}</text>)}
      {labels.map((label, t) =>
        t === step || (t % every === 0 && Math.abs(t - step) >= every) ? (
          <text class={t === step ? "label own" : "label"} transform={`translate(${(t + 0.5) * column + 4},${labelTop}) rotate(-90)`}>{label}</text>
        ) : null,
      )}
    </svg>
  );
}

function Positions({ cell, keys, record, number }) {
  return (
    <span class="held">
      {largestOf(cell.positions, number, LEAST).map(({ index, value }) => (
        <span class="pair-value" title={exact(value)}>
          <bdi>{short(keys[index], 14)}</bdi> <span class="muted">{keyPosition(record, index) || ""}</span> {rounded(value)}
        </span>
      ))}
    </span>
  );
}

function Symbols({ symbols, atLeast }) {
  const [first] = largestOf(symbols, 1);
  return (
    <span class="symbols">
      <span class="symbol" title="most probable symbol">{first ? first.index : "–"}</span>
      <span class="small">{rounded(first?.value ?? 0)}</span>
      <span class="distribution" role="img" aria-label={Array.from(symbols, (value, index) => `symbol ${index}: ${exact(value)}`).join(", ")} title={Array.from(symbols, (value, index) => `${index}: ${exact(value)}`).join("\n")}>
        {Array.from(symbols, (value) => <span style={{ height: `${Math.round((18 * partOf(value)) / (atLeast || 1))}px` }} />)}
      </span>
    </span>
  );
}

function Cells({ cells, keys, record }) {
  const shown = cells.filter(({ atLeast }) => atLeast > LEAST);
  if (shown.length === 0) return <p class="muted">The stack is empty.</p>;
  return (
    <ol class="stack" aria-label="Contents of the stack, top first">
      {shown.map((cell) => (
        <li class="cell" key={cell.depth} style={{ "--part": `${Math.round(100 * partOf(cell.atLeast))}%` }} data-depth={cell.depth}>
          {cell.symbols && <Symbols symbols={cell.symbols} atLeast={cell.atLeast} />}
          <Positions cell={cell} keys={keys} record={record} number={3} />
          <span class="at-least" title={`P(height ≥ ${cell.depth})`}>{exact(cell.atLeast)}</span>
        </li>
      ))}
    </ol>
  );
}

// The runs that are shown: those up to each step, which its reading depends on, or those of the whole example.
const RUNS = { prefix: "up to each step, as the model read it", whole: "of the whole example" };

const runsOf = (record, state) => (record.prefix_actions && state?.runs !== "whole" ? "prefix" : "whole");

// The arrays of a nondeterministic stack, with the actions of the chosen runs.
const chosen = (arrays, runs) => (runs === "prefix" ? { ...arrays, actions: arrays.prefix_actions, best_run: undefined } : arrays);

function RunsChoice({ runs, update }) {
  return (
    <div class="row options">
      <label>
        Runs{" "}
        <select value={runs} onChange={(event) => update({ runs: event.currentTarget.value })}>
          {Object.entries(RUNS).map(([value, label]) => <option value={value}>{label}</option>)}
        </select>
      </label>
    </div>
  );
}

function PrefixTop({ tops, step }) {
  const [state, symbol] = tops.subarray(2 * step, 2 * step + 2);
  return (
    <div role="group" aria-label="Most probable top">
      <h3>Most probable top</h3>
      <p>state <span data-name="state">{state}</span>, symbol <span data-name="symbol">{symbol}</span></p>
      <p class="muted small">Of the runs up to this step.</p>
    </div>
  );
}

function Trace({ run, step, queries, names }) {
  const stack = traceOf(run, step);
  const [action, state] = run.subarray(3 * step, 3 * step + 2);
  return (
    <div role="group" aria-label="Most probable run">
      <h3>Most probable run</h3>
      <p class="muted"><span class={`swatch action-bg-${colourOf(names, action)}`} /> {names[action]}, state {state}</p>
      <ol class="stack trace" aria-label="Stack of the most probable run, top first">
        {stack.map(({ symbol, position }) => (
          <li class="cell">
            <span class="symbol">{symbol}</span>
            <span class="held">{position < 0 ? <span class="muted">bottom</span> : <><bdi>{short(queries[position], 14)}</bdi> <span class="muted">{position + 1}</span></>}</span>
          </li>
        ))}
      </ol>
      <p class="muted small">Of the whole example: it knows the tokens that follow.</p>
    </div>
  );
}

function Actions({ names, arrays: { actions, best_run: run, height }, step }) {
  return (
    <>
    <p class="readout actions">
      {names.map((name, index) => (
        <span class="pair-value">
          <span class={`swatch action-bg-${colourOf(names, index)}`} /> {name} <span class="number" data-action={name}>{exact(actions[step * names.length + index])}</span>
        </span>
      ))}
    </p>
    <p class="muted small">
      Bars: actions.{height && " Line: expected height."}
      {run && ` Signs: the most probable run, ${names.map((name) => `${GLYPHS[name] ?? "?"} ${name}`).join(", ")}.`}
    </p>
    </>
  );
}

function Stack({ example, record, arrays: all, place, announce, state, update }) {
  const runs = runsOf(record, state);
  const arrays = chosen(all, runs);
  const [queries, keys] = [queriesOf(example, record), keysOf(example, record)];
  const names = record.action_names ?? [];
  const step = place.row;
  const [box, size] = useSize();
  const column = Math.max(5, Math.min(44, Math.floor((size.width || 600) / queries.length)));
  const cells = arrays.at_least ? cellsOf(arrays, queries.length, step) : [];
  const select = (row) => {
    place.select({ row });
    if (arrays.actions) {
      const values = names.map((name, index) => `${name} ${rounded(arrays.actions[row * names.length + index])}`);
      announce(`${short(queries[row])}: ${values.join(", ")}`);
    }
  };
  const scroll = useRef(null);
  useEffect(() => {
    const { clientWidth, scrollLeft } = scroll.current;
    if (step * column < scrollLeft || (step + 1) * column > scrollLeft + clientWidth) scroll.current.scrollLeft = step * column - clientWidth / 2;
  }, [step, column]);
  return (
    <>
      {record.prefix_actions && <RunsChoice runs={runs} update={update} />}
      <div ref={box} class="wide-box">
        <div class="scroll" ref={scroll} tabIndex={queries.length * column > size.width ? 0 : undefined} role="group" aria-label="Actions over time">
          <Timeline {...{ queries, names, arrays, column, step, select }} />
        </div>
      </div>
      <label class="slider">
        Step
        <input type="range" min="1" max={queries.length} value={step + 1} aria-valuetext={`${step + 1}: ${short(queries[step])}`} onInput={(event) => select(Number(event.currentTarget.value) - 1)} />
        <span class="count">{step + 1} of {queries.length}</span> <bdi class="now">{short(queries[step])}</bdi>
      </label>
      {arrays.actions && <Actions names={names} arrays={arrays} step={step} />}
      <div class="split">
        {arrays.at_least && (
          <div class="grow contents" role="group" aria-label="Contents">
            <h3>Contents after step {step + 1}</h3>
            <p class="muted">Expected height <span data-name="height">{exact(arrays.height[step])}</span></p>
            <Cells cells={cells} keys={keys} record={record} />
            <p class="muted small">
              {arrays.symbols ? "Most probable symbol, its probability, the distribution of symbols; positions" : "Positions"} whose vectors lie there; on the right P(height ≥ depth).
            </p>
          </div>
        )}
        {runs === "prefix" && <PrefixTop tops={arrays.prefix_tops} step={step} />}
        {arrays.best_run && <Trace run={arrays.best_run} step={step} queries={queries} names={names} />}
      </div>
    </>
  );
}

export const stack = {
  id: "stack",
  label: "Stack",
  accepts: (record) => record.actions !== undefined || record.contents !== undefined,
  arrays: (record) => ({ actions: record.actions, best_run: record.best_run, prefix_actions: record.prefix_actions, prefix_tops: record.prefix_tops, ...record.contents }),
  Component: Stack,
  values: ({ example, record, arrays, place }) => {
    const [queries, keys, names] = [queriesOf(example, record), keysOf(example, record), record.action_names];
    const cells = arrays.at_least && cellsOf(arrays, queries.length, place.row);
    return {
      step: place.row,
      queries,
      keys,
      action_names: names,
      actions: arrays.actions && queries.map((_, t) => Array.from(arrays.actions.subarray(t * names.length, (t + 1) * names.length))),
      prefix_actions: arrays.prefix_actions && queries.map((_, t) => Array.from(arrays.prefix_actions.subarray(3 * t, 3 * t + 3))),
      prefix_tops: arrays.prefix_tops && queries.map((_, t) => Array.from(arrays.prefix_tops.subarray(2 * t, 2 * t + 2))),
      best_run: arrays.best_run && queries.map((_, t) => Array.from(arrays.best_run.subarray(3 * t, 3 * t + 3))),
      height: arrays.height && Array.from(arrays.height),
      contents: cells?.map(({ depth, atLeast, symbols, positions }) => ({ depth, at_least: atLeast, symbols: symbols && Array.from(symbols), positions: Array.from(positions) })),
    };
  },
};
