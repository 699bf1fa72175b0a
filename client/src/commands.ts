// The commands of the palette.
import { execFile } from "node:child_process";
import { existsSync } from "node:fs";
import { promisify } from "node:util";
import * as vscode from "vscode";
import { allCandidates } from "./environments";
import { described, type Found, installing, probe, survey } from "./interpreter";
import { METHODS } from "./protocol";
import type { Phase, Server } from "./server";

const DOCTOR_SECONDS = 120;

export interface Channels {
  readonly log: vscode.LogOutputChannel;
  readonly pages: Pages;
}

/** Registers every command that needs only the server. */
export function registerCommands(context: vscode.ExtensionContext, server: Server, { log, pages }: Channels): void {
  const commands: Record<string, (...args: never[]) => unknown> = {
    restartServer: () => server.restart("by command"),
    showLogs: () => log.show(),
    checkFile: () => checkFile(server),
    checkAll: () => run(server, { force: true }),
    cancelChecks: () => server.request(METHODS.cancel, {}),
    clearCaches: () => clearCaches(server),
    explainRule: (rule?: string) => explainRule(server, pages, rule),
    doctor: () => doctor(server, { log, pages }),
    installCommandLine: () => installCommandLine(context, server),
    init: () => writeFirstCheck(server),
    copyDebugInformation: () => copyDebugInformation(context, server),
    selectInterpreter: () => selectInterpreter({ log, pages }),
    openWalkthrough: () => vscode.commands.executeCommand("workbench.action.openWalkthrough", `${context.extension.id}#start`),
  };
  for (const [name, handler] of Object.entries(commands)) {
    context.subscriptions.push(vscode.commands.registerCommand(`graphguard.${name}`, handler));
  }
}

async function run(server: Server, params: { uri?: string; force?: boolean }): Promise<void> {
  await server.settled();
  const answer = await server.request<{ queued: number }>(METHODS.run, params);
  if (answer === undefined) {
    await offer(`GraphGuard does not run: ${notRunning(server)}`, { "Show Logs": "graphguard.showLogs", Restart: "graphguard.restartServer" });
  } else if (answer.queued === 0) {
    await offer("GraphGuard found no checks here.", { "Write a First Check": "graphguard.init" });
  }
}

function notRunning(server: Server): string {
  return server.phase.kind === "failed" ? server.phase.problem.headline : "it is starting.";
}

async function checkFile(server: Server): Promise<void> {
  const editor = vscode.window.activeTextEditor;
  if (editor?.document.languageId === "python") {
    await run(server, { uri: editor.document.uri.toString(), force: true });
  }
}

async function clearCaches(server: Server): Promise<void> {
  const answer = await server.request<{ message: string }>(METHODS.clearCache, {});
  if (answer !== undefined) {
    void vscode.window.showInformationMessage(`GraphGuard: ${answer.message}`);
  }
}

/** Explains a rule; without one, the rules of the open file's findings are offered first. */
export async function explainRule(server: Server, pages: Pages, rule?: string): Promise<void> {
  const chosen = rule ?? (await askForRule());
  if (chosen === undefined) {
    return;
  }
  const answer = await server.request<{ markdown: string }>(METHODS.explain, { rule: chosen });
  if (answer !== undefined) {
    await pages.show(answer.markdown);
  }
}

async function askForRule(): Promise<string | undefined> {
  const codes = vscode.languages
    .getDiagnostics()
    .flatMap(([, diagnostics]) => diagnostics)
    .filter((diagnostic) => diagnostic.source === "graphguard")
    .map(({ code }) => String(typeof code === "object" ? code.value : code));
  const found = [...new Set(codes)].sort();
  if (found.length === 0) {
    return vscode.window.showInputBox({ prompt: "Rule to explain", placeHolder: "missing-reduction" });
  }
  return vscode.window.showQuickPick(found, { placeHolder: "Rule to explain" });
}

/** Pages to read, which are no files: nothing is to be saved when they are closed. */
export class Pages implements vscode.TextDocumentContentProvider {
  static readonly scheme = "graphguard";
  private readonly texts = new Map<string, string>();

  provideTextDocumentContent(uri: vscode.Uri): string {
    return this.texts.get(uri.path) ?? "";
  }

  /** Shows a page, named by its heading, as Markdown beside the editor, in the column where other pages are. */
  async show(content: string): Promise<void> {
    const title = /^#\s+(\S+)/.exec(content)?.[1] ?? "page";
    const uri = vscode.Uri.from({ scheme: Pages.scheme, path: `/${title}.md` });
    this.texts.set(uri.path, content);
    await vscode.commands.executeCommand("workbench.action.focusFirstEditorGroup");
    await vscode.commands.executeCommand("markdown.showPreviewToSide", uri);
  }
}

/** Always opens: what is wrong, every Python that was found, and, where the engine runs, what it says of itself. */
async function doctor(server: Server, { log, pages }: Channels): Promise<void> {
  const phase = await server.settled();
  const folder = vscode.workspace.workspaceFolders?.[0]?.uri;
  const found = await survey(await allCandidates(folder, log), probe);
  const said = phase.kind === "running" ? (await commandLine(server, ["doctor"], folder?.fsPath)).text : "";
  await pages.show(doctorPage(phase, found, said));
  if (phase.kind === "running" && found.some(({ path, answer }) => path === phase.interpreter.path && answer?.graphguard === null)) {
    // Not awaited: the page is there, and nobody has to answer.
    void offer(`${phase.interpreter.path} has no command graphguard, for terminals and continuous integration.`, {
      "Install It": "graphguard.installCommandLine",
    });
  }
  if (phase.kind === "failed") {
    await offer(`${phase.problem.headline} ${phase.problem.nextStep}`, {
      "Select Interpreter": "graphguard.selectInterpreter",
      "Show Logs": "graphguard.showLogs",
    });
  }
}

/** The doctor's page as Markdown. */
export function doctorPage(phase: Phase, found: readonly Found[], said: string): string {
  const used = phase.kind === "running" ? phase.interpreter.path : undefined;
  const rows = found.map((each) => {
    const fit = each.path === used ? "in use" : each.problem === undefined ? "can be used" : each.problem.nextStep;
    return `- \`${each.path}\` (from ${each.origin}): ${described(each)}; ${fit}`;
  });
  const problem = phase.kind === "failed" ? [`**${phase.problem.headline}**`, phase.problem.nextStep] : [];
  return [
    "# Doctor",
    ...problem,
    "## Pythons that were found",
    rows.join("\n") || "None. Install Python 3.11 or newer with torch, or name one in the setting `graphguard.interpreter`.",
    ...(said === "" ? [] : ["## What the engine says", `\`\`\`\n${said.trimEnd()}\n\`\`\``]),
  ].join("\n\n");
}

/** Installs the wheel that the extension brings along into the environment in use, in a terminal that shows what is done. */
async function installCommandLine(context: vscode.ExtensionContext, server: Server): Promise<void> {
  const phase = await server.settled();
  const wheel = context.asAbsolutePath(`bundled/graphguard-${String(context.extension.packageJSON.version)}-py3-none-any.whl`);
  if (phase.kind !== "running" || !existsSync(wheel)) {
    const why = phase.kind === "running" ? `this build of the extension lacks ${wheel}` : notRunning(server);
    await offer(`GraphGuard installs nothing: ${why}`, { "Show Logs": "graphguard.showLogs" });
    return;
  }
  const { command, args } = installing(phase.interpreter.path, await probe(phase.interpreter.path), wheel);
  const title = "Install the command line";
  await vscode.tasks.executeTask(
    new vscode.Task({ type: "graphguard" }, vscode.TaskScope.Workspace, title, "GraphGuard", new vscode.ProcessExecution(command, args)),
  );
}

async function writeFirstCheck(server: Server): Promise<void> {
  const folder = vscode.workspace.workspaceFolders?.[0];
  if (folder === undefined) {
    await offer("GraphGuard writes a first check into a folder: open one first.", { "Open Folder": "vscode.openFolder" });
    return;
  }
  const before = new Set(await pythonFiles());
  const { text, ok } = await commandLine(server, ["init"], folder.uri.fsPath);
  if (!ok) {
    await offer(`GraphGuard wrote no check: ${text.trim().split("\n").at(-1) ?? ""}`, { "Show Logs": "graphguard.showLogs" });
    return;
  }
  const written = (await pythonFiles()).find((file) => !before.has(file));
  if (written !== undefined) {
    await vscode.window.showTextDocument(vscode.Uri.parse(written));
  }
}

async function pythonFiles(): Promise<string[]> {
  return (await vscode.workspace.findFiles("**/*.py", "**/{.venv,node_modules}/**")).map((uri) => uri.toString());
}

/** Runs the command line of the engine that the server uses. */
async function commandLine(server: Server, args: readonly string[], cwd?: string): Promise<{ text: string; ok: boolean }> {
  const phase = await server.settled();
  if (phase.kind !== "running") {
    return { text: notRunning(server), ok: false };
  }
  const command = server.commandLine(phase.interpreter, args);
  const title = `GraphGuard: ${args.join(" ")}`;
  return vscode.window.withProgress({ location: vscode.ProgressLocation.Window, title }, async () => {
    try {
      const { stdout, stderr } = await promisify(execFile)(command.command, command.args, { cwd, timeout: DOCTOR_SECONDS * 1000 });
      return { text: stdout + stderr, ok: true };
    } catch (error) {
      // A doctor that found something ends with a status of its own; what it printed is the answer.
      const { stdout = "", stderr = "", message } = error as { stdout?: string; stderr?: string; message: string };
      return { text: stdout + stderr || message, ok: false };
    }
  });
}

async function copyDebugInformation(context: vscode.ExtensionContext, server: Server): Promise<void> {
  const answer = await server.request<{ text: string }>(METHODS.debugInformation, {});
  const text = [
    `GraphGuard ${String(context.extension.packageJSON.version)}, ${vscode.env.appName} ${vscode.version}, ${process.platform} ${process.arch}`,
    `server: ${server.phase.kind}${server.phase.kind === "failed" ? `: ${server.phase.problem.headline}` : ""}`,
    answer?.text ?? "(the server does not answer)",
  ].join("\n");
  await vscode.env.clipboard.writeText(text);
  void vscode.window.showInformationMessage("GraphGuard: debug information copied.");
}

interface Choice extends vscode.QuickPickItem {
  readonly choose: () => Promise<void>;
}

/** Offers the Pythons that were found, each with its torch: those that serve come first. */
async function selectInterpreter({ log }: Channels): Promise<void> {
  const folder = vscode.workspace.workspaceFolders?.[0]?.uri;
  const title = "GraphGuard: looking for Pythons";
  const found = await vscode.window.withProgress({ location: vscode.ProgressLocation.Window, title }, async () => survey(await allCandidates(folder, log), probe));
  const sorted = found.toSorted((one, other) => Number(one.problem !== undefined) - Number(other.problem !== undefined));
  const choices: Choice[] = sorted.map((each) => ({
    label: `${each.problem === undefined ? "$(check)" : "$(warning)"} ${each.path}`,
    description: described(each),
    detail: each.problem?.nextStep ?? `from ${each.origin}`,
    choose: () => useInterpreter(each.path),
  }));
  if (vscode.extensions.getExtension("ms-python.python") !== undefined) {
    choices.push({ label: "Choose with the Python extension", choose: async () => void (await vscode.commands.executeCommand("python.setInterpreter")) });
  }
  choices.push({ label: "Choose a file", choose: chooseFile });
  await (await vscode.window.showQuickPick(choices, { placeHolder: "The Python that your project runs in" }))?.choose();
}

async function chooseFile(): Promise<void> {
  const picked = await vscode.window.showOpenDialog({ title: "A Python executable with torch", canSelectMany: false });
  if (picked?.[0] !== undefined) {
    await useInterpreter(picked[0].fsPath);
  }
}

async function useInterpreter(path: string): Promise<void> {
  await vscode.workspace.getConfiguration("graphguard").update("interpreter", path, vscode.ConfigurationTarget.Global);
}

/** Shows a message whose buttons run commands: every message comes with its next step. */
export async function offer(message: string, buttons: Record<string, string>): Promise<void> {
  const chosen = await vscode.window.showWarningMessage(message, ...Object.keys(buttons));
  const command = chosen === undefined ? undefined : buttons[chosen];
  if (command !== undefined) {
    await vscode.commands.executeCommand(command);
  }
}
