// The tokens as text, coloured by the weights of the selected token, or by the weights that others give to it.
import { useMemo, useState } from "preact/hooks";
import { WholeToken } from "../key-list.jsx";
import { keyPosition, keysOf, queriesOf } from "../records.js";
import { exact, short } from "../text.js";
import { TokenFlow } from "../token-flow.jsx";

const DIRECTIONS = { from: "what the selected token attends to", to: "what attends to the selected token" };

// Weights from the selected query to all keys, or from all queries to the selected key.
export function weightsOf(weights, columns, { row, column }, direction) {
  if (direction === "from") return weights.slice(row * columns, (row + 1) * columns);
  return Float32Array.from({ length: weights.length / columns }, (_, index) => weights[index * columns + column]);
}

function Tokens({ example, record, arrays: { weights }, place, state, update, announce }) {
  const [pointed, setHover] = useState(null);
  const [queries, keys] = [queriesOf(example, record), keysOf(example, record)];
  const direction = state.direction === "to" ? "to" : "from";
  const values = useMemo(
    () => weightsOf(weights, keys.length, place, direction),
    [weights, keys.length, place.row, place.column, direction],
  );
  const largest = values.reduce((one, other) => Math.max(one, other), 0) || 1;
  const chosen = direction === "from" ? { tokens: queries, index: place.row } : { tokens: keys, index: place.column };
  const coloured = direction === "from" ? keys : queries;
  const hover = pointed !== null && pointed < coloured.length ? pointed : null; // it may be of another example
  const same = record.queries === record.keys;
  const shift = record.bottom ? 1 : 0; // from the index of a query to that of the same token as a key
  const select = (index, isKey) => {
    const row = isKey ? index - shift : index;
    const to = direction === "from" || same ? { row: Math.max(0, row), column: isKey ? index : index + shift } : { row: place.row, column: index };
    place.select(direction === "from" && !same ? { row: index } : to);
    announce(`${short((isKey ? keys : queries)[index])} is selected`);
  };
  const number = (index) => (direction === "from" ? keyPosition(record, index) : index + 1);
  const marked = same ? chosen.index + (direction === "from" ? shift : -shift) : -1;
  return (
    <>
      <div class="row options">
        <label>
          Show <select value={direction} onChange={(event) => update({ direction: event.currentTarget.value })}>
            {Object.entries(DIRECTIONS).map(([value, text]) => <option value={value}>{text}</option>)}
          </select>
        </label>
      </div>
      {!same && (
        <>
          <h3>{direction === "from" ? "Queries" : "Keys"}</h3>
          <TokenFlow tokens={chosen.tokens} selected={chosen.index} label="Select a token" select={(index) => select(index, direction === "to")} />
          <h3>{direction === "from" ? "Keys" : "Queries"}</h3>
        </>
      )}
      <TokenFlow
        tokens={coloured}
        selected={same ? marked : (hover ?? 0)}
        pressed={same ? marked : -1}
        select={same ? (index) => select(index, direction === "from") : setHover}
        label={`Weights, ${DIRECTIONS[direction]}`}
        part={(index) => Math.max(0, values[index]) / largest}
        describe={(index) => `weight ${exact(values[index])}`}
        hover={setHover}
      />
      <p class="readout">
        {hover === null ? (
          <span class="muted">
            <bdi>{short(chosen.tokens[chosen.index])}</bdi> is selected. Point at a token for its weight.
          </span>
        ) : (
          <>
            <bdi>{short(coloured[hover])}</bdi> <span class="muted">{number(hover) || ""}</span>
            <span class="value" data-index={hover}>{exact(values[hover])}</span>
          </>
        )}
      </p>
      <WholeToken token={chosen.tokens[chosen.index]} />
    </>
  );
}

export const tokens = {
  id: "tokens",
  label: "Tokens",
  accepts: () => true,
  arrays: (record) => ({ weights: record.weights }),
  Component: Tokens,
  values: ({ example, record, arrays: { weights }, place, state }) => {
    const keys = keysOf(example, record);
    const direction = state.direction === "to" ? "to" : "from";
    const values = Array.from(weightsOf(weights, keys.length, place, direction));
    return { query: place.row, key: place.column, direction, queries: queriesOf(example, record), keys, weights: values };
  },
};
