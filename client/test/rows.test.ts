import { describe, expect, test } from "vitest";
import type { Cell, Row, RowsParams } from "../src/protocol";
import { svgOf } from "../webview/save";
import { Store } from "../webview/store";
import { detailOf, endOf, mainOperator, ranksText, relationOf, titleOf } from "../webview/words";

const cell = (more: Partial<Cell> = {}): Cell => ({ kind: "operator", code: "y = f(x)", name: "", operators: ["aten.mm.default"], shape: [2, -1], text: "", ...more });
const row = (more: Partial<Row> = {}): Row => ({ module: "m", phase: "forward", state: "proved", layout: "Shard(1) over tp", relation: "concat(y@0, y@1; dim=1)", reads: [], cells: [cell()], ...more });

describe("rows from the server", () => {
  test("are asked for a page at a time, once", () => {
    const asked: RowsParams[] = [];
    const store = new Store("p", 250, [0], (params) => asked.push(params));
    expect([store.row(120), store.row(130), store.row(249)]).toEqual([undefined, undefined, undefined]);
    expect(asked.map(({ first, end }) => [first, end])).toEqual([[100, 200], [200, 250]]);
    expect(store.take({ picture: "p", columns: [0] }, 100, [row(), row({ layout: "Replicate" })])).toBe(true);
    expect(store.row(101)?.layout).toBe("Replicate");
  });

  test("of more columns are cut to those that are shown; of another picture or fewer columns they are not taken", () => {
    const store = new Store("p", 9, [0, 2], () => undefined);
    const cells = ["s", "a", "b", "c"].map((code) => cell({ code }));
    expect(store.take({ picture: "p", columns: [0, 1, 2] }, 0, [row({ cells })])).toBe(true);
    expect(store.row(0)?.cells.map((each) => each?.code)).toEqual(["s", "a", "c"]);
    expect(store.take({ picture: "p", columns: [0] }, 0, [row()])).toBe(false);
    expect(store.take({ picture: "q", columns: [0, 2] }, 0, [row()])).toBe(false);
  });
});

describe("words", () => {
  test("name an expression by what it does beside laying out", () => {
    expect(mainOperator({ operators: ["aten.t.default", "aten.mm.default", "aten.view.default"] })).toBe("mm");
    expect(mainOperator({ operators: ["aten.unsqueeze.default", "aten.view.default"] })).toBe("view");
    expect(mainOperator({ operators: ["gg.all_reduce"] })).toBe("all_reduce");
  });

  test("say the name only where the code does not", () => {
    expect(titleOf(cell({ code: "", name: "w" }))).toBe("w");
    expect(detailOf(cell({ name: "out" }))).toBe("out mm [2, ?]");
    expect(detailOf(cell({ name: "y" }))).toBe("mm [2, ?]");
    expect(detailOf(cell({ kind: "input", code: "", name: "w", operators: [] }))).toBe("input [2, ?]");
  });

  test("say the layout, on demand the formula, and at the break what is needed", () => {
    expect(relationOf(row(), undefined, false)).toEqual({ text: "Shard(1) over tp", more: "" });
    expect(relationOf(row(), undefined, true)).toEqual({ text: "concat(y@0, y@1; dim=1)", more: "Shard(1) over tp" });
    expect(relationOf(row({ layout: "" }), undefined, false).text).toBe("concat(y@0, y@1; dim=1)");
    expect(relationOf(row({ state: "off", layout: "" }), undefined, false).more).toBe("follows the break");
    const findings = [{ rule: "", headline: "", fixes: [], needed: "y: Replicate", row: 3 }];
    expect(relationOf(row(), endOf({ findings, verdict: "broken" }, 3), false).more).toBe("needed: y: Replicate");
    expect(endOf({ findings, verdict: "broken" }, 4)).toBe("refinement breaks here");
    expect(endOf({ findings, verdict: "unknown" }, 4)).toBe("the proof ends here");
  });

  test("name many ranks in few", () => {
    expect(ranksText([3])).toBe("rank 3");
    expect(ranksText([0, 1])).toBe("ranks 0, 1");
    expect(ranksText([0, 1, 2, 3, 6])).toBe("ranks 0–3, 6");
  });
});

describe("a saved picture", () => {
  const colours = { text: "#111", quiet: "#222", paper: "#fff", band: "#eee", border: "#ccc", proved: "#0a0", broken: "#c00", unknown: "#aa0" };
  const lines = [
    { depth: 0, state: "broken", heading: "layers", chips: "0 ✓ · 1 ✗" },
    { depth: 1, state: "broken", cells: [{ text: "a < b & c", more: "x".repeat(200) }, { text: "no relation", more: "" }], relation: 1 },
  ] as const;
  const svg = svgOf({ title: "mlp [tp=2]", verdict: "broken", finding: undefined, columns: ["specification", "relation"], lines }, colours);

  test("escapes what it quotes and cuts what is too long", () => {
    expect(svg).toContain("a &lt; b &amp; c");
    expect(svg).not.toContain("x".repeat(60));
    expect(svg).toMatch(/x{10,}…/);
  });

  test("frames the break, and holds every line", () => {
    expect(svg.match(/class="break"/g)).toHaveLength(1);
    expect(svg).toContain("0 ✓ · 1 ✗");
    const height = Number(/height="(\d+)"/.exec(svg)?.[1]);
    const lowest = Math.max(...[...svg.matchAll(/ y="([\d.]+)"/g)].map(([, y]) => Number(y)));
    expect(lowest).toBeLessThan(height);
  });
});
