// Draws a picture as SVG: only what lies in view is in the document, so that thousands of nodes stay smooth.
import { select, type Selection } from "d3-selection";
import { type D3ZoomEvent, zoom, zoomIdentity, type ZoomTransform } from "d3-zoom";
import { type PlacedEdge, type PlacedNode, type Picture, type Point } from "./layout";

/** What is emphasised. */
export interface Emphasis {
  readonly selected: string | undefined;
  /** Where the cursor of the editor is. */
  readonly focus: string | undefined;
  /** Counterparts of the selected node. */
  readonly related: ReadonlySet<string>;
  readonly broken: ReadonlySet<string>;
}

/** Signs of the states, drawn around (0, 0): a picture, not text, since the node's label says it in words. */
export const GLYPHS = {
  proved: "M-4,0.5 L-1,3.5 L4,-3.5",
  off: "M-3.5,-3.5 L3.5,3.5 M3.5,-3.5 L-3.5,3.5",
  unknown: "M-2.5,-2.2 A2.5,2.5 0 1 1 0.8,0.2 Q0,0.6 0,1.8 M0,4.2 L0,4.3",
  none: "",
} as const;
export const GLYPH_PLACE = "translate(13,13)";

/** The corners of a box, by the kind of its node. */
export const RADII = { input: 2, operator: 7, collective: 18, output: 7 } as const;
export const TEXT_LEFT = 26;
/** The lines of text in a box. */
export const LINES = [
  { name: "title", y: 17 },
  { name: "type", y: 32 },
  { name: "relation", y: 47 },
] as const;

const READABLE_SCALE = 0.55;
/** Nearer than this to the border of the view a node counts as outside. */
const EDGE = 12;
const MARGIN = 200;
const CORNER = 6;
const SMALLEST_TEXT_SCALE = 0.35;

export class Drawing {
  private readonly svg: Selection<SVGSVGElement, unknown, null, undefined>;
  private readonly scene: Selection<SVGGElement, unknown, null, undefined>;
  private readonly layers: Record<"rows" | "links" | "edges" | "nodes" | "headers", Selection<SVGGElement, unknown, null, undefined>>;
  private readonly zooming = zoom<SVGSVGElement, unknown>().scaleExtent([0.05, 4]);
  private transform: ZoomTransform = zoomIdentity;
  private picture: Picture = { width: 1, height: 1, columns: [], nodes: [], edges: [] };
  private emphasis: Emphasis = { selected: undefined, focus: undefined, related: new Set(), broken: new Set() };
  private byKey = new Map<string, PlacedNode>();

  constructor(
    element: SVGSVGElement,
    private readonly chosen: (key: string) => void,
    private readonly opened: (key: string) => void,
  ) {
    this.svg = select(element);
    this.scene = this.svg.append("g");
    const layer = (name: string) => this.scene.append("g").attr("class", name);
    this.layers = { rows: layer("rows"), links: layer("links"), edges: layer("edges"), nodes: layer("nodes"), headers: layer("headers") };
    this.zooming.on("zoom", (event: D3ZoomEvent<SVGSVGElement, unknown>) => {
      this.transform = event.transform;
      this.scene.attr("transform", event.transform.toString());
      this.paint();
    });
    this.svg.call(this.zooming).on("dblclick.zoom", null);
    new ResizeObserver(() => this.paint()).observe(element);
  }

  show(picture: Picture): void {
    this.picture = picture;
    this.byKey = new Map(picture.nodes.map((node) => [node.key, node]));
  }

  emphasise(emphasis: Emphasis): void {
    this.emphasis = emphasis;
    this.paint();
  }

  node(key: string | undefined): PlacedNode | undefined {
    return key === undefined ? undefined : this.byKey.get(key);
  }

  /** Shows the whole picture, but never larger than life. */
  fit(): void {
    const { width, height } = this.size();
    const scale = Math.min(1, width / (this.picture.width + 40), height / (this.picture.height + 20));
    const x = (width - this.picture.width * scale) / 2;
    this.svg.call(this.zooming.transform, zoomIdentity.translate(x, 10).scale(scale));
  }

  /** The whole picture where it can be read then; else its upper left part. */
  fitReadably(): void {
    const { width, height } = this.size();
    if (Math.min(width / (this.picture.width + 40), height / (this.picture.height + 20)) >= READABLE_SCALE) {
      this.fit();
      return;
    }
    const scale = Math.max(READABLE_SCALE, Math.min(1, width / (this.picture.width + 40)));
    const x = Math.max(10, (width - this.picture.width * scale) / 2);
    this.svg.call(this.zooming.transform, zoomIdentity.translate(x, 10).scale(scale));
  }

  zoomBy(factor: number): void {
    this.svg.call(this.zooming.scaleBy, factor);
  }

  /** Moves the view, if need be, so that a node is well inside it. */
  bringIntoView(key: string): void {
    const node = this.byKey.get(key);
    if (node === undefined) {
      return;
    }
    const { width, height } = this.size();
    const [left, top] = this.transform.apply([node.x, node.y]);
    const [right, bottom] = this.transform.apply([node.x + node.width, node.y + node.height]);
    const inside = left >= EDGE && top >= EDGE && right <= width - EDGE && bottom <= height - EDGE;
    if (inside) {
      return;
    }
    if (this.transform.k < READABLE_SCALE) {
      const middle = zoomIdentity.translate(width / 2, height / 2).scale(READABLE_SCALE);
      this.svg.call(this.zooming.transform, middle.translate(-node.x - node.width / 2, -node.y - node.height / 2));
      return;
    }
    // No further than needed: what stands beside it stays in view.
    const dx = left < EDGE ? EDGE - left : Math.min(0, width - EDGE - right);
    const dy = top < EDGE ? EDGE - top : Math.min(0, height - EDGE - bottom);
    const { x, y, k } = this.transform;
    this.svg.call(this.zooming.transform, zoomIdentity.translate(x + dx, y + dy).scale(k));
  }

  focusElement(key: string): void {
    this.layers.nodes.selectAll<SVGGElement, PlacedNode>("g.node").filter((node) => node.key === key).node()?.focus();
  }

  /** Of the view, in pixels. */
  size(): { width: number; height: number } {
    const { clientWidth, clientHeight } = this.svg.node() as SVGSVGElement;
    return { width: clientWidth, height: clientHeight };
  }

  private inView(): (box: { x: number; y: number; right: number; bottom: number }) => boolean {
    const { width, height } = this.size();
    const [left, top] = this.transform.invert([-MARGIN, -MARGIN]);
    const [right, bottom] = this.transform.invert([width + MARGIN, height + MARGIN]);
    return (box) => box.x < right && box.right > left && box.y < bottom && box.bottom > top;
  }

  private paint(): void {
    const visible = this.inView();
    this.svg.classed("far", this.transform.k < SMALLEST_TEXT_SCALE);
    const nodes = this.picture.nodes.filter((node) => visible({ ...node, right: node.x + node.width, bottom: node.y + node.height }));
    const edges = this.picture.edges.filter((edge) => visible(boundsOf(edge.points)));
    paintRow(this.layers.rows, this.byKey.get(this.emphasis.selected ?? ""), this.picture.width);
    paintLinks(this.layers.links, this.linked());
    paintEdges(this.layers.edges, edges, this.emphasis);
    paintHeaders(this.layers.headers, this.picture, this.transform);
    this.paintNodes(nodes);
  }

  /** The selected node with each of its counterparts. */
  private linked(): (readonly [PlacedNode, PlacedNode])[] {
    const from = this.byKey.get(this.emphasis.selected ?? "");
    const others = [...this.emphasis.related].map((key) => this.byKey.get(key)).filter((node) => node !== undefined);
    return from === undefined ? [] : others.map((to) => [from, to] as const);
  }

  private paintNodes(nodes: readonly PlacedNode[]): void {
    const all = this.layers.nodes
      .selectAll<SVGGElement, PlacedNode>("g.node")
      .data(nodes, drawingOf)
      .join((enter) => {
        const group = enter.append("g");
        drawNode(group);
        return group
          .on("click", (_, node) => this.chosen(node.key))
          .on("focus", (_, node) => this.chosen(node.key))
          .on("dblclick", (_, node) => this.opened(node.key));
      });
    const tabStop = this.emphasis.selected ?? this.emphasis.focus ?? nodes[0]?.key;
    all.select("path.glyph").attr("d", (node) => glyphOf(node, this.emphasis.broken));
    all
      .attr("class", (node) => classesOf(node, this.emphasis))
      .attr("tabindex", (node) => (node.key === tabStop ? 0 : -1))
      .attr("aria-label", (node) => labelOf(node, this.picture, this.emphasis))
      .attr("aria-current", (node) => (node.key === this.emphasis.focus ? "location" : null));
  }
}

/** A place where refinement breaks is marked as such, also where a clean relation exists that was not the promised one. */
export function glyphOf({ key, node }: PlacedNode, broken: ReadonlySet<string>): string {
  return GLYPHS[broken.has(key) ? "off" : node.state];
}

function classesOf({ key, node }: PlacedNode, { selected, focus, related, broken }: Emphasis): string {
  const marks = { selected: key === selected, focus: key === focus, related: related.has(key), broken: broken.has(key) };
  return ["node", node.kind, node.state, node.phase, ...Object.entries(marks).filter(([, on]) => on).map(([name]) => name)].join(" ");
}

const STATES_IN_WORDS = { proved: "in relation", off: "off the relation", unknown: "unknown", none: "" } as const;

function labelOf({ key, node, graph, lines }: PlacedNode, picture: Picture, { broken }: Emphasis): string {
  const column = picture.columns.find((candidate) => candidate.graph === graph)?.name ?? "";
  const words = [lines.join(" "), node.kind, STATES_IN_WORDS[node.state], broken.has(key) ? "refinement breaks here" : "", column];
  return words.filter(Boolean).join(", ");
}

/** What identifies a drawn node: its key and all that is drawn once, so that a node that says something else is drawn anew. */
export function drawingOf({ key, x, y, width, height, lines, node }: PlacedNode): string {
  return JSON.stringify([key, x, y, width, height, lines, node.kind]);
}

/** The shapes of a node; shape and glyph carry what colour only repeats. */
export function drawNode(group: Selection<SVGGElement, PlacedNode, SVGGElement, unknown>): void {
  group.attr("role", "button").attr("transform", ({ x, y }) => `translate(${x},${y})`);
  group
    .append("rect")
    .attr("class", "box")
    .attr("width", ({ width }) => width)
    .attr("height", ({ height }) => height)
    .attr("rx", ({ node }) => RADII[node.kind]);
  group
    .append("path")
    .attr("class", "glyph")
    .attr("transform", GLYPH_PLACE);
  LINES.forEach(({ name, y }, index) => {
    group
      .filter(({ lines }) => lines[index] !== undefined)
      .append("text")
      .attr("class", name)
      .attr("x", TEXT_LEFT)
      .attr("y", y)
      // The space keeps the lines apart where they are read as one text.
      .text(({ lines }) => `${lines[index] ?? ""} `);
  });
}

function paintRow(layer: Selection<SVGGElement, unknown, null, undefined>, selected: PlacedNode | undefined, width: number): void {
  layer
    .selectAll<SVGRectElement, PlacedNode>("rect")
    .data(selected === undefined ? [] : [selected])
    .join("rect")
    .attr("x", -20)
    .attr("width", width + 40)
    .attr("y", ({ y }) => y - 7)
    .attr("height", ({ height }) => height + 14);
}

function paintLinks(layer: Selection<SVGGElement, unknown, null, undefined>, links: readonly (readonly [PlacedNode, PlacedNode])[]): void {
  layer.selectAll<SVGPathElement, (typeof links)[number]>("path").data(links).join("path").attr("d", ([a, b]) => linkPath(a, b));
}

/** A curve between two columns. */
export function linkPath(a: PlacedNode, b: PlacedNode): string {
  const [from, to] = a.x <= b.x ? [a, b] : [b, a];
  const [x1, y1, x2, y2] = [from.x + from.width, from.y + from.height / 2, to.x, to.y + to.height / 2];
  const bend = Math.max(20, (x2 - x1) / 2);
  return `M${x1},${y1} C${x1 + bend},${y1} ${x2 - bend},${y2} ${x2},${y2}`;
}

function paintEdges(layer: Selection<SVGGElement, unknown, null, undefined>, edges: readonly PlacedEdge[], { selected }: Emphasis): void {
  layer
    .selectAll<SVGPathElement, PlacedEdge>("path")
    .data(edges, (edge) => `${edge.key} ${edgePath(edge.points)}`)
    .join((enter) => enter.append("path").attr("d", (edge) => edgePath(edge.points)))
    .attr("class", (edge) => (selected !== undefined && (edge.from === selected || edge.to === selected) ? "edge near" : "edge"));
}

/** Column titles stay at the upper edge of the view. */
function paintHeaders(layer: Selection<SVGGElement, unknown, null, undefined>, picture: Picture, transform: ZoomTransform): void {
  const top = Math.max(0, -transform.y / transform.k);
  layer
    .selectAll<SVGTextElement, (typeof picture.columns)[number]>("text")
    .data(picture.columns, (column) => column.graph)
    .join("text")
    .attr("x", ({ x, width }) => x + width / 2)
    .attr("y", top + 20 / Math.max(transform.k, 0.5))
    .text(({ name }) => name);
}

/** An orthogonal way with rounded corners. */
export function edgePath(points: readonly Point[]): string {
  const parts = points.map((point, index) => {
    const [before, after] = [points[index - 1], points[index + 1]];
    if (before === undefined) {
      return `M${point.x},${point.y}`;
    }
    if (after === undefined) {
      return `L${point.x},${point.y}`;
    }
    const [enter, leave] = [towards(point, before), towards(point, after)];
    return `L${enter.x},${enter.y} Q${point.x},${point.y} ${leave.x},${leave.y}`;
  });
  return parts.join(" ");
}

function towards(from: Point, to: Point): Point {
  const distance = Math.hypot(to.x - from.x, to.y - from.y);
  const part = distance === 0 ? 0 : Math.min(CORNER, distance / 2) / distance;
  return { x: from.x + (to.x - from.x) * part, y: from.y + (to.y - from.y) * part };
}

function boundsOf(points: readonly Point[]): { x: number; y: number; right: number; bottom: number } {
  const [xs, ys] = [points.map(({ x }) => x), points.map(({ y }) => y)];
  return { x: Math.min(...xs), y: Math.min(...ys), right: Math.max(...xs), bottom: Math.max(...ys) };
}
