import { mkdirSync, mkdtempSync, realpathSync, rmSync, writeFileSync } from "node:fs";
import { homedir, tmpdir } from "node:os";
import path from "node:path";
import { afterAll, describe, expect, test } from "vitest";
import { doctorPage } from "../src/commands";
import { type Answer, described, environmentsIn, executableOf, installing, judge, onSearchPath, survey } from "../src/interpreter";

const candidate = { path: "/env/bin/python", origin: "Python extension" } as const;
const answering = (answer: Partial<Answer>) => async (): Promise<Answer> => ({
  executable: candidate.path,
  python: [3, 12, 1],
  torch: "2.13.0+cpu",
  numpy: "2.4.6",
  graphguard: null,
  pip: "26.2",
  ...answer,
});

describe("an interpreter", () => {
  test("with torch is taken as it is", async () => {
    expect(await judge([candidate], answering({}))).toEqual({ ...candidate, python: [3, 12, 1], torch: "2.13.0+cpu" });
  });

  test.each([
    ["old-python", { python: [3, 10, 4] }, /needs Python 3\.11 or newer; \/env\/bin\/python \(from Python extension\) is Python 3\.10\.4/],
    ["no-torch", { torch: null }, /\/env\/bin\/python \(from Python extension\) has none/],
    ["old-torch", { torch: "2.9.1" }, /needs torch 2\.10 or newer; .* has torch 2\.9\.1/],
    ["no-numpy", { numpy: null }, /needs numpy/],
  ] as const)("that does not suit (%s) is named, with its origin and the next step", async (kind, answer, headline) => {
    const problem = await judge([candidate], answering(answer as Partial<Answer>));
    expect(problem).toMatchObject({ kind, headline: expect.stringMatching(headline) });
    expect("nextStep" in problem && problem.nextStep).toBeTruthy();
  });

  test("that was chosen is never passed over in silence for the next one", async () => {
    const onPath = { path: "/usr/bin/python3", origin: "PATH" } as const;
    const ask = async (executable: string) => (executable === candidate.path ? Promise.reject(new Error("ENOENT\nmore")) : answering({})());
    expect(await judge([candidate, onPath], ask)).toMatchObject({ kind: "does-not-start", headline: expect.stringContaining("ENOENT") });
  });

  test("that is nowhere is said so", async () => {
    expect(await judge([], answering({}))).toMatchObject({ kind: "no-python", nextStep: expect.stringContaining("graphguard.interpreter") });
  });

  test("with a newer major version suits", async () => {
    expect(await judge([candidate], answering({ python: [4, 0, 0], torch: "3.0.0a0+git12" }))).toMatchObject({ torch: "3.0.0a0+git12" });
  });
});

describe("all Pythons that are found", () => {
  const onPath = { path: "/usr/bin/python3", origin: "PATH" } as const;

  test("are told with their torch, once each, and why one does not serve", async () => {
    const ask = async (executable: string) => (executable === onPath.path ? answering({ torch: null })() : answering({})());
    const found = await survey([candidate, onPath, { ...candidate, origin: "PATH" }], ask);
    expect(found.map((each) => [each.path, described(each), each.problem?.kind])).toEqual([
      [candidate.path, "Python 3.12.1, torch 2.13.0+cpu", undefined],
      [onPath.path, "Python 3.12.1, no torch", "no-torch"],
    ]);
  });

  test("that do not start are among them", async () => {
    const [found] = await survey([onPath], () => Promise.reject(Object.assign(new Error("spawn /usr/bin/python3 ENOENT"), { code: "ENOENT" })));
    expect(found).toMatchObject({ problem: { kind: "does-not-start", headline: "GraphGuard could not run /usr/bin/python3 (from PATH): there is no such file." } });
    expect(found && described(found)).toBe("does not start");
  });

  test("are on the doctor's page, whatever the server does", async () => {
    const found = await survey([candidate, onPath], async (executable) => answering(executable === onPath.path ? { torch: null } : {})());
    const problem = { kind: "no-torch", headline: "no torch here", nextStep: "install it" } as const;
    const page = doctorPage({ kind: "failed", problem }, found, "");
    expect(page).toContain("**no torch here**");
    expect(page).toContain("- `/env/bin/python` (from Python extension): Python 3.12.1, torch 2.13.0+cpu; can be used");
    expect(page).toMatch(/- `\/usr\/bin\/python3` \(from PATH\): Python 3\.12\.1, no torch; .*pip install torch$/m);
    const running = doctorPage({ kind: "running", interpreter: { ...candidate, python: [3, 12, 1], torch: "2.13.0" } }, found, "ok worker\n");
    expect(running).toContain("; in use");
    expect(running).toContain("```\nok worker\n```");
  });
});

describe("the command line", () => {
  test.each([
    ["pip", "26.2", "/env/bin/python -m pip install /bundled/graphguard.whl"],
    ["uv, where there is no pip", null, "uv pip install --python /env/bin/python /bundled/graphguard.whl"],
  ])("is installed by %s", (_, pip, wanted) => {
    const { command, args } = installing("/env/bin/python", { pip }, "/bundled/graphguard.whl");
    expect([command, ...args].join(" ")).toBe(wanted);
  });
});

describe("the setting", () => {
  const folder = realpathSync(mkdtempSync(path.join(tmpdir(), "graphguard-")));
  afterAll(() => rmSync(folder, { recursive: true }));
  const python = path.join(folder, ".venv/bin/python");
  mkdirSync(path.dirname(python), { recursive: true });
  writeFileSync(python, "#!/bin/sh\n", { mode: 0o755 });

  test.each([
    ["an executable", python, python],
    ["the folder of an environment", path.join(folder, ".venv"), python],
    ["a path in the workspace", "${workspaceFolder}/.venv", python],
    ["a relative path", ".venv/bin/python", python],
    ["the home folder", "~/env/bin/python", path.join(homedir(), "env/bin/python")],
    ["a name for PATH", "python3.12", "python3.12"],
  ])("may be %s", (_, setting, wanted) => {
    expect(executableOf(setting, folder)).toBe(wanted);
  });

  test("may use a variable of the environment", () => {
    process.env["GRAPHGUARD_TEST_ENV"] = folder;
    expect(executableOf("${env:GRAPHGUARD_TEST_ENV}/.venv", undefined)).toBe(python);
  });

  test("is offered every environment of the workspace", () => {
    writeFileSync(path.join(folder, ".venv", "pyvenv.cfg"), "");
    mkdirSync(path.join(folder, "src"));
    expect(environmentsIn(folder)).toEqual([python]);
  });

  test("left empty, the search path decides", () => {
    expect(onSearchPath(`/nowhere${path.delimiter}${path.dirname(python)}`)).toBe(python);
    expect(onSearchPath("/nowhere")).toBeUndefined();
  });
});
