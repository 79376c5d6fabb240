// Recordings in the page: one JSON element for each, and one element for each of its arrays, decoded on demand.
// docs/records.md describes the format.

const CACHE_BYTES = 256 * 2 ** 20;
const TYPES = { float32: Float32Array, int32: Int32Array };

// A parser that is still at work may have appended only a part of the text of the last element.
function isComplete(element) {
  return element !== null && (element.nextElementSibling !== null || document.readyState !== "loading");
}

// Return the element once the parser is past it, so that the first head is shown while the others are being parsed.
function parsedElement(id) {
  const find = () => document.getElementById(id);
  if (isComplete(find()) || document.readyState !== "loading") return Promise.resolve(find());
  return new Promise((resolve) => {
    const check = () => {
      if (!isComplete(find()) && document.readyState === "loading") return;
      observer.disconnect();
      document.removeEventListener("readystatechange", check);
      resolve(find());
    };
    const observer = new MutationObserver(check);
    observer.observe(document.body, { childList: true });
    document.addEventListener("readystatechange", check);
  });
}

function fromBase64(text) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
  const characters = atob(text);
  const bytes = new Uint8Array(characters.length);
  for (let i = 0; i < bytes.length; i++) bytes[i] = characters.charCodeAt(i);
  return bytes;
}

// Decode the numbers of an array: base64, then zlib, then little-endian numbers in row-major order.
async function decode(text, { dtype, shape }) {
  const packed = new Blob([fromBase64(text)]).stream();
  const buffer = await new Response(packed.pipeThrough(new DecompressionStream("deflate"))).arrayBuffer();
  const numbers = new TYPES[dtype](buffer);
  const expected = shape.reduce((product, size) => product * size, 1);
  if (numbers.length !== expected) throw new Error(`an array has ${numbers.length} numbers; expected ${expected}`);
  return numbers;
}

// The arrays of one recording. The most recently used are kept decoded, up to 256 MiB.
class Arrays {
  constructor(text) {
    this.text = text;
    this.decoded = new Map();
    this.bytes = 0;
  }

  // The numbers, if they are decoded; otherwise undefined.
  peek(description) {
    return this.decoded.get(description.array);
  }

  async get(description) {
    const found = this.peek(description);
    const numbers = found ?? (await decode(await this.text(description.array), description));
    this.keep(description.array, numbers);
    return numbers;
  }

  keep(index, numbers) {
    if (!this.decoded.delete(index)) this.bytes += numbers.byteLength;
    this.decoded.set(index, numbers);
    for (const [oldest, { byteLength }] of this.decoded) {
      if (this.bytes <= CACHE_BYTES || oldest === index) break;
      this.decoded.delete(oldest);
      this.bytes -= byteLength;
    }
  }
}

// Return a recording. `text(i)` is a promise of string i of its arrays.
export function makeRecording({ run, examples }, text) {
  return { run, examples, arrays: new Arrays(text) };
}

export function readRecordings() {
  return [...document.querySelectorAll("script.recording")].map((element, number) =>
    makeRecording(JSON.parse(element.textContent), async (index) => {
      const found = await parsedElement(`array-${number}-${index}`);
      if (found === null) throw new Error(`array ${index} is missing`);
      return found.textContent;
    }),
  );
}
