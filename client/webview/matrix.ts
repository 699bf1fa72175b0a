// The verdict matrix as a table.
import { wordOf } from "../src/verdicts";
import type { FromMatrix, MatrixCell, ToMatrix } from "./matrixModel";

declare function acquireVsCodeApi(): { postMessage(message: FromMatrix): void };

const editor = acquireVsCodeApi();
const place = document.getElementById("matrix") as HTMLElement;
const GLYPHS: Readonly<Record<string, string>> = { proved: "✓", assumed: "✓", broken: "✕", unknown: "?", error: "!", idle: "–" };

function show({ meshes, rows }: ToMatrix): void {
  if (rows.length === 0) {
    place.textContent = "No checks yet. GraphGuard: Write a First Check makes one.";
    return;
  }
  const table = document.createElement("table");
  table.className = "matrix";
  const head = table.createTHead().insertRow();
  for (const text of ["check", ...meshes]) {
    const cell = document.createElement("th");
    cell.scope = "col";
    cell.textContent = text;
    head.append(cell);
  }
  const body = table.createTBody();
  for (const { check, name, file, cells } of rows) {
    const row = body.insertRow();
    const title = document.createElement("th");
    title.scope = "row";
    const place = document.createElement("span");
    place.className = "file";
    place.textContent = file;
    title.append(button(name, check), place);
    row.append(title, ...cells.map((cell) => cellOf(cell, check)));
  }
  place.replaceChildren(table);
}

function cellOf(cell: MatrixCell | null, check: string): HTMLTableCellElement {
  const element = document.createElement("td");
  if (cell !== null) {
    const face = button(`${GLYPHS[cell.state] ?? "…"} ${wordOf(cell.state)}`, check);
    face.className = cell.state;
    face.title = cell.stale ? `Out of date: ${cell.headline}` : cell.headline;
    element.classList.toggle("stale", cell.stale);
    const seconds = document.createElement("span");
    seconds.className = "seconds";
    seconds.textContent = cell.seconds > 0 ? `${cell.seconds.toFixed(2)} s` : "";
    face.append(seconds);
    element.append(face);
  }
  return element;
}

function button(text: string, check: string): HTMLButtonElement {
  const made = document.createElement("button");
  made.textContent = text;
  made.onclick = () => editor.postMessage({ type: "open", check });
  return made;
}

document.getElementById("all")?.addEventListener("click", () => editor.postMessage({ type: "all" }));
window.addEventListener("message", ({ data }: MessageEvent<ToMatrix>) => show(data));
editor.postMessage({ type: "ready" });
