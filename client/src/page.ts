// The frame of every webview: a strict content security policy, our style sheet, one script.
import { randomBytes } from "node:crypto";
import * as vscode from "vscode";

export function pageOf(webview: vscode.Webview, extension: vscode.Uri, title: string, script: string, body: string): string {
  const nonce = randomBytes(16).toString("base64");
  const dist = (name: string) => webview.asWebviewUri(vscode.Uri.joinPath(extension, "client", "dist", name)).toString();
  const policy = [
    "default-src 'none'",
    `style-src ${webview.cspSource}`,
    `script-src 'nonce-${nonce}'`,
  ].join("; ");
  return `<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="${policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="stylesheet" href="${dist("explorer.css")}">
<title>${title}</title>
</head>
<body>
${body}
<script nonce="${nonce}" src="${dist(script)}"></script>
</body>
</html>`;
}

/** Where webviews may load from. */
export function webviewOptions(extension: vscode.Uri): vscode.WebviewPanelOptions & vscode.WebviewOptions {
  return { enableScripts: true, retainContextWhenHidden: true, localResourceRoots: [vscode.Uri.joinPath(extension, "client", "dist")] };
}
