// Inlay hints from before the last edit, pale until they are fresh: an editor cannot dim a hint, so meanwhile decorations stand where hints stood.
import * as vscode from "vscode";

/** A hint as the server sends it: ``data`` says that it is from before the last edit. */
export type Hint = vscode.InlayHint & { readonly data?: { readonly stale?: boolean } };

/** What is drawn in a hint's place: its text, in the theme's colour of what is disabled. */
function drawn({ position, label, tooltip }: Hint): vscode.DecorationOptions {
  const contentText = typeof label === "string" ? label : label.map(({ value }) => value).join("");
  return {
    range: new vscode.Range(position, position),
    ...(tooltip === undefined ? {} : { hoverMessage: tooltip }),
    renderOptions: { before: { contentText } },
  };
}

export class StaleHints implements vscode.Disposable {
  private readonly pale = vscode.window.createTextEditorDecorationType({
    before: { color: new vscode.ThemeColor("disabledForeground"), backgroundColor: new vscode.ThemeColor("editorInlayHint.typeBackground") },
    rangeBehavior: vscode.DecorationRangeBehavior.ClosedClosed,
  });

  /** Draws those that are from before the last edit, and gives the others for the editor to show. */
  keep(document: vscode.TextDocument, hints: readonly Hint[]): Hint[] {
    const stale = hints.filter(({ data }) => data?.stale === true);
    for (const editor of vscode.window.visibleTextEditors.filter((shown) => shown.document === document)) {
      editor.setDecorations(this.pale, stale.map(drawn));
    }
    return hints.filter((hint) => !stale.includes(hint));
  }

  /** Takes all of them away: nothing will make them fresh. */
  clear(): void {
    vscode.window.visibleTextEditors.forEach((editor) => editor.setDecorations(this.pale, []));
  }

  dispose(): void {
    this.pale.dispose();
  }
}
