// The messages between extension and server beyond LSP; docs/protocol.md describes each of them.
import type { Location, Position, Range } from "vscode-languageclient/node";

export const METHODS = {
  status: "graphguard/status",
  checks: "graphguard/checks",
  marks: "graphguard/marks",
  run: "graphguard/run",
  cancel: "graphguard/cancel",
  relations: "graphguard/relations",
  rows: "graphguard/rows",
  find: "graphguard/find",
  explain: "graphguard/explain",
  reproduce: "graphguard/reproduce",
  awaitFix: "graphguard/awaitFix",
  clearCache: "graphguard/clearCache",
  debugInformation: "graphguard/debugInformation",
  trust: "graphguard/trust",
} as const;

export type Mesh = Record<string, number>;

export type RunState = "idle" | "queued" | "tracing" | "proving" | "proved" | "assumed" | "unknown" | "broken" | "error";

export interface Counts {
  readonly proved: number;
  readonly assumed: number;
  readonly unknown: number;
  readonly broken: number;
  readonly error: number;
  readonly stale: number;
  readonly running: number;
}

export interface ServerProcess {
  readonly name: string;
  readonly state: "stopped" | "starting" | "ready" | "waiting" | "failed";
  readonly restarts: number;
  readonly message: string;
}

export interface ServerStatus {
  readonly revision: number;
  readonly health: "ok" | "warning" | "error";
  readonly busy: boolean;
  readonly message: string;
  readonly trusted: boolean;
  readonly counts: Counts;
  readonly processes: readonly ServerProcess[];
  readonly detail?: string;
}

/** One check on one mesh. */
export interface CheckRun {
  readonly mesh: Mesh;
  readonly state: RunState;
  readonly stale: boolean;
  readonly described: boolean;
  readonly cached: boolean;
  readonly seconds: number;
  readonly headline: string;
  readonly message: string;
  readonly location?: Location;
}

export interface Check {
  readonly id: string;
  readonly name: string;
  readonly uri: string;
  readonly range: Range;
  readonly runs: readonly CheckRun[];
}

export interface ChecksUpdate {
  readonly revision: number;
  readonly checks: readonly Check[];
}

export interface RunTarget {
  readonly id: string;
  readonly mesh?: Mesh;
}

export interface RunParams {
  readonly checks?: readonly RunTarget[];
  readonly uri?: string;
  readonly force?: boolean;
}

/** Marks for the gutter of one file. */
export interface Marks {
  readonly uri: string;
  readonly version: number | null;
  readonly stale: boolean;
  readonly marks: readonly { readonly line: number; readonly state: "proved" | "assumed" | "unknown" | "broken"; readonly message: string }[];
}

export type RelationsParams = { readonly uri: string; readonly position: Position } | { readonly check: string; readonly mesh?: Mesh };

export interface Place {
  readonly uri: string;
  readonly range: Range;
}

/** What one program computes in a row. */
export interface Cell {
  readonly kind: "input" | "operator" | "collective";
  /** What stands in the source, empty for an input. */
  readonly code: string;
  readonly name: string;
  readonly operators: readonly string[];
  readonly shape: readonly number[];
  /** What a rank's tensor is in terms of the specification. */
  readonly text: string;
  readonly location?: Place;
}

/** A tensor: the specification's cell, then those of the ranks that were asked for. */
export interface Row {
  readonly module: string;
  readonly phase: string;
  readonly state: "proved" | "broken" | "off";
  /** In DTensor's words. */
  readonly layout: string;
  /** As a formula. */
  readonly relation: string;
  readonly reads: readonly number[];
  readonly cells: readonly (Cell | null)[];
}

/** A module: its rows from ``from`` up to ``to``. */
export interface Group {
  readonly name: string;
  readonly depth: number;
  readonly from: number;
  readonly to: number;
  readonly proved: number;
}

export interface Finding {
  readonly rule: string;
  readonly headline: string;
  readonly needed?: string;
  readonly found?: string;
  readonly fixes: readonly string[];
  readonly location?: Place;
  /** Where it stands among the rows. */
  readonly row?: number;
}

/** What the relation explorer shows; ``rows`` are those around where it opens. */
export interface Relations {
  readonly check: string;
  readonly mesh: Mesh;
  readonly verdict: RunState;
  readonly version: number | null;
  readonly stale: boolean;
  readonly picture: string;
  /** Classes of ranks that compute the same. */
  readonly ranks: readonly (readonly number[])[];
  readonly columns: readonly number[];
  readonly total: number;
  readonly groups: readonly Group[];
  readonly breaks: readonly number[];
  readonly start?: number;
  readonly focus?: number;
  readonly findings: readonly Finding[];
  readonly files: readonly string[];
  readonly first: number;
  readonly rows: readonly Row[];
}

export interface RowsParams {
  readonly picture: string;
  readonly first: number;
  readonly end: number;
  readonly columns: readonly number[];
}

export interface Rows {
  readonly first: number;
  readonly rows: readonly Row[];
}

/** ``tp=2, dp=4``: how a mesh is written everywhere. */
export function meshText(mesh: Mesh): string {
  return Object.entries(mesh)
    .map(([axis, size]) => `${axis}=${size}`)
    .join(", ");
}
