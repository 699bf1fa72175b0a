// The relation explorer: what is wrong and where, both programs row by row beneath it, by mouse and by keyboard.
import type { Finding, Place, Relations, Row } from "../src/protocol";
import { wordOf } from "../src/verdicts";
import { type Choice, type FromExplorer, type ToExplorer } from "./model";
import { COLOURS, type Colours, type Drawn, headingOf, svgOf } from "./save";
import { Store } from "./store";
import { columnName, lineOfRow, made, Table } from "./table";
import { type Line, Tree } from "./tree";
import { detailOf, endOf, lineOf, relationOf, titleOf } from "./words";

declare function acquireVsCodeApi(): { postMessage(message: FromExplorer): void };

const SEARCH_DELAY_MS = 150;
const NONE: ReadonlySet<number> = new Set();

const editor = acquireVsCodeApi();
const element = <T extends HTMLElement>(id: string) => document.getElementById(id) as T;
const main = document.querySelector("main") as HTMLElement;
const grid = element("grid");
const search = element<HTMLInputElement>("search");
const choiceList = element<HTMLSelectElement>("choice");
const details = element("details");

let relations: Relations | undefined;
let tree = new Tree([], 0, []);
let store = new Store("", 0, [], () => undefined);
let breaks = NONE;
let selected = 0;
let focus: number | undefined;
let found: readonly number[] = [];
let columns: readonly number[] = [];
let [specification, formulas, following, unfolded] = [true, false, true, false];
let choices: readonly Choice[] = [];
let searching: number | undefined;

const table = new Table(grid, element("head"), element("crumbs"), element("body"), { select, toggle, reveal });

// -- what is shown

function take(next: Relations): void {
  const same = relations !== undefined && relations.check === next.check && JSON.stringify(relations.mesh) === JSON.stringify(next.mesh);
  const alike = same && relations?.total === next.total && relations.groups.length === next.groups.length;
  const open = alike ? tree.unfolded : undefined;
  relations = next;
  focus = next.focus;
  breaks = new Set(next.breaks);
  tree = new Tree(next.groups, next.total, next.breaks, next.start, open);
  found = [];
  element("nothing").hidden = true;
  main.hidden = false;
  paintFindings(next);
  if (!same) {
    // A few ranks are shown one by one where there is room.
    unfolded = next.columns.length === count(next) && table.fits(count(next), tree, specification);
  }
  fill(next);
  if (alike && focus === undefined) {
    select(selected);
  } else {
    goTo(focus ?? next.start ?? 0);
  }
  if (search.value) {
    editor.postMessage({ type: "find", picture: next.picture, text: search.value });
  }
}

const count = ({ ranks }: Relations): number => ranks.reduce((sum, each) => sum + each.length, 0);

/** A store for the columns that are wanted; what came along fits the first ones. */
function fill(next: Relations): void {
  columns = unfolded ? next.ranks.flat().sort((a, b) => a - b) : next.ranks.map((ranks) => ranks[0] as number);
  store = new Store(next.picture, next.total, columns, (asked) => editor.postMessage({ type: "rows", asked }));
  store.take({ picture: next.picture, columns: next.columns }, next.first, next.rows);
}

function paint(): void {
  if (relations === undefined) {
    return;
  }
  const line = tree.lines[selected];
  const reads = line !== undefined && "row" in line ? new Set(store.row(line.row)?.reads) : NONE;
  table.show({ relations, tree, store, breaks, selected, focus, found: new Set(found), reads, specification, formulas });
  paintToolbar(relations);
  paintDetails(relations);
}

function paintToolbar(shown: Relations): void {
  const verdict = element("verdict");
  const word = wordOf(shown.verdict);
  verdict.textContent = shown.stale ? `${word} (out of date)` : word;
  verdict.className = `verdict ${shown.verdict}`;
  main.classList.toggle("stale", shown.stale);
  const at = shown.breaks.findIndex((row) => row === rowOf(selected));
  const button = element<HTMLButtonElement>("break");
  button.hidden = shown.breaks.length === 0;
  button.textContent = shown.breaks.length > 1 ? `Go to Break (${at === -1 ? "" : `${at + 1} of `}${shown.breaks.length})` : "Go to Break";
  const fold = element<HTMLButtonElement>("ranks");
  fold.hidden = shown.ranks.length === count(shown);
  press("ranks", unfolded);
  press("specification", specification);
  press("formulas", formulas);
  press("follow", following);
  const match = found.indexOf(rowOf(selected) ?? -1);
  element("matches").textContent = search.value === "" ? "" : found.length === 0 ? "none" : `${match === -1 ? "" : `${match + 1} of `}${found.length}`;
}

function press(id: string, on: boolean): void {
  element(id).setAttribute("aria-pressed", String(on));
}

const rowOf = (line: number): number | undefined => {
  const at = tree.lines[line];
  return at !== undefined && "row" in at ? at.row : undefined;
};

/** What is wrong in words, with the way to the line and to the fix. */
function paintFindings({ findings, verdict }: Relations): void {
  const place = element("findings");
  place.hidden = findings.length === 0;
  place.replaceChildren(...findings.map((finding) => findingOf(finding, verdict)));
}

function findingOf(finding: Finding, verdict: string): HTMLElement {
  const item = made("li", verdict);
  const said = made("div", "said");
  for (const [kind, text] of [["needed", finding.needed], ["found", finding.found]] as const) {
    if (text) {
      said.append(made("span", "kind", kind), made("code", kind, text));
    }
  }
  item.append(made("div", "headline", finding.headline), said);
  const { location } = finding;
  if (location !== undefined) {
    const [line, fix] = [made("button", "", `Open ${lineOf(location)}`), made("button", "", finding.fixes.length > 0 ? `Fix: ${finding.fixes[0]}` : "Show Fixes")];
    line.onclick = () => reveal(location);
    fix.onclick = () => editor.postMessage({ type: "fix", location });
    const buttons = made("div", "buttons");
    buttons.append(line, fix);
    item.append(buttons);
  }
  return item;
}

/** All of what the selected row says, uncut. */
function paintDetails(shown: Relations): void {
  const line = tree.lines[selected];
  const row = line !== undefined && "row" in line ? store.row(line.row) : undefined;
  if (row === undefined || line === undefined || !("row" in line)) {
    details.replaceChildren(made("p", "quiet", "Arrow keys move and unfold, Enter opens the line, b goes to the break, / searches, ? explains."));
    return;
  }
  const list = document.createElement("dl");
  const said = relationOf(row, endAt(shown, line.row), false);
  entry(list, "relation", [said.text, said.more].filter(Boolean).join("   "));
  entry(list, "formula", row.relation === said.text ? "" : row.relation);
  const names = ["specification", ...columns.map((rank) => columnName(shown, columns, rank))];
  row.cells.forEach((cell, index) => {
    if (cell !== null) {
      const text = [titleOf(cell), detailOf(cell), cell.text && `is ${cell.text}`].filter(Boolean).join("   ");
      entry(list, names[index] ?? "", text, cell.location);
    }
  });
  entry(list, "module", [row.phase, row.module].filter(Boolean).join(" · "));
  if (row.reads.length > 0) {
    const links = row.reads.map((read) => {
      const other = store.row(read);
      const cell = other?.cells.find((each) => each !== null);
      return linkTo(cell ? titleOf(cell) : `row ${read + 1}`, () => goTo(read));
    });
    entry(list, "made of", "", undefined, links);
  }
  details.replaceChildren(list);
}

function entry(list: HTMLElement, term: string, text: string, place?: Place, links: readonly HTMLElement[] = []): void {
  if (text || links.length > 0) {
    const value = made("dd", "", text);
    value.append(...(place === undefined ? [] : [linkTo(lineOf(place), () => reveal(place))]), ...links);
    list.append(made("dt", "", term), value);
  }
}

function linkTo(text: string, act: () => void): HTMLElement {
  const link = made("button", "link", text);
  link.onclick = act;
  return link;
}

const endAt = (shown: Relations, row: number): string | undefined => (breaks.has(row) ? endOf(shown, row) : undefined);

// -- moving

function select(line: number): void {
  selected = Math.max(0, Math.min(tree.lines.length - 1, line));
  paint();
}

function move(line: number): void {
  select(line);
  table.bring(selected);
}

function toggle(group: number): void {
  const line = tree.lines[selected];
  tree.set(group, !tree.isOpen(group));
  const kept = line === undefined ? undefined : "row" in line ? tree.lineOf(line.row) : tree.lineOfGroup(line.group);
  selected = kept ?? tree.lineOfGroup(group) ?? 0;
  paint();
}

/** Selects a row, unfolded, in view. */
function goTo(row: number): void {
  selected = tree.show(row);
  paint();
  table.bring(selected, true);
}

/** The next of some rows after the selected one, or before it; around the end. */
function goToNext(rows: readonly number[], step: 1 | -1): void {
  const at = rowOf(selected) ?? firstRow(tree.lines[selected]);
  const ordered = step === 1 ? rows : [...rows].reverse();
  const next = ordered.find((row) => (row - at) * step > 0) ?? ordered[0];
  if (next !== undefined) {
    goTo(next);
  }
}

/** The row that a heading stands before, as near as can be. */
const firstRow = (line: Line | undefined): number => (line !== undefined && "group" in line ? (tree.groups[line.group]?.from ?? 0) - 0.5 : -1);

function goToBreak(step: 1 | -1 = 1): void {
  const all = relations?.breaks ?? [];
  const here = rowOf(selected);
  if (relations?.start !== undefined && (here === undefined || !breaks.has(here))) {
    goTo(relations.start);
  } else {
    goToNext(all, step);
  }
}

function reveal(location: Place): void {
  editor.postMessage({ type: "reveal", location });
}

function openSelected(): void {
  const line = tree.lines[selected];
  if (line !== undefined && "group" in line) {
    toggle(line.group);
  } else {
    const row = line && store.row(line.row);
    const place = row && lineOfRow(row);
    if (place !== undefined) {
      reveal(place);
    }
  }
}

/** To the right: unfold, then into the module; to the left: fold, then out of it. */
function sideways(right: boolean): void {
  const line = tree.lines[selected];
  if (line === undefined) {
    return;
  }
  const open = "group" in line && tree.isOpen(line.group);
  if (right) {
    if ("group" in line && !open) {
      toggle(line.group);
    } else if (open) {
      move(selected + 1);
    }
  } else if (open) {
    toggle(line.group);
  } else {
    const parent = tree.parent(line);
    if (parent !== undefined) {
      move(tree.lineOfGroup(parent) ?? 0);
    }
  }
}

/** Unfolds all of the selected module, or of the one around the selected row. */
function unfold(): void {
  const line = tree.lines[selected];
  const group = line === undefined ? undefined : "group" in line ? line.group : tree.parent(line);
  if (line !== undefined && group !== undefined) {
    tree.unfold(group);
    move(("row" in line ? tree.lineOf(line.row) : tree.lineOfGroup(group)) ?? 0);
  }
}

const KEYS: Readonly<Record<string, () => void>> = {
  ArrowDown: () => move(selected + 1),
  ArrowUp: () => move(selected - 1),
  PageDown: () => move(selected + table.page),
  PageUp: () => move(selected - table.page),
  Home: () => move(0),
  End: () => move(tree.lines.length - 1),
  ArrowRight: () => sideways(true),
  ArrowLeft: () => sideways(false),
  Enter: openSelected,
  " ": openSelected,
  "*": unfold,
  b: () => goToBreak(1),
  B: () => goToBreak(-1),
  n: () => goToNext(found, 1),
  N: () => goToNext(found, -1),
  f: () => element("findings").querySelectorAll("button")[1]?.click(),
  m: () => element("formulas").click(),
  s: () => element("specification").click(),
  "/": () => search.focus(),
  "?": () => element("explain").click(),
};

grid.addEventListener("keydown", (event) => {
  const act = event.ctrlKey || event.metaKey || event.altKey ? undefined : KEYS[event.key];
  if (act !== undefined) {
    event.preventDefault();
    act();
  }
});
grid.addEventListener("dblclick", openSelected);

// -- search

search.addEventListener("input", () => {
  clearTimeout(searching);
  searching = window.setTimeout(() => relations && editor.postMessage({ type: "find", picture: relations.picture, text: search.value }), SEARCH_DELAY_MS);
});
search.addEventListener("keydown", (event) => {
  if (event.key === "Enter") {
    goToNext(found, event.shiftKey ? -1 : 1);
  } else if (event.key === "Escape") {
    search.value = "";
    found = [];
    grid.focus();
    paint();
  } else {
    return;
  }
  event.preventDefault();
});

function takeFound(text: string, rows: readonly number[]): void {
  if (text === search.value) {
    found = rows;
    const here = rowOf(selected);
    if (here !== undefined && rows.includes(here)) {
      paint();
    } else {
      goToNext(rows, 1);
      paint();
    }
  }
}

// -- the toolbar

function on(id: string, act: () => void): void {
  element(id).addEventListener("click", act);
}

on("break", () => {
  goToBreak();
  grid.focus();
});
on("specification", () => {
  specification = !specification;
  paint();
});
on("formulas", () => {
  formulas = !formulas;
  paint();
});
on("ranks", () => {
  unfolded = !unfolded;
  if (relations !== undefined) {
    fill(relations);
    paint();
  }
});
on("follow", () => setFollow(!following));
on("explain", () => {
  element("legend").hidden = !element("legend").hidden;
  element("explain").setAttribute("aria-expanded", String(!element("legend").hidden));
});
on("export", () => {
  if (relations !== undefined) {
    editor.postMessage({ type: "export", svg: svgOf(sheet(relations), themeColours()) });
  }
});

function setFollow(follow: boolean): void {
  following = follow;
  press("follow", follow);
  editor.postMessage({ type: "follow", follow });
}

/** The theme's colours as computed now. */
function themeColours(): Colours {
  const computed = getComputedStyle(document.body);
  return Object.fromEntries(COLOURS.map((name) => [name, computed.getPropertyValue(`--gg-${name}`).trim()])) as Colours;
}

/** What is in view, for a picture. */
function sheet(shown: Relations) {
  const lines = table.visible().flatMap((line): Drawn[] => {
    const depth = tree.depth(line);
    if ("group" in line) {
      return [{ depth, state: tree.state(line.group), ...headingOf(tree, line) }];
    }
    const row = store.row(line.row);
    return row === undefined ? [] : [{ depth, state: breaks.has(line.row) ? "broken" : row.state, ...cellsOf(row, line.row, shown) }];
  });
  const names = columns.map((rank) => columnName(shown, columns, rank));
  const [name, mesh] = [choices.find(({ check }) => check === shown.check)?.name ?? shown.check, meshOf(shown)];
  return { title: `${name} [${mesh}]`, verdict: wordOf(shown.verdict), finding: shown.findings[0], columns: [...(specification ? ["specification"] : []), "relation", ...names], lines };
}

function cellsOf(row: Row, number: number, shown: Relations) {
  const [mine, ...ranks] = row.cells.map((cell) => (cell === null ? { text: "", more: "" } : { text: titleOf(cell), more: detailOf(cell) }));
  const said = relationOf(row, endAt(shown, number), formulas);
  return { cells: [...(specification && mine ? [mine] : []), said, ...ranks], relation: specification ? 1 : 0 };
}

const meshOf = ({ mesh }: Pick<Choice, "mesh">): string => Object.entries(mesh).map(([axis, size]) => `${axis}=${size}`).join(", ");

choiceList.addEventListener("change", () => {
  const choice = choices[Number(choiceList.value)];
  if (choice !== undefined) {
    setFollow(false);
    editor.postMessage({ type: "choose", check: choice.check, mesh: choice.mesh });
  }
});

function paintChoices(): void {
  const options = choices.map(({ name, check, mesh, state, stale }, index) => {
    const option = document.createElement("option");
    option.value = String(index);
    option.textContent = `${name} [${meshOf({ mesh })}] ${wordOf(state)}${stale ? ", out of date" : ""}`;
    option.selected = check === relations?.check && JSON.stringify(mesh) === JSON.stringify(relations.mesh);
    return option;
  });
  choiceList.replaceChildren(...options);
}

// -- messages

window.addEventListener("message", ({ data }: MessageEvent<ToExplorer>) => {
  switch (data.type) {
    case "relations":
      take(data.relations);
      paintChoices();
      break;
    case "focus":
      if (relations !== undefined) {
        relations = { ...relations, stale: data.stale };
        focus = data.focus;
        if (focus !== undefined) {
          goTo(focus);
        }
        paint();
      }
      break;
    case "rows":
      if (store.take(data.asked, data.asked.first, data.rows)) {
        paint();
      }
      break;
    case "found":
      takeFound(data.text, data.rows);
      break;
    case "choices":
      choices = data.choices;
      paintChoices();
      break;
    case "nothing":
      if (relations === undefined) {
        element("nothing").textContent = data.reason;
      }
  }
});

editor.postMessage({ type: "ready" });
