// What is on the page as SVG: boxes, text, canvases and drawings of an element, with their computed colours. Text stays
// text, so the file can be edited; nothing of it is HTML.
import { colour } from "../colours.js";
import { svgDocument, svgElement, svgImage, svgText } from "./svg.js";

const DRAWN = ["fill", "stroke", "stroke-width", "stroke-opacity", "fill-opacity", "opacity", "font-size", "font-family", "font-weight", "text-anchor", "dominant-baseline"];
const SKIPPED = "button:not([data-index]), select, input, textarea, details, .options, .hidden, .slider";

const numbersIn = (value) => (value.match(/-?[\d.]+(?:e-?\d+)?/g) ?? []).map(Number);

// A computed colour as other programs read it, which know rgb() but not color(); "none" where nothing is seen.
export function plainColour(value) {
  const numbers = numbersIn(value);
  if (value === "transparent" || (numbers.length === 4 && numbers[3] === 0)) return "none";
  if (!value.startsWith("color(srgb")) return value;
  return `rgb(${numbers.slice(0, 3).map((part) => Math.round(255 * part)).join(", ")})`;
}

// How much of the box of a cell is filled, where it shows a probability so.
function filledPart(element, rect, origin) {
  const part = parseFloat(element.style.getPropertyValue("--part"));
  if (!element.matches(".cell") || !(part > 0)) return null;
  const [x, y] = [rect.left - origin.left, rect.top - origin.top];
  return svgElement("rect", { x, y, width: (rect.width * part) / 100, height: rect.height, fill: colour("--mark"), "fill-opacity": 0.17, rx: 6 });
}

function boxOf(style, rect, origin) {
  const bordered = parseFloat(style.borderTopWidth) > 0 && style.borderTopStyle !== "none";
  const border = bordered ? plainColour(style.borderTopColor) : "none";
  const fill = plainColour(style.backgroundColor);
  if ((fill === "none" && border === "none") || rect.width === 0 || rect.height === 0) return null;
  const radius = parseFloat(style.borderTopLeftRadius) || undefined;
  return svgElement("rect", { x: rect.left - origin.left, y: rect.top - origin.top, width: rect.width, height: rect.height, fill, stroke: border, rx: radius });
}

// The lines of a text node, each as text at its place.
function linesOf(node, style, origin) {
  const range = document.createRange();
  const lines = [];
  let last = null;
  const characters = Array.from(node.data);
  let offset = 0;
  for (const character of characters) {
    range.setStart(node, offset);
    range.setEnd(node, (offset += character.length));
    const rect = range.getBoundingClientRect();
    if (rect.width === 0) continue;
    if (last && Math.abs(rect.top - last.rect.top) < 3) last.text += character;
    else lines.push((last = { rect, text: character }));
    last.left = Math.min(last.left ?? rect.left, rect.left);
  }
  return lines
    .filter(({ text }) => text.trim() !== "")
    .map(({ rect, text, left }) =>
      svgText(text, left - origin.left, rect.bottom - origin.top - rect.height * 0.24, { ink: plainColour(style.color), size: parseFloat(style.fontSize), weight: style.fontWeight, family: style.fontFamily }),
    );
}

function drawing(element, rect, origin) {
  const copy = element.cloneNode(true);
  const originals = [element, ...element.querySelectorAll("*")];
  [copy, ...copy.querySelectorAll("*")].forEach((part, index) => {
    const style = getComputedStyle(originals[index]);
    for (const name of DRAWN) part.setAttribute(name, plainColour(style.getPropertyValue(name)));
    for (const name of ["fill", "stroke"]) {
      const opacity = numbersIn(style.getPropertyValue(name))[3];
      if (opacity !== undefined) part.setAttribute(`${name}-opacity`, opacity);
    }
    for (const name of ["class", "tabindex", "role", "style"]) part.removeAttribute(name);
  });
  copy.setAttribute("x", rect.left - origin.left);
  copy.setAttribute("y", rect.top - origin.top);
  copy.setAttribute("overflow", "visible");
  return copy;
}

function collect(element, origin, parts) {
  if (element.matches(SKIPPED)) return;
  const style = getComputedStyle(element);
  if (style.display === "none" || style.visibility === "hidden") return;
  const rect = element.getBoundingClientRect();
  if (element instanceof HTMLCanvasElement) {
    parts.push(svgImage(element.toDataURL(), rect.left - origin.left, rect.top - origin.top, rect.width, rect.height));
    return;
  }
  if (element instanceof SVGSVGElement) {
    parts.push(drawing(element, rect, origin));
    return;
  }
  const box = boxOf(style, rect, origin);
  if (box) parts.push(box);
  const filled = filledPart(element, rect, origin);
  if (filled) parts.push(filled);
  for (const child of element.childNodes) {
    if (child.nodeType === Node.TEXT_NODE) parts.push(...linesOf(child, style, origin));
    else if (child.nodeType === Node.ELEMENT_NODE) collect(child, origin, parts);
  }
}

export function pageSvg(element) {
  const origin = element.getBoundingClientRect();
  const parts = [];
  collect(element, origin, parts);
  return svgDocument(Math.ceil(Math.max(origin.width, element.scrollWidth)), Math.ceil(origin.height), parts);
}
