// What is written into a row: short words, from what the server says of it.
import type { Cell, Place, Relations, Row } from "../src/protocol";

/** Operators that only lay out elements anew: an expression is named by what else it does. */
const MOVES = new Set(["t", "view", "reshape", "transpose", "permute", "expand", "contiguous", "clone", "detach", "alias", "_unsafe_view", "unsqueeze", "squeeze"]);

export const GLYPHS = { proved: "✓", broken: "✗", off: "○" } as const;

/** The last part of an operator's name: ``aten.mm.default`` is ``mm``, ``gg.all_reduce`` is ``all_reduce``. */
export function operatorName(op: string): string {
  const parts = op.split(".");
  return (parts.length > 1 ? parts[1] : parts[0]) ?? op;
}

/** What an expression mainly does. */
export function mainOperator({ operators }: Pick<Cell, "operators">): string {
  const names = operators.map(operatorName);
  return names.findLast((name) => !MOVES.has(name)) ?? names.at(-1) ?? "";
}

export const titleOf = (cell: Cell): string => cell.code || cell.name || mainOperator(cell);

export const shapeOf = ({ shape }: Cell): string => `[${shape.map((size) => (size < 0 ? "?" : size)).join(", ")}]`;

export const lineOf = ({ uri, range }: Place): string => `${decodeURIComponent(uri.split("/").at(-1) ?? "")}:${range.start.line + 1}`;

/** The second line of a cell, without its place: the name where the code does not say it, operator, shape. */
export function detailOf(cell: Cell): string {
  const name = cell.code && cell.name && !cell.code.startsWith(`${cell.name} = `) ? cell.name : "";
  return [name, cell.kind === "input" ? "input" : mainOperator(cell), shapeOf(cell)].filter(Boolean).join(" ");
}

export interface Said {
  readonly text: string;
  /** The quiet line below. */
  readonly more: string;
}

/** What is said of a row where refinement ends: what is needed there, where that is known. */
export function endOf({ findings, verdict }: Pick<Relations, "findings" | "verdict">, row: number): string {
  const needed = findings.find((finding) => finding.row === row)?.needed;
  const ends = verdict === "unknown" ? "the proof ends here" : "refinement breaks here";
  return needed ? `needed: ${needed}` : ends;
}

/** How the tensor of a row stands: a layout, or why there is none; ``end`` is what is said where refinement ends. */
export function relationOf(row: Row, end: string | undefined, formulas: boolean): Said {
  if (end !== undefined) {
    return { text: row.layout || row.relation || "no relation", more: end };
  }
  if (row.state === "off") {
    return { text: "—", more: "follows the break" };
  }
  if (formulas) {
    return { text: row.relation || row.layout, more: row.relation ? row.layout : "" };
  }
  return { text: row.layout || row.relation, more: "" };
}

/** ``ranks 0–3, 6``: a class of ranks in few words. */
export function ranksText(ranks: readonly number[]): string {
  const spans: [number, number][] = [];
  for (const rank of ranks) {
    const last = spans.at(-1);
    if (last !== undefined && last[1] === rank - 1) {
      last[1] = rank;
    } else {
      spans.push([rank, rank]);
    }
  }
  const text = spans.map(([from, to]) => (from === to ? `${from}` : to === from + 1 ? `${from}, ${to}` : `${from}–${to}`)).join(", ");
  return `${ranks.length === 1 ? "rank" : "ranks"} ${text}`;
}
