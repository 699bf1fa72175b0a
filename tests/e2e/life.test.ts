// What happens to a workspace in the course of a day, in a real VS Code: other branches, other editors, broken configuration, files and processes that go away.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { rmSync, writeFileSync } from "node:fs";
import path from "node:path";
import { after, afterEach, before, describe, type TestContext, test } from "node:test";
import { Code, example, FIRST_CHECK, until } from "./code.ts";

const FILE = "mlp_missing_all_reduce.py";
const SOURCE = example(FILE);
const MENDED = SOURCE.replace("        return y\n", "        dist.all_reduce(y, group=self.group)\n        return y\n");
const CULPRIT = "y = self.down(h)";
const CULPRIT_LINE = SOURCE.split("\n").findIndex((line) => line.includes(CULPRIT)) + 1;
const CONFIGURATION = '[tool.graphguard]\nchecks = ["*.py"]\n';

describe("a day in VS Code", () => {
  let code: Code;
  const write = (name: string, text: string) => writeFileSync(path.join(code.workspace, name), text);
  const git = (...args: string[]) => execFileSync("git", ["-c", "user.name=A", "-c", "user.email=a@b", ...args], { cwd: code.workspace, stdio: "pipe" });
  const status = async (wanted: RegExp) => until(String(wanted), async () => wanted.test(await code.languageStatus()), FIRST_CHECK);
  const menu = () => code.page.locator(".action-widget:visible").first();

  before(async () => {
    code = await Code.start({ files: { [FILE]: SOURCE, "pyproject.toml": CONFIGURATION } });
    await code.open(FILE, CULPRIT_LINE);
  });

  after(() => code.stop());

  afterEach(async (context) => {
    if (!(context as TestContext & { readonly passed: boolean }).passed) {
      await code.shot(`failed-${context.name.replaceAll(/\W+/g, "-").slice(0, 40)}`);
    }
  });

  test("the menu waits for a fix that is still being proved", async () => {
    await code.page.locator(".squiggly-error").first().waitFor({ timeout: FIRST_CHECK });
    await code.click(CULPRIT, "down");
    // The editor closes an open menu when findings change, as they do when a fix is found: then it is opened again.
    await until(
      "a menu with the fix",
      async () => {
        await code.page.keyboard.press("Control+.");
        await menu().waitFor({ timeout: 3000 }).catch(() => undefined);
        const looking = menu().getByText("Looking for a proved fix").first();
        if (await looking.isVisible()) {
          await code.shot("looking");
          await looking.click({ timeout: 2000 }).catch(() => undefined);
        }
        const fix = menu().getByText("all_reduce").first();
        return fix.waitFor({ timeout: 5000 }).then(
          () => true,
          () => false,
        );
      },
      FIRST_CHECK,
    );
    await code.page.keyboard.press("Escape");
    await status(/1 broken/);
  });

  test("a rule's page is read, not saved", async () => {
    await code.command("GraphGuard: Explain Rule");
    await code.page.locator(".quick-input-widget .monaco-list-row", { hasText: "missing-reduction" }).first().click();
    await code.webview().locator("h1", { hasText: "missing-reduction" }).waitFor();
    await code.shot("explained");
    assert.equal(await code.page.locator(".tab", { hasText: "Untitled" }).count(), 0);
    await code.command("View: Close Editor");
    await code.page.locator(".tab", { hasText: "Preview" }).waitFor({ state: "detached" });
  });

  test("another branch is another verdict", async () => {
    git("init", "-q", "-b", "main");
    git("add", ".");
    git("commit", "-q", "-m", "broken");
    git("checkout", "-q", "-b", "mended");
    write(FILE, MENDED);
    git("commit", "-q", "-a", "-m", "mended");
    await status(/1 refine/);
    git("checkout", "-q", "main");
    await status(/1 broken/);
    await code.shot("branch");
  });

  test("two editors on one workspace agree", async () => {
    const other = await code.page.context().newPage();
    await other.goto(code.page.url());
    await other.locator(".squiggly-error").first().waitFor({ timeout: FIRST_CHECK });
    write(FILE, MENDED);
    await other.locator(".squiggly-error").first().waitFor({ state: "detached", timeout: FIRST_CHECK });
    await status(/1 refine/);
    await other.close();
    write(FILE, SOURCE);
    await status(/1 broken/);
  });

  test("a configuration that cannot be read is a problem at its line, and the results stay", async () => {
    write("pyproject.toml", `${CONFIGURATION}timeuot = 3\n`);
    await status(/did you mean 'timeout'/);
    await code.command("View: Toggle Problems");
    await code.page.locator(".markers-panel .monaco-list-row", { hasText: "did you mean 'timeout'" }).first().waitFor();
    await code.shot("configuration");
    await status(/1 broken/);
    write("pyproject.toml", CONFIGURATION);
    await code.page.locator(".markers-panel .monaco-list-row", { hasText: "did you mean 'timeout'" }).first().waitFor({ state: "detached" });
    await code.command("View: Toggle Problems");
  });

  test("processes that are killed come back, and so does the verdict", async () => {
    const found = ["trace/__main__.py", "proving.prover"].map((name) => code.processes(name));
    assert(found.every((pids) => pids.length > 0));
    for (const pid of found.flat()) {
      try {
        process.kill(pid, "SIGKILL");
      } catch {
        continue; // it ended with the one before
      }
    }
    await code.click(CULPRIT, "down");
    await code.page.keyboard.press("End");
    await code.page.keyboard.type(" * 1");
    await until("the fresh mark", async () => (await code.gutter()).includes("broken"), FIRST_CHECK);
    await status(/1 broken/);
    for (let time = 0; time < 4; time += 1) {
      await code.page.keyboard.press("Backspace");
    }
    await code.page.keyboard.press("Control+s");
  });

  test("a file that is deleted while it is open keeps its findings until it is closed", async () => {
    rmSync(path.join(code.workspace, FILE));
    await code.page.waitForTimeout(2000); // whatever its going away sets off has happened by then
    assert(/1 broken/.test(await code.languageStatus()));
    await code.shot("deleted");
  });
});
