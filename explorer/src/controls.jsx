// Tabs and the choice of colours.
import { useLayoutEffect } from "preact/hooks";

export function Tabs({ views, selected, select }) {
  const onKeyDown = (event) => {
    const moves = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity };
    if (!(event.key in moves)) return;
    event.preventDefault();
    const last = views.length - 1;
    const next = views.indexOf(selected) + moves[event.key];
    const index = Number.isFinite(next) ? (next + views.length) % views.length : next < 0 ? 0 : last;
    select(views[index].id);
    document.getElementById(`tab-${views[index].id}`).focus();
  };
  return (
    <div role="tablist" aria-label="Views" onKeyDown={onKeyDown}>
      {views.map((view) => (
        <button
          type="button"
          role="tab"
          id={`tab-${view.id}`}
          aria-selected={view === selected}
          aria-controls="panel"
          tabIndex={view === selected ? 0 : -1}
          onClick={() => select(view.id)}
        >
          {view.label}
        </button>
      ))}
    </div>
  );
}

const THEMES = { auto: "system", light: "light", dark: "dark" };

export function ThemeSelect({ theme, update }) {
  const chosen = theme in THEMES ? theme : "auto";
  useLayoutEffect(() => {
    document.documentElement.dataset.theme = chosen;
  }, [chosen]);
  const change = (event) => update({ theme: event.currentTarget.value === "auto" ? undefined : event.currentTarget.value });
  return (
    <label class="theme">
      Theme{" "}
      <select value={chosen} onChange={change}>
        {Object.entries(THEMES).map(([value, text]) => <option value={value}>{text}</option>)}
      </select>
    </label>
  );
}
