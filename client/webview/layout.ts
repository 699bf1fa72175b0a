// Places nodes and routes edges: one column per graph, laid out by ELK; the rows are shared by all columns.
import ELK, { type ElkExtendedEdge, type ElkNode } from "elkjs/lib/elk-api";
import { type Graph, type GraphNode, nodeKey, operatorName, type Relation } from "./model";
import { rowsOf } from "./rows";

export interface Point {
  readonly x: number;
  readonly y: number;
}

/** A node where it is drawn; ``x`` and ``y`` are its top left corner. */
export interface PlacedNode extends Point {
  readonly key: string;
  readonly graph: number;
  readonly row: number;
  readonly width: number;
  readonly height: number;
  readonly node: GraphNode;
  readonly lines: readonly string[];
}

export interface PlacedEdge {
  readonly key: string;
  readonly from: string;
  readonly to: string;
  readonly points: readonly Point[];
}

export interface Column {
  readonly graph: number;
  readonly name: string;
  readonly x: number;
  readonly width: number;
}

export interface Picture {
  readonly width: number;
  readonly height: number;
  readonly columns: readonly Column[];
  readonly nodes: readonly PlacedNode[];
  readonly edges: readonly PlacedEdge[];
}

const LINE = 15;
const ROW_GAP = 30;
const COLUMN_GAP = 48;
const HEADER = 44;
const CHARACTER = 7;
const NARROWEST = 80;
const WIDEST = 184;

const OPTIONS = {
  "elk.algorithm": "layered",
  "elk.direction": "DOWN",
  "elk.edgeRouting": "ORTHOGONAL",
  "elk.layered.layering.strategy": "INTERACTIVE",
  "elk.layered.considerModelOrder.strategy": "NODES_AND_EDGES",
  "elk.separateConnectedComponents": "false",
  "elk.spacing.nodeNode": "18",
  "elk.layered.spacing.nodeNodeBetweenLayers": String(ROW_GAP),
  "elk.layered.spacing.edgeNodeBetweenLayers": "10",
  "elk.layered.spacing.edgeEdgeBetweenLayers": "7",
};

/** Past this many nodes in a column the placement that looks best takes seconds, the second best a fraction. */
const MANY_NODES = 150;
const BEST_PLACEMENT = { "elk.layered.nodePlacement.strategy": "NETWORK_SIMPLEX" };
const QUICK_PLACEMENT = { "elk.layered.nodePlacement.strategy": "BRANDES_KOEPF", "elk.layered.thoroughness": "2" };

/** The lines of text in a node: what computes it, its name and type, and its relation where it has one. */
export function captions(node: GraphNode, relation = node.text ?? ""): readonly string[] {
  const name = node.kind === "input" ? node.label : operatorName(node.op);
  const second = node.kind === "input" || node.label === "" || node.label === name ? node.type : `${node.label}  ${node.type}`;
  return [name || node.kind, second, ...(relation === "" ? [] : [relation])].map(shorten);
}

const heightOf = (lines: number): number => 10 + LINE * lines;

function shorten(text: string): string {
  const most = Math.floor((WIDEST - 30) / CHARACTER);
  return text.length > most ? `${text.slice(0, most - 1)}…` : text;
}

const widthOf = (lines: readonly string[]): number => Math.min(WIDEST, Math.max(NARROWEST, 34 + CHARACTER * Math.max(...lines.map((line) => line.length))));

/** Lays out the graphs shown; ``elk`` does it off the main thread where it was given a worker. */
export async function layOut(
  elk: InstanceType<typeof ELK>,
  graphs: readonly Graph[],
  relations: readonly Relation[],
  shown: readonly number[],
): Promise<Picture> {
  const rows = rowsOf(graphs, relations);
  const texts = new Map(relations.map(({ spec, text }) => [spec, text]));
  const columns = await Promise.all(
    shown.map((index) => {
      const graph = graphs[index] as Graph;
      const lines = new Map(graph.nodes.map((node) => [node.id, captions(node, index === 0 ? (texts.get(node.id) ?? "") : node.text)]));
      return layOutColumn(elk, index, graph, lines, rows);
    }),
  );
  return join(columns, graphs, rows);
}

interface RawColumn {
  readonly graph: number;
  readonly laid: ElkNode;
  readonly lines: ReadonlyMap<string, readonly string[]>;
  /** All nodes of a column are equally high, so that a layer is a row. */
  readonly nodeHeight: number;
}

async function layOutColumn(
  elk: InstanceType<typeof ELK>,
  index: number,
  graph: Graph,
  lines: ReadonlyMap<string, readonly string[]>,
  rows: ReadonlyMap<string, number>,
): Promise<RawColumn> {
  const row = (id: string) => rows.get(nodeKey({ graph: index, node: id })) ?? 0;
  const height = heightOf(Math.max(2, ...[...lines.values()].map(({ length }) => length)));
  const children = graph.nodes.map((node, position) => ({
    id: node.id,
    width: widthOf(lines.get(node.id) ?? []),
    height,
    // Interactive layering takes the layer from the position along the direction.
    x: position,
    y: row(node.id) * height * 2,
  }));
  const edges = graph.edges.map(({ from, to }, position) => ({ id: `e${position}`, sources: [from], targets: [to] }));
  const layoutOptions = { ...OPTIONS, ...(children.length > MANY_NODES ? QUICK_PLACEMENT : BEST_PLACEMENT) };
  return { graph: index, lines, nodeHeight: height, laid: await elk.layout({ id: "column", layoutOptions, children, edges }) };
}

/** Puts the columns side by side and stretches each so that equal rows stand at equal heights. */
function join(columns: readonly RawColumn[], graphs: readonly Graph[], rows: ReadonlyMap<string, number>): Picture {
  const rowOf = (graph: number, id: string) => rows.get(nodeKey({ graph, node: id })) ?? 0;
  const tops = rowTops(columns, rowOf);
  const nodes: PlacedNode[] = [];
  const edges: PlacedEdge[] = [];
  const placed: Column[] = [];
  let left = 0;
  for (const column of columns) {
    const { graph, laid, lines } = column;
    const stretch = stretcher(column, tops, (id) => rowOf(graph, id));
    const byId = new Map((graphs[graph] as Graph).nodes.map((node) => [node.id, node]));
    for (const child of laid.children ?? []) {
      const node = byId.get(child.id) as GraphNode;
      const row = rowOf(graph, child.id);
      const [width, height] = [child.width ?? 0, child.height ?? 0];
      const [x, y] = [left + (child.x ?? 0), tops.get(row) ?? 0];
      nodes.push({ key: nodeKey({ graph, node: child.id }), graph, row, node, width, height, x, y, lines: lines.get(child.id) ?? [] });
    }
    for (const edge of laid.edges ?? []) {
      const [from = "", to = ""] = [edge.sources[0], edge.targets[0]];
      const points = pointsOf(edge).map(({ x, y }) => ({ x: left + x, y: stretch(y) }));
      edges.push({ key: `${graph}:${edge.id}`, from: nodeKey({ graph, node: from }), to: nodeKey({ graph, node: to }), points });
    }
    const width = Math.max(laid.width ?? 0, NARROWEST);
    placed.push({ graph, name: (graphs[graph] as Graph).name, x: left, width });
    left += width + COLUMN_GAP;
  }
  const height = [...tops.values()].reduce((a, b) => Math.max(a, b), HEADER) + tallest(columns) + ROW_GAP;
  return { width: Math.max(left - COLUMN_GAP, NARROWEST), height, columns: placed, nodes, edges };
}

/** The height at which each row begins: as far below the last as the widest gap that ELK needs in any column. */
function rowTops(columns: readonly RawColumn[], rowOf: (graph: number, id: string) => number): Map<number, number> {
  const gaps = new Map<number, number>();
  for (const { graph, laid } of columns) {
    const ys = layerTops(laid, (id) => rowOf(graph, id));
    ys.forEach(([row, y], index) => {
      const before = ys[index - 1];
      if (before !== undefined) {
        // A gap over several rows is shared by them; the rows between belong to other columns.
        gaps.set(row, Math.max(gaps.get(row) ?? 0, (y - before[1]) / (row - before[0])));
      }
    });
  }
  const all = new Set(columns.flatMap(({ graph, laid }) => layerTops(laid, (id) => rowOf(graph, id)).map(([row]) => row)));
  const tops = new Map<number, number>();
  let at = HEADER;
  for (const row of [...all].sort((a, b) => a - b)) {
    at += tops.size === 0 ? 0 : Math.max(gaps.get(row) ?? 0, tallest(columns) + ROW_GAP);
    tops.set(row, at);
  }
  return tops;
}

const tallest = (columns: readonly RawColumn[]): number => Math.max(0, ...columns.map(({ nodeHeight }) => nodeHeight));

/** ELK's own height of every row in a column, ascending. */
function layerTops(laid: ElkNode, rowOf: (id: string) => number): [number, number][] {
  const tops = new Map<number, number>();
  for (const child of laid.children ?? []) {
    tops.set(rowOf(child.id), child.y ?? 0);
  }
  return [...tops].sort(([a], [b]) => a - b);
}

/** Maps ELK's heights in a column to the shared ones, linear between the rows' lower and upper edges. */
function stretcher({ laid, nodeHeight }: RawColumn, tops: ReadonlyMap<number, number>, rowOf: (id: string) => number): (y: number) => number {
  const anchors = layerTops(laid, rowOf).flatMap(([row, y]): [number, number][] => {
    const target = tops.get(row) ?? 0;
    return [
      [y, target],
      [y + nodeHeight, target + nodeHeight],
    ];
  });
  return (y) => {
    const next = anchors.findIndex(([from]) => from >= y);
    const upper = anchors[next === -1 ? anchors.length - 1 : next];
    const lower = anchors[Math.max(0, (next === -1 ? anchors.length : next) - 1)];
    if (upper === undefined || lower === undefined || upper[0] === lower[0]) {
      return y + (upper === undefined ? 0 : upper[1] - upper[0]);
    }
    return lower[1] + ((y - lower[0]) / (upper[0] - lower[0])) * (upper[1] - lower[1]);
  };
}

function pointsOf(edge: ElkExtendedEdge): Point[] {
  return (edge.sections ?? []).flatMap(({ startPoint, bendPoints = [], endPoint }) => [startPoint, ...bendPoints, endPoint]);
}
