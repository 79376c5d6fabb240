// The whole heat map as SVG, for export: its scrolled window would show only a part of it.
import { colour } from "../colours.js";
import { keysOf, queriesOf } from "../records.js";
import { svgDocument, svgImage, svgText } from "../export/svg.js";
import { short } from "../text.js";
import { weightImage } from "./heat-map.jsx";

const GUTTER = 110;

export function drawnMap({ example, record, arrays: { weights }, state }) {
  const [queries, keys] = [queriesOf(example, record), keysOf(example, record)];
  const cell = Math.max(1, Math.min(20, Math.floor(1600 / Math.max(queries.length, keys.length))));
  const [width, height] = [GUTTER + cell * keys.length, GUTTER + cell * queries.length];
  const image = weightImage(weights, queries.length, keys.length, state.scale);
  const parts = [svgImage(image.toDataURL(), GUTTER, GUTTER, cell * keys.length, cell * queries.length)];
  const step = Math.ceil(11 / cell);
  const ink = colour("--ink");
  const middle = (index) => GUTTER + (index + 0.5) * cell;
  queries.forEach((token, row) => {
    if (row % step === 0) parts.push(svgText(short(token, 16), GUTTER - 6, middle(row) + 4, { ink, anchor: "end" }));
  });
  keys.forEach((token, column) => {
    if (column % step === 0) parts.push(svgText(short(token, 16), middle(column) + 4, GUTTER - 6, { ink, turned: true }));
  });
  return svgDocument(width + 10, height + 10, parts);
}
