// The main job in a real VS Code: see the line that breaks refinement, understand it, apply the proved fix, see it proved.
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { Code } from "./code.ts";

const FILE = "mlp.py";
const SOURCE = `import torch
import torch.distributed as dist


class P(torch.nn.Module):
    def forward(self, x):
        h = torch.relu(x @ self.up.t())
        return h @ self.down.t()
`;

describe("a forgotten all-reduce in VS Code", () => {
  let code: Code;

  before(async () => {
    code = await Code.start({ files: { [FILE]: SOURCE } });
    await code.open(FILE);
  });

  after(() => code.stop());

  test("is marked at its line", async () => {
    await code.page.locator(".squiggly-error").first().waitFor();
    await code.shot("squiggle");
  });

  test("is explained by the hover", async () => {
    const hover = await code.hover("return h @", "h @ self.down", "is a partial sum over axis 'tp'");
    await code.shot("hover");
    assert.match(await hover.innerText(), /missing-reduction/);
  });

  test("goes when the proved fix is applied", async () => {
    await code.click("return h @", "self.down");
    await code.page.keyboard.press("Control+.");
    const menu = code.page.locator(".action-widget:visible").first();
    await menu.getByText("(proved)").first().waitFor();
    await code.shot("fix");
    await code.page.keyboard.press("Enter");
    await code.page.locator(".squiggly-error").first().waitFor({ state: "detached" });
    await code.save(FILE, /dist\.all_reduce\(/);
    await code.shot("fixed");
  });
});
