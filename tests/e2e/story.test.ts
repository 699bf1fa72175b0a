// The main job in a real VS Code, with the real server and worker: see the line that breaks refinement, understand it, apply the proved fix, see it proved.
import assert from "node:assert/strict";
import { after, afterEach, before, describe, type TestContext, test } from "node:test";
import { Code, example, FIRST_CHECK, until } from "./code.ts";

const FILE = "mlp_missing_all_reduce.py";
const SOURCE = example(FILE);
const CULPRIT = "y = self.down(h)";
const HINT = ": Partial(sum) over tp";
const CULPRIT_LINE = SOURCE.split("\n").findIndex((line) => line.includes(CULPRIT)) + 1;

for (const build of ["code", "oldest-code"] as const) {
  describe(`a forgotten all-reduce in VS Code (${build})`, () => {
    let code: Code;
    const shot = async (name: string) => (build === "code" ? code.shot(name) : code.shot(`${name}-${build}`));

    before(async () => {
      code = await Code.start({ files: { [FILE]: SOURCE }, build });
      await code.open(FILE, CULPRIT_LINE);
    });

    after(() => code.stop());

    afterEach(async (context) => {
      if (!(context as TestContext & { readonly passed: boolean }).passed) {
        await shot(`failed-${context.name.replaceAll(/\W+/g, "-").slice(0, 40)}`);
      }
    });

    test("is marked at its line", async () => {
      await code.page.locator(".squiggly-error").first().waitFor({ timeout: FIRST_CHECK });
      await until("the mark in the gutter", async () => (await code.gutter()).includes("broken"));
      await code.page.locator(".codelens-decoration", { hasText: "broken" }).first().waitFor();
      await shot("squiggle");
    });

    test("is explained by the hover, with the relation", async () => {
      const hover = await code.hover(CULPRIT, "down", "missing-reduction");
      const text = await hover.innerText();
      assert.match(text, /partial sum/);
      assert.match(text, /Partial\(sum\) over tp/);
      await shot("hover");
    });

    test("is counted in the language status", async () => {
      await until("the count", async () => /1 broken/.test(await code.languageStatus()));
    });

    test("fails in the Test Explorer, at its line and with its counterexample", async () => {
      await code.command("Testing: Focus on Test Explorer View");
      const rows = code.page.locator(".test-explorer .monaco-list-row");
      await rows.first().waitFor();
      await code.command("Test: Run All Tests");
      await code.page.locator(".monaco-editor .contentWidgets > *", { hasText: "partial sum" }).first().waitFor();
      await rows.nth(0).locator(".monaco-tl-twistie").click();
      await rows.nth(1).locator(".monaco-tl-twistie").click();
      const mesh = rows.filter({ hasText: "tp=2" });
      await mesh.waitFor();
      assert.match((await mesh.getAttribute("aria-label")) ?? "", /Failed/);
      await shot("tests");
      await code.page.keyboard.press("Control+b"); // room for what comes
    });

    test("is shown by the relation explorer, which follows the cursor", async () => {
      await code.click(CULPRIT, "down");
      await code.command("GraphGuard: Open Relation Explorer");
      const view = code.webview();
      await view.locator(".line.row.broken", { hasText: "needed: y: Replicate" }).waitFor();
      await code.click("h = F.gelu", "gelu");
      await view.locator(".line.focus", { hasText: "h = F.gelu(self.up(x))" }).waitFor();
      await code.click(CULPRIT, "down");
      await view.locator(".line.focus.broken", { hasText: CULPRIT }).waitFor();
      await shot("explorer");
      await code.command("View: Close Other Editors in Group");
    });

    test("is out of date while one types", async () => {
      await code.click(CULPRIT, "down");
      await code.page.keyboard.press("End");
      await code.page.keyboard.type(" * 1");
      await until("the pale mark", async () => (await code.gutter()).some((name) => name.startsWith("stale")));
      for (let time = 0; time < 4; time += 1) {
        await code.page.keyboard.press("Backspace");
      }
      await until("the fresh mark", async () => (await code.gutter()).includes("broken"));
    });

    test("goes when the proved fix is applied", async () => {
      await code.click(CULPRIT, "down");
      // The finding is shown at once, its fixes when they are proved: the menu is opened until it has one.
      await until("a proved fix", async () => {
        await code.page.keyboard.press("Control+.");
        const fix = code.page.locator(".action-widget:visible").first().getByText("all_reduce").first();
        const offered = await fix.waitFor({ timeout: 2000 }).then(
          () => true,
          () => false,
        );
        if (!offered) {
          await code.page.keyboard.press("Escape");
        }
        return offered;
      });
      await shot("fix");
      await code.page.keyboard.press("Enter");
      await code.page.locator(".squiggly-error").first().waitFor({ state: "detached" });
      await code.save(FILE, /dist\.all_reduce\(/);
      await until("the proof in the status", async () => /1 refine/.test(await code.languageStatus()));
      await until("the mark in the gutter", async () => (await code.gutter()).includes("proved"));
      // Nothing of the picture before may be left in the one after.
      const view = code.webview();
      await view.locator(".line.row", { hasText: "all_reduce" }).filter({ hasText: "Replicate" }).first().waitFor();
      await view.locator(".line.broken").first().waitFor({ state: "detached" });
      await shot("fixed");
    });
  });
}

describe("inlay hints, asked for in the settings", () => {
  let code: Code;

  before(async () => {
    code = await Code.start({ files: { [FILE]: SOURCE }, settings: { "graphguard.inlayHints": true } });
    await code.open(FILE, CULPRIT_LINE);
  });

  after(() => code.stop());

  test("say the layout, and keep still but pale while one types", async () => {
    const fresh = await until("the hint", async () => code.colourOf(HINT), FIRST_CHECK);
    await code.shot("hints");
    await code.click("self.down(h)", "down");
    await code.page.keyboard.press("End");
    await code.page.keyboard.type(" * 1");
    await until("the pale hint", async () => ![undefined, fresh].includes(await code.colourOf(HINT)));
    await code.shot("hints-stale");
    await until("the fresh hint", async () => (await code.colourOf(HINT)) === fresh);
  });
});
