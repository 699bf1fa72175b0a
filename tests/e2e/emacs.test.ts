// The main job in a real Emacs with eglot, with the documented configuration.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import path from "node:path";
import { test } from "node:test";
import { ROOT } from "./code.ts";
import { runEditor } from "./documentation.ts";

const missing = spawnSync("emacs", ["--version"]).status !== 0 && "Emacs is not installed and could not be";

test("a forgotten all-reduce in Emacs: found, explained, fixed", { skip: missing }, async (context) => {
  const script = path.join(ROOT, "tests/e2e/emacs.el");
  const { code, output } = await runEditor("emacs", ["--batch", "-l", script], "elisp", "mlp_missing_all_reduce.py");
  context.diagnostic(output);
  assert.equal(code, 0, output);
});
