// Entry point: wires the server to what people see of it.
import * as vscode from "vscode";
import { offer, registerCommands, showMarkdown } from "./commands";
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
  server = new Server(context, log, traceLog, showAnswer);
  const results = new Results(server);
  context.subscriptions.push(
    log,
    traceLog,
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
  registerCommands(context, server, { log });
  // Not awaited: an editor's start must not wait for a Python.
  void server.restart("the extension was activated");
}

export async function deactivate(): Promise<void> {
  await server?.stop();
}

/** Commands of the server whose answer is a text to read. */
async function showAnswer(command: string, _args: unknown[], next: () => Promise<unknown>): Promise<unknown> {
  const answer = await next();
  const { markdown, text } = (answer ?? {}) as { markdown?: string; text?: string };
  if (command === "graphguard.explain" && markdown !== undefined) {
    await showMarkdown(markdown);
  }
  if (command === "graphguard.reproduce" && text !== undefined) {
    await vscode.window.showTextDocument(await vscode.workspace.openTextDocument({ language: "python", content: text }));
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
