// Tokens as running text in the direction of their script, one of them selected. One stop of the Tab key; arrow keys move.
import { direction, short } from "./text.js";

const STEPS = { ArrowLeft: -1, ArrowUp: -1, ArrowRight: 1, ArrowDown: 1, Home: -Infinity, End: Infinity };

// Return a handler of keys that moves the selection along a list, and the focus to the element of its index.
export function listKeys(size, selected, select) {
  return (event) => {
    if (!(event.key in STEPS) || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    const next = Math.max(0, Math.min(size - 1, selected + STEPS[event.key]));
    event.currentTarget.querySelector(`[data-index="${next}"]`)?.focus();
    select(next);
  };
}

// The selected token is pressed, unless `pressed` says which is, -1 for none: then the list is for reading. `part(i)` colours a token, from 0 to 1; `describe(i)` is what a screen reader says beside it; `children(i)` stands under it.
export function TokenFlow({ tokens, selected, select, label, part, describe, hover, children, marked, pressed = selected }) {
  return (
    <div class="tokens" role="group" aria-label={label} dir={direction(tokens)} onKeyDown={listKeys(tokens.length, selected, select)} onPointerLeave={() => hover?.(null)}>
      {tokens.map((token, index) => (
        <button
          type="button"
          key={index}
          data-index={index}
          class={`token${marked?.(index) ? " marked" : ""}`}
          aria-pressed={index === pressed}
          aria-label={`${short(token)}, position ${index + 1}${describe ? `, ${describe(index)}` : ""}`}
          tabIndex={index === selected ? 0 : -1}
          style={part && { "--part": `${Math.round(50 * part(index))}%` }}
          onClick={() => select(index)}
          onPointerEnter={() => hover?.(index)}
          onFocus={() => hover?.(null)}
        >
          <bdi>{short(token)}</bdi>
          {children?.(index)}
        </button>
      ))}
    </div>
  );
}
