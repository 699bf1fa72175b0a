// Every check on every mesh in the Test Explorer: run, cancel, duration, and the failure at its line.
import * as vscode from "vscode";
import { type Check, type CheckRun, METHODS, meshText, type RunTarget } from "./protocol";
import { isFinal, isRunning, type Results, runKey } from "./results";
import type { Server } from "./server";
import { VERDICTS, wordOf } from "./verdicts";

interface Target {
  readonly key: string;
  readonly item: vscode.TestItem;
  readonly request: RunTarget;
}

export class TestExplorer implements vscode.Disposable {
  private readonly controller = vscode.tests.createTestController("graphguard", "GraphGuard");
  private readonly watch: vscode.Disposable;
  /** The leaves: one per check and mesh. */
  private targets = new Map<string, Target>();
  /** What is shown of each leaf, so that only a new result makes a new run. */
  private shown = new Map<string, CheckRun>();
  /** The texts that a run has printed, each with the leaf that it was printed for. */
  private readonly printed = new WeakMap<vscode.TestRun, Map<string, string>>();
  /** The leaves that a run of the user's waits for. */
  private readonly awaited = new Map<string, (run: CheckRun) => void>();

  constructor(
    private readonly server: Server,
    private readonly results: Results,
  ) {
    this.controller.createRunProfile("Prove", vscode.TestRunProfileKind.Run, (request, token) => this.run(request, token), true);
    this.controller.refreshHandler = async () => {
      await this.server.request(METHODS.run, {});
    };
    this.watch = results.onChange((checks) => this.refresh(checks));
  }

  dispose(): void {
    this.watch.dispose();
    this.controller.dispose();
  }

  private refresh(checks: readonly Check[]): void {
    this.rebuild(checks);
    const fresh: [Target, CheckRun][] = [];
    for (const target of this.targets.values()) {
      const run = this.results.run(target.key);
      if (run === undefined) {
        continue;
      }
      const waiting = this.awaited.get(target.key);
      const before = this.shown.get(target.key);
      this.shown.set(target.key, run);
      if (waiting !== undefined) {
        waiting(run);
      } else if (isFinal(run) && !sameResult(before, run)) {
        fresh.push([target, run]);
      } else if (run.stale && before !== undefined && !before.stale) {
        this.controller.invalidateTestResults(target.item);
      }
    }
    this.showBackground(fresh);
  }

  /** Keeps one item per file, check and mesh; items that stay keep their identity, and with it their result. */
  private rebuild(checks: readonly Check[]): void {
    this.targets = new Map();
    const files = new Map<string, Check[]>();
    for (const check of checks) {
      files.set(check.uri, [...(files.get(check.uri) ?? []), check]);
    }
    prune(this.controller.items, new Set(files.keys()));
    for (const [uri, inFile] of files) {
      const file = this.item(this.controller.items, uri, vscode.workspace.asRelativePath(this.server.asUri(uri)), uri);
      prune(file.children, new Set(inFile.map((check) => check.id)));
      for (const check of inFile) {
        this.rebuildCheck(file, check);
      }
    }
  }

  private rebuildCheck(file: vscode.TestItem, check: Check): void {
    const parent = this.item(file.children, check.id, check.name, check.uri);
    parent.range = toRange(check.range);
    prune(parent.children, new Set(check.runs.map((run) => runKey(check.id, run.mesh))));
    for (const { mesh } of check.runs) {
      const key = runKey(check.id, mesh);
      const item = this.item(parent.children, key, meshText(mesh) || "one rank", check.uri);
      item.range = toRange(check.range);
      this.targets.set(key, { key, item, request: { id: check.id, mesh } });
    }
  }

  private item(among: vscode.TestItemCollection, id: string, label: string, uri: string): vscode.TestItem {
    const known = among.get(id);
    if (known !== undefined) {
      return known;
    }
    const made = this.controller.createTestItem(id, label, this.server.asUri(uri));
    among.add(made);
    return made;
  }

  private async run(request: vscode.TestRunRequest, token: vscode.CancellationToken): Promise<void> {
    const chosen = [...this.targets.values()].filter((target) => isChosen(target.item, request));
    const run = this.controller.createTestRun(request);
    chosen.forEach(({ item }) => run.enqueued(item));
    token.onCancellationRequested(() => void this.server.request(METHODS.cancel, { checks: chosen.map((target) => target.request) }));
    const ends = chosen.map((target) => this.follow(run, target, token));
    try {
      const accepted = await this.server.request(METHODS.run, { checks: chosen.map((target) => target.request), force: true });
      if (accepted !== undefined) {
        await Promise.all(ends);
      }
    } finally {
      chosen.forEach(({ key }) => this.awaited.delete(key));
      run.end();
    }
  }

  /** Shows a leaf's way through the run; done with its result, or when the run is cancelled. */
  private follow(run: vscode.TestRun, target: Target, token: vscode.CancellationToken): Promise<void> {
    return new Promise((resolve) => {
      let started = false;
      token.onCancellationRequested(() => {
        run.skipped(target.item);
        resolve();
      });
      this.awaited.set(target.key, (state) => {
        if (isRunning(state) && !started) {
          started = true;
          run.started(target.item);
        }
        if (started && !isRunning(state)) {
          // Not final: an edit, a cancellation or the server's end left it without a result.
          if (isFinal(state)) {
            this.show(run, target, state);
          } else {
            run.skipped(target.item);
          }
          resolve();
        }
      });
    });
  }

  /** Results that came without being asked for here: while typing, on save, from a code lens. */
  private showBackground(fresh: readonly (readonly [Target, CheckRun])[]): void {
    if (fresh.length === 0) {
      return;
    }
    const request = new vscode.TestRunRequest(fresh.map(([{ item }]) => item));
    const run = this.controller.createTestRun(request, undefined, false);
    for (const [target, result] of fresh) {
      run.started(target.item);
      this.show(run, target, result);
    }
    run.end();
  }

  private show(run: vscode.TestRun, { item }: Target, result: CheckRun): void {
    const milliseconds = result.seconds * 1000;
    run.appendOutput(`${this.output(run, item, result).replaceAll("\n", "\r\n")}\r\n`, undefined, item);
    switch (result.state) {
      case "proved":
      case "assumed":
        run.passed(item, milliseconds);
        break;
      case "broken":
        run.failed(item, this.failure(item, result), milliseconds);
        break;
      case "error":
        run.errored(item, this.failure(item, result), milliseconds);
        break;
      default:
        // Unknown is neither a success nor a bug.
        run.skipped(item);
    }
    item.description = result.state === "unknown" ? `unknown: ${result.headline}` : result.state === "assumed" ? VERDICTS.assumed : "";
  }

  /** What is printed of a result; of one that is word for word that of another leaf of this run, only that it is. */
  private output(run: vscode.TestRun, item: vscode.TestItem, result: CheckRun): string {
    const text = result.message || result.headline || wordOf(result.state);
    const printed = this.printed.get(run) ?? new Map<string, string>();
    this.printed.set(run, printed);
    const label = `${item.parent?.label ?? ""} ${item.label}`.trim();
    const before = printed.get(text);
    printed.set(text, before ?? label);
    return before === undefined ? `${label}: ${text}` : `${label}: as ${before}`;
  }

  private failure(item: vscode.TestItem, result: CheckRun): vscode.TestMessage {
    const message = new vscode.TestMessage(result.message || result.headline);
    if (result.location !== undefined) {
      message.location = new vscode.Location(this.server.asUri(result.location.uri), toRange(result.location.range));
    } else if (item.uri !== undefined && item.range !== undefined) {
      message.location = new vscode.Location(item.uri, item.range);
    }
    return message;
  }
}

/** Whether a result only tells more of what was found before, as one does while fixes are looked for: that is no new run. */
function sameResult(a: CheckRun | undefined, b: CheckRun): boolean {
  return a !== undefined && isFinal(a) && a.state === b.state && a.headline === b.headline;
}

function isChosen(item: vscode.TestItem, { include, exclude }: vscode.TestRunRequest): boolean {
  const line: vscode.TestItem[] = [];
  for (let at: vscode.TestItem | undefined = item; at !== undefined; at = at.parent) {
    line.push(at);
  }
  return (include === undefined || line.some((at) => include.includes(at))) && !line.some((at) => exclude?.includes(at));
}

function prune(items: vscode.TestItemCollection, keep: ReadonlySet<string>): void {
  items.forEach((item) => {
    if (!keep.has(item.id)) {
      items.delete(item.id);
    }
  });
}

export function toRange({ start, end }: Check["range"]): vscode.Range {
  return new vscode.Range(start.line, start.character, end.line, end.character);
}

