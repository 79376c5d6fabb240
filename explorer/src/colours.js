// The colours of the style sheet, for drawing on a canvas, and scales of them.

export function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function channels(hex) {
  return [1, 3, 5].map((start) => parseInt(hex.slice(start, start + 2), 16));
}

// Return 256 colours between those given as #rrggbb, as the 32-bit pixels of an ImageData.
export function pixelScale(stops) {
  const parts = stops.map(channels);
  const pixels = new Uint32Array(256);
  for (let i = 0; i < 256; i++) {
    const place = (i / 255) * (parts.length - 1);
    const low = Math.min(parts.length - 2, Math.floor(place));
    const [red, green, blue] = parts[low].map((value, k) =>
      Math.round(value + (parts[low + 1][k] - value) * (place - low)),
    );
    pixels[i] = (255 << 24) | (blue << 16) | (green << 8) | red;
  }
  return pixels;
}

const stops = (prefix, length) => Array.from({ length }, (_, i) => colour(`${prefix}-${i}`));

// From 0 to the largest weight.
export const sequentialScale = () => pixelScale(stops("--scale", 5));

// From the most negative to the most positive difference.
export const divergingScale = () => pixelScale(stops("--diverging", 5));

export const cssScale = (prefix) => `linear-gradient(to right, ${stops(prefix, 5).join(",")})`;
