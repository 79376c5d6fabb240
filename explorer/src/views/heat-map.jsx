// The weights of a head as a heat map: rows are queries, columns keys. The map is drawn once as an image of one pixel
// for each weight; the canvas has the size of the window that scrolls over it, whatever the number of tokens.
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { colour, cssScale, sequentialScale } from "../colours.js";
import { useSize, useThemeVersion } from "../hooks.js";
import { KeyList } from "../key-list.jsx";
import { keyPosition, keysOf, queriesOf } from "../records.js";
import { exact, rounded, short } from "../text.js";
import { drawnMap } from "./heat-map-svg.js";

const FONT = '11px system-ui, -apple-system, "Segoe UI", "Helvetica Neue", Arial, sans-serif';
const LABEL = 11; // pixels from one label to the next
const LARGEST_CELL = 40;
const SIZES = [2, 4, 8, 16, 28];
const SCALES = { linear: "linear", sqrt: "square root", row: "each row by its maximum" };
const PAGE = 10; // rows
const SIDE = 340; // pixels of the list of keys and the space before it
const TOGETHER = 760; // pixels of a window in which both stand side by side

export function largest(weights) {
  let found = 0;
  for (const weight of weights) if (weight > found) found = weight;
  return found;
}

// Return a canvas with one pixel for each weight.
export function weightImage(weights, rows, columns, scale) {
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [columns, rows];
  const image = new ImageData(columns, rows);
  const pixels = new Uint32Array(image.data.buffer);
  const palette = sequentialScale();
  const whole = largest(weights);
  for (let row = 0; row < rows; row++) {
    const values = weights.subarray(row * columns, (row + 1) * columns);
    const top = (scale === "row" ? largest(values) : whole) || 1;
    for (let column = 0; column < columns; column++) {
      const part = Math.min(1, Math.max(0, values[column] / top));
      pixels[row * columns + column] = palette[Math.round(255 * (scale === "sqrt" ? Math.sqrt(part) : part)) || 0];
    }
  }
  canvas.getContext("2d").putImageData(image, 0, 0);
  return canvas;
}

function labelWidth(tokens, limit) {
  const context = document.createElement("canvas").getContext("2d");
  context.font = FONT;
  let found = 0;
  for (const token of tokens) found = Math.max(found, context.measureText(token).width);
  return Math.min(limit, Math.ceil(found)) + 14;
}

// Where things are, in CSS pixels of the whole map, of which the window shows a part.
function geometryOf(queries, keys, width, wanted) {
  const narrow = width < 520;
  const left = labelWidth(queries, narrow ? 64 : 120);
  const top = labelWidth(keys, narrow ? 56 : 96);
  const fit = (width - left - 1) / keys.length;
  const cell = Math.max(1, wanted || Math.min(LARGEST_CELL, fit >= 3 ? Math.floor(fit) : fit));
  return { left, top, cell, width: left + cell * keys.length, height: top + cell * queries.length };
}

function cut(context, text, room) {
  if (context.measureText(text).width <= room) return text;
  const characters = Array.from(text);
  while (characters.length > 1 && context.measureText(`${characters.join("")}…`).width > room) characters.pop();
  return `${characters.join("")}…`;
}

// Draw the labels of the visible rows, or of the columns, turned by 90 degrees; the active one is always drawn.
function drawLabels(context, texts, { cell, offset, first, room, active, turned }, inks) {
  const step = Math.max(1, Math.ceil(LABEL / cell));
  const start = Math.max(0, Math.floor(first / cell));
  context.textBaseline = "middle";
  for (let index = start; index < texts.length; index++) {
    const middle = offset + (index + 0.5) * cell - first;
    if (middle < offset - cell || middle > (turned ? context.canvas.clientWidth : context.canvas.clientHeight)) {
      if (middle > offset) break;
      continue;
    }
    const isActive = index === active;
    const nearActive = active !== null && Math.abs(index - active) * cell < LABEL;
    if (!isActive && (index % step !== 0 || nearActive)) continue;
    context.save();
    context.fillStyle = isActive ? inks.accent : inks.muted;
    context.font = isActive ? `bold ${FONT}` : FONT;
    context.textAlign = turned ? "left" : "right";
    if (turned) {
      context.translate(middle, offset === 0 ? 0 : room);
      context.rotate(-Math.PI / 2);
    } else context.translate(room, middle);
    context.fillText(cut(context, texts[index], room - 6), 0, 0);
    context.restore();
  }
}

function draw(canvas, { image, geometry, scroll, labels, active, truth }) {
  const ratio = devicePixelRatio || 1;
  const [width, height] = [canvas.clientWidth, canvas.clientHeight];
  [canvas.width, canvas.height] = [Math.round(width * ratio), Math.round(height * ratio)];
  const context = canvas.getContext("2d");
  context.scale(ratio, ratio);
  const inks = { muted: colour("--muted"), accent: colour("--accent"), line: colour("--line"), ink: colour("--ink") };
  const { left, top, cell } = geometry;
  context.fillStyle = colour("--paper");
  context.fillRect(0, 0, width, height);
  context.save();
  context.beginPath();
  context.rect(left, top, Math.min(width - left, image.width * cell), Math.min(height - top, image.height * cell));
  context.clip();
  context.imageSmoothingEnabled = cell < 1;
  context.drawImage(image, left - scroll.x, top - scroll.y, image.width * cell, image.height * cell);
  if (truth && cell >= 5) drawTruth(context, truth, image, geometry, scroll, inks);
  if (active.row !== null) drawActive(context, active, image, geometry, scroll, inks);
  context.restore();
  context.strokeStyle = inks.line;
  context.strokeRect(left - 0.5, top - 0.5, Math.min(width - left, image.width * cell + 1), Math.min(height - top, image.height * cell + 1));
  drawLabels(context, labels.rows, { cell, offset: top, first: scroll.y, room: left - 6, active: active.row, turned: false }, inks);
  drawLabels(context, labels.columns, { cell, offset: left, first: scroll.x, room: top - 6, active: active.column, turned: true }, inks);
}

// Mark the true dependencies with a dot.
function drawTruth(context, truth, image, { left, top, cell }, scroll, inks) {
  const last = { row: Math.ceil((context.canvas.clientHeight - top + scroll.y) / cell), column: Math.ceil((context.canvas.clientWidth - left + scroll.x) / cell) };
  context.fillStyle = inks.accent;
  for (let row = Math.floor(scroll.y / cell); row < Math.min(image.height, last.row); row++)
    for (let column = Math.floor(scroll.x / cell); column < Math.min(image.width, last.column); column++) {
      if (!(truth[row * image.width + column] > 0)) continue;
      context.beginPath();
      context.arc(left + (column + 0.5) * cell - scroll.x, top + (row + 0.5) * cell - scroll.y, Math.min(3.5, cell / 5), 0, 7);
      context.fill();
    }
}

function drawActive(context, { row, column }, image, { left, top, cell }, scroll, inks) {
  const [x, y] = [left + column * cell - scroll.x, top + row * cell - scroll.y];
  context.lineWidth = 1;
  context.strokeStyle = inks.accent;
  context.globalAlpha = 0.55;
  context.strokeRect(left - scroll.x - 2, y - 0.5, image.width * cell + 4, cell + 1);
  context.strokeRect(x - 0.5, top - scroll.y - 2, cell + 1, image.height * cell + 4);
  context.globalAlpha = 1;
  context.lineWidth = 2;
  context.strokeRect(x - 1, y - 1, cell + 2, cell + 2);
}

function Legend({ maximum, scale }) {
  return (
    <p class="legend">
      <span class="muted">0</span>
      <span class="legend-bar" style={{ background: cssScale("--scale") }} aria-hidden="true" />
      <span class="muted">{scale === "row" ? "maximum of the row" : rounded(maximum)}</span>
    </p>
  );
}

function Readout({ record, queries, keys, weights, row, column, truth }) {
  const value = weights[row * keys.length + column];
  const position = keyPosition(record, column);
  return (
    <p class="readout" data-row={row} data-column={column}>
      <bdi>{short(queries[row])}</bdi> <span class="muted">{row + 1}</span> <span class="arrow">attends to</span>{" "}
      <bdi>{short(keys[column])}</bdi> {position > 0 && <span class="muted">{position}</span>}
      <span class="value">{exact(value)}</span>
      {truth && truth[row * keys.length + column] > 0 && <span class="muted">true dependency</span>}
    </p>
  );
}

const MOVES = {
  ArrowUp: (row, column) => [row - 1, column],
  ArrowDown: (row, column) => [row + 1, column],
  ArrowLeft: (row, column) => [row, column - 1],
  ArrowRight: (row, column) => [row, column + 1],
  PageUp: (row, column) => [row - PAGE, column],
  PageDown: (row, column) => [row + PAGE, column],
  Home: (row) => [row, 0],
  End: (row) => [row, Infinity],
};

function HeatMap({ example, record, arrays: { weights, truth }, place, state, update, announce }) {
  const queries = queriesOf(example, record);
  const keys = keysOf(example, record);
  const { row, column } = place;
  const scale = SCALES[state.scale] ? state.scale : "linear";
  const theme = useThemeVersion();
  const [box, size] = useSize();
  const room = (size.width || 600) - (size.width >= TOGETHER ? SIDE : 0);
  const canvas = useRef(null);
  const viewport = useRef(null);
  const [hover, setHover] = useState(null);
  const [scroll, setScroll] = useState({ x: 0, y: 0 });
  const labels = useMemo(() => ({ rows: queries.map((each) => short(each, 16)), columns: keys.map((each) => short(each, 16)) }), [queries, record]);
  const geometry = useMemo(() => geometryOf(labels.rows, labels.columns, room, SIZES.includes(Number(state.cell)) ? Number(state.cell) : 0), [labels, room, state.cell]);
  const image = useMemo(() => weightImage(weights, queries.length, keys.length, scale), [weights, scale, theme]);
  const maximum = useMemo(() => largest(weights), [weights]);
  const active = hover ?? { row, column };
  useLayoutEffect(() => {
    if (size.width) draw(canvas.current, { image, geometry, scroll, labels, active, truth });
  });
  useEffect(() => setHover(null), [record, example]);

  const cellAt = (event) => {
    const bounds = canvas.current.getBoundingClientRect();
    const x = Math.floor((event.clientX - bounds.left - geometry.left + scroll.x) / geometry.cell);
    const y = Math.floor((event.clientY - bounds.top - geometry.top + scroll.y) / geometry.cell);
    const inside = event.clientX - bounds.left >= geometry.left && event.clientY - bounds.top >= geometry.top;
    return inside && x >= 0 && y >= 0 && x < keys.length && y < queries.length ? { row: y, column: x } : null;
  };
  const reveal = (to) => {
    const { left, top, cell } = geometry;
    const element = viewport.current;
    const [roomX, roomY] = [element.clientWidth - left, element.clientHeight - top];
    element.scrollLeft = Math.min(to.column * cell, Math.max(element.scrollLeft, (to.column + 1) * cell - roomX));
    element.scrollTop = Math.min(to.row * cell, Math.max(element.scrollTop, (to.row + 1) * cell - roomY));
  };
  const onKeyDown = (event) => {
    const move = MOVES[event.key];
    if (!move || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    const [y, x] = move(row, column);
    const to = { row: Math.max(0, Math.min(queries.length - 1, y)), column: Math.max(0, Math.min(keys.length - 1, x)) };
    setHover(null);
    place.select(to);
    reveal(to);
    announce(`${short(queries[to.row])} attends to ${short(keys[to.column])}: ${exact(weights[to.row * keys.length + to.column])}`);
  };
  return (
    <div class="split" ref={box}>
      <div class="mapped" style={{ maxWidth: `${Math.max(440, geometry.width + 2)}px` }}>
        <Readout {...{ record, queries, keys, weights, truth }} {...active} />
        <div
          class="map"
          ref={viewport}
          tabIndex={0}
          role="application"
          aria-roledescription="heat map"
          aria-label={`Weights of ${queries.length} queries over ${keys.length} keys. Arrow keys move the selected cell.`}
          onScroll={(event) => setScroll({ x: event.currentTarget.scrollLeft, y: event.currentTarget.scrollTop })}
          onKeyDown={onKeyDown}
        >
          <div style={{ width: `${geometry.width + 2}px`, height: `${geometry.height + 2}px` }}>
            <canvas
              ref={canvas}
              style={{ width: `${Math.min(room, geometry.width + 2)}px`, height: `${Math.min(geometry.height + 2, Math.max(320, Math.round(innerHeight * 0.72)))}px` }}
              data-left={geometry.left}
              data-top={geometry.top}
              data-cell={geometry.cell}
              onPointerMove={(event) => setHover(cellAt(event))}
              onPointerDown={(event) => setHover(cellAt(event))}
              onPointerLeave={(event) => event.pointerType === "mouse" && setHover(null)}
              onClick={(event) => cellAt(event) && place.select(cellAt(event))}
            />
          </div>
        </div>
        <div class="row options">
          <Legend maximum={maximum} scale={scale} />
          <label>
            Colours <select value={scale} onChange={(event) => update({ scale: event.currentTarget.value })}>
              {Object.entries(SCALES).map(([value, text]) => <option value={value}>{text}</option>)}
            </select>
          </label>
          <label>
            Cells <select value={state.cell ?? ""} onChange={(event) => update({ cell: event.currentTarget.value })}>
              <option value="">fit the width</option>
              {SIZES.map((size) => <option value={size}>{size} px</option>)}
            </select>
          </label>
          {truth && <span class="muted">Dots: true dependencies</span>}
        </div>
      </div>
      <KeyList {...{ record, queries, keys, weights, row, place }} />
    </div>
  );
}

function values({ example, record, arrays: { weights, truth } }) {
  const [queries, keys] = [queriesOf(example, record), keysOf(example, record)];
  const rows = (array) => queries.map((_, row) => Array.from(array.subarray(row * keys.length, (row + 1) * keys.length)));
  return { queries, keys, weights: rows(weights), ...(truth && { truth: rows(truth) }) };
}

export const heatMap = {
  id: "map",
  label: "Heat map",
  accepts: () => true,
  arrays: (record) => ({ weights: record.weights, truth: record.truth }),
  Component: HeatMap,
  values,
  svg: drawnMap,
};
