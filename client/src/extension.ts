// Entry point: wires the server to what people see of it.
import * as vscode from "vscode";
import { offer, registerCommands, showMarkdown } from "./commands";
import type { Phase } from "./server";
import { Server } from "./server";
import { notifications } from "./settings";
import { StatusItem } from "./status";

let server: Server | undefined;

export async function activate(context: vscode.ExtensionContext): Promise<void> {
  const log = vscode.window.createOutputChannel("GraphGuard", { log: true });
  const traceLog = vscode.window.createOutputChannel("GraphGuard Trace", { log: true });
  server = new Server(context, log, traceLog, showAnswer);
  context.subscriptions.push(log, traceLog, server, new StatusItem(server), server.onPhase(announce));
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
