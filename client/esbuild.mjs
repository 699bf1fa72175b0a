// Bundles the extension (Node) and the relation explorer (webview) into client/dist.
import { build } from "esbuild";

const shared = { bundle: true, minify: !process.argv.includes("--debug"), logLevel: "warning", legalComments: "none" };

await build({
  ...shared,
  entryPoints: ["client/src/extension.ts"],
  outfile: "client/dist/extension.js",
  platform: "node",
  target: "node20",
  format: "cjs",
  external: ["vscode"],
  sourcemap: process.argv.includes("--debug"),
});

await build({
  ...shared,
  entryPoints: ["client/webview/explorer.ts", "client/webview/explorer.css"],
  outdir: "client/dist",
  platform: "browser",
  target: "chrome120",
  format: "iife",
});
