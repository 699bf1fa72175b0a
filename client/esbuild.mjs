// Bundles the extension (Node) and its webviews (browser) into client/dist.
import { build } from "esbuild";

const debug = process.argv.includes("--debug");
const shared = { bundle: true, minify: !debug, sourcemap: debug, logLevel: "warning", legalComments: "none" };

await build({
  ...shared,
  entryPoints: ["client/src/extension.ts"],
  outfile: "client/dist/extension.js",
  platform: "node",
  target: "node20",
  format: "cjs",
  external: ["vscode"],
});

await build({
  ...shared,
  entryPoints: ["client/webview/explorer.ts", "client/webview/matrix.ts", "client/webview/explorer.css"],
  outdir: "client/dist",
  platform: "browser",
  target: "chrome120",
  format: "iife",
});
