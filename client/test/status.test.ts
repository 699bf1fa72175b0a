import { describe, expect, test } from "vitest";
import type { ServerStatus } from "../src/protocol";
import { countsText, lack, lookOf } from "../src/status";

const none = { proved: 0, assumed: 0, unknown: 0, broken: 0, error: 0, stale: 0, running: 0 };
const interpreter = { path: "/env/bin/python", origin: "PATH", python: [3, 12, 1], torch: "2.13.0" } as const;
const status = (more: Partial<ServerStatus>): ServerStatus => ({ revision: 1, health: "ok", busy: false, trusted: true, message: "", counts: none, processes: [], ...more });

describe("counts", () => {
  test("name what there is, the worst first", () => {
    expect(countsText({ ...none, proved: 41, assumed: 2, broken: 1 })).toBe("1 broken, 2 refine with assumptions, 41 refine");
  });

  test("say what is out of date", () => {
    expect(countsText({ ...none, proved: 3, stale: 2 })).toBe("3 refine (2 out of date)");
  });

  test("of nothing say so", () => {
    expect(countsText(none)).toBe("no checks yet");
  });
});

describe("the status item", () => {
  test("is busy while the server is, and still tells the counts", () => {
    const look = lookOf({ kind: "running", interpreter }, status({ busy: true, message: "tracing mlp", counts: { ...none, proved: 1 } }));
    expect(look).toMatchObject({ busy: true, text: "GraphGuard: 1 refine", detail: expect.stringContaining("tracing mlp") });
  });

  test("shows a process that failed, with what to do", () => {
    const look = lookOf({ kind: "running", interpreter }, status({ health: "error", message: "the worker ended", detail: "restart it" }));
    expect(look).toMatchObject({ severity: "error", text: "GraphGuard: the worker ended", detail: expect.stringContaining("restart it") });
  });

  test("offers to choose an interpreter where none suits", () => {
    const problem = { kind: "no-torch", headline: "no torch", nextStep: "install it" } as const;
    expect(lookOf({ kind: "failed", problem }, undefined)).toMatchObject({
      severity: "error",
      text: "no torch",
      detail: "install it",
      command: { command: "graphguard.selectInterpreter" },
    });
  });

  test("is never busy once the server is gone", () => {
    expect(lookOf({ kind: "stopped" }, status({ busy: true })).busy).toBe(false);
  });
});

describe("the status bar", () => {
  test("says what is missing until it is mended", () => {
    const problem = { kind: "no-torch", headline: "no torch in /env", nextStep: "install it" } as const;
    expect(lack({ kind: "failed", problem })).toMatchObject({ text: "$(error) GraphGuard: no torch", command: { command: "graphguard.selectInterpreter" } });
    expect(lack({ kind: "starting" })).toBeUndefined();
    expect(lack({ kind: "running", interpreter })).toBeUndefined();
  });
});
