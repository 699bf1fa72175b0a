// Graphs for the tests of the relation explorer's page: a small one that people can read, and large ones.
import type { Graph, GraphNode, Relation, Relations } from "../../client/src/protocol.ts";

function node(id: string, op: string, label: string, type: string, more: Partial<GraphNode> = {}): GraphNode {
  return { id, op, label, type, kind: "operator", state: "proved", phase: "forward", module: "", ...more };
}

/** The tensor-parallel MLP whose all-reduce is forgotten, on two ranks. */
export function brokenMlp(): Relations {
  const location = { uri: "file:///workspace/mlp.py", range: { start: { line: 7, character: 15 }, end: { line: 7, character: 27 } } };
  const spec: Graph = {
    name: "specification",
    nodes: [
      node("x", "", "x", "f32[2, 8, 64]", { kind: "input" }),
      node("up", "", "up.weight", "f32[256, 64]", { kind: "input" }),
      node("down", "", "down.weight", "f32[64, 256]", { kind: "input" }),
      node("mm1", "aten.linear.default", "", "f32[2, 8, 256]"),
      node("gelu", "aten.gelu.default", "h", "f32[2, 8, 256]"),
      node("mm2", "aten.linear.default", "out", "f32[2, 8, 64]", { kind: "output", state: "off" }),
    ],
    edges: edges("x>mm1 up>mm1 mm1>gelu gelu>mm2 down>mm2"),
  };
  const rank = (index: number): Graph => ({
    name: `rank ${index}`,
    nodes: [
      node("x", "", "x", "f32[2, 8, 64]", { kind: "input" }),
      node("up", "", "up.weight", "f32[128, 64]", { kind: "input" }),
      node("down", "", "down.weight", "f32[64, 128]", { kind: "input" }),
      node("mm1", "aten.linear.default", "", "f32[2, 8, 128]"),
      node("gelu", "aten.gelu.default", "h", "f32[2, 8, 128]", { text: `h[:, :, ${index * 128}:${index * 128 + 128}]` }),
      node("mm2", "aten.linear.default", "out", "f32[2, 8, 64]", { kind: "output", state: "off", location }),
    ],
    edges: edges("x>mm1 up>mm1 mm1>gelu gelu>mm2 down>mm2"),
  });
  const pair = (spec: string, text: string): Relation => ({ spec, text, parts: [1, 2].map((graph) => ({ graph, node: spec })) });
  return {
    check: "mlp",
    mesh: { tp: 2 },
    verdict: "broken",
    version: 1,
    stale: false,
    graphs: [spec, rank(0), rank(1)],
    relations: [
      pair("x", "x@0 = x@1"),
      pair("up", "concat(up.weight@0, up.weight@1; dim=0)"),
      pair("down", "concat(down.weight@0, down.weight@1; dim=1)"),
      pair("mm1", "concat(linear@0, linear@1; dim=2)"),
      pair("gelu", "concat(h@0, h@1; dim=2)"),
      pair("mm2", "sum(out@0, out@1)"),
    ],
    broken: [1, 2].map((graph) => ({ graph, node: "mm2" })),
    focus: { graph: 1, node: "mm2" },
  };
}

function edges(text: string): { from: string; to: string }[] {
  return text.split(" ").map((edge) => {
    const [from = "", to = ""] = edge.split(">");
    return { from, to };
  });
}

/** Layers of a residual network on several ranks: six operators each, every one in relation. */
export function layers(count: number, ranks: number): Relations {
  const names = ["rms_norm", "linear", "silu", "linear", "all_reduce", "add"];
  const graph = (index: number): Graph => {
    const nodes: GraphNode[] = [node("x", "", "x", "f32[2, 8, 64]", { kind: "input" })];
    const links: { from: string; to: string }[] = [];
    let last = "x";
    for (let layer = 0; layer < count; layer += 1) {
      const residual = last;
      names.forEach((name, position) => {
        if (name === "all_reduce" && index === 0) {
          return;
        }
        const id = `${name}${position}.${layer}`;
        const kind = name === "all_reduce" ? "collective" : "operator";
        nodes.push(node(id, name === "all_reduce" ? "gg.all_reduce" : `aten.${name}.default`, "", "f32[2, 8, 64]", { kind, module: `layers.${layer}` }));
        links.push({ from: last, to: id });
        last = id;
      });
      links.push({ from: residual, to: last });
    }
    return { name: index === 0 ? "specification" : `rank ${index - 1}`, nodes, edges: links };
  };
  const graphs = Array.from({ length: ranks + 1 }, (_, index) => graph(index));
  const spec = graphs[0] as Graph;
  const relations = spec.nodes.map(({ id }) => ({ spec: id, text: `${id}@0`, parts: graphs.slice(1).map((_, index) => ({ graph: index + 1, node: id })) }));
  return { check: "layers", mesh: { tp: ranks }, verdict: "proved", version: 1, stale: false, graphs, relations, broken: [] };
}
