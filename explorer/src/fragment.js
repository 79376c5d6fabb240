// What is selected is kept in the fragment of the URL, so that a link shows the same view.
import { useCallback, useEffect, useState } from "preact/hooks";

function read() {
  return Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
}

function write(state) {
  const entries = Object.entries(state).filter(([, value]) => value !== undefined && value !== "");
  try {
    history.replaceState(null, "", `#${new URLSearchParams(entries)}`);
  } catch {
    // A page inside a document of another origin may not have an address of its own.
  }
}

// Return the selection, an object of strings, and a function that changes some of its keys.
export function useFragment() {
  const [state, setState] = useState(read);
  useEffect(() => {
    const follow = () => setState(read());
    addEventListener("hashchange", follow);
    return () => removeEventListener("hashchange", follow);
  }, []);
  const update = useCallback((changes) => {
    setState((previous) => {
      const next = { ...previous };
      for (const [key, value] of Object.entries(changes)) next[key] = value === undefined ? undefined : String(value);
      write(next);
      return next;
    });
  }, []);
  return [state, update];
}

// An index that the fragment names, from 1 there; `otherwise` where it names none of these.
export function indexIn(text, size, otherwise = 0) {
  const index = Number(text) - 1;
  return Number.isInteger(index) && index >= 0 && index < size ? index : Math.min(otherwise, Math.max(0, size - 1));
}
