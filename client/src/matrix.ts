// The verdict matrix: checks by meshes, every verdict with its time; a click opens the check.
import * as vscode from "vscode";
import type { FromMatrix, MatrixCell, MatrixRow, ToMatrix } from "../webview/matrixModel";
import { pageOf, webviewOptions } from "./page";
import { type Check, meshText, METHODS } from "./protocol";
import type { Results } from "./results";
import type { Server } from "./server";
import { toRange } from "./testExplorer";

const BODY = `<h1>Verdicts</h1><header><span class="spacer"></span><button id="all">Check All</button></header><main><div id="matrix"></div></main>`;

/** Columns in the order in which the meshes first appear, one row per check. */
export function matrixOf(checks: readonly Check[]): ToMatrix {
  const meshes = [...new Set(checks.flatMap((check) => check.runs.map(({ mesh }) => meshText(mesh))))];
  const rows = checks.map((check): MatrixRow => {
    const cells = meshes.map((mesh): MatrixCell | null => {
      const run = check.runs.find((candidate) => meshText(candidate.mesh) === mesh);
      return run === undefined ? null : { state: run.state, stale: run.stale, seconds: run.seconds, headline: run.headline, mesh: run.mesh };
    });
    return { check: check.id, name: check.name, file: check.id.slice(0, check.id.lastIndexOf("::")), cells };
  });
  return { meshes, rows };
}

export class Matrix implements vscode.Disposable {
  private panel: vscode.WebviewPanel | undefined;
  private readonly watches: vscode.Disposable[];

  constructor(
    private readonly context: vscode.ExtensionContext,
    private readonly server: Server,
    private readonly results: Results,
  ) {
    this.watches = [vscode.commands.registerCommand("graphguard.openMatrix", () => this.open()), results.onChange(() => this.post())];
  }

  dispose(): void {
    this.panel?.dispose();
    this.watches.forEach((watch) => watch.dispose());
  }

  private open(): void {
    if (this.panel !== undefined) {
      this.panel.reveal();
      return;
    }
    const { extensionUri } = this.context;
    this.panel = vscode.window.createWebviewPanel("graphguard.matrix", "Verdicts", vscode.ViewColumn.Active, webviewOptions(extensionUri));
    this.panel.onDidDispose(() => (this.panel = undefined));
    this.panel.webview.onDidReceiveMessage((message: FromMatrix) => this.answer(message));
    this.panel.webview.html = pageOf(this.panel.webview, extensionUri, "Verdicts", "matrix.js", BODY);
  }

  private async answer(message: FromMatrix): Promise<void> {
    if (message.type === "ready") {
      this.post();
    } else if (message.type === "all") {
      await this.server.request(METHODS.run, { force: true });
    } else {
      const check = this.results.checks.find(({ id }) => id === message.check);
      if (check !== undefined) {
        await vscode.window.showTextDocument(this.server.asUri(check.uri), { selection: toRange(check.range) });
      }
    }
  }

  private post(): void {
    void this.panel?.webview.postMessage(matrixOf(this.results.checks));
  }
}


