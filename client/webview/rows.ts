// Gives every node of every graph a row, so that tensors in relation stand side by side and edges always go down.
import { type Graph, type NodeRef, nodeKey, type Relation } from "./model";

/**
 * Rows by node key: the longest way from an input, over all graphs at once, where a specification's node and the ranks' nodes that it is
 * rebuilt from count as one.  Where two alignments contradict each other (the order differs between the programs), one is given up.
 */
export function rowsOf(graphs: readonly Graph[], relations: readonly Relation[]): Map<string, number> {
  const aligned = alignments(relations);
  const keys = graphs.flatMap((graph, index) => graph.nodes.map(({ id }) => nodeKey({ graph: index, node: id })));
  const given = new Set<string>();
  for (;;) {
    const classOf = (key: string) => {
      const leader = aligned.get(key);
      return leader === undefined || given.has(leader) ? key : leader;
    };
    const { rows, stuck } = longestWays(keys, edgesOf(graphs), classOf);
    const culprit = stuck.find((key) => keys.some((member) => member !== key && classOf(member) === key));
    if (culprit === undefined) {
      const lowered = beforeTheirUse(rows, edgesOf(graphs), classOf);
      return new Map(keys.map((key) => [key, lowered.get(classOf(key)) ?? 0]));
    }
    given.add(culprit);
  }
}

/** For each rank's node, the specification's node it is aligned with: the first one whose relation uses it. */
function alignments(relations: readonly Relation[]): Map<string, string> {
  const aligned = new Map<string, string>();
  for (const { spec, parts } of relations) {
    const leader = nodeKey({ graph: 0, node: spec });
    for (const part of parts) {
      const key = nodeKey(part);
      if (!aligned.has(key)) {
        aligned.set(key, leader);
      }
    }
  }
  return aligned;
}

function edgesOf(graphs: readonly Graph[]): [string, string][] {
  return graphs.flatMap((graph, index) =>
    graph.edges.map(({ from, to }): [string, string] => [nodeKey({ graph: index, node: from }), nodeKey({ graph: index, node: to })]),
  );
}

/** Moves what nothing computes (inputs, parameters) down to the row above its first use. */
function beforeTheirUse(
  rows: ReadonlyMap<string, number>,
  edges: readonly (readonly [string, string])[],
  classOf: (key: string) => string,
): Map<string, number> {
  const computed = new Set(edges.map(([, to]) => classOf(to)));
  const firstUse = new Map<string, number>();
  for (const [from, to] of edges) {
    const row = rows.get(classOf(to)) ?? 0;
    firstUse.set(classOf(from), Math.min(row, firstUse.get(classOf(from)) ?? row));
  }
  return new Map([...rows].map(([key, row]) => [key, computed.has(key) ? row : (firstUse.get(key) ?? row + 1) - 1]));
}

function longestWays(
  keys: readonly string[],
  edges: readonly (readonly [string, string])[],
  classOf: (key: string) => string,
): { rows: Map<string, number>; stuck: string[] } {
  const classes = new Set(keys.map(classOf));
  const after = new Map<string, string[]>();
  const waiting = new Map<string, number>();
  for (const [from, to] of edges) {
    const [a, b] = [classOf(from), classOf(to)];
    after.set(a, [...(after.get(a) ?? []), b]);
    waiting.set(b, (waiting.get(b) ?? 0) + 1);
  }
  const rows = new Map<string, number>();
  const ready = [...classes].filter((key) => !waiting.get(key));
  ready.forEach((key) => rows.set(key, 0));
  const done = new Set<string>();
  for (let key = ready.pop(); key !== undefined; key = ready.pop()) {
    done.add(key);
    for (const next of after.get(key) ?? []) {
      rows.set(next, Math.max(rows.get(next) ?? 0, (rows.get(key) ?? 0) + 1));
      const left = (waiting.get(next) ?? 0) - 1;
      waiting.set(next, left);
      if (left === 0) {
        ready.push(next);
      }
    }
  }
  return { rows, stuck: [...classes].filter((key) => !done.has(key)) };
}

/** The counterpart of a node in another graph: through the relation that holds it. */
export function counterparts(relations: readonly Relation[], at: NodeRef): NodeRef[] {
  if (at.graph === 0) {
    return relations.filter(({ spec }) => spec === at.node).flatMap(({ parts }) => parts);
  }
  return relations
    .filter(({ parts }) => parts.some((part) => part.graph === at.graph && part.node === at.node))
    .flatMap(({ spec, parts }) => [{ graph: 0, node: spec }, ...parts.filter((part) => nodeKey(part) !== nodeKey(at))]);
}
