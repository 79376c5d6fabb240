// The weights of a head as a heat map: rows are queries, columns keys. The map is drawn once as an image of one pixel
// for each weight; the canvas has the size of the window that scrolls over it, whatever the number of tokens.
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { colour, cssScale, sequentialScale } from "../colours.js";
import { useSize, useThemeVersion } from "../hooks.js";
import { KeyList } from "../key-list.jsx";
import { keyPosition, keysOf, queriesOf } from "../records.js";
import { cut, exact, FONT, rounded, short } from "../text.js";
import { drawnMap } from "./heat-map-svg.js";

const LABEL = 11; // pixels from one label to the next
const LARGEST_CELL = 40;
const SIZES = [2, 4, 8, 16, 28];
const SCALES = { linear: "linear", sqrt: "square root", row: "each row by its maximum" };
const PAGE = 10; // rows
const MEASURED = 32; // labels
const SIDE = 340; // pixels of the list of keys and the space before it
const TOGETHER = 760; // pixels of a window in which both stand side by side

export function largest(weights, start = 0, end = weights.length) {
  let found = 0;
  for (let index = start; index < end; index++) if (weights[index] > found) found = weights[index];
  return found;
}

// Return a canvas with one pixel for each weight.
export function weightImage(weights, rows, columns, scale, maximum = largest(weights)) {
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [columns, rows];
  const image = new ImageData(columns, rows);
  const pixels = new Uint32Array(image.data.buffer);
  const palette = sequentialScale();
  for (let row = 0, index = 0; row < rows; row++) {
    const top = (scale === "row" ? largest(weights, index, index + columns) : maximum) || 1;
    for (const end = index + columns; index < end; index++) {
      const part = weights[index] / top;
      pixels[index] = palette[part > 0 ? Math.round(255 * Math.min(1, scale === "sqrt" ? Math.sqrt(part) : part)) : 0];
    }
  }
  canvas.getContext("2d").putImageData(image, 0, 0);
  return canvas;
}

// The width of the longest labels; to measure all of them would take longer than to draw the map.
function labelWidth(tokens, limit) {
  const context = document.createElement("canvas").getContext("2d");
  context.font = FONT;
  const longest = [...tokens].sort((one, other) => other.length - one.length).slice(0, MEASURED);
  const found = Math.max(...longest.map((token) => context.measureText(token).width));
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

// Draw the labels of the visible rows, or of the columns, turned by 90 degrees.
function drawLabels(context, texts, { cell, offset, first, room, extent, turned }, ink) {
  const step = Math.max(1, Math.ceil(LABEL / cell));
  const last = Math.min(texts.length, Math.ceil((first + extent - offset) / cell));
  context.textBaseline = "middle";
  context.textAlign = turned ? "left" : "right";
  context.fillStyle = ink;
  context.font = FONT;
  for (let index = Math.ceil(first / cell / step - 0.5 / step) * step; index < last; index += step) {
    const middle = offset + (index + 0.5) * cell - first;
    context.save();
    context.translate(turned ? middle : room, turned ? room : middle);
    if (turned) context.rotate(-Math.PI / 2);
    context.fillText(cut(context, texts[index], room - 6), 0, 0);
    context.restore();
  }
}

function draw(canvas, { image, geometry, scroll, labels, truth }) {
  const ratio = devicePixelRatio || 1;
  const [width, height] = [canvas.clientWidth, canvas.clientHeight];
  [canvas.width, canvas.height] = [Math.round(width * ratio), Math.round(height * ratio)];
  const context = canvas.getContext("2d");
  context.scale(ratio, ratio);
  const { left, top, cell } = geometry;
  const [mapWidth, mapHeight] = [image.width * cell, image.height * cell];
  context.fillStyle = colour("--paper");
  context.fillRect(0, 0, width, height);
  context.save();
  context.beginPath();
  context.rect(left, top, Math.min(width - left, mapWidth), Math.min(height - top, mapHeight));
  context.clip();
  context.imageSmoothingEnabled = cell < 1;
  context.drawImage(image, left - scroll.x, top - scroll.y, mapWidth, mapHeight);
  if (truth && cell >= 5) drawTruth(context, truth, image, geometry, scroll, { width, height });
  context.restore();
  context.strokeStyle = colour("--line");
  context.strokeRect(left - 0.5, top - 0.5, Math.min(width - left, mapWidth + 1), Math.min(height - top, mapHeight + 1));
  const ink = colour("--muted");
  drawLabels(context, labels.rows, { cell, offset: top, first: scroll.y, room: left - 6, extent: height, turned: false }, ink);
  drawLabels(context, labels.columns, { cell, offset: left, first: scroll.x, room: top - 6, extent: width, turned: true }, ink);
}

// Mark the true dependencies with a dot.
function drawTruth(context, truth, image, { left, top, cell }, scroll, { width, height }) {
  const last = { row: Math.ceil((height - top + scroll.y) / cell), column: Math.ceil((width - left + scroll.x) / cell) };
  context.fillStyle = colour("--accent");
  for (let row = Math.floor(scroll.y / cell); row < Math.min(image.height, last.row); row++)
    for (let column = Math.floor(scroll.x / cell); column < Math.min(image.width, last.column); column++) {
      if (!(truth[row * image.width + column] > 0)) continue;
      const [x, y] = [left + (column + 0.5) * cell - scroll.x, top + (row + 0.5) * cell - scroll.y];
      context.beginPath();
      context.arc(x, y, Math.min(3.5, cell / 5), 0, 7);
      context.fill();
    }
}

const box = (left, top, width, height) => ({ left: `${left}px`, top: `${top}px`, width: `${width}px`, height: `${height}px` });

// The active cell, its row and column, and their labels: elements over the canvas, so that hovering draws no map.
function Active({ row, column, geometry: { left, top, cell }, scroll, labels }) {
  const [x, y] = [left + column * cell - scroll.x, top + row * cell - scroll.y];
  return (
    <>
      <div class="overlay" style={{ left: `${left}px`, top: `${top}px` }}>
        <div class="band" style={box(-2, y - top - 1, 1e4, cell + 2)} />
        <div class="band" style={box(x - left - 1, -2, cell + 2, 1e4)} />
        <div class="active" style={box(x - left - 2, y - top - 2, cell + 4, cell + 4)} />
      </div>
      {y + cell / 2 >= top && <span class="active-label row-label" style={{ top: `${y + cell / 2}px`, width: `${left - 4}px` }}><bdi>{labels.rows[row]}</bdi></span>}
      {x + cell / 2 >= left && <span class="active-label column-label" style={{ left: `${x + cell / 2}px`, height: `${top - 4}px` }}><bdi>{labels.columns[column]}</bdi></span>}
    </>
  );
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
  const labels = useMemo(
    () => ({ rows: queries.map((each) => short(each, 16)), columns: keys.map((each) => short(each, 16)) }),
    [example, record.queries, record.keys, record.bottom],
  );
  const geometry = useMemo(() => geometryOf(labels.rows, labels.columns, room, SIZES.includes(Number(state.cell)) ? Number(state.cell) : 0), [labels, room, state.cell]);
  const maximum = useMemo(() => largest(weights), [weights]);
  const image = useMemo(() => weightImage(weights, queries.length, keys.length, scale, maximum), [weights, scale, theme]);
  const active = hover && hover.row < queries.length && hover.column < keys.length ? hover : { row, column }; // it may be of another example
  useLayoutEffect(() => {
    if (size.width) draw(canvas.current, { image, geometry, scroll, labels, truth });
  }, [image, geometry, scroll, labels, truth, size.width, size.height]);
  const list = useMemo(() => <KeyList {...{ record, queries, keys, weights, row, place }} />, [record, weights, row, column]);
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
            <div class="window" style={{ width: `${Math.min(room, geometry.width + 2)}px`, height: `${Math.min(geometry.height + 2, Math.max(320, Math.round(innerHeight * 0.72)))}px` }}
            >
            <canvas
              ref={canvas}
              data-left={geometry.left}
              data-top={geometry.top}
              data-cell={geometry.cell}
              onPointerMove={(event) => setHover(cellAt(event))}
              onPointerDown={(event) => setHover(cellAt(event))}
              onPointerLeave={(event) => event.pointerType === "mouse" && setHover(null)}
              onClick={(event) => cellAt(event) && place.select(cellAt(event))}
            />
            <Active {...active} {...{ geometry, scroll, labels }} />
            </div>
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
      {list}
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
