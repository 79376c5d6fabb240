import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";

// Return the decoded arrays of an object of descriptions, {} of the same keys; null until they are there.
// Descriptions that are missing stay undefined. An array that cannot be read gives {error}.
export function useArrays(recording, descriptions) {
  const entries = Object.entries(descriptions).filter(([, description]) => description !== undefined);
  const ready = entries.every(([, description]) => recording.arrays.peek(description) !== undefined);
  const key = entries.map(([, description]) => description.array).join();
  const [, redraw] = useState(0);
  const failure = useRef({ key: "", error: null });
  useEffect(() => {
    if (ready || failure.current.key === key) return undefined;
    let wanted = true;
    Promise.all(entries.map(([, description]) => recording.arrays.get(description)))
      .catch((error) => {
        failure.current = { key, error };
      })
      .then(() => wanted && redraw((number) => number + 1));
    return () => {
      wanted = false;
    };
  }, [recording, key, ready]);
  if (failure.current.key === key && !ready) return { error: failure.current.error };
  if (!ready) return null;
  return Object.fromEntries(entries.map(([name, description]) => [name, recording.arrays.peek(description)]));
}

// Return a reference and the size of the element that it is given, {width, height} in CSS pixels.
export function useSize() {
  const element = useRef(null);
  const [size, setSize] = useState({ width: 0, height: 0 });
  useLayoutEffect(() => {
    const measure = () => setSize({ width: element.current.clientWidth, height: element.current.clientHeight });
    const observer = new ResizeObserver(measure);
    observer.observe(element.current);
    measure();
    return () => observer.disconnect();
  }, []);
  return [element, size];
}

// A number that changes when the colours of the page do.
export function useThemeVersion() {
  const [version, setVersion] = useState(0);
  useEffect(() => {
    const changed = () => setVersion((number) => number + 1);
    const query = matchMedia("(prefers-color-scheme: dark)");
    const printed = matchMedia("print");
    const observer = new MutationObserver(changed);
    observer.observe(document.documentElement, { attributeFilter: ["data-theme"] });
    for (const each of [query, printed]) each.addEventListener("change", changed);
    return () => {
      observer.disconnect();
      for (const each of [query, printed]) each.removeEventListener("change", changed);
    };
  }, []);
  return version;
}
