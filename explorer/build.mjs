// Bundle src/ into one script and one style sheet, which are committed as data of the Python package.
// `npm ci && npm run build`; tests/explorer/test_build.py checks that the committed files belong to these sources.
import { createHash } from "node:crypto";
import { readFileSync, readdirSync, writeFileSync } from "node:fs";
import { join, relative } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const here = fileURLToPath(new URL(".", import.meta.url));
const target = join(here, "../src/structattn/explorer");

function sourceFiles() {
  const found = readdirSync(join(here, "src"), { recursive: true, withFileTypes: true });
  const paths = found.filter((each) => each.isFile()).map((each) => join(each.parentPath, each.name));
  const settings = ["build.mjs", "package.json", "package-lock.json"].map((name) => join(here, name));
  return [...paths, ...settings].map((path) => relative(here, path).replaceAll("\\", "/")).sort();
}

// The digest of the names and contents of all sources, which Python computes again.
function sourceDigest() {
  const hash = createHash("sha256");
  for (const name of sourceFiles()) {
    const text = readFileSync(join(here, name), "utf8").replaceAll("\r\n", "\n");
    hash.update(`${name}\n${Buffer.byteLength(text)}\n${text}`);
  }
  return hash.digest("hex");
}

// The names and licences of the libraries in the bundle; their licences require them in every copy.
function licences(metafile) {
  const packages = new Set();
  for (const input of Object.keys(metafile.inputs)) {
    const match = input.match(/node_modules\/((?:@[^/]+\/)?[^/]+)\//);
    if (match) packages.add(match[1]);
  }
  return [...packages].sort().map((name) => {
    const folder = join(here, "node_modules", name);
    const { version } = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
    return `${name} ${version}\n\n${readFileSync(join(folder, "LICENSE"), "utf8").trim()}`;
  });
}

async function bundled(entry, options) {
  const result = await build({
    absWorkingDir: here,
    entryPoints: [entry],
    bundle: true,
    minify: true,
    write: false,
    metafile: true,
    legalComments: "none",
    charset: "utf8",
    target: ["chrome110", "firefox115", "safari16.4"],
    ...options,
  });
  return { text: result.outputFiles[0].text.trim(), metafile: result.metafile };
}

const digest = `structattn explorer, sources sha256:${sourceDigest()}`;
const script = await bundled("src/main.jsx", { format: "iife", jsx: "automatic", jsxImportSource: "preact" });
const style = await bundled("src/style.css", {});
const notices = licences(script.metafile).join("\n\n----\n\n");
writeFileSync(join(target, "explorer.js"), `/*! ${digest}\n\n${notices}\n*/\n${script.text}\n`);
writeFileSync(join(target, "explorer.css"), `/*! ${digest} */\n${style.text}\n`);
console.log(`explorer.js ${script.text.length} bytes, explorer.css ${style.text.length} bytes`);
