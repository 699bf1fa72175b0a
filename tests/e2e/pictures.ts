// What the server would say of two programs, for the tests of the relation explorer's page: a small one that people can read, and large ones.
import type { Cell, Group, Relations, Row, RowsParams } from "../../client/src/protocol.ts";

/** All of a picture, of which the page gets rows as it asks for them. */
export interface Whole {
  readonly relations: Omit<Relations, "rows" | "first">;
  /** With the cells of every rank. */
  readonly rows: readonly Row[];
}

const AROUND = 100;

/** What `graphguard/relations` answers. */
export function opened({ relations, rows }: Whole): Relations {
  const middle = relations.focus ?? relations.start ?? 0;
  const first = Math.max(0, middle - AROUND);
  return { ...relations, first, rows: taken(rows, first, middle + AROUND, relations.columns) };
}

/** What `graphguard/rows` answers. */
export function rowsFor({ rows }: Whole, { first, end, columns }: RowsParams): Row[] {
  return taken(rows, first, end, columns);
}

/** What `graphguard/find` answers. */
export function foundIn({ rows }: Whole, text: string): number[] {
  const wanted = text.toLowerCase();
  return rows.flatMap((row, index) => (wanted && JSON.stringify([row.module, row.cells, row.layout]).toLowerCase().includes(wanted) ? [index] : []));
}

const taken = (rows: readonly Row[], first: number, end: number, columns: readonly number[]): Row[] =>
  rows.slice(first, end).map((row) => ({ ...row, cells: [row.cells[0] ?? null, ...columns.map((rank) => row.cells[rank + 1] ?? null)] }));

const at = (file: string, line: number, from: number, to: number): NonNullable<Cell["location"]> => ({
  uri: `file:///workspace/${file}`,
  range: { start: { line, character: from }, end: { line, character: to } },
});

function cell(code: string, op: string, shape: number[], more: Partial<Cell> = {}): Cell {
  const kind = op === "" ? "input" : op.startsWith("gg.") ? "collective" : "operator";
  return { kind, code: op === "" ? "" : code, name: op === "" ? code : "", operators: op === "" ? [] : [op], shape, text: "", ...more };
}

/** The tensor-parallel MLP whose all-reduce is forgotten, on two ranks. */
export function brokenMlp(): Whole {
  const [up, h, y] = [at("mlp.py", 18, 19, 29), at("mlp.py", 33, 8, 33), at("mlp.py", 34, 12, 24)];
  const row = (module: string, layout: string, relation: string, cells: Cell[], reads: number[] = []): Row => ({ module, phase: "forward", state: "proved", layout, relation, reads, cells });
  const both = (make: (rank: number) => Cell) => [0, 1].map(make);
  const rows = [
    row("up", "Shard(0) over tp", "concat(up.weight@0, up.weight@1; dim=0)", [cell("up.weight", "", [256, 64]), ...both((rank) => cell("up.weight", "", [128, 64], { text: `up.weight[${rank * 128}:${rank * 128 + 128}, :]` }))]),
    row("up", "Replicate", "x@0 = x@1", [cell("x", "", [2, 8, 64]), ...both(() => cell("x", "", [2, 8, 64], { text: "x" }))]),
    row("up", "Shard(2) over tp", "concat(linear@0, linear@1; dim=2)", [cell("self.up(x)", "aten.linear.default", [2, 8, 256], { location: up }), ...both(() => cell("self.up(x)", "aten.linear.default", [2, 8, 128], { location: h }))], [0, 1]),
    row("", "Shard(2) over tp", "concat(h@0, h@1; dim=2)", [cell("F.gelu(self.up(x))", "aten.gelu.default", [2, 8, 256], { location: up }), ...both((rank) => cell("h = F.gelu(self.up(x))", "aten.gelu.default", [2, 8, 128], { location: h, text: `h[:, :, ${rank * 128}:${rank * 128 + 128}]` }))], [2]),
    row("down", "Shard(1) over tp", "concat(down.weight@0, down.weight@1; dim=1)", [cell("down.weight", "", [64, 256]), ...both((rank) => cell("down.weight", "", [64, 128], { text: `down.weight[:, ${rank * 128}:${rank * 128 + 128}]` }))]),
    row("down", "Partial(sum) over tp", "sum(out@0, out@1)", [cell("self.down(F.gelu(self.up(x)))", "aten.linear.default", [2, 8, 64], { location: up, name: "out" }), ...both(() => cell("y = self.down(h)", "aten.linear.default", [2, 8, 64], { location: y, text: "partial sum of out" }))], [3, 4]),
  ];
  return {
    rows,
    relations: {
      check: "mlp.py::mlp",
      mesh: { tp: 2 },
      verdict: "broken",
      version: 1,
      stale: false,
      picture: "mlp",
      ranks: [[0, 1]],
      columns: [0, 1],
      total: rows.length,
      groups: [
        { name: "up", depth: 0, from: 0, to: 3, proved: 3 },
        { name: "down", depth: 0, from: 4, to: 6, proved: 2 },
      ],
      breaks: [5],
      start: 5,
      findings: [
        { rule: "missing-reduction", headline: "'y' is a partial sum over axis 'tp' and is used as if it were whole", needed: "y: Replicate", found: "y: Partial(sum) over tp", fixes: ["all_reduce(y) over 'tp'"], location: y, row: 5 },
      ],
      files: ["file:///workspace/mlp.py"],
    },
  };
}

/** The parts of a decoder layer: module, what is computed there, layout. */
const LAYER = [
  ...["pow(2)", "mean(-1)", "+ eps", "rsqrt", "x * r", "weight", "* weight"].map((code) => ["attention_norm", code, "Replicate"]),
  ...["wq", "wk", "wv"].flatMap((name) => [[`attention.${name}`, "weight", "Shard(0) over tp"], [`attention.${name}`, `self.${name}(x)`, "Shard(2) over tp"]]),
  ...["q.view", "q.transpose", "k.view", "k.transpose", "v.view", "v.transpose", "rotate(q)", "rotate(k)", "q @ k", "softmax", "weights @ v"].map((code) => ["attention", code, "Shard(1) over tp"]),
  ["attention.wo", "weight", "Shard(1) over tp"],
  ["attention.wo", "self.wo(y)", "Partial(sum) over tp"],
  ["attention", "all_reduce(y)", "Replicate"],
  ["", "x = x + y", "Replicate"],
  ...["pow(2)", "mean(-1)", "rsqrt", "weight", "* weight"].map((code) => ["ffn_norm", code, "Replicate"]),
  ...["gate", "up"].flatMap((name) => [[`ffn.${name}`, "weight", "Shard(0) over tp"], [`ffn.${name}`, `self.${name}(x)`, "Shard(2) over tp"]]),
  ["ffn", "F.silu(gate) * up", "Shard(2) over tp"],
  ["ffn.down", "weight", "Shard(1) over tp"],
  ["ffn.down", "y = self.down(h)", "Partial(sum) over tp"],
  ["", "x + y", "Replicate"],
] as [string, string, string][];

/** A decoder of so many layers on so many ranks, in one of which the reduction after `ffn.down` is forgotten. */
export function decoder(count: number, ranks: number, brokenLayer: number): Whole {
  const rows: Row[] = [];
  const start = brokenLayer * LAYER.length + LAYER.length - 2;
  const all = Array.from({ length: ranks }, (_, rank) => rank);
  for (let layer = 0; layer < count; layer += 1) {
    for (const [position, [module, code, layout]] of LAYER.entries()) {
      const number = rows.length;
      const state = number <= start || code === "weight" ? "proved" : number === start + 1 ? "broken" : "off";
      const made = (shape: number[], text: string): Cell =>
        code === "weight"
          ? cell(`layers.${layer}.${module}.weight`, "", shape, { text })
          : cell(code, code === "all_reduce(y)" ? "gg.all_reduce" : "aten.mul.Tensor", shape, { text, location: at("model.py", 40 + position, 8, 20) });
      const name = `layers.${layer}.${module || "x"}`;
      rows.push({
        module: module === "" ? `layers.${layer}` : `layers.${layer}.${module}`,
        phase: "forward",
        state,
        layout: state === "proved" ? layout : "",
        relation: state === "proved" ? `concat(${name}@0, ${name}@1; dim=1)` : "",
        reads: number > 0 ? [number - 1] : [],
        cells: [made([2, 128, 4096], ""), ...all.map((rank) => made([2, 128, 4096 / ranks], state === "proved" ? `${name}[:, :, ${rank}:${rank + 1}]` : ""))],
      });
    }
  }
  const finding = { rule: "missing-reduction", headline: "'y' is a partial sum over axis 'tp' and is used as if it were whole", needed: "y: Replicate", found: "y: Partial(sum) over tp", fixes: [], location: at("model.py", 40 + LAYER.length - 2, 8, 24), row: start };
  const relations = { check: "model.py::decoder", mesh: { tp: ranks }, verdict: "broken" as const, version: 1, stale: false, picture: `decoder ${count}`, ranks: [all], columns: ranks > 2 ? [0] : all };
  return { rows, relations: { ...relations, total: rows.length, groups: groupsOf(rows), breaks: [start, start + 1], start, findings: [finding], files: ["file:///workspace/model.py"] } };
}

/** Modules of consecutive rows, as the engine makes them. */
function groupsOf(rows: readonly Row[]): Group[] {
  const found: Group[] = [];
  const divide = (from: number, to: number, level: number, depth: number): void => {
    for (let first = from; first < to; ) {
      const name = rows[first]?.module.split(".")[level];
      let last = first + 1;
      while (last < to && rows[last]?.module.split(".")[level] === name) {
        last += 1;
      }
      if (name && last - first > 1) {
        found.push({ name, depth, from: first, to: last, proved: rows.slice(first, last).filter(({ state }) => state === "proved").length });
        divide(first, last, level + 1, depth + 1);
      }
      first = last;
    }
  };
  divide(0, rows.length, 0, 0);
  return found;
}
