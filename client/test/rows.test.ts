import { describe, expect, test } from "vitest";
import type { Graph, Relation } from "../src/protocol";
import { counterparts, rowsOf } from "../webview/rows";

const graph = (edges: string): Graph => {
  const pairs = edges.split(" ").map((edge) => edge.split(">") as [string, string]);
  const ids = [...new Set(pairs.flat())];
  const nodes = ids.map((id) => ({ id, op: id, label: "", type: "", kind: "operator", state: "proved", phase: "forward", module: "" }) as const);
  return { name: "", nodes, edges: pairs.map(([from, to]) => ({ from, to })) };
};
const pair = (spec: string, ...parts: string[]): Relation => ({ spec, text: "", parts: parts.map((node) => ({ graph: 1, node })) });

describe("rows", () => {
  test("are shared by tensors in relation, whatever stands between them", () => {
    const rows = rowsOf([graph("x>mm mm>out"), graph("x>mm mm>reduce reduce>out")], [pair("x", "x"), pair("mm", "reduce"), pair("out", "out")]);
    expect(rows.get("0/mm")).toBe(rows.get("1/reduce"));
    expect(rows.get("0/out")).toBe(rows.get("1/out"));
  });

  test("always lead downwards", () => {
    const graphs = [graph("x>a a>b b>out x>out"), graph("x>p p>q q>r r>out")];
    const rows = rowsOf(graphs, [pair("x", "x"), pair("a", "r"), pair("out", "out")]);
    graphs.forEach(({ edges }, index) => {
      for (const { from, to } of edges) {
        expect(rows.get(`${index}/${from}`)).toBeLessThan(rows.get(`${index}/${to}`) as number);
      }
    });
  });

  test("give up an alignment where the two programs have another order", () => {
    const rows = rowsOf([graph("x>a a>b"), graph("x>q q>p")], [pair("x", "x"), pair("a", "p"), pair("b", "q")]);
    expect([...rows.values()].every((row) => row >= 0)).toBe(true);
    expect(rows.get("0/a")).toBeLessThan(rows.get("0/b") as number);
    expect(rows.get("1/q")).toBeLessThan(rows.get("1/p") as number);
  });
});

test("counterparts go both ways, and to the other ranks", () => {
  const relation: Relation = { spec: "h", text: "", parts: [1, 2].map((rank) => ({ graph: rank, node: "h" })) };
  expect(counterparts([relation], { graph: 0, node: "h" })).toEqual(relation.parts);
  expect(counterparts([relation], { graph: 1, node: "h" })).toEqual([{ graph: 0, node: "h" }, { graph: 2, node: "h" }]);
});
