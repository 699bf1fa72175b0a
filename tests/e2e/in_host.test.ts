// Tests inside a real extension host, on the unpacked package.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { existsSync, mkdirSync, rmSync } from "node:fs";
import path from "node:path";
import { test } from "node:test";
import { build } from "esbuild";
import { Code, example, extensionPackage, ROOT } from "./code.ts";

const FILE = "mlp_missing_all_reduce.py";

test("the packaged extension inside an extension host", async (context) => {
  const folder = path.join(ROOT, ".e2e/unpacked");
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder, { recursive: true });
  // A .vsix is a zip archive; Python's reader is there wherever the tests run.
  execFileSync(path.join(ROOT, ".e2e/torch/bin/python"), ["-m", "zipfile", "-e", extensionPackage(), folder]);
  assert.ok(existsSync(path.join(folder, "extension/package.json")));
  const suite = path.join(folder, "suite.js");
  await build({ entryPoints: [path.join(ROOT, "tests/e2e/in_host/index.ts")], outfile: suite, bundle: true, platform: "node", format: "cjs", external: ["vscode"] });

  const code = await Code.start({ files: { [FILE]: example(FILE) }, install: false });
  try {
    const lines: string[] = [];
    const ended = code.runInHost(FILE, path.join(folder, "extension"), suite, (line) => lines.push(line));
    const status = await ended;
    context.diagnostic(lines.filter((line) => line.startsWith("ok ")).join("\n"));
    assert.equal(status, 0, lines.join("\n"));
    assert.equal(lines.filter((line) => line.startsWith("ok ")).length, 7);
  } finally {
    await code.stop();
  }
});
