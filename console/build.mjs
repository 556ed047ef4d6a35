// Bundles src/ into the files that the server hands out. The same sources give the same bytes.
import { build } from "esbuild";
import { copyFile, mkdir } from "node:fs/promises";
import { fileURLToPath } from "node:url";

const here = (path) => fileURLToPath(new URL(path, import.meta.url));
const out = process.argv[2] ?? here("../src/topics/http/console/built");

const licenses = `/*! Contains Preact (c) 2015-present Jason Miller and uPlot (c) 2022 Leon Sorokin,
 * both under the MIT License: https://opensource.org/license/mit */`;

await mkdir(out, { recursive: true });
await build({
  entryPoints: [{ in: here("src/main.jsx"), out: "console" }],
  outdir: out,
  bundle: true,
  minify: true,
  format: "esm",
  target: ["es2022"],
  jsx: "automatic",
  jsxImportSource: "preact",
  legalComments: "none",
  banner: { js: licenses },
  logLevel: "warning",
});
for (const name of ["index.html", "console.svg"]) {
  await copyFile(here(`src/${name}`), `${out}/${name}`);
}
