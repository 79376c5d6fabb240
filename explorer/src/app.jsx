// The page: what is selected, the views as tabs, and one panel for each run.
import { useCallback, useState } from "preact/hooks";
import { ThemeSelect, Tabs } from "./controls.jsx";
import { indexIn, useFragment } from "./fragment.js";
import { Panel } from "./run-panel.jsx";
import { short } from "./text.js";
import { VIEWS } from "./views/index.js";

function exampleLabel(example, index) {
  const where = example.split === undefined ? `Text ${index + 1}` : `${example.split} ${example.example}`;
  const tokens = example.source ?? example.tokens;
  const first = tokens.slice(0, 12).map((token) => short(token, 12));
  return short(`${where}: ${first.join(" ")}${tokens.length > 12 ? " …" : ""}`, 72);
}

function availableViews(examples) {
  const shows = (view) => (example) => (view.available ? view.available(example) : example.records.some(view.accepts));
  return VIEWS.filter((view) => (view.joint ? examples.length > 1 : examples.some(shows(view))));
}

function Header({ recordings, state, update }) {
  return (
    <header>
      <div>
        <h1>{recordings.map(({ run }, index) => [index > 0 && <span class="muted"> and </span>, <bdi>{short(String(run.name), 48)}</bdi>])}</h1>
        <p class="muted">
          {recordings.map(({ run }) => `${run.task} · ${run.model} · update ${run.update}`.replaceAll("_", " ")).join("; ")}
        </p>
      </div>
      <ThemeSelect theme={state.theme} update={update} />
    </header>
  );
}

export function App({ recordings }) {
  const [state, update] = useFragment();
  const [message, setMessage] = useState("");
  const announce = useCallback((text) => setMessage(text), []);
  const number = Math.min(...recordings.map(({ examples }) => examples.length));
  if (number === 0) return <main><p>There are no examples in this recording.</p></main>;
  const index = indexIn(state.example, number);
  const examples = recordings.map((recording) => recording.examples[index]);
  const views = availableViews(examples);
  const named = (name) => views.find(({ id }) => id === name);
  const view = named(state.view) ?? named("stack") ?? views[0];
  return (
    <>
      <Header {...{ recordings, state, update }} />
      <main>
        <div class="row options">
          <label class="wide">
            Example{" "}
            <select value={index + 1} onChange={(event) => update({ example: event.currentTarget.value, token: undefined, source: undefined, key: undefined, word: undefined })}>
              {recordings[0].examples.slice(0, number).map((example, i) => <option value={i + 1}>{exampleLabel(example, i)}</option>)}
            </select>
          </label>
        </div>
        <Tabs views={views} selected={view} select={(id) => update({ view: id })} />
        <Panel {...{ recordings, examples, view, index, state, update, announce }} />
      </main>
      <p class="hidden" role="status" aria-live="polite">{message}</p>
    </>
  );
}
