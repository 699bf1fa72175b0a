// The main job in a real Neovim, with the documented configuration.
import assert from "node:assert/strict";
import path from "node:path";
import { test } from "node:test";
import { ROOT } from "./code.ts";
import { runEditor } from "./documentation.ts";

test("a forgotten all-reduce in Neovim: found, explained, fixed", async (context) => {
  const nvim = path.join(ROOT, ".e2e/neovim/bin/nvim");
  const script = path.join(ROOT, "tests/e2e/neovim.lua");
  const { code, output } = await runEditor(nvim, ["--headless", "--clean", "-c", `luafile ${script}`], "lua", "mlp_missing_all_reduce.py");
  context.diagnostic(output);
  assert.equal(code, 0, output);
});
