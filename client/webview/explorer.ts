// The relation explorer: toolbar, drawing, keyboard, details of the selected node.
import ELK from "elkjs/lib/elk-api";
import { Drawing, type Emphasis } from "./draw";
import { layOut, type Picture, type PlacedNode } from "./layout";
import { type Choice, type FromExplorer, type GraphNode, type NodeRef, nodeKey, type Relations, type ToExplorer } from "./model";
import { counterparts } from "./rows";
import { drawingRules, svgOf, themeColours } from "./save";

declare function acquireVsCodeApi(): { postMessage(message: FromExplorer): void; getState(): unknown; setState(state: unknown): void };

const MOST_RANKS_AT_FIRST = 4;
/** About as wide as a column is where it can be read. */
const COLUMN_WIDTH = 240;

const editor = acquireVsCodeApi();
const element = <T extends Element>(id: string) => document.getElementById(id) as unknown as T;
const choiceList = element<HTMLSelectElement>("choice");
const verdict = element<HTMLElement>("verdict");
const ranks = element<HTMLFieldSetElement>("ranks");
const phases = element<HTMLButtonElement>("backward");
const follow = element<HTMLButtonElement>("follow");
const nothing = element<HTMLElement>("nothing");
const details = element<HTMLElement>("details");
const main = document.querySelector("main") as HTMLElement;
const svg = element<SVGSVGElement>("drawing");

let relations: Relations | undefined;
let picture: Picture | undefined;
let selected: string | undefined;
let focus: string | undefined;
let shownGraphs: number[] = [];
let withBackward = false;
let choices: readonly Choice[] = [];
/** Grows with every layout, so that a slow one cannot overwrite a later one. */
let generation = 0;

const drawing = new Drawing(svg, choose, reveal);
const elk = layoutEngine();

async function layoutEngine(): Promise<InstanceType<typeof ELK>> {
  // A worker must be of the page's own origin; the script is fetched and handed over as a blob.
  const script = await (await fetch(document.body.dataset["layout"] as string)).blob();
  const url = URL.createObjectURL(script);
  return new ELK({ workerFactory: () => new Worker(url) });
}

const isBackward = ({ phase }: GraphNode) => phase === "backward" || phase === "step";

/** The graphs as they are shown: without their backward part where it is switched off. */
function visibleGraphs({ graphs }: Relations): Relations["graphs"] {
  if (withBackward) {
    return graphs;
  }
  return graphs.map((graph) => {
    const nodes = graph.nodes.filter((node) => !isBackward(node));
    const ids = new Set(nodes.map(({ id }) => id));
    return { ...graph, nodes, edges: graph.edges.filter(({ from, to }) => ids.has(from) && ids.has(to)) };
  });
}

async function take(next: Relations): Promise<void> {
  const same = relations !== undefined && relations.check === next.check && JSON.stringify(relations.mesh) === JSON.stringify(next.mesh);
  relations = next;
  focus = next.focus && nodeKey(next.focus);
  if (!same) {
    selected = undefined;
    const spoiled = next.broken.find(({ graph, node }) => next.graphs[graph]?.nodes.some((candidate) => candidate.id === node && isBackward(candidate)));
    withBackward = spoiled !== undefined || next.graphs.every(({ nodes }) => nodes.every(isBackward));
    shownGraphs = firstShown(next);
  }
  shownGraphs = shownGraphs.filter((graph) => graph < next.graphs.length);
  await redraw(!same);
}

/** As many ranks as there is room for; first where the cursor is and where refinement breaks. */
function firstShown({ graphs, broken, focus: at }: Relations): number[] {
  const room = Math.max(1, Math.min(MOST_RANKS_AT_FIRST, Math.floor(drawing.size().width / COLUMN_WIDTH) - 1));
  const ranks = graphs.map((_, index) => index).slice(1);
  const wanted = new Set([...(at === undefined ? [] : [at.graph]), ...broken.map(({ graph }) => graph), ...ranks]);
  wanted.delete(0);
  return [0, ...[...wanted].slice(0, room)].sort((a, b) => a - b);
}

async function redraw(fit: boolean): Promise<void> {
  if (relations === undefined) {
    return;
  }
  const mine = ++generation;
  main.setAttribute("aria-busy", "true");
  const laid = await layOut(await elk, visibleGraphs(relations), relations.relations, shownGraphs);
  if (mine !== generation) {
    return;
  }
  picture = laid;
  nothing.hidden = true;
  drawing.show(laid);
  drawing.emphasise(emphasis());
  if (fit) {
    drawing.fitReadably();
  }
  if (focus !== undefined) {
    drawing.bringIntoView(focus);
  }
  paintToolbar(relations);
  paintDetails();
  main.setAttribute("aria-busy", "false");
}

function emphasis(): Emphasis {
  const at = drawing.node(selected ?? focus);
  const related = at === undefined || relations === undefined ? [] : counterparts(relations.relations, refOf(at));
  return { selected: selected ?? focus, focus, related: new Set(related.map(nodeKey)), broken: new Set(relations?.broken.map(nodeKey)) };
}

const refOf = ({ graph, node }: PlacedNode): NodeRef => ({ graph, node: node.id });

function choose(key: string): void {
  if (selected !== key) {
    selected = key;
    drawing.emphasise(emphasis());
    paintDetails();
  }
}

function moveTo(key: string | undefined): void {
  if (key !== undefined) {
    drawing.bringIntoView(key);
    choose(key);
    drawing.focusElement(key);
  }
}

function reveal(key: string): void {
  const location = drawing.node(key)?.node.location;
  if (location !== undefined) {
    editor.postMessage({ type: "reveal", location });
  }
}

function paintToolbar({ graphs, verdict: says, stale }: Relations): void {
  verdict.textContent = stale ? `${says} (out of date)` : says;
  verdict.className = `verdict ${says}`;
  main.classList.toggle("stale", stale);
  phases.setAttribute("aria-pressed", String(withBackward));
  phases.hidden = !graphs.some(({ nodes }) => nodes.some(isBackward));
  const buttons = graphs.map((graph, index) => {
    const button = document.createElement("button");
    button.textContent = index === 0 ? graph.name : graph.name.replace(/^rank /, "");
    button.setAttribute("aria-label", graph.name);
    button.setAttribute("aria-pressed", String(shownGraphs.includes(index)));
    button.onclick = () => toggleGraph(index);
    return button;
  });
  ranks.replaceChildren(...[...ranks.querySelectorAll("legend")], ...buttons);
}

function toggleGraph(index: number): void {
  const next = shownGraphs.includes(index) ? shownGraphs.filter((graph) => graph !== index) : [...shownGraphs, index].sort((a, b) => a - b);
  if (next.length > 0) {
    shownGraphs = next;
    void redraw(false);
  }
}

function paintDetails(): void {
  const at = drawing.node(selected ?? focus);
  if (at === undefined || relations === undefined) {
    details.replaceChildren(document.createTextNode("Select a node: arrow keys walk along the edges and to its counterparts, Enter opens its line."));
    return;
  }
  const { node, graph, key } = at;
  const relation = graph === 0 ? relations.relations.find(({ spec }) => spec === node.id)?.text : node.text;
  const broken = relations.broken.some((ref) => nodeKey(ref) === key);
  const place = node.location && `${node.location.uri.split("/").at(-1)}:${node.location.range.start.line + 1}`;
  const entries: [string, string | undefined][] = [
    [relations.graphs[graph]?.name ?? "", at.lines.slice(0, 2).join("  ")],
    ["relation", broken ? `refinement breaks here${relation ? `: ${relation}` : ""}` : relation || (node.state === "off" ? "none" : undefined)],
    ["operator", node.op],
    ["module", node.module],
    ["line", place],
  ];
  const list = document.createElement("dl");
  for (const [term, text] of entries) {
    if (text) {
      const [name, value] = [document.createElement("dt"), document.createElement("dd")];
      name.textContent = term;
      value.textContent = text;
      list.append(name, value);
    }
  }
  details.replaceChildren(list);
}

function paintChoices(): void {
  const options = choices.map(({ name, check, mesh, state, stale }, index) => {
    const option = document.createElement("option");
    option.value = String(index);
    option.textContent = `${name} [${Object.entries(mesh).map(([axis, size]) => `${axis}=${size}`).join(", ")}] ${state}${stale ? ", out of date" : ""}`;
    option.selected = check === relations?.check && JSON.stringify(mesh) === JSON.stringify(relations.mesh);
    return option;
  });
  choiceList.replaceChildren(...options);
}

/** The node that an arrow key leads to. */
function neighbour(from: PlacedNode, arrow: string): string | undefined {
  const edges = picture?.edges ?? [];
  if (arrow === "ArrowDown") {
    return edges.find((edge) => edge.from === from.key)?.to;
  }
  if (arrow === "ArrowUp") {
    return edges.find((edge) => edge.to === from.key)?.from;
  }
  const sign = arrow === "ArrowRight" ? 1 : -1;
  const beside = (picture?.nodes ?? []).filter(({ row, x }) => row === from.row && (x - from.x) * sign > 0);
  const nearest = beside.sort((a, b) => (a.x - b.x) * sign);
  return counterpartBeside(from, sign) ?? nearest[0]?.key;
}

function counterpartBeside(from: PlacedNode, sign: number): string | undefined {
  const others = counterparts(relations?.relations ?? [], refOf(from)).filter(({ graph }) => (graph - from.graph) * sign > 0);
  const nearest = others.sort((a, b) => (a.graph - b.graph) * sign);
  return nearest.map(nodeKey).find((key) => drawing.node(key) !== undefined);
}

svg.addEventListener("keydown", (event) => {
  const at = drawing.node(selected ?? focus) ?? picture?.nodes[0];
  if (event.key.startsWith("Arrow") && at !== undefined) {
    moveTo(neighbour(at, event.key) ?? at.key);
  } else if (event.key === "Enter" && at !== undefined) {
    reveal(at.key);
  } else if (event.key === "b") {
    const first = relations?.broken[0];
    moveTo(first && nodeKey(first));
  } else if (event.key === "+" || event.key === "-") {
    drawing.zoomBy(event.key === "+" ? 1.25 : 0.8);
  } else if (event.key === "0") {
    drawing.fit();
  } else {
    return;
  }
  event.preventDefault();
});

choiceList.addEventListener("change", () => {
  const choice = choices[Number(choiceList.value)];
  if (choice !== undefined) {
    setFollow(false);
    editor.postMessage({ type: "choose", check: choice.check, mesh: choice.mesh });
  }
});

function setFollow(on: boolean): void {
  follow.setAttribute("aria-pressed", String(on));
  editor.postMessage({ type: "follow", follow: on });
}

follow.addEventListener("click", () => setFollow(follow.getAttribute("aria-pressed") !== "true"));
phases.addEventListener("click", () => {
  withBackward = !withBackward;
  void redraw(true);
});
element<HTMLButtonElement>("fit").addEventListener("click", () => drawing.fit());
element<HTMLButtonElement>("export").addEventListener("click", () => {
  if (picture !== undefined) {
    const rules = drawingRules();
    editor.postMessage({ type: "export", svg: svgOf(picture, emphasis().broken, rules, themeColours(document.body, rules)) });
  }
});

window.addEventListener("message", ({ data }: MessageEvent<ToExplorer>) => {
  switch (data.type) {
    case "relations":
      void take(data.relations).then(paintChoices);
      break;
    case "focus":
      focus = data.focus && nodeKey(data.focus);
      selected = undefined;
      main.classList.toggle("stale", data.stale);
      if (focus !== undefined) {
        drawing.bringIntoView(focus);
      }
      drawing.emphasise(emphasis());
      paintDetails();
      break;
    case "choices":
      choices = data.choices;
      paintChoices();
      break;
    case "nothing":
      if (relations === undefined) {
        nothing.hidden = false;
        nothing.textContent = data.reason;
      }
  }
});

editor.postMessage({ type: "ready" });
