// The life of the language server: found, started, watched, restarted; one at a time.
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import * as fs from "node:fs";
import * as vscode from "vscode";
import {
  CloseAction,
  type CloseHandlerResult,
  ErrorAction,
  LanguageClient,
  type LanguageClientOptions,
  RevealOutputChannelOn,
  State,
} from "vscode-languageclient/node";
import { candidates, watchEnvironments } from "./environments";
import { StaleHints } from "./hints";
import { type Interpreter, judge, type Problem, probe } from "./interpreter";
import { type ChecksUpdate, type Marks, METHODS, type ServerStatus } from "./protocol";
import { importStrategy, needsRestart, serverSettings } from "./settings";

/** What the rest of the extension sees of the server. */
export type Phase =
  | { readonly kind: "stopped" }
  | { readonly kind: "starting" }
  | { readonly kind: "running"; readonly interpreter: Interpreter }
  | { readonly kind: "waiting"; readonly seconds: number }
  | { readonly kind: "failed"; readonly problem: Pick<Problem, "headline" | "nextStep"> & { readonly kind?: Problem["kind"] } };

const CRASHES_ALLOWED = 5;
const CRASH_WINDOW_SECONDS = 180;
const STOP_SECONDS = 2;

export class Server implements vscode.Disposable {
  private readonly phases = new vscode.EventEmitter<Phase>();
  private readonly statuses = new vscode.EventEmitter<ServerStatus>();
  private readonly updates = new vscode.EventEmitter<ChecksUpdate>();
  private readonly markings = new vscode.EventEmitter<Marks>();
  readonly onPhase = this.phases.event;
  readonly onStatus = this.statuses.event;
  readonly onChecks = this.updates.event;
  readonly onMarks = this.markings.event;

  private client: LanguageClient | undefined;
  private child: ChildProcess | undefined;
  private current: Phase = { kind: "stopped" };
  private work: Promise<void> = Promise.resolve();
  private queued = false;
  private crashes: number[] = [];
  private interpreter: Interpreter | undefined;
  private readonly hints = new StaleHints();
  private readonly disposables: vscode.Disposable[] = [this.hints];

  constructor(
    private readonly context: vscode.ExtensionContext,
    private readonly log: vscode.LogOutputChannel,
    private readonly traceLog: vscode.LogOutputChannel,
    private readonly showDocument: (command: string, args: unknown[], next: () => Promise<unknown>) => Promise<unknown>,
  ) {
    this.disposables.push(
      vscode.workspace.onDidChangeConfiguration((event) => {
        if (needsRestart(event)) {
          void this.restart("a setting changed");
        }
      }),
    );
    void watchEnvironments(() => void this.restartIfInterpreterChanged()).then((watches) => this.disposables.push(...watches));
  }

  get phase(): Phase {
    return this.current;
  }

  /** Stops what runs and starts afresh; calls that arrive meanwhile become one further restart. */
  restart(reason: string): Promise<void> {
    if (this.queued) {
      return this.work;
    }
    this.queued = true;
    this.work = this.work.then(async () => {
      this.queued = false;
      this.log.info(`Starting the server (${reason})`);
      await this.stop();
      await this.start();
    });
    return this.work;
  }

  /** The phase once a start that is under way has ended. */
  async settled(): Promise<Phase> {
    await this.work;
    return this.current;
  }

  /** Sends a request; a server that does not run answers undefined. */
  async request<Result>(method: string, params: unknown): Promise<Result | undefined> {
    if (this.client?.state !== State.Running) {
      return undefined;
    }
    return this.client.sendRequest<Result>(method, params);
  }

  /** The command line of the engine that this server runs on. */
  commandLine(interpreter: Interpreter, args: readonly string[]): { command: string; args: string[] } {
    return { command: interpreter.path, args: this.pythonModule("graphguard", args) };
  }

  asUri(uri: string): vscode.Uri {
    return this.client?.protocol2CodeConverter.asUri(uri) ?? vscode.Uri.parse(uri);
  }

  async stop(): Promise<void> {
    const [client, child] = [this.client, this.child];
    this.client = undefined;
    this.child = undefined;
    if (client !== undefined) {
      try {
        if (client.state === State.Starting) {
          // A client that is starting cannot be stopped; one that hangs in it is waited for no longer than one that hangs in its end.
          await Promise.race([client.start(), new Promise((resume) => setTimeout(resume, STOP_SECONDS * 1000))]);
        }
        await client.dispose(STOP_SECONDS * 1000);
      } catch (error) {
        // What matters is that the process ends, below; why it did not by itself is of interest only in the log.
        this.log.warn("The server did not stop by itself:", error);
      }
    }
    await endOf(child);
    this.enter({ kind: "stopped" });
  }

  dispose(): void {
    for (const disposable of [...this.disposables, this.phases, this.statuses, this.updates, this.markings]) {
      disposable.dispose();
    }
  }

  private async start(): Promise<void> {
    this.enter({ kind: "starting" });
    const folders = vscode.workspace.workspaceFolders ?? [];
    const verdict = await this.judgeFor(folders[0]?.uri);
    if ("headline" in verdict) {
      this.log.error(`${verdict.headline} ${verdict.nextStep}`);
      this.enter({ kind: "failed", problem: verdict });
      return;
    }
    this.interpreter = verdict;
    this.log.info(`Python ${verdict.python.join(".")}, torch ${verdict.torch}: ${verdict.path} (from ${verdict.origin})`);
    const interpreters = Object.fromEntries(
      await Promise.all(folders.map(async ({ uri }) => [uri.toString(), (await candidates(uri, this.log))[0]?.path ?? verdict.path])),
    ) as Record<string, string>;
    this.client = this.makeClient(verdict, interpreters);
    try {
      await this.client.start();
    } catch (error) {
      this.log.error("The server did not start:", error);
      this.enter({ kind: "failed", problem: { headline: "GraphGuard's server did not start.", nextStep: "The log says why." } });
    }
  }

  private async judgeFor(folder: vscode.Uri | undefined): Promise<Interpreter | Problem> {
    return judge(await candidates(folder, this.log), probe);
  }

  private async restartIfInterpreterChanged(): Promise<void> {
    if (!vscode.workspace.isTrusted) {
      return;
    }
    const chosen = (await candidates(vscode.workspace.workspaceFolders?.[0]?.uri, this.log))[0]?.path;
    if (chosen !== this.interpreter?.path && this.current.kind !== "starting") {
      await this.restart("another interpreter was chosen");
    }
  }

  private makeClient(interpreter: Interpreter, interpreters: Record<string, string>): LanguageClient {
    const isCurrent = () => this.client === client;
    const client: LanguageClient = new LanguageClient(
      "graphguard",
      "GraphGuard",
      () => this.spawn(interpreter),
      this.options(interpreter, interpreters, isCurrent),
    );
    client.onNotification(METHODS.status, (status: ServerStatus) => this.statuses.fire(status));
    client.onNotification(METHODS.checks, (update: ChecksUpdate) => this.updates.fire(update));
    client.onNotification(METHODS.marks, (marks: Marks) => this.markings.fire(marks));
    client.onDidChangeState(({ newState }) => {
      if (newState === State.Running && this.client === client) {
        this.enter({ kind: "running", interpreter });
      }
    });
    return client;
  }

  /** How to run a module of the engine or the server with the interpreter. */
  private pythonModule(module: string, args: readonly string[]): string[] {
    const launcher = this.context.asAbsolutePath("bundled/launch.py");
    const bundled = importStrategy() === "useBundled" && fs.existsSync(launcher);
    // -P: a file of the project must not stand in for a module of ours.
    return [...(bundled ? [launcher, module] : ["-P", "-m", module]), ...args];
  }

  private async spawn(interpreter: Interpreter): Promise<ChildProcess> {
    const child = spawn(interpreter.path, this.pythonModule("graphguard_server", []), {
      env: { ...process.env, PYTHONUNBUFFERED: "1" },
      shell: /\.(bat|cmd)$/i.test(interpreter.path),
      windowsHide: true,
    });
    await once(child, "spawn");
    this.child = child;
    return child;
  }

  private options(interpreter: Interpreter, interpreters: Record<string, string>, isCurrent: () => boolean): LanguageClientOptions {
    return {
      documentSelector: [
        { scheme: "file", language: "python" },
        { scheme: "file", pattern: "**/pyproject.toml" },
      ],
      // Without a channel of our own, a restart writes to a closed one and throws (languageclient 10 and 11).
      outputChannel: this.log,
      traceOutputChannel: this.traceLog,
      revealOutputChannelOn: RevealOutputChannelOn.Never,
      synchronize: { configurationSection: "graphguard" },
      initializationOptions: {
        trusted: vscode.workspace.isTrusted,
        interpreter: interpreter.path,
        interpreters,
        settings: serverSettings(),
      },
      initializationFailedHandler: (error) => {
        this.log.error("The server refused to start:", error);
        return false;
      },
      errorHandler: {
        error: () => ({ action: ErrorAction.Continue, handled: true }),
        closed: () => this.afterCrash(isCurrent),
      },
      middleware: {
        executeCommand: (command, args, next) => this.showDocument(command, args, async () => next(command, args)),
        provideInlayHints: async (document, range, token, next) => {
          const hints = await next(document, range, token);
          return hints && !token.isCancellationRequested ? this.hints.keep(document, hints) : hints;
        },
      },
    };
  }

  /** Restarts with growing pauses; gives up, loudly, when the server keeps dying. */
  private async afterCrash(isCurrent: () => boolean): Promise<CloseHandlerResult> {
    const now = Date.now();
    this.crashes = [...this.crashes.filter((time) => now - time < CRASH_WINDOW_SECONDS * 1000), now];
    if (this.crashes.length > CRASHES_ALLOWED) {
      this.crashes = [];
      this.enter({
        kind: "failed",
        problem: {
          headline: `GraphGuard's server ended ${CRASHES_ALLOWED + 1} times within ${CRASH_WINDOW_SECONDS / 60} minutes.`,
          nextStep: "Restart it, or look at the log for the reason.",
        },
      });
      return { action: CloseAction.DoNotRestart, handled: true };
    }
    const seconds = this.crashes.length === 1 ? 0 : 2 ** (this.crashes.length - 2);
    this.log.warn(`The server ended; it is started again in ${seconds} s`);
    this.enter({ kind: "waiting", seconds });
    await new Promise((resume) => setTimeout(resume, seconds * 1000));
    // Meanwhile the user may have restarted it: then there is another client already.
    return { action: isCurrent() ? CloseAction.Restart : CloseAction.DoNotRestart, handled: true };
  }

  private enter(phase: Phase): void {
    this.current = phase;
    if (phase.kind !== "running") {
      this.hints.clear();
    }
    this.phases.fire(phase);
  }
}

/** Ends a process that should have ended by itself. */
async function endOf(child: ChildProcess | undefined): Promise<void> {
  if (child === undefined || child.exitCode !== null || child.signalCode !== null) {
    return;
  }
  const ended = once(child, "exit");
  const timer = setTimeout(() => child.kill("SIGKILL"), STOP_SECONDS * 1000);
  await ended;
  clearTimeout(timer);
}
