// Entry point: wires the server to what people see of it.
import * as vscode from "vscode";
import { offer, Pages, registerCommands } from "./commands";
import { Explorer } from "./explorer";
import { Gutter } from "./gutter";
import { Matrix } from "./matrix";
import { isFinal, Results } from "./results";
import type { Phase } from "./server";
import { Server } from "./server";
import { notifications } from "./settings";
import { StatusItem } from "./status";
import { TestExplorer } from "./testExplorer";

let server: Server | undefined;

export async function activate(context: vscode.ExtensionContext): Promise<void> {
  const log = vscode.window.createOutputChannel("GraphGuard", { log: true });
  const traceLog = vscode.window.createOutputChannel("GraphGuard Trace", { log: true });
  const pages = new Pages();
  server = new Server(context, log, traceLog, async (command, _args, next) => showAnswer(pages, command, next));
  const results = new Results(server);
  context.subscriptions.push(
    log,
    traceLog,
    vscode.workspace.registerTextDocumentContentProvider(Pages.scheme, pages),
    server,
    results,
    new StatusItem(server),
    new TestExplorer(server, results),
    new Gutter(context, server, results),
    new Explorer(context, server, results),
    new Matrix(context, server, results),
    server.onPhase(announce),
    results.onChange(() => setContexts(results)),
    vscode.window.onDidChangeActiveTextEditor(() => setContexts(results)),
  );
  registerCommands(context, server, { log, pages });
  // Not awaited: an editor's start must not wait for a Python.
  void server.restart("the extension was activated");
}

export async function deactivate(): Promise<void> {
  await server?.stop();
}

/** Commands of the server whose answer is something to look at. */
async function showAnswer(pages: Pages, command: string, next: () => Promise<unknown>): Promise<unknown> {
  if (command === "graphguard.awaitFix") {
    return awaitFix(next);
  }
  const answer = await next();
  const { markdown, text } = (answer ?? {}) as { markdown?: string; text?: string };
  if (command === "graphguard.explain" && markdown !== undefined) {
    await pages.show(markdown);
  }
  if (command === "graphguard.reproduce" && text !== undefined) {
    await vscode.window.showTextDocument(await vscode.workspace.openTextDocument({ language: "python", content: text }));
  }
  return answer;
}

/** Waits until no proved fix is looked for any more, and then opens the menu again, which has what was found. */
async function awaitFix(next: () => Promise<unknown>): Promise<unknown> {
  const title = "GraphGuard: looking for a proved fix";
  const answer = await vscode.window.withProgress({ location: vscode.ProgressLocation.Window, title }, next);
  if ((answer as { fixes?: number } | null)?.fixes === 0) {
    void vscode.window.setStatusBarMessage("$(info) GraphGuard found no fix that it can prove", 5000);
  } else {
    await vscode.commands.executeCommand("editor.action.quickFix");
  }
  return answer;
}

/** What menus and walkthrough depend on. */
function setContexts(results: Results): void {
  const uri = vscode.window.activeTextEditor?.document.uri.toString();
  const here = results.checks.some((check) => uri !== undefined && server?.asUri(check.uri).toString() === uri);
  const verdict = results.checks.some((check) => check.runs.some(isFinal));
  void vscode.commands.executeCommand("setContext", "graphguard.fileHasChecks", here);
  void vscode.commands.executeCommand("setContext", "graphguard.hasVerdict", verdict);
  void vscode.commands.executeCommand("setContext", "graphguard.hasChecks", results.checks.length > 0);
}

function announce(phase: Phase): void {
  void vscode.commands.executeCommand("setContext", "graphguard.running", phase.kind === "running");
  if (phase.kind !== "failed" || notifications() === "off") {
    return;
  }
  const { headline, nextStep, kind } = phase.problem;
  const buttons: Record<string, string> =
    kind === undefined
      ? { "Show Logs": "graphguard.showLogs", Restart: "graphguard.restartServer" }
      : { "Select Interpreter": "graphguard.selectInterpreter", "How to Start": "graphguard.openWalkthrough" };
  void offer(`${headline} ${nextStep}`, buttons);
}
