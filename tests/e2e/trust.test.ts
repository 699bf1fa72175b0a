// What runs and what does not: Restricted Mode, environments that do not suit, a server that is killed or restarted.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, readFileSync, realpathSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { after, before, describe, test } from "node:test";
import { Code, example, ROOT, until } from "./code.ts";

const FILE = "mlp_missing_all_reduce.py";
const SERVER = "graphguard_server";

describe("in Restricted Mode", () => {
  let code: Code;
  let folder: string;
  let marker: string;

  before(async () => {
    folder = realpathSync(mkdtempSync(path.join(tmpdir(), "graphguard-e2e-python-")));
    marker = path.join(folder, "was-run");
    const python = path.join(folder, "python");
    writeFileSync(python, `#!/bin/sh\necho "$@" >> ${marker}\nexec ${ROOT}/.e2e/torch/bin/python "$@"\n`, { mode: 0o755 });
    code = await Code.start({ files: { [FILE]: example(FILE) }, trusted: false, settings: { "graphguard.interpreter": python } });
    await code.open(FILE);
  });

  after(async () => {
    await code.stop();
    rmSync(folder, { recursive: true });
  });

  test("no Python is started", async () => {
    await code.page.locator("#status\\.workspaceTrust", { hasText: "Restricted Mode" }).waitFor();
    // The editor has looked at every extension when it offers their commands; ours is not among those that run.
    await code.page.keyboard.press("F1");
    await code.page.locator(".quick-input-widget .quick-input-filter input").fill(">GraphGuard");
    await code.page.locator(".quick-input-list .monaco-list-row").first().waitFor();
    await code.shot("restricted");
    await code.page.keyboard.press("Escape");
    assert.equal(existsSync(marker), false);
    assert.deepEqual(code.processes(SERVER), []);
  });

  test("trust starts it", async () => {
    await code.command("Workspaces: Manage Workspace Trust");
    await code.page.locator(".workspace-trust-editor").getByRole("button", { name: /^Trust$/ }).click();
    await until("the server", () => existsSync(marker) && /launch\.py graphguard_server/.test(readFileSync(marker, "utf8")));
  });
});

describe("an environment that does not suit", () => {
  async function refusal(python: string): Promise<string> {
    const code = await Code.start({ files: { [FILE]: example(FILE) }, settings: { "graphguard.interpreter": python } });
    try {
      await code.open(FILE);
      const toast = code.page.locator(".notification-toast", { hasText: "GraphGuard" });
      await toast.waitFor();
      await code.shot(`refusal-${path.basename(path.dirname(path.dirname(python)))}`);
      await toast.getByRole("button", { name: "Select Interpreter" }).waitFor();
      assert.deepEqual(code.processes(SERVER), []);
      return await toast.innerText();
    } finally {
      await code.stop();
    }
  }

  test("without torch is told so, with the next step", async () => {
    const folder = path.join(ROOT, ".e2e/no-torch");
    mkdirSync(folder, { recursive: true });
    execFileSync(path.join(ROOT, ".e2e/torch/bin/python"), ["-m", "venv", "--without-pip", folder]);
    const text = await refusal(path.join(folder, "bin/python"));
    assert.match(text, /has none/);
    assert.match(text, /-m pip install torch/);
  });

  test("that is not there is told so", async () => {
    assert.match(await refusal("/nowhere/bin/python"), /could not run \/nowhere\/bin\/python/);
  });
});

describe("the server", () => {
  let code: Code;

  before(async () => {
    code = await Code.start({ files: { [FILE]: example(FILE) } });
    await code.open(FILE);
    await until("the server", () => code.processes(SERVER).length > 0);
  });

  after(() => code.stop());

  test("is started again when it is killed", async () => {
    const [first] = code.processes(SERVER);
    assert(first !== undefined);
    process.kill(first, "SIGKILL");
    await until("another server", () => code.processes(SERVER).find((pid) => pid !== first));
  });

  test("is restarted by the command, and only one is left", async () => {
    const before = code.processes(SERVER);
    await code.command("GraphGuard: Restart Server");
    await until("another server", () => {
      const now = code.processes(SERVER);
      return now.length === 1 && !before.includes(now[0] as number);
    });
  });

  test("has its log in an output channel of its own", async () => {
    await code.command("GraphGuard: Show Logs");
    // The text itself is written by a native module that this build of VS Code does not have.
    const channel = code.page.locator(".panel select.monaco-select-box").first();
    await until("the channel", async () => (await channel.evaluate((list) => (list as HTMLSelectElement).selectedOptions[0]?.text)) === "GraphGuard");
  });

  test("leaves no process behind when the window is closed", async () => {
    await code.page.goto("about:blank");
    await until("the end of the server", () => code.processes(SERVER).length === 0);
  });
});
