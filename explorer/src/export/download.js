// Files that the page saves.

const LARGEST = 8192; // pixels of an edge of a picture

export function save(content, type, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(content instanceof Blob ? content : new Blob([content], { type }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}

export function svgSource(svg) {
  return new XMLSerializer().serializeToString(svg);
}

// Draw an SVG at twice its size, which screens and paper need.
export async function pngOf(svg) {
  const [width, height] = ["width", "height"].map((name) => Number(svg.getAttribute(name)));
  const scale = Math.min(2, LARGEST / width, LARGEST / height);
  const image = new Image();
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(svgSource(svg))}`;
  await image.decode();
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [Math.max(1, Math.round(width * scale)), Math.max(1, Math.round(height * scale))];
  canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
  return new Promise((resolve) => canvas.toBlob(resolve, "image/png"));
}
