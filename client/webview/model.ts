// The messages between the relation explorer's page and the extension.
import type { Mesh, Place, Relations, Row, RowsParams, RunState } from "../src/protocol";

/** A check that can be chosen, on one mesh. */
export interface Choice {
  readonly check: string;
  readonly name: string;
  readonly mesh: Mesh;
  readonly state: RunState;
  readonly stale: boolean;
}

export type ToExplorer =
  | { readonly type: "relations"; readonly relations: Relations }
  | { readonly type: "focus"; readonly focus: number | undefined; readonly stale: boolean }
  | { readonly type: "rows"; readonly asked: RowsParams; readonly rows: readonly Row[] }
  | { readonly type: "found"; readonly text: string; readonly rows: readonly number[] }
  | { readonly type: "choices"; readonly choices: readonly Choice[] }
  | { readonly type: "nothing"; readonly reason: string };

export type FromExplorer =
  | { readonly type: "ready" }
  | { readonly type: "choose"; readonly check: string; readonly mesh: Mesh }
  | { readonly type: "follow"; readonly follow: boolean }
  | { readonly type: "rows"; readonly asked: RowsParams }
  | { readonly type: "find"; readonly picture: string; readonly text: string }
  | { readonly type: "reveal"; readonly location: Place }
  | { readonly type: "fix"; readonly location: Place }
  | { readonly type: "export"; readonly svg: string };
