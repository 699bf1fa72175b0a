// The relation explorer's panel: follows the cursor, hands rows to the page as it asks for them, opens lines and fixes, saves the picture.
import * as vscode from "vscode";
import { type FromExplorer, type ToExplorer } from "../webview/model";
import { pageOf, webviewOptions } from "./page";
import { type Mesh, METHODS, type Place, type Relations, type RelationsParams, type Rows, type RowsParams } from "./protocol";
import { isFinal, type Results, runKey } from "./results";
import type { Server } from "./server";
import { toRange } from "./testExplorer";

const BODY = `
<h1>Relation Explorer</h1>
<header>
  <select id="choice" aria-label="Check"></select>
  <span id="verdict" class="verdict" role="status"></span>
  <button id="break" class="primary" title="Go to the next place where refinement breaks (b)" hidden>Go to Break</button>
  <span class="spacer"></span>
  <span class="search"><input id="search" type="search" placeholder="Search (/)" aria-label="Search tensors, code, modules, relations"><output id="matches" for="search"></output></span>
  <button id="ranks" aria-pressed="false" title="Show every rank, also those that compute the same" hidden>All Ranks</button>
  <button id="specification" aria-pressed="true" title="Show what the specification computes (s)">Specification</button>
  <button id="formulas" aria-pressed="false" title="Show relations as formulas (m)">Formulas</button>
  <button id="follow" aria-pressed="true" title="Show what the cursor is in">Follow Cursor</button>
  <button id="export" title="Save what is in view as a picture">Export</button>
  <button id="explain" aria-expanded="false" aria-controls="legend" aria-label="Legend and keys" title="Legend and keys (?)">?</button>
</header>
<aside id="legend" hidden>
  <p><b class="proved">✓</b> in relation: the ranks' tensors rebuild the specification's &nbsp; <b class="broken">✗</b> refinement breaks here &nbsp; <b class="off">○</b> follows the break, not compared</p>
  <p>Shard(1) over tp: each rank has a slice of dim 1 &nbsp; Replicate: every rank has the whole &nbsp; Partial(sum) over tp: the ranks' tensors have to be added up</p>
  <p>Arrows: move, unfold and fold &nbsp; *: unfold all of a module &nbsp; Enter: open the line &nbsp; b: next break &nbsp; f: fixes &nbsp; /: search &nbsp; n: next match &nbsp; s: specification &nbsp; m: formulas</p>
</aside>
<ul id="findings" hidden></ul>
<p id="nothing">Put the cursor into a checked module.</p>
<main hidden>
  <div id="grid" role="treegrid" tabindex="0" aria-label="Specification and ranks, tensor by tensor">
    <div id="top" role="rowgroup">
      <div id="head" role="row" aria-rowindex="1"></div>
      <div id="crumbs" aria-hidden="true"></div>
    </div>
    <div id="body" role="rowgroup"></div>
  </div>
</main>
<footer id="details" aria-live="polite"></footer>
`;

const FOLLOW_DELAY_MS = 120;

export class Explorer implements vscode.Disposable {
  private panel: vscode.WebviewPanel | undefined;
  /** Whether the page listens; what is sent before that is lost. */
  private ready = false;
  private following = true;
  /** What was asked for when the panel was opened, if not what the cursor is in. */
  private target: RelationsParams | undefined;
  private shown: Relations | undefined;
  /** The result that what is shown is of, in all that may change: its fixes come later than its findings. */
  private result = "";
  private timer: NodeJS.Timeout | undefined;
  /** Grows with every question, so that a late answer cannot overwrite a newer one. */
  private asked = 0;
  private readonly watches: vscode.Disposable[];

  constructor(
    private readonly context: vscode.ExtensionContext,
    private readonly server: Server,
    private readonly results: Results,
  ) {
    this.watches = [
      vscode.commands.registerCommand("graphguard.openExplorer", (target?: { check: string; mesh: Mesh }) => this.open(target)),
      vscode.window.onDidChangeTextEditorSelection(({ textEditor }) => this.follow(textEditor)),
      vscode.window.onDidChangeActiveTextEditor((textEditor) => textEditor && this.follow(textEditor)),
      // Saving fires it too, without a change.
      vscode.workspace.onDidChangeTextDocument(({ document, contentChanges }) => contentChanges.length > 0 && this.onEdit(document)),
      results.onChange(() => this.onResults()),
    ];
  }

  dispose(): void {
    clearTimeout(this.timer);
    this.panel?.dispose();
    this.watches.forEach((watch) => watch.dispose());
  }

  private open(target?: { check: string; mesh: Mesh }): void {
    if (this.panel === undefined) {
      this.panel = this.makePanel();
    } else {
      this.panel.reveal(undefined, true);
    }
    if (target !== undefined) {
      this.following = false;
      this.target = target;
    }
    if (!this.ready) {
      return; // the page asks when it is there
    }
    if (target !== undefined) {
      void this.ask(target);
    } else if (vscode.window.activeTextEditor !== undefined) {
      this.follow(vscode.window.activeTextEditor);
    }
  }

  private makePanel(): vscode.WebviewPanel {
    const { extensionUri } = this.context;
    const place = { viewColumn: vscode.ViewColumn.Beside, preserveFocus: true };
    const panel = vscode.window.createWebviewPanel("graphguard.explorer", "Relation Explorer", place, webviewOptions(extensionUri));
    panel.iconPath = vscode.Uri.joinPath(extensionUri, "client", "media", "icon.png");
    panel.onDidDispose(() => {
      this.panel = undefined;
      this.ready = false;
      this.shown = undefined;
      this.following = true;
    });
    panel.webview.onDidReceiveMessage((message: FromExplorer) => this.answer(message));
    panel.webview.html = pageOf(panel.webview, extensionUri, "Relation Explorer", "explorer.js", BODY);
    return panel;
  }

  private async answer(message: FromExplorer): Promise<void> {
    switch (message.type) {
      case "ready":
        this.ready = true;
        this.shown = undefined;
        this.postChoices();
        await this.showFirst();
        break;
      case "choose":
        await this.ask({ check: message.check, mesh: message.mesh });
        break;
      case "follow":
        this.following = message.follow;
        break;
      case "reveal":
        await this.reveal(message.location);
        break;
      case "fix":
        await this.reveal(message.location, true);
        await vscode.commands.executeCommand("editor.action.quickFix");
        break;
      case "rows":
        await this.sendRows(message.asked);
        break;
      case "find": {
        const { picture, text } = message;
        const found = await this.server.request<{ rows: number[] } | null>(METHODS.find, { picture, text });
        this.post({ type: "found", text, rows: found?.rows ?? [] });
        break;
      }
      case "export":
        await saveSvg(message.svg);
    }
  }

  /** Opens a place; ``at`` its start alone, where the editor's own actions are wanted. */
  private async reveal({ uri, range }: Place, at = false): Promise<void> {
    const { start, end } = toRange(range);
    await vscode.window.showTextDocument(this.server.asUri(uri), { selection: new vscode.Range(start, at ? start : end), viewColumn: vscode.ViewColumn.One });
  }

  private async sendRows(asked: RowsParams): Promise<void> {
    const found = await this.server.request<Rows | null>(METHODS.rows, asked);
    if (found !== undefined && found !== null) {
      this.post({ type: "rows", asked: { ...asked, first: found.first }, rows: found.rows });
    } else if (this.shown?.picture === asked.picture) {
      // The server has let go of the picture: it is made again.
      await this.ask({ check: this.shown.check, mesh: this.shown.mesh });
    }
  }

  /** What the cursor is in; else the first check that has something to show, broken ones first. */
  private async showFirst(): Promise<void> {
    if (this.target !== undefined && (await this.ask(this.target))) {
      return;
    }
    const editor = vscode.window.activeTextEditor ?? vscode.window.visibleTextEditors[0];
    if (this.following && editor !== undefined && (await this.ask(atCursor(editor)))) {
      return;
    }
    const runs = this.results.checks.flatMap((check) => check.runs.map((run) => ({ check: check.id, mesh: run.mesh, run })));
    const first = runs.find(({ run }) => run.state === "broken") ?? runs.find(({ run }) => isFinal(run));
    if (first === undefined || !(await this.ask({ check: first.check, mesh: first.mesh }))) {
      this.post({ type: "nothing", reason: "Nothing is checked yet. Open a file with a check, or run GraphGuard: Check All." });
    }
  }

  private follow(editor: vscode.TextEditor): void {
    if (!this.ready || !this.following || editor.document.languageId !== "python") {
      return;
    }
    clearTimeout(this.timer);
    this.timer = setTimeout(() => void this.ask(atCursor(editor)), FOLLOW_DELAY_MS);
  }

  /** Shows the answer to a question; false where there is none, and then what was shown stays. */
  private async ask(params: RelationsParams): Promise<boolean> {
    const mine = ++this.asked;
    const relations = await this.server.request<Relations | null>(METHODS.relations, params);
    if (mine !== this.asked || relations === undefined || relations === null) {
      return relations !== undefined && relations !== null;
    }
    if (this.shown !== undefined && isSamePicture(this.shown, relations)) {
      this.post({ type: "focus", focus: relations.focus, stale: relations.stale });
    } else {
      this.post({ type: "relations", relations });
    }
    this.shown = relations;
    this.result = this.resultOf(relations);
    void vscode.commands.executeCommand("setContext", "graphguard.explorerShown", true);
    return true;
  }

  private onEdit(document: vscode.TextDocument): void {
    const shown = this.shown;
    if (shown !== undefined && !shown.stale && document.languageId === "python" && this.concerns(shown, document)) {
      // Out of date from the first keystroke; the next result brings the new picture.
      this.shown = { ...shown, stale: true };
      this.post({ type: "focus", focus: shown.focus, stale: true });
    }
  }

  private concerns(shown: Relations, document: vscode.TextDocument): boolean {
    const uri = document.uri.toString();
    return shown.files.some((file) => this.server.asUri(file).toString() === uri);
  }

  private onResults(): void {
    if (!this.ready) {
      return;
    }
    this.postChoices();
    if (this.shown === undefined) {
      void this.showFirst();
      return;
    }
    const run = this.results.run(runKey(this.shown.check, this.shown.mesh));
    if (run !== undefined && isFinal(run) && (this.shown.stale || this.resultOf(this.shown) !== this.result)) {
      void this.ask({ check: this.shown.check, mesh: this.shown.mesh });
    }
  }

  private resultOf({ check, mesh }: Relations): string {
    return JSON.stringify(this.results.run(runKey(check, mesh)));
  }

  private postChoices(): void {
    const choices = this.results.checks.flatMap(({ id, name, runs }) =>
      runs.map(({ mesh, state, stale }) => ({ check: id, name, mesh, state, stale })),
    );
    this.post({ type: "choices", choices });
  }

  private post(message: ToExplorer): void {
    void this.panel?.webview.postMessage(message);
  }
}

function atCursor({ document, selection }: vscode.TextEditor): RelationsParams {
  const { line, character } = selection.active;
  return { uri: document.uri.toString(), position: { line, character } };
}

function isSamePicture(a: Relations, b: Relations): boolean {
  const same = a.check === b.check && a.picture === b.picture && a.verdict === b.verdict && a.stale === b.stale;
  return same && JSON.stringify([a.mesh, a.findings]) === JSON.stringify([b.mesh, b.findings]);
}

async function saveSvg(svg: string): Promise<void> {
  const folder = vscode.workspace.workspaceFolders?.[0]?.uri;
  const name = "relations.svg";
  const target = await vscode.window.showSaveDialog({
    filters: { "SVG picture": ["svg"] },
    ...(folder && { defaultUri: vscode.Uri.joinPath(folder, name) }),
  });
  if (target !== undefined) {
    await vscode.workspace.fs.writeFile(target, Buffer.from(svg));
  }
}
