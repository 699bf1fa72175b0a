// The table: of however many lines only those in view are in the document.
import type { Cell, Group, Place, Relations, Row } from "../src/protocol";
import type { Store } from "./store";
import type { Line, Tree } from "./tree";
import { detailOf, endOf, GLYPHS, lineOf, ranksText, relationOf, titleOf } from "./words";

export const LINE_HEIGHT = 38;
/** Lines above and below the view that are there already when one scrolls to them. */
const SPARE = 6;
/** The narrowest columns, in em: two ranks fit beside an editor. */
const [PROGRAM_WIDTH, RELATION_WIDTH] = [9, 13.5];
const STATES = { proved: "in relation", broken: "refinement breaks here", off: "follows the break" } as const;

export interface View {
  readonly relations: Relations;
  readonly tree: Tree;
  readonly store: Store;
  readonly breaks: ReadonlySet<number>;
  /** The line that has the keyboard. */
  readonly selected: number;
  /** The row under the editor's cursor. */
  readonly focus: number | undefined;
  readonly found: ReadonlySet<number>;
  readonly reads: ReadonlySet<number>;
  readonly specification: boolean;
  readonly formulas: boolean;
}

export interface Heard {
  select(line: number): void;
  toggle(group: number): void;
  reveal(place: Place): void;
}

export class Table {
  private view: View | undefined;
  private drawn = 0;

  constructor(
    private readonly grid: HTMLElement,
    private readonly head: HTMLElement,
    private readonly crumbs: HTMLElement,
    private readonly body: HTMLElement,
    private readonly heard: Heard,
  ) {
    grid.addEventListener("scroll", () => this.soon());
    new ResizeObserver(() => this.soon()).observe(grid);
  }

  show(view: View): void {
    this.view = view;
    this.paintHead(view);
    this.paint();
  }

  /** Whether so many ranks can stand side by side without scrolling. */
  fits(ranks: number, { groups }: Tree, specification: boolean): boolean {
    const letter = Number.parseFloat(getComputedStyle(this.grid).fontSize);
    return signWidth(groups) + (RELATION_WIDTH + PROGRAM_WIDTH * (ranks + Number(specification))) * letter <= this.grid.clientWidth;
  }

  /** Lines that fit into the view. */
  get page(): number {
    return Math.max(1, Math.floor(this.room / LINE_HEIGHT) - 1);
  }

  /** Scrolls no further than needed; with ``middle``, what was out of view comes to its middle. */
  bring(line: number, middle = false): void {
    const [top, room] = [line * LINE_HEIGHT, this.room];
    const at = this.grid.scrollTop;
    if (top >= at && top + LINE_HEIGHT <= at + room) {
      return;
    }
    this.grid.scrollTop = middle ? LINE_HEIGHT * Math.round((top - (room - LINE_HEIGHT) / 2) / LINE_HEIGHT) : top < at ? top : top + LINE_HEIGHT - room;
    this.paint();
  }

  /** The lines in view. */
  visible(): Line[] {
    const first = Math.ceil(this.grid.scrollTop / LINE_HEIGHT);
    return this.view?.tree.lines.slice(first, first + Math.floor(this.room / LINE_HEIGHT)) ?? [];
  }

  private get room(): number {
    return this.grid.clientHeight - this.head.offsetHeight - this.crumbs.offsetHeight;
  }

  private soon(): void {
    if (this.drawn === 0) {
      this.drawn = requestAnimationFrame(() => {
        this.drawn = 0;
        this.paint();
      });
    }
  }

  private paintHead({ relations, store, specification, tree }: View): void {
    const names = [...(specification ? ["specification"] : []), "relation", ...store.columns.map((rank) => columnName(relations, store.columns, rank))];
    const cells = ["", ...names].map((name) => {
      const cell = made("div", "cell", name);
      cell.setAttribute("role", "columnheader");
      if (name === "") {
        cell.append(made("span", "unseen", "state"));
      }
      return cell;
    });
    this.head.replaceChildren(...cells);
    this.grid.setAttribute("aria-colcount", String(cells.length));
    this.grid.setAttribute("aria-rowcount", String(tree.lines.length + 1));
    const widths = names.map((name) => (name === "relation" ? RELATION_WIDTH : PROGRAM_WIDTH));
    const sign = `${signWidth(tree.groups)}px`;
    this.grid.style.setProperty("--columns", [sign, ...widths.map((width) => `minmax(${width}em, 1fr)`)].join(" "));
    this.grid.style.setProperty("--narrowest", `calc(${sign} + ${widths.reduce((a, b) => a + b, 0)}em)`);
  }

  private paint(): void {
    const view = this.view;
    if (view === undefined) {
      return;
    }
    const { lines } = view.tree;
    this.body.style.height = `${lines.length * LINE_HEIGHT}px`;
    const top = Math.floor(this.grid.scrollTop / LINE_HEIGHT);
    const first = Math.max(0, top - SPARE);
    const last = Math.min(lines.length, top + Math.ceil(this.room / LINE_HEIGHT) + SPARE);
    const shown = new Set(Array.from({ length: last - first }, (_, index) => first + index));
    if (!shown.has(view.selected) && lines[view.selected] !== undefined) {
      shown.add(view.selected); // what has the keyboard stays in the document
    }
    this.body.replaceChildren(...[...shown].map((line) => this.line(view, line)));
    this.grid.setAttribute("aria-activedescendant", `line-${view.selected}`);
    this.crumbs.textContent = pathOf(view.tree, lines[top]) || " ";
  }

  private line(view: View, number: number): HTMLElement {
    const line = view.tree.lines[number] as Line;
    const element = made("div", "line");
    element.id = `line-${number}`;
    element.setAttribute("role", "row");
    element.setAttribute("aria-rowindex", String(number + 2));
    element.setAttribute("aria-level", String(view.tree.depth(line) + 1));
    element.setAttribute("aria-selected", String(number === view.selected));
    element.style.transform = `translateY(${number * LINE_HEIGHT}px)`;
    element.style.setProperty("--depth", String(view.tree.depth(line)));
    if ("group" in line) {
      this.group(view, line.group, element);
      element.onclick = () => {
        this.heard.select(number);
        this.heard.toggle(line.group);
      };
    } else {
      this.row(view, line.row, element);
      element.onclick = () => this.heard.select(number);
    }
    return element;
  }

  private group(view: View, index: number, element: HTMLElement): void {
    const { tree } = view;
    const group = tree.groups[index] as Group;
    const [open, state] = [tree.isOpen(index), tree.state(index)];
    element.classList.add("group", state);
    element.setAttribute("aria-expanded", String(open));
    const cell = made("div", "cell whole");
    cell.setAttribute("role", "gridcell");
    cell.append(made("span", "twist", open ? "▾" : "▸"), made("span", "glyph", GLYPHS[state]), made("span", "name", group.name));
    if (!open) {
      const { shown, left } = tree.chips(index);
      const chips = shown.map((child) => {
        const its = tree.state(child);
        const chip = made("span", `chip ${its}`, `${(tree.groups[child] as Group).name} `);
        chip.append(made("span", "glyph", GLYPHS[its]));
        return chip;
      });
      cell.append(...chips, ...(left > 0 ? [made("span", "chip", `${left} more`)] : []));
    }
    cell.append(made("span", "count", countOf(group, tree.breaksIn(index))));
    element.append(cell);
  }

  private row(view: View, number: number, element: HTMLElement): void {
    const row = view.store.row(number);
    const breaks = view.breaks.has(number);
    const state = breaks ? "broken" : (row?.state ?? "off");
    element.classList.add("row", state, ...classesOf(view, number));
    const sign = made("div", "cell sign");
    sign.setAttribute("role", "gridcell");
    sign.setAttribute("aria-label", STATES[state]);
    sign.append(made("span", "glyph", row === undefined ? "…" : GLYPHS[state]));
    element.append(sign);
    if (number === view.focus) {
      element.setAttribute("aria-current", "location");
    }
    if (row === undefined) {
      element.setAttribute("aria-busy", "true");
      return;
    }
    const [specification, ...ranks] = row.cells;
    const said = relationOf(row, breaks ? endOf(view.relations, number) : undefined, view.formulas);
    element.append(
      ...(view.specification ? [this.cell(specification ?? null)] : []),
      spoken("relation", said.text, [made("span", "", said.more)]),
      ...ranks.map((cell) => this.cell(cell)),
    );
  }

  private cell(cell: Cell | null): HTMLElement {
    if (cell === null) {
      return spoken("none", "", []);
    }
    const more: HTMLElement[] = [];
    const { location } = cell;
    if (location !== undefined) {
      const link = made("a", "place", `line ${location.range.start.line + 1}`);
      link.title = lineOf(location);
      link.onclick = (event) => {
        event.stopPropagation();
        this.heard.reveal(location);
      };
      more.push(link);
    }
    more.push(made("span", "", detailOf(cell)));
    return spoken(cell.kind, titleOf(cell), more, `${titleOf(cell)}\n${detailOf(cell)}\n${cell.text}`);
  }
}

/** Of the column that shows state and depth, in pixels. */
const signWidth = (groups: readonly Group[]): number => 32 + 10 * groups.reduce((deepest, { depth }) => Math.max(deepest, depth + 1), 0);

function classesOf({ focus, found, reads }: View, number: number): string[] {
  const marks = { focus: number === focus, found: found.has(number), read: reads.has(number) };
  return Object.entries(marks)
    .filter(([, on]) => on)
    .map(([name]) => name);
}

function spoken(kind: string, title: string, more: readonly HTMLElement[], tip = title): HTMLElement {
  const cell = made("div", `cell ${kind}`);
  cell.setAttribute("role", "gridcell");
  cell.title = tip;
  const below = made("div", "more");
  below.append(...more);
  cell.append(made("div", "title", title), below);
  return cell;
}

export function made(tag: string, className: string, text = ""): HTMLElement {
  const element = document.createElement(tag);
  element.className = className;
  element.textContent = text;
  return element;
}

/** A column that stands for a class of ranks is named after all of them. */
export function columnName({ ranks }: Relations, columns: readonly number[], rank: number): string {
  const alike = ranks.find((each) => each.includes(rank)) ?? [rank];
  return ranksText(alike.filter((other) => other === rank || !columns.includes(other)).length === alike.length ? alike : [rank]);
}

function countOf({ from, to, proved }: Group, breaks: number): string {
  const all = to - from;
  if (breaks > 0) {
    return `${all} tensors, ${breaks} where refinement breaks`;
  }
  return proved === all ? `${all} tensors in relation` : `${all} tensors, ${proved} in relation`;
}

/** The modules around a line. */
export function pathOf(tree: Tree, line: Line | undefined): string {
  if (line === undefined) {
    return "";
  }
  const around = "row" in line ? tree.around(line.row) : tree.around((tree.groups[line.group] as Group).from).filter((index) => index <= line.group);
  return around.map((index) => (tree.groups[index] as Group).name).join(" › ");
}

export const lineOfRow = (row: Row): Place | undefined => [...row.cells.slice(1), row.cells[0]].find((cell) => cell?.location !== undefined)?.location;
