// The relation explorer's page by itself in Chromium, under the policy and in the colours that VS Code gives it.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createServer, type Server } from "node:http";
import path from "node:path";
import { after, before, describe, test } from "node:test";
import { type Browser, chromium, type Page } from "playwright-core";
import type { FromExplorer, ToExplorer } from "../../client/webview/model.ts";
import { browserExecutable, ROOT, shoot } from "./code.ts";
import { brokenMlp, decoder, foundIn, opened, rowsFor, type Whole } from "./pictures.ts";

const DIST = path.join(ROOT, "client/dist");

/** The variables that the page uses, as VS Code's own themes set them. */
const THEMES = {
  light: { "editor-background": "#ffffff", "editor-foreground": "#3b3b3b", descriptionForeground: "#3b3b3b", "editorWidget-background": "#f8f8f8", "editorWidget-border": "#c8c8c8", "testing-iconPassed": "#107c10", errorForeground: "#c72e2e", "editorWarning-foreground": "#895503", focusBorder: "#005fb8", "textLink-foreground": "#005fb8", "button-secondaryBackground": "#e5e5e5", "button-secondaryForeground": "#3b3b3b", "button-background": "#005fb8", "button-foreground": "#ffffff", "dropdown-background": "#ffffff", "dropdown-foreground": "#3b3b3b", "dropdown-border": "#cecece", "editor-lineHighlightBackground": "#eef4fb", "editorIndentGuide-activeBackground1": "#939393" },
  dark: { "editor-background": "#1f1f1f", "editor-foreground": "#cccccc", descriptionForeground: "#9d9d9d", "editorWidget-background": "#272727", "editorWidget-border": "#4a4a4a", "testing-iconPassed": "#73c991", errorForeground: "#f85149", "editorWarning-foreground": "#cca700", focusBorder: "#3794ff", "textLink-foreground": "#4daafc", "button-secondaryBackground": "#313131", "button-secondaryForeground": "#cccccc", "button-background": "#0060aa", "button-foreground": "#ffffff", "dropdown-background": "#313131", "dropdown-foreground": "#cccccc", "dropdown-border": "#3c3c3c", "editor-lineHighlightBackground": "#262b33", "editorIndentGuide-activeBackground1": "#707070" },
  "high-contrast": { "editor-background": "#000000", "editor-foreground": "#ffffff", descriptionForeground: "#ffffff", contrastBorder: "#6fc3df", "testing-iconPassed": "#89d185", errorForeground: "#f48771", "editorWarning-foreground": "#ffd370", focusBorder: "#f38518", "textLink-foreground": "#21a6ff", "button-secondaryBackground": "#000000", "button-secondaryForeground": "#ffffff", "button-background": "#000000", "button-foreground": "#ffffff", "dropdown-background": "#000000", "dropdown-foreground": "#ffffff" },
} as const;

/** The frame that client/src/page.ts makes, served from one origin, with the editor's half of the conversation recorded. */
function frame(theme: keyof typeof THEMES): string {
  const body = /const BODY = `([^`]*)`/.exec(readFileSync(path.join(ROOT, "client/src/explorer.ts"), "utf8"))?.[1] ?? "";
  const variables = Object.entries(THEMES[theme]).map(([name, value]) => `--vscode-${name}: ${value};`);
  return `<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>Relation Explorer</title>
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'self' 'nonce-t'; script-src 'nonce-t'">
<style nonce="t">:root { ${variables.join(" ")} --vscode-font-family: sans-serif; --vscode-font-size: 13px; }</style>
<link rel="stylesheet" href="/explorer.css"></head>
<body class="vscode-${theme}">${body}
<script nonce="t">
window.sent = [];
window.acquireVsCodeApi = () => ({ postMessage: async (message) => {
  window.sent.push(message);
  const answer = window.server && (await window.server(message));
  if (answer) window.postMessage(answer);
} });
</script>
<script nonce="t" src="/explorer.js"></script></body></html>`;
}

type Sent = { type: string; svg?: string; location?: { range: { start: { line: number } } } };

/** What extension and server answer to the page. */
function answer(whole: Whole, message: FromExplorer): ToExplorer | undefined {
  switch (message.type) {
    case "rows":
      return { type: "rows", asked: message.asked, rows: rowsFor(whole, message.asked) };
    case "find":
      return { type: "found", text: message.text, rows: foundIn(whole, message.text) };
    default:
      return undefined;
  }
}

describe("the relation explorer's page", () => {
  let server: Server;
  let browser: Browser;
  let page: Page;
  let origin: string;
  const violations: string[] = [];

  before(async () => {
    server = createServer((request, response) => {
      const url = new URL(request.url ?? "/", "http://page");
      if (url.pathname === "/") {
        response.setHeader("content-type", "text/html").end(frame(url.searchParams.get("theme") as keyof typeof THEMES));
        return;
      }
      response.setHeader("content-type", url.pathname.endsWith(".css") ? "text/css" : "text/javascript");
      response.end(readFileSync(path.join(DIST, path.basename(url.pathname))));
    });
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    const address = server.address();
    assert(address !== null && typeof address === "object");
    origin = `http://127.0.0.1:${address.port}`;
    browser = await chromium.launch({ executablePath: browserExecutable(), args: ["--no-sandbox", "--disable-gpu"] });
  });

  after(async () => {
    await browser.close();
    server.close();
  });

  /** Opens the page on a picture; the milliseconds until the break is drawn. */
  async function open(theme: keyof typeof THEMES, whole: Whole, viewport = { width: 1300, height: 760 }): Promise<number> {
    await page?.close();
    page = await browser.newPage({ viewport });
    page.on("console", (message) => message.text().includes("Content Security Policy") && violations.push(message.text()));
    page.on("pageerror", (error) => violations.push(String(error)));
    await page.exposeFunction("server", (message: FromExplorer) => answer(whole, message));
    await page.goto(`${origin}/?theme=${theme}`);
    const taken = await page.evaluate(async (relations) => {
      const begun = performance.now();
      const { check, mesh } = relations;
      window.postMessage({ type: "choices", choices: [{ check, name: check.split("::").at(-1), mesh, state: relations.verdict, stale: false }] });
      window.postMessage({ type: "relations", relations });
      while (document.querySelector(".line") === null) {
        await new Promise(requestAnimationFrame);
      }
      await new Promise(requestAnimationFrame);
      return performance.now() - begun;
    }, opened(whole));
    return taken;
  }

  const sent = (): Promise<Sent[]> => page.evaluate(() => (window as unknown as { sent: Sent[] }).sent);
  const selected = () => page.locator('.line[aria-selected="true"]');
  const lines = (): Promise<string[]> => page.locator(".line").evaluateAll((all) => all.map((line) => (line as HTMLElement).innerText.replaceAll(/\s+/g, " ")));
  const inView = (text: string): Promise<boolean> =>
    page.locator(".line", { hasText: text }).last().evaluate((line) => {
      const [box, grid, head] = [line, document.getElementById("grid"), document.getElementById("crumbs")].map((each) => (each as Element).getBoundingClientRect());
      return (box as DOMRect).top >= (head as DOMRect).bottom - 1 && (box as DOMRect).bottom <= (grid as DOMRect).bottom + 1;
    });

  async function accessible(): Promise<void> {
    // Evaluated from the test, past the page's policy.
    await page.evaluate(readFileSync(path.join(ROOT, "node_modules/axe-core/axe.min.js"), "utf8"));
    const found = await page.evaluate(async () => {
      const { axe } = window as unknown as { axe: { run(options: object): Promise<{ violations: { id: string; nodes: { html: string }[] }[] }> } };
      const { violations: list } = await axe.run({ rules: { region: { enabled: false } } });
      return list.map(({ id, nodes }) => `${id}: ${nodes.map(({ html }) => html).join(" ")}`);
    });
    assert.deepEqual(found, []);
  }

  for (const theme of ["light", "dark", "high-contrast"] as const) {
    test(`says what is wrong and shows where, without accessibility violations (${theme})`, async () => {
      await open(theme, brokenMlp());
      assert.match(await page.locator("#findings").innerText(), /partial sum[\s\S]*needed\s+y: Replicate\s+found\s+y: Partial\(sum\) over tp/);
      assert.equal(await page.locator(".line.row.broken").count(), 1);
      assert.match(await selected().innerText(), /Partial\(sum\) over tp\s+needed: y: Replicate/);
      assert.deepEqual(await page.locator("[role=columnheader]").allInnerTexts(), ["state", "specification", "relation", "rank 0", "rank 1"]);
      await shoot(`explorer-${theme}`, page);
      await accessible();
      await open(theme, decoder(8, 2, 5));
      await shoot(`explorer-decoder-${theme}`, page);
      await accessible();
    });
  }

  for (const [nodes, layers, ranks] of [
    [700, 6, 2],
    [5_000, 38, 2],
    [50_000, 126, 8],
  ] as const) {
    test(`opens on the neighbourhood of the break, of ${nodes} nodes`, async (context) => {
      const whole = decoder(layers, ranks, layers - 3);
      const count = whole.rows.reduce((sum, { cells }) => sum + cells.length, 0);
      assert.ok(count > nodes * 0.9);
      const first = await open("light", whole);
      await shoot(`explorer-${nodes}`, page);
      for (const text of ["y = self.down(h)", "x + y", "F.silu(gate) * up", `▸○${layers - 2}`]) {
        assert.ok(await inView(text), `${text} is in view`);
      }
      assert.match(await selected().innerText(), /y = self\.down\(h\)[\s\S]*needed: y: Replicate/);
      assert.ok((await page.locator(".line").count()) < 60, "only what is in view is in the document");
      // Unfolded all the way, the table is as long as the picture; what is scrolled to is asked for.
      await page.locator("#grid").focus();
      await page.keyboard.press("Home");
      await page.keyboard.press("*");
      assert.ok(Number(await page.locator("#grid").getAttribute("aria-rowcount")) > whole.rows.length);
      const frames = await page.evaluate(async () => {
        const grid = document.getElementById("grid") as HTMLElement;
        const times: number[] = [];
        let last = await new Promise(requestAnimationFrame);
        for (let step = 0; step < 90; step += 1) {
          grid.scrollTop += step % 10 === 9 ? 4000 : 90;
          const now = await new Promise(requestAnimationFrame);
          times.push(now - last);
          last = now;
        }
        return times.sort((a, b) => a - b);
      });
      await page.locator('.line[aria-busy="true"]').first().waitFor({ state: "detached" });
      context.diagnostic(`${count} nodes in ${whole.rows.length} rows: first paint ${first.toFixed(0)} ms; scrolling, a frame takes ${frames[45]?.toFixed(0)} ms (median), ${frames.at(-1)?.toFixed(0)} ms at most`);
    });
  }

  test("is walked by keyboard: to the break, into and out of modules, to the line, to the fix", async () => {
    await open("light", decoder(8, 2, 5));
    await page.locator("#grid").focus();
    await page.keyboard.press("Home");
    assert.match(await selected().innerText(), /layers/);
    await page.keyboard.press("ArrowRight"); // into the module, that is open
    assert.match(await selected().innerText(), /▸\s*✓\s*0/);
    await page.keyboard.press("ArrowRight");
    assert.equal(await selected().getAttribute("aria-expanded"), "true");
    await page.keyboard.press("ArrowLeft");
    assert.equal(await selected().getAttribute("aria-expanded"), "false");
    await page.keyboard.press("ArrowLeft");
    assert.match(await selected().innerText(), /layers/);
    await page.keyboard.press("b");
    assert.match(await selected().innerText(), /y = self\.down\(h\)/);
    await page.keyboard.press("b");
    assert.match(await selected().innerText(), /x \+ y/);
    await page.keyboard.press("B");
    await page.keyboard.press("Enter");
    assert.equal((await sent()).at(-1)?.type, "reveal");
    assert.equal((await sent()).at(-1)?.location?.range.start.line, 40 + 39);
    await page.keyboard.press("f");
    assert.equal((await sent()).at(-1)?.type, "fix");
    await page.keyboard.press("?");
    await page.locator("#legend").waitFor();
  });

  test("is used by mouse: folds and unfolds, opens the line, shows all that a row says", async () => {
    await open("light", brokenMlp());
    await page.locator(".line.group", { hasText: "down" }).click();
    assert.equal(await page.locator(".line.row.broken").count(), 0);
    await page.locator("#break").click();
    await page.locator(".line.row.broken").waitFor();
    assert.match(await page.locator("#details").innerText(), /sum\(out@0, out@1\)[\s\S]*is partial sum of out[\s\S]*made of/);
    await page.locator(".line.row.broken .place").last().click();
    assert.equal((await sent()).at(-1)?.location?.range.start.line, 34);
    await page.locator("#findings button").first().click();
    assert.equal((await sent()).at(-1)?.type, "reveal");
    await page.locator("#findings button", { hasText: "Fix: all_reduce" }).click();
    assert.equal((await sent()).at(-1)?.type, "fix");
  });

  test("hides the specification, and shows formulas and every rank on demand", async () => {
    await open("light", decoder(8, 8, 5));
    const heads = () => page.locator("[role=columnheader]").allInnerTexts();
    assert.deepEqual(await heads(), ["state", "specification", "relation", "ranks 0–7"]);
    await page.locator("#specification").click();
    assert.deepEqual(await heads(), ["state", "relation", "ranks 0–7"]);
    await page.locator("#ranks").click();
    assert.deepEqual((await heads()).slice(2), Array.from({ length: 8 }, (_, rank) => `rank ${rank}`));
    await page.locator(".line.row .title", { hasText: "F.silu" }).first().waitFor();
    assert.ok((await lines()).some((line) => line.includes("Shard(2) over tp")));
    await page.locator("#formulas").click();
    await page.locator(".line.row .title", { hasText: "concat(layers.5.ffn@0" }).first().waitFor();
  });

  test("finds a text wherever it is folded away", async () => {
    await open("light", decoder(38, 2, 35));
    await page.keyboard.press("Tab");
    await page.locator("#search").fill("softmax");
    await page.locator("#matches", { hasText: "37 of 38" }).waitFor();
    await page.locator("#search").press("Enter");
    await page.locator("#search").press("Enter");
    await page.locator("#matches", { hasText: "1 of 38" }).waitFor();
    assert.match(await selected().innerText(), /softmax/);
    await page.locator("#search").fill("nothing like this");
    await page.locator("#matches", { hasText: "none" }).waitFor();
    await page.locator("#search").press("Escape");
    assert.equal(await page.locator("#matches").innerText(), "");
  });

  test("keeps its headings when one scrolls, and follows the cursor", async () => {
    await open("light", decoder(38, 2, 35));
    await page.evaluate(() => window.postMessage({ type: "focus", focus: 3, stale: false }));
    await page.locator(".line.focus").waitFor();
    assert.match(await selected().innerText(), /rsqrt/);
    assert.ok(await page.locator("#head").isVisible());
    assert.match(await page.locator("#crumbs").innerText(), /layers/);
    await page.evaluate(() => window.postMessage({ type: "focus", focus: 3, stale: true }));
    await page.locator("main.stale").waitFor();
  });

  test("has room for two ranks beside an editor", async () => {
    await open("light", brokenMlp(), { width: 620, height: 700 });
    const width = await page.evaluate(() => [document.getElementById("grid")?.scrollWidth, document.getElementById("grid")?.clientWidth]);
    assert.equal(width[0], width[1]);
    await shoot("explorer-narrow", page);
    await open("light", brokenMlp(), { width: 480, height: 700 });
    assert.deepEqual(await page.locator("[role=columnheader]").allInnerTexts(), ["state", "specification", "relation", "ranks 0, 1"]);
    assert.match(await selected().innerText(), /y = self\.down\(h\)/);
  });

  test("exports a picture that stands alone", async () => {
    await open("light", decoder(8, 2, 5));
    await page.locator("#export").click();
    const svg = (await sent()).at(-1)?.svg ?? "";
    assert.match(svg, /^<svg xmlns=/);
    assert.doesNotMatch(svg, /var\(|undefined|NaN/);
    const picture = await browser.newPage({ viewport: { width: 1300, height: 900 } });
    await picture.setContent(svg);
    assert.equal(await picture.locator("g.line.broken rect").count(), 2);
    assert.match(await picture.locator("svg").innerHTML(), /needed: y: Replicate/);
    await shoot("exported", picture);
    await picture.close();
  });

  test("breaks no rule of its content security policy", () => {
    assert.deepEqual(violations, []);
  });
});
