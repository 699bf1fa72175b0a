// The tree of modules: which lines there are, given what is unfolded. A line is a row of the picture or the heading of a module.
import type { Group } from "../src/protocol";

export type Line = { readonly row: number } | { readonly group: number };
export type State = "proved" | "broken" | "off";

/** So few rows need no folding. */
const FEW_ROWS = 30;
/** Of many places where refinement ends only the first ones are unfolded. */
const OPENED_BREAKS = 4;
const CHIPS = 6;

export class Tree {
  private readonly open = new Set<number>();
  private readonly breaks: ReadonlySet<number>;
  private made: Line[] = [];
  private places = new Map<number, number>();

  constructor(
    readonly groups: readonly Group[],
    readonly total: number,
    breaks: readonly number[],
    start?: number,
    /** What was unfolded before, of the same modules. */
    unfolded?: ReadonlySet<number>,
  ) {
    this.breaks = new Set(breaks);
    unfolded?.forEach((group) => this.open.add(group));
    const shown = total <= FEW_ROWS ? groups.keys() : [start, ...breaks.slice(0, OPENED_BREAKS)].flatMap((row) => (row === undefined ? [] : this.around(row)));
    for (const group of shown) {
      this.open.add(group);
    }
    if (breaks.length === 0) {
      // Where all is proved, the outermost modules are the picture.
      groups.forEach(({ depth, to, from }, index) => depth === 0 && to - from === total && this.open.add(index));
    }
    this.list();
  }

  get lines(): readonly Line[] {
    return this.made;
  }

  get unfolded(): ReadonlySet<number> {
    return this.open;
  }

  isOpen(group: number): boolean {
    return this.open.has(group);
  }

  set(group: number, open: boolean): void {
    if (open) {
      this.open.add(group);
    } else {
      this.open.delete(group);
    }
    this.list();
  }

  /** Unfolds a module and all of its modules. */
  unfold(group: number): void {
    const { to } = this.groups[group] as Group;
    for (let index = group; index < this.groups.length && (this.groups[index] as Group).from < to; index += 1) {
      this.open.add(index);
    }
    this.list();
  }

  /** The modules around a row, the outermost first. */
  around(row: number): number[] {
    return [...this.groups.keys()].filter((index) => this.holds(index, row));
  }

  /** Unfolds what hides a row; its line. */
  show(row: number): number {
    const hidden = this.around(row).filter((group) => !this.open.has(group));
    if (hidden.length > 0) {
      hidden.forEach((group) => this.open.add(group));
      this.list();
    }
    return this.lineOf(row) ?? 0;
  }

  /** The line of a row, if it is not folded away. */
  lineOf(row: number): number | undefined {
    return this.places.get(row);
  }

  lineOfGroup(group: number): number | undefined {
    const line = this.made.findIndex((candidate) => "group" in candidate && candidate.group === group);
    return line === -1 ? undefined : line;
  }

  /** The module that a line stands in, outside everything undefined. */
  parent(line: Line): number | undefined {
    if ("row" in line) {
      return this.around(line.row).at(-1);
    }
    const { depth, from } = this.groups[line.group] as Group;
    return this.around(from).find((index) => (this.groups[index] as Group).depth === depth - 1);
  }

  depth(line: Line): number {
    return "group" in line ? (this.groups[line.group] as Group).depth : this.around(line.row).length;
  }

  /** Whether all of a module is in relation, or refinement ends in it. */
  state(group: number): State {
    const { from, to, proved } = this.groups[group] as Group;
    if (this.breaksIn(group) > 0) {
      return "broken";
    }
    return proved === to - from ? "proved" : "off";
  }

  breaksIn(group: number): number {
    const { from, to } = this.groups[group] as Group;
    let count = 0;
    for (const row of this.breaks) {
      count += Number(from <= row && row < to);
    }
    return count;
  }

  /** What stands on a folded module's heading: its own modules, the broken ones in any case, and how many are left out. */
  chips(group: number): { shown: number[]; left: number } {
    const children = this.children(group);
    const broken = children.filter((child) => this.state(child) === "broken");
    const shown = new Set([...broken, ...children].slice(0, CHIPS));
    return { shown: children.filter((child) => shown.has(child)), left: children.length - shown.size };
  }

  private children(group: number): number[] {
    const { depth, to } = this.groups[group] as Group;
    const found: number[] = [];
    for (let index = group + 1; index < this.groups.length && (this.groups[index] as Group).from < to; index += 1) {
      if ((this.groups[index] as Group).depth === depth + 1) {
        found.push(index);
      }
    }
    return found;
  }

  private holds(index: number, row: number): boolean {
    const { from, to } = this.groups[index] as Group;
    return from <= row && row < to;
  }

  private list(): void {
    const lines: Line[] = [];
    let group = 0;
    for (let row = 0; row < this.total; ) {
      const heading = this.groups[group];
      if (heading !== undefined && heading.from === row) {
        lines.push({ group });
        if (this.open.has(group)) {
          group += 1;
        } else {
          row = heading.to;
          while (group < this.groups.length && (this.groups[group] as Group).from < row) {
            group += 1;
          }
        }
      } else {
        lines.push({ row });
        row += 1;
      }
    }
    this.made = lines;
    this.places = new Map(lines.flatMap((line, index) => ("row" in line ? [[line.row, index] as const] : [])));
  }
}
