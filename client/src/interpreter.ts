// Which Python runs the server and traces checks, and whether it can.
import { execFile } from "node:child_process";
import * as fs from "node:fs";
import * as os from "node:os";
import * as path from "node:path";
import { promisify } from "node:util";

export const OLDEST_PYTHON = [3, 11] as const;
export const OLDEST_TORCH = [2, 10] as const;

const PROBE_SECONDS = 30;

/** Reads versions only: importing torch would take seconds. */
const PROBE = `
import importlib.metadata, json, sys
def version(package):
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
print(json.dumps({"executable": sys.executable, "python": list(sys.version_info[:3]), **{name: version(name) for name in ("torch", "numpy", "graphguard", "pip")}}))
`;

/** Where a candidate comes from, in the words of messages. */
export type Origin =
  | "setting graphguard.interpreter"
  | "Python Environments extension"
  | "Python extension"
  | "folder .venv of the workspace"
  | "workspace"
  | "PATH";

export interface Candidate {
  readonly path: string;
  readonly origin: Origin;
}

export interface Interpreter extends Candidate {
  readonly python: readonly [number, number, number];
  readonly torch: string;
}

/** Why no interpreter can be used: a headline that stands alone, and the next step. */
export interface Problem {
  readonly kind: "no-python" | "does-not-start" | "old-python" | "no-torch" | "old-torch" | "no-numpy";
  readonly headline: string;
  readonly nextStep: string;
}

export interface Answer {
  readonly executable: string;
  readonly python: readonly [number, number, number];
  readonly torch: string | null;
  readonly numpy: string | null;
  readonly graphguard: string | null;
  readonly pip: string | null;
}

/** Runs a Python and reads what it says of itself; rejects where it does not start. */
export type Probe = (executable: string) => Promise<Answer>;

export const probe: Probe = async (executable) => {
  const { stdout } = await promisify(execFile)(executable, ["-c", PROBE], {
    cwd: os.tmpdir(),
    env: { ...process.env, PYTHONIOENCODING: "utf-8", PYTHONUTF8: "1" },
    timeout: PROBE_SECONDS * 1000,
    windowsHide: true,
    // Without a shell Node refuses the .bat and .cmd shims of some environments.
    shell: /\.(bat|cmd)$/i.test(executable),
  });
  return JSON.parse(stdout.trim().split("\n").at(-1) ?? "") as Answer;
};

/** Judges the first candidate: the user's choice is never passed over in silence for another one. */
export async function judge(candidates: readonly Candidate[], ask: Probe): Promise<Interpreter | Problem> {
  const candidate = candidates[0];
  if (candidate === undefined) {
    return {
      kind: "no-python",
      headline: "GraphGuard found no Python.",
      nextStep: `Install Python ${OLDEST_PYTHON.join(".")} or newer with torch, or name one in the setting graphguard.interpreter.`,
    };
  }
  let answer: Answer;
  try {
    answer = await ask(candidate.path);
  } catch (error) {
    return doesNotStart(candidate, error);
  }
  return suits(candidate, answer);
}

/** A Python that was found, what it has, and why it does not serve. */
export interface Found extends Candidate {
  readonly answer?: Answer;
  readonly problem?: Problem;
}

/** Asks every candidate: what people choose from, and what the doctor tells. */
export async function survey(candidates: readonly Candidate[], ask: Probe): Promise<Found[]> {
  const first = new Map(candidates.toReversed().map((candidate) => [candidate.path, candidate]));
  const unique = candidates.filter((candidate) => first.get(candidate.path) === candidate);
  return Promise.all(
    unique.map(async (candidate): Promise<Found> => {
      try {
        const answer = await ask(candidate.path);
        const verdict = suits(candidate, answer);
        return { ...candidate, answer, ...("headline" in verdict ? { problem: verdict } : {}) };
      } catch (error) {
        return { ...candidate, problem: doesNotStart(candidate, error) };
      }
    }),
  );
}

/** ``Python 3.12.1, torch 2.13.0``, or what is wrong with it. */
export function described({ answer }: Found): string {
  return answer === undefined ? "does not start" : `Python ${answer.python.join(".")}, ${answer.torch === null ? "no torch" : `torch ${answer.torch}`}`;
}

function doesNotStart(candidate: Candidate, error: unknown): Problem {
  return {
    kind: "does-not-start",
    headline: `GraphGuard could not run ${candidate.path} (from ${candidate.origin}): ${whyNot(error)}.`,
    nextStep: "Choose another interpreter.",
  };
}

function suits(candidate: Candidate, answer: Answer): Interpreter | Problem {
  const python = answer.python.join(".");
  const where = `${candidate.path} (from ${candidate.origin})`;
  if (isOlder(answer.python, OLDEST_PYTHON)) {
    return {
      kind: "old-python",
      headline: `GraphGuard needs Python ${OLDEST_PYTHON.join(".")} or newer; ${where} is Python ${python}.`,
      nextStep: "Choose an environment with a newer Python.",
    };
  }
  if (answer.torch === null) {
    return {
      kind: "no-torch",
      headline: `GraphGuard traces with your torch; ${where} has none.`,
      nextStep: `Choose the environment that your project runs in, or install torch there: "${candidate.path}" -m pip install torch`,
    };
  }
  if (isOlder(answer.torch.split(/[.+]/).map(Number), OLDEST_TORCH)) {
    return {
      kind: "old-torch",
      headline: `GraphGuard needs torch ${OLDEST_TORCH.join(".")} or newer; ${where} has torch ${answer.torch}.`,
      nextStep: `Upgrade it ("${candidate.path}" -m pip install --upgrade torch) or choose another environment.`,
    };
  }
  if (answer.numpy === null) {
    return {
      kind: "no-numpy",
      headline: `GraphGuard needs numpy beside torch; ${where} has none.`,
      nextStep: `Install it: "${candidate.path}" -m pip install numpy`,
    };
  }
  return { ...candidate, python: answer.python, torch: answer.torch };
}

function isOlder(version: readonly number[], than: readonly [number, number]): boolean {
  const [major = 0, minor = 0] = version;
  return major < than[0] || (major === than[0] && minor < than[1]);
}

/** What installs a wheel into the environment of a Python: its own pip, or uv where it has none. */
export function installing(python: string, answer: Pick<Answer, "pip">, wheel: string): { command: string; args: string[] } {
  return answer.pip === null
    ? { command: "uv", args: ["pip", "install", "--python", python, wheel] }
    : { command: python, args: ["-m", "pip", "install", wheel] };
}

/** Why a program does not start, in words where they are known. */
function whyNot(error: unknown): string {
  const code = (error as { code?: unknown } | undefined)?.code;
  if (code === "ENOENT" || code === "EACCES") {
    return code === "ENOENT" ? "there is no such file" : "it may not be run";
  }
  const text = error instanceof Error ? error.message : String(error);
  return (text.split("\n")[0] ?? text).replace(/\.$/, "");
}

/** Replaces ``~``, ``${workspaceFolder}`` and ``${env:NAME}``, and finds the executable of an environment's folder. */
export function executableOf(setting: string, folder: string | undefined): string {
  const text = setting
    .trim()
    .replace(/^~(?=$|[\\/])/, os.homedir())
    .replaceAll("${workspaceFolder}", folder ?? "")
    .replace(/\$\{env:([^}]+)\}/g, (_, name: string) => process.env[name] ?? "");
  const absolute = path.isAbsolute(text) || !/[\\/]/.test(text) ? text : path.resolve(folder ?? "", text);
  return inEnvironment(absolute) ?? absolute;
}

/** The Python inside the folder of an environment, if there is one. */
export function inEnvironment(folder: string): string | undefined {
  const names = process.platform === "win32" ? ["Scripts/python.exe", "python.exe"] : ["bin/python", "bin/python3"];
  return names.map((name) => path.join(folder, name)).find((file) => fs.existsSync(file));
}

/** The first Python on the search path. */
export function onSearchPath(searchPath = process.env["PATH"] ?? ""): string | undefined {
  const names = process.platform === "win32" ? ["python.exe"] : ["python3", "python"];
  for (const folder of searchPath.split(path.delimiter).filter(Boolean)) {
    const found = names.map((name) => path.join(folder, name)).find((file) => isExecutable(file));
    if (found !== undefined) {
      return found;
    }
  }
  return undefined;
}

function isExecutable(file: string): boolean {
  try {
    fs.accessSync(file, fs.constants.X_OK);
    return fs.statSync(file).size > 0; // the Windows store's placeholder has size 0
  } catch {
    return false;
  }
}

/** The Pythons of the virtual environments that lie in a folder. */
export function environmentsIn(folder: string): string[] {
  const inside = fs.readdirSync(folder, { withFileTypes: true }).filter((entry) => entry.isDirectory());
  const environments = inside.map(({ name }) => path.join(folder, name)).filter((inner) => fs.existsSync(path.join(inner, "pyvenv.cfg")));
  return environments.map(inEnvironment).filter((python) => python !== undefined);
}
