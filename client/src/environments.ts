// The Python and Python Environments extensions, both optional: only what is asked of them is declared here.
import * as vscode from "vscode";
import { type Candidate, environmentsIn, executableOf, inEnvironment, onSearchPath } from "./interpreter";

interface EnvironmentsApi {
  getEnvironment(scope: vscode.Uri | undefined): Promise<{ execInfo?: { run: { executable: string } } } | undefined>;
  onDidChangeEnvironment: vscode.Event<unknown>;
}

interface PythonApi {
  environments: {
    getActiveEnvironmentPath(resource?: vscode.Uri): { path: string };
    resolveEnvironment(path: { path: string }): Promise<{ executable: { uri?: vscode.Uri } } | undefined>;
    onDidChangeActiveEnvironmentPath: vscode.Event<unknown>;
  };
}

async function api<T>(id: string): Promise<T | undefined> {
  const extension = vscode.extensions.getExtension<T | null>(id);
  // The Python Environments extension exports nothing while python.useEnvironmentsExtension is false.
  return (await extension?.activate()) ?? undefined;
}

const environmentsApi = () => api<EnvironmentsApi>("ms-python.vscode-python-envs");
const pythonApi = () => api<PythonApi>("ms-python.python");

/** Every Python that could run the server for a folder, best first. */
export async function candidates(folder: vscode.Uri | undefined, log: vscode.LogOutputChannel): Promise<Candidate[]> {
  const found: Candidate[] = [];
  const setting = vscode.workspace.getConfiguration("graphguard", folder).get<string>("interpreter", "");
  if (setting.trim() !== "") {
    found.push({ path: executableOf(setting, folder?.fsPath), origin: "setting graphguard.interpreter" });
    return found;
  }
  const add = (path: string | undefined, origin: Candidate["origin"]) => {
    if (path !== undefined && path !== "") {
      found.push({ path, origin });
    }
  };
  add(await fromEnvironmentsExtension(folder, log), "Python Environments extension");
  add(await fromPythonExtension(folder, log), "Python extension");
  add(folder && inEnvironment(vscode.Uri.joinPath(folder, ".venv").fsPath), "folder .venv of the workspace");
  add(onSearchPath(), "PATH");
  return found;
}

/** Every Python that is found at all, for people to choose from: those of {@link candidates}, and the environments in the workspace. */
export async function allCandidates(folder: vscode.Uri | undefined, log: vscode.LogOutputChannel): Promise<Candidate[]> {
  const best = await candidates(folder, log);
  const others: Candidate[] = folder === undefined ? [] : environmentsIn(folder.fsPath).map((path) => ({ path, origin: "workspace" }));
  const onPath = onSearchPath();
  return [...best, ...others, ...(onPath === undefined ? [] : [{ path: onPath, origin: "PATH" } as const])];
}

async function fromEnvironmentsExtension(folder: vscode.Uri | undefined, log: vscode.LogOutputChannel): Promise<string | undefined> {
  try {
    return (await (await environmentsApi())?.getEnvironment(folder))?.execInfo?.run.executable;
  } catch (error) {
    log.warn("The Python Environments extension gave no environment:", error);
    return undefined;
  }
}

async function fromPythonExtension(folder: vscode.Uri | undefined, log: vscode.LogOutputChannel): Promise<string | undefined> {
  try {
    const environments = (await pythonApi())?.environments;
    const active = environments?.getActiveEnvironmentPath(folder);
    return active && (await environments?.resolveEnvironment(active))?.executable.uri?.fsPath;
  } catch (error) {
    log.warn("The Python extension gave no environment:", error);
    return undefined;
  }
}

/** Calls back when either extension may have changed its choice; both fire far more often than the choice changes. */
export async function watchEnvironments(changed: () => void): Promise<vscode.Disposable[]> {
  const apis = await Promise.allSettled([environmentsApi(), pythonApi()]);
  const [environments, python] = apis.map((outcome) => (outcome.status === "fulfilled" ? outcome.value : undefined)) as [
    EnvironmentsApi | undefined,
    PythonApi | undefined,
  ];
  return [environments?.onDidChangeEnvironment(changed), python?.environments.onDidChangeActiveEnvironmentPath(changed)].filter(
    (watch) => watch !== undefined,
  );
}
