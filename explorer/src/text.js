// How tokens and numbers are shown. Tokens reach the page as text nodes, canvas text or input values, never as markup.

const ELLIPSIS = "…";
// Controls, and characters that order or end lines or reorder text: shown by their code points.
const UNSAFE = /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb]|[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/g;
const code = (character) => `[U+${character.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}]`;
const segmenter = Intl.Segmenter ? new Intl.Segmenter(undefined, { granularity: "grapheme" }) : null;

function graphemes(text) {
  return segmenter ? Array.from(segmenter.segment(text), (part) => part.segment) : Array.from(text);
}

const PLAIN = /^[!-~]+$/; // printable ASCII

// A text of any length, cut to so many characters without looking at the rest; what would be invisible is named.
export function short(text, length = 24) {
  if (text.length <= length && PLAIN.test(text)) return text;
  const start = text.slice(0, 4 * length);
  const parts = graphemes(start).slice(0, length);
  const kept = parts.join("").slice(0, 2 * length);
  const end = kept.length < text.length ? ELLIPSIS : "";
  const shown = kept.replace(UNSAFE, code).replace(/^ +| +$/g, (spaces) => "␣".repeat(spaces.length));
  return shown === "" && end === "" ? "[empty]" : shown + end;
}

// The labels of maps and stacks.
export const FONT = '11px system-ui, -apple-system, "Segoe UI", "Helvetica Neue", Arial, sans-serif';

// The text, cut to so many pixels in the font of the context.
export function cut(context, text, room) {
  if (context.measureText(text).width <= room) return text;
  const characters = Array.from(text);
  while (characters.length > 1 && context.measureText(`${characters.join("")}…`).width > room) characters.pop();
  return `${characters.join("")}…`;
}

// The direction of running text: that of most of its tokens. dir="auto" would not look into isolated tokens.
export function direction(tokens) {
  let balance = 0;
  for (const token of tokens) {
    const letters = token.slice(0, 64);
    if (/^[^\p{L}]*[\p{Script=Arabic}\p{Script=Hebrew}\p{Script=Syriac}\p{Script=Thaana}\p{Script=Nko}]/u.test(letters)) balance += 1;
    else if (/\p{L}/u.test(letters) && !/^<.*>$/.test(letters)) balance -= 1;
  }
  return balance > 0 ? "rtl" : "ltr";
}

// Whether `short` shows all of it as it is.
export function isWhole(text, length = 24) {
  return text.length <= 4 * length && short(text, length) === text;
}

// The shortest decimal that is this float32.
export function exact(value) {
  if (Number.isNaN(value)) return "none";
  for (let digits = 1; digits < 9; digits++) {
    const found = Number(value.toPrecision(digits));
    if (Math.fround(found) === value) return String(found);
  }
  return String(Number(value.toPrecision(9)));
}

// Three decimals, for a look; a positive number never looks like zero.
export function rounded(value) {
  if (Number.isNaN(value)) return "–";
  const found = Math.abs(value) < 9.9995 ? value.toFixed(3) : value.toPrecision(4);
  return value !== 0 && Number(found) === 0 ? (value > 0 ? "<0.001" : ">−0.001") : found.replace("-", "−");
}

export const count = (number) => number.toLocaleString("en");
