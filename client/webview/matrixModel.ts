// What the verdict matrix shows, and the messages between it and the extension.
import type { Mesh, RunState } from "../src/protocol";

export interface MatrixCell {
  readonly state: RunState;
  readonly stale: boolean;
  readonly seconds: number;
  readonly headline: string;
  readonly mesh: Mesh;
}

export interface MatrixRow {
  readonly check: string;
  readonly name: string;
  /** Where the check stands: several files may have checks of one name. */
  readonly file: string;
  readonly cells: readonly (MatrixCell | null)[];
}

export interface ToMatrix {
  readonly meshes: readonly string[];
  readonly rows: readonly MatrixRow[];
}

export type FromMatrix = { readonly type: "ready" } | { readonly type: "all" } | { readonly type: "open"; readonly check: string };
