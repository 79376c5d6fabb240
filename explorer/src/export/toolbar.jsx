// Full screen, and the files of a view: a picture, a drawing, and its numbers.
import { useState } from "preact/hooks";
import { layerKey } from "../records.js";
import { pngOf, save, svgSource } from "./download.js";
import { pageSvg } from "./page-svg.js";

function fileName(view, { recording, record }, index, extension) {
  const name = String(recording.run.name).replace(/[^\p{L}\p{N}_-]+/gu, "-").slice(0, 40);
  const parts = [name, `example-${index + 1}`, view.id, record && layerKey(record), record?.head !== undefined && `head-${record.head + 1}`];
  return `${parts.filter(Boolean).join("-")}.${extension}`;
}

function described(view, { recording, example, record, values }) {
  const place = record && Object.fromEntries(["side", "layer", "sublayer", "head", "mechanism"].map((name) => [name, record[name]]));
  return { view: view.id, run: recording.run, split: example.split, example: example.example, record: place, ...values };
}

// `context` has what the view gets; `element()` is the element that shows it.
export function Toolbar({ view, context, index, element, announce }) {
  const [error, setError] = useState(null);
  const drawn = () => (view.svg && !context.contexts ? view.svg(context) : pageSvg(element()));
  const name = (extension) => fileName(view, context, index, extension);
  const doing = (label, action) => async () => {
    try {
      setError(null);
      await action();
      announce(`${label} saved`);
    } catch (problem) {
      setError(`${label} could not be written: ${problem.message}`);
    }
  };
  const png = async () => save(await pngOf(drawn()), "image/png", name("png"));
  const svg = () => save(svgSource(drawn()), "image/svg+xml", name("svg"));
  const json = () => save(JSON.stringify(described(view, { ...context, values: view.values(context) })), "application/json", name("json"));
  const full = () => (document.fullscreenElement ? document.exitFullscreen() : document.getElementById("panel").requestFullscreen());
  return (
    <div class="toolbar" role="group" aria-label="Save this view">
      <button type="button" onClick={doing("PNG", png)}>PNG</button>
      <button type="button" onClick={doing("SVG", svg)}>SVG</button>
      <button type="button" onClick={doing("JSON", json)}>JSON</button>
      {document.fullscreenEnabled && <button type="button" onClick={() => full().catch((problem) => setError(problem.message))}>Full screen</button>}
      {error && <span role="alert">{error}</span>}
    </div>
  );
}
