// What is in view as a picture that stands alone, in the colours of the theme on screen: for a talk, a review, an issue.
import type { Finding, Group } from "../src/protocol";
import type { Tree, Line } from "./tree";
import { GLYPHS, type Said } from "./words";

/** A line of the picture: a module's heading, or the cells of a row. */
export type Drawn = { readonly depth: number; readonly state: "proved" | "broken" | "off" } & ({ readonly heading: string; readonly chips: string } | { readonly cells: readonly Said[]; readonly relation: number });

export interface Sheet {
  readonly title: string;
  readonly verdict: string;
  readonly finding: Finding | undefined;
  readonly columns: readonly string[];
  readonly lines: readonly Drawn[];
}

export const COLOURS = ["text", "quiet", "paper", "band", "border", "proved", "broken", "unknown"] as const;
export type Colours = Readonly<Record<(typeof COLOURS)[number], string>>;

const [MARGIN, HEIGHT, HEADING, INDENT, SIGN] = [24, 44, 28, 14, 30];
const [WIDE, NARROW] = [8.1, 6.7];
const MOST_LETTERS = 46;
const FEWEST_LETTERS = 16;

export function svgOf({ title, verdict, finding, columns, lines }: Sheet, colours: Colours): string {
  const deepest = Math.max(0, ...lines.map(({ depth }) => depth));
  const left = MARGIN + SIGN + deepest * INDENT;
  const widths = columns.map((name, index) => columnWidth(name, lines, index));
  const places = widths.map((_, index) => left + widths.slice(0, index).reduce((a, b) => a + b, 0));
  const above = [`${title}: ${verdict}`, ...(finding === undefined ? [] : [finding.headline]), saidOf(finding)].filter(Boolean);
  const width = Math.max(left + widths.reduce((a, b) => a + b, 0) + MARGIN, ...above.map((text) => MARGIN * 2 + text.length * WIDE));
  const heads = MARGIN + above.length * 24 + 12;
  const tops = lines.reduce((all, drawn) => [...all, (all.at(-1) ?? 0) + ("heading" in drawn ? HEADING : HEIGHT)], [heads + 36]);
  const height = (tops.at(-1) ?? 0) + MARGIN;
  const texts = above.map((text, index) => line(MARGIN, MARGIN + 14 + index * 24, text, index === 0 ? "name" : index === 1 ? "wrong" : "plain"));
  const headings = columns.map((name, index) => line(places[index] ?? 0, heads + 18, name, "head"));
  const rows = lines.map((drawn, index) => lineSvg(drawn, tops[index] ?? 0, places, widths, width));
  return `<svg xmlns="http://www.w3.org/2000/svg" width="${Math.ceil(width)}" height="${Math.ceil(height)}" viewBox="0 0 ${Math.ceil(width)} ${Math.ceil(height)}">
<style>
text { fill: ${colours.text}; font: 13px monospace; }
.name { font: 600 17px sans-serif; } .wrong { font: 15px sans-serif; } .plain, .more { font-size: 11.5px; }
.head { font: 600 13px sans-serif; } .more, .head { fill: ${colours.quiet}; } .group { font: 600 13px sans-serif; }
.proved .sign { fill: ${colours.proved}; } .broken .sign, .broken .relation { fill: ${colours.broken}; } .broken .relation { font-weight: 600; } .off .sign { fill: ${colours.quiet}; }
.sign { font-weight: 700; } .paper { fill: ${colours.paper}; } .rule { stroke: ${colours.border}; } .break { fill: none; stroke: ${colours.broken}; stroke-width: 2; }
</style>
<rect class="paper" width="100%" height="100%"/>
${texts.join("\n")}
${headings.join("\n")}
<line class="rule" x1="${MARGIN}" x2="${width - MARGIN}" y1="${heads + 28}" y2="${heads + 28}"/>
${rows.join("\n")}
</svg>
`;
}

function lineSvg(drawn: Drawn, y: number, places: readonly number[], widths: readonly number[], width: number): string {
  const x = MARGIN + drawn.depth * INDENT;
  const sign = line(x, y + 18, GLYPHS[drawn.state], "sign");
  if ("heading" in drawn) {
    return `<g class="line ${drawn.state}">${sign}${line(x + SIGN, y + 18, drawn.heading, "group")}${line(x + SIGN + drawn.heading.length * WIDE + 14, y + 18, drawn.chips, "more")}</g>`;
  }
  const cells = drawn.cells.flatMap(({ text, more }, index) => [
    line(places[index] ?? 0, y + 17, cut(text, (widths[index] ?? 0) / WIDE - 2), index === drawn.relation ? "relation" : "title"),
    line(places[index] ?? 0, y + 33, cut(more, (widths[index] ?? 0) / NARROW - 2), "more"),
  ]);
  const frame = drawn.state === "broken" ? `<rect class="break" x="${x - 8}" y="${y}" width="${width - x - MARGIN + 16}" height="${HEIGHT - 4}" rx="3"/>` : "";
  return `<g class="line ${drawn.state}">${frame}${sign}${cells.join("")}</g>`;
}

function columnWidth(name: string, lines: readonly Drawn[], index: number): number {
  const said = lines.flatMap((drawn) => ("cells" in drawn ? [drawn.cells[index]] : [])).filter((cell) => cell !== undefined);
  const letters = Math.max(FEWEST_LETTERS, name.length, ...said.map(({ text, more }) => Math.max(text.length, (more.length * NARROW) / WIDE)));
  return (Math.min(MOST_LETTERS, letters) + 2) * WIDE;
}

function saidOf(finding: Finding | undefined): string {
  const parts = [finding?.needed && `needed: ${finding.needed}`, finding?.found && `found: ${finding.found}`];
  return parts.filter(Boolean).join(", ");
}

/** A module's name, and where it is folded those of its own modules. */
export function headingOf(tree: Tree, { group }: Extract<Line, { group: number }>): { heading: string; chips: string } {
  const heading = (tree.groups[group] as Group).name;
  if (tree.isOpen(group)) {
    return { heading, chips: "" };
  }
  const { shown, left } = tree.chips(group);
  const chips = shown.map((child) => `${(tree.groups[child] as Group).name} ${GLYPHS[tree.state(child)]}`);
  return { heading, chips: [...chips, ...(left > 0 ? [`${left} more`] : [])].join(" · ") };
}

const cut = (text: string, letters: number): string => (text.length <= letters ? text : `${text.slice(0, Math.max(1, Math.floor(letters) - 1))}…`);
const line = (x: number, y: number, text: string, className: string): string => `<text class="${className}" x="${x}" y="${y}">${escape(text)}</text>`;
const escape = (text: string): string => text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
