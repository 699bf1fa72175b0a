// The whole picture as a standalone SVG, in the colours of the theme on screen.
import { edgePath, GLYPH_PLACE, glyphOf, LINES, RADII, TEXT_LEFT } from "./draw";
import type { PlacedNode, Picture } from "./layout";

/** The theme's colours under our names, as computed now. */
export function themeColours(element: Element, css: string): Record<string, string> {
  const computed = getComputedStyle(element);
  const names = new Set([...css.matchAll(/var\((--gg-[a-z-]+)\)/g)].map(([, name]) => name as string));
  return Object.fromEntries([...names].map((name) => [name, computed.getPropertyValue(name).trim()]));
}

/** The rules that draw, taken from the page's own style sheet, so that screen and file cannot differ. */
export function drawingRules(): string {
  const rules = [...document.styleSheets].flatMap((sheet) => [...sheet.cssRules]);
  return rules.map((rule) => rule.cssText).filter((text) => text.startsWith(".drawing")).join("\n");
}

export function svgOf(picture: Picture, broken: ReadonlySet<string>, css: string, colours: Readonly<Record<string, string>>): string {
  const plain = css.replace(/var\((--gg-[a-z-]+)\)/g, (whole, name: string) => colours[name] ?? whole);
  const edges = picture.edges.map(({ points }) => `<path class="edge" d="${edgePath(points)}"/>`);
  const headers = picture.columns.map(({ x, width, name }) => `<text x="${x + width / 2}" y="20">${escape(name)}</text>`);
  const [width, height] = [picture.width + 40, picture.height + 20];
  return `<svg xmlns="http://www.w3.org/2000/svg" class="drawing" width="${width}" height="${height}" viewBox="-20 0 ${width} ${height}">
<style>${escape(plain)}</style>
<rect class="paper" x="-20" width="${width}" height="${height}"/>
<g class="edges">${edges.join("")}</g>
<g class="nodes">${picture.nodes.map((node) => nodeSvg(node, broken)).join("")}</g>
<g class="headers">${headers.join("")}</g>
</svg>
`;
}

function nodeSvg(placed: PlacedNode, broken: ReadonlySet<string>): string {
  const { key, x, y, width, height, node, lines } = placed;
  const classes = `node ${node.kind} ${node.state} ${broken.has(key) ? "broken" : ""}`;
  const texts = LINES.map(({ name, y: base }, index) => `<text class="${name}" x="${TEXT_LEFT}" y="${base}">${escape(lines[index] ?? "")}</text>`);
  return `<g class="${classes}" transform="translate(${x},${y})"><rect class="box" width="${width}" height="${height}" rx="${RADII[node.kind]}"/>\
<path class="glyph" transform="${GLYPH_PLACE}" d="${glyphOf(placed, broken)}"/>${texts.join("")}</g>`;
}

const escape = (text: string): string => text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
