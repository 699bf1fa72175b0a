import { readdirSync } from "node:fs";
import { describe, expect, test } from "vitest";
import type * as vscode from "vscode";
import { marksOf, picture, shifted } from "../src/gutter";
import type { Check, CheckRun, Marks } from "../src/protocol";

const range = (line: number) => ({ start: { line, character: 0 }, end: { line, character: 3 } });
const run = (more: Partial<CheckRun>): CheckRun => ({ mesh: { tp: 2 }, state: "proved", stale: false, described: true, cached: false, seconds: 0, headline: "", message: "", ...more });
const check = (...runs: CheckRun[]): Check => ({ id: "mlp", name: "mlp", uri: "file:///mlp.py", range: range(20), runs });
const file: Marks = { uri: "file:///mlp.py", version: 3, stale: false, marks: [{ line: 4, state: "proved", message: "" }] };
const edit = (from: number, to: number, text: string) =>
  ({ range: { start: { line: from, character: 0 }, end: { line: to, character: 2 } }, text }) as unknown as vscode.TextDocumentContentChangeEvent;

describe("marks", () => {
  test("are of the operators and of the check's own line", () => {
    expect(marksOf(file, [check(run({}))], false)).toEqual([
      { line: 20, state: "proved", stale: false },
      { line: 4, state: "proved", stale: false },
    ]);
  });

  test("are out of date from the first keystroke", () => {
    expect(marksOf(file, [check(run({}))], true).every(({ stale }) => stale)).toBe(true);
  });

  test("show the worst mesh, and what is under way before that", () => {
    expect(marksOf(undefined, [check(run({}), run({ state: "broken" }))], false)[0]?.state).toBe("broken");
    expect(marksOf(undefined, [check(run({ state: "broken" }), run({ state: "tracing", stale: true }))], false)[0]).toEqual({ line: 20, state: "tracing", stale: false });
  });

  test("of a check that never ran are absent", () => {
    expect(marksOf(undefined, [check(run({ state: "idle" }))], false)).toEqual([]);
  });

  test("have a picture for every state, fresh and out of date", () => {
    const pictures = readdirSync(new URL("../media/gutter", import.meta.url));
    for (const state of ["queued", "tracing", "proving", "proved", "assumed", "unknown", "broken", "error"] as const) {
      expect(pictures).toContain(`${picture({ state, stale: false })}.svg`);
      expect(pictures).toContain(`${picture({ state, stale: true })}.svg`);
    }
  });
});

describe("a line", () => {
  test.each([
    ["below an insertion moves down", 10, edit(3, 3, "a\nb\n"), 12],
    ["below a deletion moves up", 10, edit(3, 5, ""), 8],
    ["above the edit stays", 2, edit(3, 5, ""), 2],
    ["inside the edit goes to its start", 4, edit(3, 6, ""), 3],
  ])("%s", (_, line, change, wanted) => {
    expect(shifted(line, [change])).toBe(wanted);
  });
});
