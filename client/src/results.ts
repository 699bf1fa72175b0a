// The last results of every check: what test explorer, gutter and matrix are drawn from.
import * as vscode from "vscode";
import { type Check, type CheckRun, type ChecksUpdate, type Mesh, meshText, type RunState } from "./protocol";
import type { Server } from "./server";

const RUNNING: ReadonlySet<RunState> = new Set<RunState>(["queued", "tracing", "proving"]);

export const isRunning = (run: CheckRun): boolean => RUNNING.has(run.state);
/** A result of the text as it is now. */
export const isFinal = (run: CheckRun): boolean => !isRunning(run) && !run.stale && run.state !== "idle";

/** Identifies one check on one mesh. */
export const runKey = (check: string, mesh: Mesh): string => `${check} [${meshText(mesh)}]`;

/** From what a reader should see first to what may be passed over. */
const WEIGHT: readonly RunState[] = ["proving", "tracing", "queued", "broken", "error", "unknown", "assumed", "proved", "idle"];

/** The one run that stands for all meshes of a check. */
export function foremost(check: Check): CheckRun | undefined {
  return [...check.runs].sort((a, b) => WEIGHT.indexOf(a.state) - WEIGHT.indexOf(b.state))[0];
}

export class Results implements vscode.Disposable {
  private readonly changes = new vscode.EventEmitter<readonly Check[]>();
  private readonly watches: vscode.Disposable[];
  readonly onChange = this.changes.event;
  private revision = -1;
  private current: readonly Check[] = [];

  constructor(server: Server) {
    this.watches = [
      server.onChecks((update) => this.take(update)),
      server.onPhase(({ kind }) => {
        // A new server counts its revisions from the start; what the old one said is shown as out of date until then.
        if (kind !== "running") {
          this.revision = -1;
          this.replace(this.current.map((check) => ({ ...check, runs: check.runs.map(outOfDate) })));
        }
      }),
    ];
  }

  get checks(): readonly Check[] {
    return this.current;
  }

  in(uri: string): readonly Check[] {
    return this.current.filter((check) => check.uri === uri);
  }

  run(key: string): CheckRun | undefined {
    for (const check of this.current) {
      const found = check.runs.find((run) => runKey(check.id, run.mesh) === key);
      if (found !== undefined) {
        return found;
      }
    }
    return undefined;
  }

  dispose(): void {
    this.changes.dispose();
    this.watches.forEach((watch) => watch.dispose());
  }

  private take(update: ChecksUpdate): void {
    if (update.revision > this.revision) {
      this.revision = update.revision;
      this.replace(update.checks);
    }
  }

  private replace(checks: readonly Check[]): void {
    this.current = checks;
    this.changes.fire(checks);
  }
}

function outOfDate(run: CheckRun): CheckRun {
  return { ...run, stale: true, state: isRunning(run) ? "idle" : run.state };
}
