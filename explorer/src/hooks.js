import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";

// Return the decoded arrays of an object of descriptions, under the same names; null until all are there. Names without a
// description are left out. An array that cannot be read gives {error}.
export function useArrays(recording, descriptions) {
  const entries = Object.entries(descriptions).filter(([, description]) => description !== undefined);
  const key = entries.map(([name, description]) => `${name}=${description.array}`).join();
  const [, redraw] = useState(0);
  const held = useRef({}); // here, too, because those of a view may be more than the cache holds
  if (held.current.recording !== recording || held.current.key !== key) {
    const found = entries.map(([name, description]) => [name, recording.arrays.peek(description)]);
    const ready = found.every(([, numbers]) => numbers !== undefined);
    held.current = { recording, key, arrays: ready ? Object.fromEntries(found) : null };
  }
  useEffect(() => {
    const target = held.current;
    if (target.arrays !== null) return;
    Promise.all(entries.map(async ([name, description]) => [name, await recording.arrays.get(description)]))
      .then((found) => Object.fromEntries(found), (error) => ({ error }))
      .then((arrays) => {
        target.arrays = arrays;
        if (held.current === target) redraw((number) => number + 1);
      });
  }, [recording, key]);
  return held.current.arrays;
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
