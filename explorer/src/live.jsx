// The page of a server: a text to record, and interventions, whose result stands beside the original.
import { useRef, useState } from "preact/hooks";
import { App } from "./app.jsx";
import { makeRecording } from "./recordings.js";
import { isAttention, layersOf, stacksOf } from "./records.js";
import { short } from "./text.js";

async function ask(token, content) {
  let response;
  try {
    response = await fetch("/record", {
      method: "POST",
      headers: { "Content-Type": "application/json", "X-Structattn-Token": token },
      body: JSON.stringify(content),
    });
  } catch {
    throw new Error("The server does not answer. Is the command still running?");
  }
  const found = await response.json();
  if (!response.ok) throw new Error(found.error);
  return makeRecording(found, async (index) => found.arrays[index]);
}

function placeLabel({ side, layer, sublayer }) {
  return [side, `layer ${layer + 1}`, sublayer === "attention" ? undefined : sublayer].filter(Boolean).join(" ");
}

const placeOf = ({ side, layer, sublayer }) => ({ layer, sublayer, ...(side && { side }) });

// What can be switched off: sublayers of attention, each behind its heads with a number.
const partsOf = ({ records }) =>
  layersOf(records.filter(isAttention)).flatMap(({ heads }) => [
    ...heads.filter(hasNumber).map((each) => ({ kind: "head_off", head: each.head, ...placeOf(each) })),
    { kind: "sublayer_off", ...placeOf(heads[0]) },
  ]);

const hasNumber = ({ head, action_names: actions }) => head !== undefined && !actions;

const partLabel = (part) =>
  part.kind === "head_off" ? `${placeLabel(part)} head ${part.head + 1}` : `${placeLabel(part)}${part.sublayer === "attention" ? " attention" : ""}`;

function label(intervention, example) {
  if (intervention.kind !== "forced_action") return `${partLabel(intervention)} off`;
  const tokens = intervention.side === "encoder" ? example.source : example.tokens;
  const token = tokens[intervention.position] ?? "";
  return `${placeLabel(intervention)}: ${intervention.action} at ${intervention.position + 1} ${short(token, 16)}`;
}

function PartOff({ example, add }) {
  const parts = partsOf(example);
  const [index, setIndex] = useState(0);
  if (parts.length === 0) return null;
  const chosen = Math.min(index, parts.length - 1);
  return (
    <div class="row">
      <label>
        Part{" "}
        <select value={chosen} onChange={(event) => setIndex(Number(event.currentTarget.value))}>
          {parts.map((each, i) => <option value={i}>{partLabel(each)}</option>)}
        </select>
      </label>
      <button type="button" onClick={() => add(parts[chosen])}>Switch off</button>
    </div>
  );
}

function ForcedAction({ example, add }) {
  const stacks = stacksOf(example.records);
  const [choice, setChoice] = useState({ stack: 0, position: 0, action: 0 });
  if (stacks.length === 0) return null;
  const stack = stacks[Math.min(choice.stack, stacks.length - 1)];
  const tokens = stack.queries === "source" ? example.source : example.tokens;
  const position = Math.min(choice.position, tokens.length - 1);
  const select = (name) => (event) => setChoice({ ...choice, [name]: Number(event.currentTarget.value) });
  const force = () => add({ kind: "forced_action", position, action: stack.action_names[choice.action], ...placeOf(stack) });
  return (
    <div class="row">
      {stacks.length > 1 && (
        <label>
          Stack{" "}
          <select value={stacks.indexOf(stack)} onChange={select("stack")}>
            {stacks.map((each, i) => <option value={i}>{placeLabel(each)}</option>)}
          </select>
        </label>
      )}
      <label>
        Action{" "}
        <select value={choice.action} onChange={select("action")}>
          {stack.action_names.map((name, i) => <option value={i}>{name}</option>)}
        </select>
      </label>
      <label>
        at token{" "}
        <select value={position} onChange={select("position")}>
          {tokens.map((token, i) => <option value={i}>{i + 1} {short(token, 24)}</option>)}
        </select>
      </label>
      <button type="button" onClick={force}>Force</button>
    </div>
  );
}

function Interventions({ interventions, example, change }) {
  const add = (one) => change([...interventions.filter((each) => !samePlace(each, one)), one]);
  return (
    <fieldset>
      <legend>Interventions</legend>
      <PartOff {...{ example, add }} />
      <ForcedAction {...{ example, add }} />
      {interventions.length > 0 && (
        <ul class="chips" aria-label="Interventions in force">
          {interventions.map((each) => (
            <li>
              <bdi>{label(each, example)}</bdi>{" "}
              <button type="button" aria-label={`Remove ${label(each, example)}`} onClick={() => change(interventions.filter((other) => other !== each))}>×</button>
            </li>
          ))}
        </ul>
      )}
    </fieldset>
  );
}

// A part is switched off once, and one action is forced at a position.
function samePlace(one, other) {
  return ["kind", "side", "layer", "sublayer", "head", "position"].every((name) => one[name] === other[name]);
}

export function Live({ first, live }) {
  const [shown, setShown] = useState({ request: live.request, recordings: [first], interventions: [] });
  const [status, setStatus] = useState({});
  const [text, setText] = useState(live.request.text ?? "");
  const newest = useRef(0);
  const show = async (request, interventions, original) => {
    const number = ++newest.current; // an answer that a later request has overtaken is dropped
    setStatus({ busy: true });
    try {
      const found = original ?? (await ask(live.token, request));
      const changed = interventions.length > 0 && (await ask(live.token, { ...request, interventions }));
      if (number !== newest.current) return;
      if (changed) changed.run = { ...changed.run, name: `${changed.run.name} with interventions` };
      setShown({ request, interventions, recordings: changed ? [found, changed] : [found] });
      setStatus({});
    } catch (error) {
      if (number === newest.current) setStatus({ error: error.message });
    }
  };
  const submit = (event) => {
    event.preventDefault();
    show({ text }, []);
  };
  return (
    <>
      <form class="live" aria-label="Text and interventions" onSubmit={submit} aria-busy={Boolean(status.busy)}>
        <label class="text">
          Text <input dir="auto" value={text} onInput={(event) => setText(event.currentTarget.value)} autocomplete="off" spellcheck={false} />
        </label>
        <button type="submit">Show</button>
        {live.refusal ? <p class="muted">{live.refusal}</p> : (
          <Interventions
            interventions={shown.interventions}
            example={shown.recordings[0].examples[0]}
            change={(interventions) => show(shown.request, interventions, shown.recordings[0])}
          />
        )}
        <p class="muted" role="status">{status.busy ? "Computing …" : ""}</p>
        {status.error && <p role="alert">{status.error}</p>}
      </form>
      <App recordings={shown.recordings} />
    </>
  );
}
