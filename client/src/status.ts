// The language status item: one line that is never older than the server's last word.
import * as vscode from "vscode";
import type { Counts, ServerStatus } from "./protocol";
import type { Phase, Server } from "./server";
import { COUNTED } from "./verdicts";

const RESTART: vscode.Command = { command: "graphguard.restartServer", title: "Restart" };
const LOGS: vscode.Command = { command: "graphguard.showLogs", title: "Show Logs" };
const CHOOSE: vscode.Command = { command: "graphguard.selectInterpreter", title: "Select Interpreter" };
const MATRIX: vscode.Command = { command: "graphguard.openMatrix", title: "Verdicts" };

/** What the item shows; plain data, so that it can be tested without an editor. */
export interface Look {
  readonly text: string;
  readonly detail: string;
  readonly busy: boolean;
  readonly severity: "information" | "warning" | "error";
  readonly command: vscode.Command;
}

/** ``1 broken, 2 refine``: what is zero is left out. */
export function countsText(counts: Counts): string {
  const parts = (["broken", "error", "unknown", "assumed", "proved"] as const)
    .filter((name) => counts[name] > 0)
    .map((name) => `${counts[name]} ${COUNTED[name]}`);
  const stale = counts.stale > 0 ? ` (${counts.stale} out of date)` : "";
  return (parts.join(", ") || "no checks yet") + stale;
}

export function lookOf(phase: Phase, status: ServerStatus | undefined): Look {
  switch (phase.kind) {
    case "stopped":
      return { text: "GraphGuard: stopped", detail: "", busy: false, severity: "warning", command: RESTART };
    case "starting":
      return { text: "GraphGuard: starting", detail: "", busy: true, severity: "information", command: LOGS };
    case "waiting":
      return { text: "GraphGuard: the server ended, starting again", detail: "", busy: true, severity: "warning", command: LOGS };
    case "failed": {
      const { headline, nextStep, kind } = phase.problem;
      return { text: headline, detail: nextStep, busy: false, severity: "error", command: kind === undefined ? LOGS : CHOOSE };
    }
    case "running":
      return running(phase, status);
  }
}

function running(phase: Extract<Phase, { kind: "running" }>, status: ServerStatus | undefined): Look {
  const environment = `Python ${phase.interpreter.python.join(".")}, torch ${phase.interpreter.torch}`;
  if (status === undefined) {
    return { text: "GraphGuard: ready", detail: environment, busy: false, severity: "information", command: MATRIX };
  }
  const counts = countsText(status.counts);
  // At rest the message repeats the counts.
  const detail = [status.detail, status.busy || status.health !== "ok" ? status.message : "", environment].filter(Boolean).join(" · ");
  if (status.health !== "ok") {
    return { text: `GraphGuard: ${status.message || counts}`, detail, busy: status.busy, severity: status.health, command: LOGS };
  }
  return { text: `GraphGuard: ${counts}`, detail, busy: status.busy, severity: "information", command: MATRIX };
}

const SEVERITIES = {
  information: vscode.LanguageStatusSeverity.Information,
  warning: vscode.LanguageStatusSeverity.Warning,
  error: vscode.LanguageStatusSeverity.Error,
} as const;

/** What stands in the status bar of every window until it is mended: that no Python serves. */
export function lack(phase: Phase): Look | undefined {
  return phase.kind === "failed" ? { ...lookOf(phase, undefined), text: `$(error) GraphGuard: ${SHORT[phase.problem.kind ?? "server"]}` } : undefined;
}

const SHORT = {
  "no-python": "no Python",
  "does-not-start": "Python does not start",
  "old-python": "Python is too old",
  "no-torch": "no torch",
  "old-torch": "torch is too old",
  "no-numpy": "no numpy",
  server: "does not run",
} as const;

export class StatusItem implements vscode.Disposable {
  private readonly bar = vscode.window.createStatusBarItem("graphguard.lack", vscode.StatusBarAlignment.Left);
  private readonly item = vscode.languages.createLanguageStatusItem("graphguard.status", { language: "python" });
  private readonly watches: vscode.Disposable[];
  private status: ServerStatus | undefined;

  constructor(private readonly server: Server) {
    this.item.name = "GraphGuard";
    this.watches = [
      server.onPhase((phase) => {
        if (phase.kind !== "running") {
          this.status = undefined; // a new server counts its revisions from the start
        }
        this.paint();
      }),
      server.onStatus((status) => {
        if (this.status === undefined || status.revision >= this.status.revision) {
          this.status = status;
          this.paint();
        }
      }),
    ];
    this.paint();
  }

  dispose(): void {
    this.item.dispose();
    this.bar.dispose();
    this.watches.forEach((watch) => watch.dispose());
  }

  private paint(): void {
    const look = lookOf(this.server.phase, this.status);
    this.item.text = look.text;
    this.item.detail = look.detail;
    this.item.busy = look.busy;
    this.item.severity = SEVERITIES[look.severity];
    this.item.command = look.command;
    const missing = lack(this.server.phase);
    if (missing === undefined) {
      this.bar.hide();
      return;
    }
    this.bar.name = "GraphGuard";
    this.bar.text = missing.text;
    this.bar.tooltip = `${look.text}\n${look.detail}`;
    this.bar.command = missing.command;
    this.bar.backgroundColor = new vscode.ThemeColor("statusBarItem.errorBackground");
    this.bar.show();
  }
}
