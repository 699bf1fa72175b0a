// Runs inside the extension host, on the unpacked package: what the extension gives to the editor's own interfaces.
import assert from "node:assert/strict";
import * as vscode from "vscode";

const FIRST_CHECK_MS = 120_000;

const document = () => {
  const open = vscode.window.visibleTextEditors.find((editor) => editor.document.languageId === "python")?.document;
  assert(open !== undefined, "the example is not open");
  return open;
};

/** Waits for a change of the diagnostics that satisfies a condition. */
async function diagnostics(satisfied: (found: readonly vscode.Diagnostic[]) => boolean): Promise<readonly vscode.Diagnostic[]> {
  const now = () => vscode.languages.getDiagnostics(document().uri);
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => reject(new Error(`diagnostics: ${JSON.stringify(now())}`)), FIRST_CHECK_MS);
    const look = () => {
      if (satisfied(now())) {
        clearTimeout(timer);
        watch.dispose();
        resolve(now());
      }
    };
    const watch = vscode.languages.onDidChangeDiagnostics(look);
    look();
  });
}

/** Asks again until there is an answer: what tensors are is asked for once the verdict is shown. */
async function hovered(place: vscode.Position): Promise<string> {
  for (let attempt = 0; attempt < 150; attempt += 1) {
    const hovers = await vscode.commands.executeCommand<vscode.Hover[]>("vscode.executeHoverProvider", document().uri, place);
    const text = hovers.flatMap(({ contents }) => contents.map((content) => (content as vscode.MarkdownString).value)).join("\n");
    if (text !== "") return text;
    await new Promise((resolve) => setTimeout(resolve, 200));
  }
  return "";
}

/** Asks again until there is an answer: fixes are offered once they are proved, and their edits come when they are resolved. */
async function proved(range: vscode.Range): Promise<vscode.CodeAction> {
  const end = Date.now() + FIRST_CHECK_MS;
  while (Date.now() < end) {
    const actions = await vscode.commands.executeCommand<vscode.CodeAction[]>("vscode.executeCodeActionProvider", document().uri, range, vscode.CodeActionKind.QuickFix.value, 10);
    const found = actions.find(({ title }) => title.includes("(proved, tp=2)"));
    if (found !== undefined) {
      return found;
    }
    await new Promise((resume) => setTimeout(resume, 50));
  }
  throw new Error("no proved fix was offered");
}

const TESTS: Record<string, () => Promise<void>> = {
  "the extension is active on a Python file": async () => {
    const extension = vscode.extensions.getExtension("graphguard.graphguard");
    await extension?.activate();
    assert.equal(extension?.isActive, true);
  },
  "every command of the manifest is registered": async () => {
    const known = new Set(await vscode.commands.getCommands(true));
    const manifest = vscode.extensions.getExtension("graphguard.graphguard")?.packageJSON as { contributes: { commands: { command: string }[] } };
    assert.deepEqual(manifest.contributes.commands.map(({ command }) => command).filter((command) => !known.has(command)), []);
  },
  "a finding has rule, place, explanation and related places": async () => {
    const [finding] = await diagnostics((found) => found.length === 1);
    assert(finding !== undefined);
    assert.equal(finding.source, "graphguard");
    assert.equal((finding.code as { value: string }).value, "missing-reduction");
    assert.equal(document().getText(finding.range), "self.down(h)");
    assert.ok((finding.relatedInformation ?? []).length > 0);
  },
  "a hover tells the relation": async () => {
    const [finding] = await diagnostics((found) => found.length === 1);
    assert(finding !== undefined);
    assert.match(await hovered(finding.range.start), /Partial\(sum\) over tp/);
  },
  "a check has a lens and a symbol": async () => {
    const lenses = await vscode.commands.executeCommand<vscode.CodeLens[]>("vscode.executeCodeLensProvider", document().uri, 10);
    assert.ok(lenses.some(({ command }) => command?.title.includes("tp=2")));
    const symbols = await vscode.commands.executeCommand<vscode.DocumentSymbol[]>("vscode.executeDocumentSymbolProvider", document().uri);
    assert.ok(symbols.some(({ name }) => name.includes("mlp_missing_all_reduce")));
  },
  "the proved fix removes the finding": async () => {
    const [finding] = await diagnostics((found) => found.length === 1);
    assert(finding !== undefined);
    const fix = await proved(finding.range);
    assert(fix.edit !== undefined);
    assert.ok(await vscode.workspace.applyEdit(fix.edit));
    await diagnostics((found) => found.length === 0);
    assert.match(document().getText(), /dist\.all_reduce\(/);
  },
  "the server answers for bug reports": async () => {
    await vscode.commands.executeCommand("graphguard.copyDebugInformation");
    const text = await vscode.env.clipboard.readText();
    assert.match(text, /server: running/);
    assert.match(text, /torch/);
  },
};

/** Called by the extension host; throws where a test fails. */
export async function run(): Promise<void> {
  for (const [name, body] of Object.entries(TESTS)) {
    await body();
    console.log(`ok ${name}`);
  }
}
