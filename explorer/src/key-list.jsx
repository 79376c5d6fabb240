// The keys of one query, largest weight first: the numbers behind a row of the heat map.
import { useState } from "preact/hooks";
import { keyPosition } from "./records.js";
import { save } from "./export/download.js";
import { count, exact, isWhole, short } from "./text.js";

const SHOWN = 12;
const PART = 5000; // characters

// The text of a token that is too long for the page or has characters that cannot be seen, in parts that a browser can
// lay out, and as a file.
export function WholeToken({ token }) {
  const [open, setOpen] = useState(false);
  const [from, setFrom] = useState(0);
  if (isWhole(token)) return null;
  const start = Math.min(from, Math.floor(token.length / PART) * PART);
  const end = Math.min(token.length, start + PART);
  return (
    <details onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>Whole token, {count(token.length)} characters</summary>
      {open && (
        <>
          <textarea readOnly rows={6} dir="auto" aria-label="Whole token" value={token.slice(start, end)} />
          <p class="row small">
            {token.length > PART && (
              <>
                <span>{count(start + 1)} to {count(end)}</span>
                <button type="button" disabled={start === 0} onClick={() => setFrom(start - PART)}>Previous</button>
                <button type="button" disabled={end === token.length} onClick={() => setFrom(start + PART)}>Next</button>
              </>
            )}
            <button type="button" onClick={() => save(token, "text/plain;charset=utf-8", "token.txt")}>Save the token</button>
          </p>
        </>
      )}
    </details>
  );
}

export function KeyList({ record, queries, keys, weights, row, place }) {
  const [all, setAll] = useState(false);
  const values = weights.subarray(row * keys.length, (row + 1) * keys.length);
  const order = Array.from(values.keys()).sort((one, other) => values[other] - values[one] || one - other);
  const largest = values[order[0]] || 1;
  return (
    <div class="side" role="group" aria-label="Weights of the selected query">
      <h3>
        <bdi>{short(queries[row])}</bdi> <span class="muted">position {row + 1}</span>
      </h3>
      <WholeToken token={queries[row]} />
      <table class="keys">
        <thead>
          <tr><th scope="col">Key</th><th scope="col" class="number">Position</th><th scope="col" class="number">Weight</th></tr>
        </thead>
        <tbody>
          {(all ? order : order.slice(0, SHOWN)).map((column) => (
            <tr key={column} class={column === place.column ? "selected" : undefined} onClick={() => place.select({ row, column })}>
              <th scope="row"><bdi>{short(keys[column], 18)}</bdi></th>
              <td class="number muted">{keyPosition(record, column) || ""}</td>
              <td class="number bar" style={{ "--part": `${(100 * Math.max(0, values[column])) / largest}%` }}>{exact(values[column])}</td>
            </tr>
          ))}
        </tbody>
      </table>
      {order.length > SHOWN && (
        <button type="button" onClick={() => setAll(!all)}>{all ? `Show the largest ${SHOWN}` : `Show all ${order.length}`}</button>
      )}
    </div>
  );
}
