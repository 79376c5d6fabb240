// The hypotheses of a beam search as a tree, with the log-probability of each; the path of the result is drawn strongly.
import { useMemo, useState } from "preact/hooks";
import { Tree } from "../tree.jsx";
import { exact, rounded, short } from "../text.js";

const MOST = 1500; // hypotheses in the picture: those of the first steps

// Nest the nodes, each after its parent. Return the root and the number of those that are left out.
export function beamTree({ tokens, best }, { parents, steps, log_probabilities, scores, finished }, most = MOST) {
  const nodes = tokens.slice(0, most).map((token, index) => ({
    index,
    token,
    step: steps[index],
    logProbability: log_probabilities[index],
    score: scores[index],
    finished: finished[index] === 1,
    onBest: false,
    children: [],
  }));
  for (const node of nodes.slice(1)) nodes[parents[node.index]].children.push(node);
  for (let index = best; index >= 0; index = parents[index]) if (nodes[index]) nodes[index].onBest = true;
  return { root: nodes[0], left: tokens.length - nodes.length };
}

function textOf({ tokens }, { parents }, index) {
  const words = [];
  for (let node = index; node > 0; node = parents[node]) words.unshift(short(tokens[node], 16));
  return words.join(" ");
}

function BeamSearch({ example, arrays, announce }) {
  const search = example.beam_search;
  const { root, left } = useMemo(() => beamTree(search, arrays), [search, arrays.parents]);
  const [choice, setChoice] = useState(null);
  const chosen = choice?.search === search ? choice.index : search.best; // that of another example is forgotten
  const describe = (node) => `${short(node.token)}, step ${node.step}, log-probability ${exact(node.logProbability)}${node.finished ? ", finished" : ""}${node.onBest ? ", on the path of the result" : ""}`;
  return (
    <>
      <p class="result"><span class="muted">Result</span> <bdi dir="auto">{short(search.text, 400)}</bdi></p>
      <p class="readout" data-node={chosen}>
        <bdi dir="auto">{textOf(search, arrays, chosen) || "root"}</bdi>
        <span class="muted">log-probability</span><span class="value">{exact(arrays.log_probabilities[chosen])}</span>
        <span class="muted">score {exact(arrays.scores[chosen])}{arrays.finished[chosen] === 1 ? ", finished" : ""}</span>
      </p>
      <Tree
        root={root}
        name="Hypotheses of the beam search"
        label={(node) => short(node.token, 10)}
        note={(node) => (node.index === 0 ? "" : `${rounded(node.logProbability)}${node.finished ? " ■" : ""}`)}
        description={describe}
        emphasis={(node) => node.onBest}
        onSelect={(node) => { setChoice({ search, index: node.index }); announce(describe(node)); }}
      />
      <p class="muted small">Numbers are log-probabilities in nats; ■ marks finished hypotheses.{left > 0 && ` The last ${left} hypotheses are left out.`}</p>
    </>
  );
}

const ARRAYS = ["parents", "steps", "log_probabilities", "scores", "finished"];

export const beamSearch = {
  id: "beam",
  label: "Beam search",
  available: (example) => example.beam_search !== undefined,
  arrays: (_, example) => Object.fromEntries(ARRAYS.map((name) => [name, example.beam_search?.[name]])),
  Component: BeamSearch,
  values: ({ example, arrays }) => {
    const { tokens, best, text } = example.beam_search;
    return { tokens, best, text, ...Object.fromEntries(ARRAYS.map((name) => [name, Array.from(arrays[name])])) };
  },
};
