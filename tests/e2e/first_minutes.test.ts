// From an empty folder to a first verdict by the walkthrough alone, and the verdict matrix.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import path from "node:path";
import { after, before, describe, test } from "node:test";
import { Code, FIRST_CHECK, until } from "./code.ts";

describe("an empty folder", () => {
  let code: Code;

  before(async () => {
    code = await Code.start({ files: { "notes.txt": "nothing yet\n" } });
    await code.open("notes.txt");
  });

  after(() => code.stop());

  test("gets its first check from the walkthrough", async () => {
    await code.command("GraphGuard: Open Walkthrough");
    const walkthrough = code.page.locator(".gettingStartedContainer");
    await walkthrough.getByText("Prove your first distributed layer").first().waitFor();
    await walkthrough.getByText("Write a first check").first().click();
    await code.shot("walkthrough");
    await walkthrough.getByRole("button", { name: "Write a First Check", exact: true }).click();
    await code.line("@gg.check").waitFor();
    assert.match(readFileSync(path.join(code.workspace, "checks/first_check.py"), "utf8"), /import graphguard as gg/);
  });

  test("gets its first verdict", async () => {
    await code.page.locator(".codelens-decoration", { hasText: "refines" }).first().waitFor({ timeout: FIRST_CHECK });
    await until("the count", async () => /1 refine/.test(await code.languageStatus()));
  });

  test("has it in the verdict matrix", async () => {
    await code.command("GraphGuard: Show Verdict Matrix");
    const cell = code.webview().locator("td button").first();
    await cell.waitFor();
    assert.match(await cell.innerText(), /✓ refines/);
    await code.shot("matrix");
    await cell.click();
    await code.line("@gg.check").waitFor();
  });

  test("is told what the doctor finds", async () => {
    await code.command("GraphGuard: Doctor (Check This Environment)");
    await code.webview().getByText("Pythons that were found").waitFor();
    await code.webview().getByText(/torch \d/).first().waitFor();
    await code.shot("doctor");
  });

  test("has its rules explained", async () => {
    await code.command("GraphGuard: Explain Rule");
    const input = code.page.locator(".quick-input-widget input.input:visible").first();
    await input.fill("missing-reduction");
    await code.page.keyboard.press("Enter");
    await code.webview().getByText("missing-reduction").first().waitFor();
    await code.shot("explain");
  });
});
