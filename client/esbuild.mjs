// Bundles the extension (Node) and its webviews (browser) into client/dist.
import { build } from "esbuild";
import { copyFileSync } from "node:fs";

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

// ELK's layout runs in a worker of its own and comes as one script.
copyFileSync("node_modules/elkjs/lib/elk-worker.min.js", "client/dist/layout.js");
