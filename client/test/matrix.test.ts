import { expect, test } from "vitest";
import { matrixOf } from "../src/matrix";
import type { Check, CheckRun } from "../src/protocol";

const run = (mesh: Record<string, number>): CheckRun => ({ mesh, state: "proved", stale: false, described: true, cached: false, seconds: 0, headline: "", message: "" });
const check = (id: string, ...runs: CheckRun[]): Check => ({
  id,
  name: id.split("::").at(-1) ?? "",
  uri: "",
  range: { start: { line: 0, character: 0 }, end: { line: 0, character: 0 } },
  runs,
});

test("checks of one name are told apart by their files", () => {
  const { meshes, rows } = matrixOf([check("checks/a.py::mlp", run({ tp: 2 })), check("checks/b.py::mlp", run({ tp: 4 }))]);
  expect(meshes).toEqual(["tp=2", "tp=4"]);
  expect(rows.map(({ name, file, cells }) => [name, file, cells.map((cell) => cell?.state)])).toEqual([
    ["mlp", "checks/a.py", ["proved", undefined]],
    ["mlp", "checks/b.py", [undefined, "proved"]],
  ]);
});
