// One run in one view: the choice of layer and head, what can be done with the view, and the view.
import { indexIn } from "./fragment.js";
import { useArrays } from "./hooks.js";
import { keysOf, layersOf, queriesOf } from "./records.js";
import { short } from "./text.js";

// The key of the selection of a run: that of a second run has a number.
const named = (name, run) => (run === 0 ? name : `${name}${run + 1}`);

function HeadSelects({ layers, layer, head, run, update, several }) {
  const label = (text) => (several ? `${text} of run ${run + 1}` : text);
  return (
    <>
      <label>
        Layer <select aria-label={label("Layer")} value={layer.key} onChange={(event) => update({ [named("layer", run)]: event.currentTarget.value })}>
          {layers.map(({ key, label: text }) => <option value={key}>{text}</option>)}
        </select>
      </label>
      {layer.heads.length > 1 && (
        <label>
          Head <select aria-label={label("Head")} value={head + 1} onChange={(event) => update({ [named("head", run)]: event.currentTarget.value })}>
            {layer.heads.map((_, index) => <option value={index + 1}>{index + 1}</option>)}
          </select>
        </label>
      )}
    </>
  );
}

// The selected query and key of a record, and how to select others.
function placeOf(example, record, state, update) {
  if (!record) return { row: 0, column: 0, select: () => {} };
  const [rows, columns] = [queriesOf(example, record).length, keysOf(example, record).length];
  const name = record.queries === "source" ? "source" : "token";
  const row = indexIn(state[name], rows, rows - 1);
  const column = indexIn(state.key, columns, Math.min(row, columns - 1));
  const select = (to) => update({ [name]: to.row + 1, ...(to.column !== undefined && { key: to.column + 1 }) });
  return { row, column, select };
}

function View({ view, context }) {
  const arrays = useArrays(context.recording, view.arrays(context.record, context.example));
  if (arrays?.error) return <p role="alert">This part of the recording cannot be read: {String(arrays.error.message)}</p>;
  if (arrays === null) return <p class="muted" role="status">Decoding …</p>;
  return <view.Component {...context} arrays={arrays} />;
}

export function RunPanel({ recording, run, view, example, state, update, announce, several }) {
  const layers = view.accepts ? layersOf(example.records.filter(view.accepts)) : [];
  const layer = layers.find(({ key }) => key === state[named("layer", run)]) ?? layers[0];
  const head = layer ? indexIn(state[named("head", run)], layer.heads.length) : 0;
  const record = layer?.heads[head];
  const place = placeOf(example, record, state, update);
  const context = { recording, example, record, place, state, update, announce };
  const missing = view.accepts ? !record : !(view.available?.(example) ?? true);
  return (
    <section class="run" aria-label={several ? `Run ${run + 1}` : "Run"}>
      {several && <h2><bdi>{short(String(recording.run.name), 40)}</bdi></h2>}
      <div class="row options">
        {layer && <HeadSelects {...{ layers, layer, head, run, update, several }} />}
      </div>
      {missing ? <p class="muted">This run has nothing to show here.</p> : <View view={view} context={context} />}
    </section>
  );
}
