// The panel of a view: for each run the choice of layer and head and the view, or one view of both runs.
import { useRef } from "preact/hooks";
import { align, nearest } from "./align.js";
import { Toolbar } from "./export/toolbar.jsx";
import { indexIn } from "./fragment.js";
import { useArrays } from "./hooks.js";
import { keysOf, layersOf, queriesOf } from "./records.js";
import { short } from "./text.js";

// The key of the selection of a run: that of a second run has a number.
const named = (name, run) => (run === 0 ? name : `${name}${run + 1}`);

function HeadSelects({ layers, layer, head, run, update, several }) {
  const label = (text) => (several ? `${text} of run ${run + 1}` : text);
  const change = (name) => (event) => update({ [named(name, run)]: event.currentTarget.value });
  return (
    <>
      <label>
        Layer{" "}
        <select aria-label={label("Layer")} value={layer.key} onChange={change("layer")}>
          {layers.map(({ key, label: text }) => <option value={key}>{text}</option>)}
        </select>
      </label>
      {layer.heads.length > 1 && (
        <label>
          Head{" "}
          <select aria-label={label("Head")} value={head + 1} onChange={change("head")}>
            {layer.heads.map((_, index) => <option value={index + 1}>{index + 1}</option>)}
          </select>
        </label>
      )}
    </>
  );
}

// The selected query and key of a record, and how to select others. The fragment has the indices of the first run;
// `first` is its example where this is the second run, whose tokens may be others.
function placeOf(example, record, state, update, first) {
  if (!record) return { row: 0, column: 0, select: () => {} };
  const [queries, keys] = [queriesOf(example, record), keysOf(example, record)];
  const name = record.queries === "source" ? "source" : "token";
  const of = name === "source" ? "source" : "tokens";
  const same = !first?.[of] || first[of].join("\n") === queries.join("\n");
  const from = same ? null : nearest(align(first[of], queries));
  const back = same ? null : nearest(align(queries, first[of]));
  const stated = indexIn(state[name], same ? queries.length : first[of].length, queries.length - 1);
  const row = same ? stated : (from[stated] ?? 0);
  const column = indexIn(state.key, keys.length, Math.min(row, keys.length - 1));
  const select = (to) =>
    update({ [name]: (same ? to.row : back[to.row]) + 1, ...(to.column !== undefined && { key: to.column + 1 }) });
  return { row, column, select };
}

function Loaded({ arrays, children }) {
  if (arrays === null) return <p class="muted">Decoding …</p>;
  if (arrays.error) return <p role="alert">This part of the recording cannot be read: {String(arrays.error.message)}</p>;
  return children();
}

function useSelection({ recording, run, view, example, first, state, update, announce, several }) {
  const layers = view.accepts ? layersOf(example.records.filter(view.accepts)) : [];
  const layer = layers.find(({ key }) => key === state[named("layer", run)]) ?? layers[0];
  const head = layer ? indexIn(state[named("head", run)], layer.heads.length) : 0;
  const record = layer?.heads[head];
  const shown = view.available ? view.available(example) : record !== undefined;
  const arrays = useArrays(recording, shown ? view.arrays(record, example) : {});
  const place = placeOf(example, record, state, update, run === 0 ? null : first);
  const context = { recording, example, record, place, arrays, state, update, announce };
  const selects = layer && <HeadSelects {...{ layers, layer, head, run, update, several }} />;
  return { context, selects, shown };
}

function RunPanel(properties) {
  const { recording, run, view, index, announce, several } = properties;
  const { context, selects, shown } = useSelection(properties);
  const content = useRef(null);
  const ready = shown && context.arrays !== null && !context.arrays.error;
  return (
    <section class="run" aria-label={several ? `Run ${run + 1}` : "Run"}>
      <h2 class={several ? undefined : "hidden"}>
        {several ? <><span class="muted">{run + 1}</span> <bdi>{short(String(recording.run.name), 40)}</bdi></> : view.label}
      </h2>
      <div class="row options">
        {selects}
        {ready && <Toolbar {...{ view, context, index, announce }} element={() => content.current} />}
      </div>
      <div ref={content} class="view">
        {shown ? <Loaded arrays={context.arrays}>{() => <view.Component {...context} />}</Loaded> : <p class="muted">This run has nothing to show here.</p>}
      </div>
    </section>
  );
}

// One view of two runs.
function JointPanel({ recordings, examples, ...properties }) {
  const { view, index, announce } = properties;
  const parts = recordings.map((recording, run) =>
    useSelection({ ...properties, recording, run, example: examples[run], first: examples[0], several: true }),
  );
  const content = useRef(null);
  const contexts = parts.map(({ context }) => context);
  const arrays = contexts.map((context) => context.arrays);
  const ready = arrays.includes(null) ? null : (arrays.find(({ error }) => error) ?? arrays);
  const context = { ...contexts[0], contexts };
  return (
    <section class="run joint" aria-label="Both runs">
      <h2 class="hidden">{view.label}</h2>
      <div class="row options">
        {recordings.map(({ run }, number) => (
          <span class="row"><span><span class="muted">{number + 1}</span> <bdi>{short(String(run.name), 24)}</bdi></span> {parts[number].selects}</span>
        ))}
        {ready && !ready.error && <Toolbar {...{ view, context, index, announce }} element={() => content.current} />}
      </div>
      <div ref={content} class="view">
        <Loaded arrays={ready}>{() => <view.Component {...context} />}</Loaded>
      </div>
    </section>
  );
}

export function Panel({ recordings, examples, view, ...properties }) {
  const several = recordings.length > 1;
  return (
    <div id="panel" role="tabpanel" aria-labelledby={`tab-${view.id}`} class={several && !view.joint ? "runs two" : "runs"}>
      {view.joint ? (
        <JointPanel key={view.id} {...{ recordings, examples, view }} {...properties} />
      ) : (
        recordings.map((recording, run) => (
          <RunPanel key={`${view.id}-${run}`} {...{ recording, run, view, several }} {...properties} example={examples[run]} first={examples[0]} />
        ))
      )}
    </div>
  );
}
