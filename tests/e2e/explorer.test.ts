// The relation explorer's page by itself in Chromium, under the policy and in the colours that VS Code gives it.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createServer, type Server } from "node:http";
import path from "node:path";
import { after, before, describe, test } from "node:test";
import { type Browser, chromium, type Page } from "playwright-core";
import { browserExecutable, ROOT, shoot } from "./code.ts";
import { brokenMlp, layers } from "./pictures.ts";

const DIST = path.join(ROOT, "client/dist");

/** The variables that the page uses, as VS Code's own themes set them. */
const THEMES = {
  light: { "editor-background": "#ffffff", "editor-foreground": "#3b3b3b", descriptionForeground: "#3b3b3b", "editorWidget-background": "#f8f8f8", "editorWidget-border": "#c8c8c8", "testing-iconPassed": "#107c10", errorForeground: "#c72e2e", "editorWarning-foreground": "#895503", focusBorder: "#005fb8", "button-secondaryBackground": "#e5e5e5", "button-secondaryForeground": "#3b3b3b", "button-background": "#005fb8", "button-foreground": "#ffffff", "dropdown-background": "#ffffff", "dropdown-foreground": "#3b3b3b", "dropdown-border": "#cecece", "editor-lineHighlightBackground": "#eef4fb", "editorIndentGuide-activeBackground1": "#939393" },
  dark: { "editor-background": "#1f1f1f", "editor-foreground": "#cccccc", descriptionForeground: "#9d9d9d", "editorWidget-background": "#272727", "editorWidget-border": "#4a4a4a", "testing-iconPassed": "#73c991", errorForeground: "#f85149", "editorWarning-foreground": "#cca700", focusBorder: "#3794ff", "button-secondaryBackground": "#313131", "button-secondaryForeground": "#cccccc", "button-background": "#0060aa", "button-foreground": "#ffffff", "dropdown-background": "#313131", "dropdown-foreground": "#cccccc", "dropdown-border": "#3c3c3c", "editor-lineHighlightBackground": "#262b33", "editorIndentGuide-activeBackground1": "#707070" },
  "high-contrast": { "editor-background": "#000000", "editor-foreground": "#ffffff", descriptionForeground: "#ffffff", contrastBorder: "#6fc3df", "testing-iconPassed": "#89d185", errorForeground: "#f48771", "editorWarning-foreground": "#ffd370", focusBorder: "#f38518", "button-secondaryBackground": "#000000", "button-secondaryForeground": "#ffffff", "button-background": "#000000", "button-foreground": "#ffffff", "dropdown-background": "#000000", "dropdown-foreground": "#ffffff" },
} as const;

/** The frame that client/src/page.ts makes, served from one origin, with the editor's half of the conversation recorded. */
function frame(theme: keyof typeof THEMES): string {
  const body = /const BODY = `([^`]*)`/.exec(readFileSync(path.join(ROOT, "client/src/explorer.ts"), "utf8"))?.[1] ?? "";
  const variables = Object.entries(THEMES[theme]).map(([name, value]) => `--vscode-${name}: ${value};`);
  return `<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>Relation Explorer</title>
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'self' 'nonce-t'; script-src 'nonce-t'; connect-src 'self'; worker-src blob:">
<style nonce="t">:root { ${variables.join(" ")} --vscode-font-family: sans-serif; --vscode-font-size: 13px; }</style>
<link rel="stylesheet" href="/explorer.css"></head>
<body class="vscode-${theme}" data-layout="/layout.js">${body}
<script nonce="t">window.sent = []; window.acquireVsCodeApi = () => ({ postMessage: (m) => window.sent.push(m) });</script>
<script nonce="t" src="/explorer.js"></script></body></html>`;
}

type Sent = { type: string; svg?: string; location?: unknown };

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

  async function open(theme: keyof typeof THEMES, data: unknown): Promise<void> {
    await page?.close();
    page = await browser.newPage({ viewport: { width: 1300, height: 640 } });
    page.on("console", (message) => message.text().includes("Content Security Policy") && violations.push(message.text()));
    page.on("pageerror", (error) => violations.push(String(error)));
    await page.goto(`${origin}/?theme=${theme}`);
    await page.evaluate((relations) => window.postMessage({ type: "relations", relations }), data);
    await page.locator("g.node").first().waitFor();
    await page.locator('main[aria-busy="false"]').waitFor();
  }

  const sent = (): Promise<Sent[]> => page.evaluate(() => (window as unknown as { sent: Sent[] }).sent);

  for (const theme of ["light", "dark", "high-contrast"] as const) {
    test(`draws both programs and the break, without accessibility violations (${theme})`, async () => {
      await open(theme, brokenMlp());
      assert.equal(await page.locator("g.node").count(), 18);
      assert.equal(await page.locator("g.node.broken").count(), 2);
      await shoot(`explorer-${theme}`, page);
      // Evaluated from the test, past the page's policy.
      await page.evaluate(readFileSync(path.join(ROOT, "node_modules/axe-core/axe.min.js"), "utf8"));
      const found = await page.evaluate(async () => {
        const { axe } = window as unknown as { axe: { run(options: object): Promise<{ violations: { id: string; nodes: { html: string }[] }[] }> } };
        const { violations: list } = await axe.run({ rules: { region: { enabled: false } } });
        return list.map(({ id, nodes }) => `${id}: ${nodes.map(({ html }) => html).join(" ")}`);
      });
      assert.deepEqual(found, []);
    });
  }

  test("puts tensors in relation at equal heights", async () => {
    await open("light", brokenMlp());
    const tops = await page.locator("g.node .title", { hasText: "gelu" }).evaluateAll((found) => found.map((text) => Math.round(text.getBoundingClientRect().top)));
    assert.equal(tops.length, 3);
    assert.equal(new Set(tops).size, 1);
  });

  test("is walked by keyboard: to the break, along edges, to counterparts, to the line", async () => {
    await open("light", brokenMlp());
    await page.locator('g.node[tabindex="0"]').focus();
    await page.keyboard.press("b");
    await page.locator("g.node.selected.broken").waitFor();
    await page.keyboard.press("ArrowUp");
    assert.match(await page.locator("g.node.selected").getAttribute("aria-label") ?? "", /gelu.*rank 0/);
    assert.match(await page.locator("#details").innerText(), /h\[:, :, 0:128\]/);
    await page.keyboard.press("ArrowLeft");
    assert.match(await page.locator("g.node.selected").getAttribute("aria-label") ?? "", /gelu.*specification/);
    assert.match(await page.locator("#details").innerText(), /concat\(h@0, h@1; dim=2\)/);
    assert.equal(await page.locator("g.node.related").count(), 2);
    await page.keyboard.press("b");
    await page.keyboard.press("Enter");
    assert.equal((await sent()).at(-1)?.type, "reveal");
  });

  test("exports a picture that stands alone", async () => {
    await open("light", brokenMlp());
    await page.locator("#export").click();
    const svg = (await sent()).at(-1)?.svg ?? "";
    assert.match(svg, /^<svg xmlns=/);
    assert.doesNotMatch(svg, /var\(/);
    const picture = await browser.newPage({ viewport: { width: 900, height: 500 } });
    await picture.setContent(svg);
    assert.equal(await picture.locator("g.node").count(), 18);
    await shoot("exported", picture);
    await picture.close();
  });

  test("stays usable with thousands of nodes", async (context) => {
    const large = layers(170, 4);
    const count = large.graphs.reduce((sum, { nodes }) => sum + nodes.length, 0);
    const started = Date.now();
    await open("light", large);
    context.diagnostic(`${count} nodes laid out and drawn in ${Date.now() - started} ms`);
    assert.ok((await page.locator("g.node").count()) > 0);
    const frames = await page.evaluate(async () => {
      const svg = document.getElementById("drawing") as unknown as SVGSVGElement;
      const box = svg.getBoundingClientRect();
      const times: number[] = [];
      for (let step = 0; step < 30; step += 1) {
        const begun = performance.now();
        svg.dispatchEvent(new WheelEvent("wheel", { deltaY: step % 2 ? 40 : -40, clientX: box.x + 300, clientY: box.y + 200, bubbles: true }));
        await new Promise(requestAnimationFrame);
        times.push(performance.now() - begun);
      }
      return times.sort((a, b) => a - b);
    });
    context.diagnostic(`a zoom step takes ${frames[15]?.toFixed(0)} ms (median), ${frames.at(-1)?.toFixed(0)} ms at most`);
    await shoot("explorer-large", page);
  });

  test("breaks no rule of its content security policy", () => {
    assert.deepEqual(violations, []);
  });
});
