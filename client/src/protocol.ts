// The messages between extension and server beyond LSP; docs/protocol.md describes each of them.
import type { Location, Position, Range } from "vscode-languageclient/node";

export const METHODS = {
  status: "graphguard/status",
  checks: "graphguard/checks",
  marks: "graphguard/marks",
  run: "graphguard/run",
  cancel: "graphguard/cancel",
  relations: "graphguard/relations",
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

export interface GraphNode {
  readonly id: string;
  readonly op: string;
  readonly label: string;
  readonly type: string;
  readonly kind: "input" | "operator" | "collective" | "output";
  readonly state: "proved" | "off" | "unknown" | "none";
  readonly phase: string;
  readonly module: string;
  /** What a rank's tensor is in terms of the specification. */
  readonly text?: string;
  readonly location?: { readonly uri: string; readonly range: Range };
}

/** The specification's graph or one rank's. */
export interface Graph {
  readonly name: string;
  readonly nodes: readonly GraphNode[];
  readonly edges: readonly { readonly from: string; readonly to: string }[];
}

export interface NodeRef {
  readonly graph: number;
  readonly node: string;
}

/** A tensor of the specification and the ranks' tensors that it is rebuilt from. */
export interface Relation {
  readonly spec: string;
  readonly text: string;
  readonly parts: readonly NodeRef[];
}

/** What the relation explorer shows; ``graphs[0]`` is the specification, ``graphs[r + 1]`` rank r. */
export interface Relations {
  readonly check: string;
  readonly mesh: Mesh;
  readonly verdict: string;
  readonly version: number | null;
  readonly stale: boolean;
  readonly graphs: readonly Graph[];
  readonly relations: readonly Relation[];
  readonly broken: readonly NodeRef[];
  readonly focus?: NodeRef;
}

/** ``tp=2, dp=4``: how a mesh is written everywhere. */
export function meshText(mesh: Mesh): string {
  return Object.entries(mesh)
    .map(([axis, size]) => `${axis}=${size}`)
    .join(", ");
}
