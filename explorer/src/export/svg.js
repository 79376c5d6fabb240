// Parts of an SVG file. Everything is made with the DOM, which escapes text and attributes.
import { colour } from "../colours.js";

const SVG = "http://www.w3.org/2000/svg";
const FAMILY = "system-ui, -apple-system, 'Segoe UI', 'Helvetica Neue', Arial, sans-serif";

export function svgElement(name, attributes) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) if (value !== undefined) element.setAttribute(key, value);
  return element;
}

export function svgText(text, x, y, { ink, size = 11, anchor, turned, weight, family = FAMILY }) {
  const element = svgElement("text", {
    x,
    y,
    fill: ink,
    "font-size": size,
    "font-family": family,
    "font-weight": weight,
    "text-anchor": anchor,
    transform: turned ? `rotate(-90 ${x} ${y})` : undefined,
  });
  element.setAttribute("xml:space", "preserve");
  element.textContent = text;
  return element;
}

export function svgImage(href, x, y, width, height) {
  return svgElement("image", { href, x, y, width, height, preserveAspectRatio: "none", "image-rendering": "pixelated" });
}

export function svgDocument(width, height, parts) {
  const root = svgElement("svg", { width, height, viewBox: `0 0 ${width} ${height}` });
  root.append(svgElement("rect", { width, height, fill: colour("--paper") }), ...parts);
  return root;
}
