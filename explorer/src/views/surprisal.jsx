// Surprisal, −log p in nats, under each token of the sentence.
import { useMemo, useState } from "preact/hooks";
import { indexIn } from "../fragment.js";
import { exact, rounded, short } from "../text.js";
import { TokenFlow } from "../token-flow.jsx";

// The tokens of the sentence with the surprisal of each, NaN where it was not predicted. A causal model predicts the next
// token, so its first stands alone; a masked model predicts the token that stands there.
export function sentence({ tokens, predicted }, surprisal, task) {
  const masked = String(task).startsWith("masked");
  const followers = predicted.map((token, index) => ({
    token: token ?? (masked ? tokens[index] : tokens[index + 1]),
    value: token === null ? NaN : surprisal[index],
  }));
  const shown = followers.filter(({ token }) => token !== undefined);
  return masked ? shown : [{ token: tokens[0], value: NaN }, ...shown];
}

export function summary(cells) {
  const known = cells.filter(({ value }) => !Number.isNaN(value));
  const total = known.reduce((sum, { value }) => sum + value, 0);
  const mean = known.length ? total / known.length : NaN;
  return { number: known.length, total, mean, perplexity: Math.exp(mean) };
}

function Surprisal({ recording, example, arrays: { surprisal }, state, update, announce }) {
  const [hover, setHover] = useState(null);
  const cells = useMemo(() => sentence(example, surprisal, recording.run.task), [example, surprisal]);
  const largest = cells.reduce((found, { value }) => (value > found ? value : found), 0) || 1;
  const { number, total, mean, perplexity } = summary(cells);
  const selected = indexIn(state.word, cells.length, Math.max(0, cells.findIndex(({ value }) => value === largest)));
  const shown = cells[hover] ?? cells[selected]; // it may be of another example
  const select = (index) => {
    update({ word: index + 1 });
    announce(`${short(cells[index].token)}: ${exact(cells[index].value)} nats`);
  };
  return (
    <>
      <dl class="facts">
        <div><dt>tokens predicted</dt><dd>{number}</dd></div>
        <div><dt>total surprisal</dt><dd>{rounded(total)} nats</dd></div>
        <div><dt>mean</dt><dd>{rounded(mean)} nats</dd></div>
        <div><dt>perplexity</dt><dd>{rounded(perplexity)}</dd></div>
      </dl>
      <TokenFlow
        tokens={cells.map(({ token }) => token)}
        selected={selected}
        select={select}
        hover={setHover}
        label="Surprisal of each token"
        describe={(index) => (Number.isNaN(cells[index].value) ? "not predicted" : `${exact(cells[index].value)} nats`)}
      >
        {(index) => (
          <span class="under" aria-hidden="true">
            <span class={Number.isNaN(cells[index].value) ? "depth absent" : "depth"} style={{ "--size": `${(44 * (cells[index].value || 0)) / largest}px` }} />
            <span class="small">{rounded(cells[index].value)}</span>
          </span>
        )}
      </TokenFlow>
      <p class="readout">
        <bdi>{short(shown.token)}</bdi>
        {Number.isNaN(shown.value) ? <span class="muted">not predicted</span> : <><span class="value">{exact(shown.value)}</span> <span class="muted">nats</span></>}
      </p>
    </>
  );
}

export const surprisal = {
  id: "surprisal",
  label: "Surprisal",
  available: ({ predicted }) => predicted.some((token) => token !== null), // recognition predicts none
  arrays: (_, example) => ({ surprisal: example.surprisal }),
  Component: Surprisal,
  values: ({ recording, example, arrays }) => {
    const cells = sentence(example, arrays.surprisal, recording.run.task);
    const finite = (value) => (Number.isFinite(value) ? value : null);
    return { tokens: cells.map(({ token, value }) => ({ token, surprisal: finite(value) })) };
  },
};
