// Marks beside the lines that were checked; pale from the first keystroke until they were checked again.
import * as vscode from "vscode";
import type { Check, Marks, RunState } from "./protocol";
import { foremost, isRunning, type Results } from "./results";
import type { Server } from "./server";
import { gutterShown } from "./settings";

/** A mark as it is drawn: ``stale`` marks are pale. */
export interface Mark {
  readonly line: number;
  readonly state: Exclude<RunState, "idle">;
  readonly stale: boolean;
}

const STATES = ["queued", "tracing", "proving", "proved", "assumed", "unknown", "broken", "error"] as const;
const PASSING: ReadonlySet<string> = new Set(["queued", "tracing", "proving"]);

/** The file name of a mark's picture, which also keys its decoration. */
export function picture({ state, stale }: Pick<Mark, "state" | "stale">): string {
  return stale && !PASSING.has(state) ? `stale${state}` : state;
}

/** Moves lines by what an edit inserted or removed above them; marks inside the edit stay where it begins. */
export function shifted(line: number, changes: readonly vscode.TextDocumentContentChangeEvent[]): number {
  return changes.reduce((at, { range, text }) => {
    if (at <= range.start.line) {
      return at;
    }
    const inserted = text.split("\n").length - 1;
    return at > range.end.line || (at === range.end.line && range.end.character === 0)
      ? at + inserted - (range.end.line - range.start.line)
      : range.start.line;
  }, line);
}

/** The marks of a file: of its operators, and of its checks, whose own line tells what is going on. */
export function marksOf(file: Marks | undefined, checks: readonly Check[], edited: boolean): Mark[] {
  const operators = (file?.marks ?? []).map(({ line, state }) => ({ line, state, stale: edited || (file?.stale ?? false) }));
  const ofChecks = checks.flatMap((check) => {
    const run = foremost(check);
    if (run === undefined || run.state === "idle") {
      return [];
    }
    return [{ line: check.range.start.line, state: run.state, stale: (edited || run.stale) && !isRunning(run) }];
  });
  const taken = new Set(ofChecks.map(({ line }) => line));
  return [...ofChecks, ...operators.filter(({ line }) => !taken.has(line))];
}

export class Gutter implements vscode.Disposable {
  private readonly decorations = new Map<string, vscode.TextEditorDecorationType>();
  private readonly files = new Map<string, Marks>();
  /** Files edited since their marks were made. */
  private readonly edited = new Set<string>();
  private readonly watches: vscode.Disposable[];

  constructor(
    context: vscode.ExtensionContext,
    private readonly server: Server,
    private readonly results: Results,
  ) {
    const pictures = STATES.flatMap((state) => [picture({ state, stale: false }), picture({ state, stale: true })]);
    for (const name of new Set(pictures)) {
      const gutterIconPath = vscode.Uri.joinPath(context.extensionUri, "client", "media", "gutter", `${name}.svg`);
      this.decorations.set(name, vscode.window.createTextEditorDecorationType({ gutterIconPath, gutterIconSize: "80%" }));
    }
    this.watches = [
      server.onMarks((marks) => this.take(marks)),
      results.onChange(() => this.paintAll()),
      vscode.workspace.onDidChangeTextDocument((event) => this.onEdit(event)),
      vscode.workspace.onDidCloseTextDocument((document) => this.forget(document)),
      vscode.window.onDidChangeVisibleTextEditors(() => this.paintAll()),
      vscode.workspace.onDidChangeConfiguration((event) => {
        if (event.affectsConfiguration("graphguard.gutter")) {
          this.paintAll();
        }
      }),
    ];
  }

  dispose(): void {
    for (const disposable of [...this.watches, ...this.decorations.values()]) {
      disposable.dispose();
    }
  }

  private take(marks: Marks): void {
    const uri = this.server.asUri(marks.uri).toString();
    const document = vscode.workspace.textDocuments.find((open) => open.uri.toString() === uri);
    // Marks of an older text than the one on screen: the next ones are on their way.
    if (document !== undefined && marks.version !== null && marks.version < document.version) {
      return;
    }
    this.files.set(uri, marks);
    this.edited.delete(uri);
    this.paintAll();
  }

  private onEdit({ document, contentChanges }: vscode.TextDocumentChangeEvent): void {
    const uri = document.uri.toString();
    const marks = this.files.get(uri);
    if (marks === undefined || contentChanges.length === 0) {
      return;
    }
    this.edited.add(uri);
    this.files.set(uri, { ...marks, marks: marks.marks.map((mark) => ({ ...mark, line: shifted(mark.line, contentChanges) })) });
    this.paintAll();
  }

  private forget(document: vscode.TextDocument): void {
    this.files.delete(document.uri.toString());
    this.edited.delete(document.uri.toString());
  }

  private paintAll(): void {
    for (const editor of vscode.window.visibleTextEditors) {
      if (editor.document.languageId === "python") {
        this.paint(editor);
      }
    }
  }

  private paint(editor: vscode.TextEditor): void {
    const uri = editor.document.uri.toString();
    const checks = this.results.checks.filter((check) => this.server.asUri(check.uri).toString() === uri);
    const marks = gutterShown() ? marksOf(this.files.get(uri), checks, this.edited.has(uri)) : [];
    for (const [name, decoration] of this.decorations) {
      const lines = marks.filter((mark) => picture(mark) === name).map(({ line }) => new vscode.Range(line, 0, line, 0));
      editor.setDecorations(decoration, lines);
    }
  }
}
