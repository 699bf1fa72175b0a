// What the relation explorer draws, and the messages between it and the extension.
import type { GraphNode, Mesh, NodeRef, Relations, RunState } from "../src/protocol";

export type { Graph, GraphNode, NodeRef, Relation, Relations } from "../src/protocol";

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
  | { readonly type: "focus"; readonly focus: NodeRef | undefined; readonly stale: boolean }
  | { readonly type: "choices"; readonly choices: readonly Choice[] }
  | { readonly type: "nothing"; readonly reason: string };

export type FromExplorer =
  | { readonly type: "ready" }
  | { readonly type: "choose"; readonly check: string; readonly mesh: Mesh }
  | { readonly type: "follow"; readonly follow: boolean }
  | { readonly type: "reveal"; readonly location: NonNullable<GraphNode["location"]> }
  | { readonly type: "export"; readonly svg: string };

/** Names a node among all graphs. */
export const nodeKey = ({ graph, node }: NodeRef): string => `${graph}/${node}`;

/** The last part of an operator's name: ``aten.mm.default`` is ``mm``, ``gg.all_reduce`` is ``all_reduce``. */
export function operatorName(op: string): string {
  const parts = op.split(".");
  return (parts.length > 1 ? parts[1] : parts[0]) ?? op;
}
