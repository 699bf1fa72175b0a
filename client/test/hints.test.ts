import { afterEach, expect, test } from "vitest";
import type * as vscode from "vscode";
import { type Hint, StaleHints } from "../src/hints";
import { Position, window } from "./vscode";

const hint = (line: number, label: string, stale: boolean) => ({ position: new Position(line, 5), label, tooltip: "rank 0: y", data: { stale } }) as unknown as Hint;
const texts = (options: readonly unknown[]) => (options as vscode.DecorationOptions[]).map(({ range, renderOptions }) => [range.start.line, renderOptions?.before?.contentText]);

const document = {} as vscode.TextDocument;
let drawn: readonly unknown[] = [];
const editor = (of: unknown) => ({ document: of, setDecorations: (_: unknown, options: readonly unknown[]) => (drawn = options) });

afterEach(() => {
  window.visibleTextEditors = [];
  drawn = [];
});

test("hints from before the last edit are drawn pale where they stand, and go when they are fresh", () => {
  window.visibleTextEditors = [editor(document)];
  const hints = new StaleHints();
  expect(hints.keep(document, [hint(3, ": Shard(1) over tp", true), hint(9, ": Replicate", false)]).map(({ label }) => label)).toEqual([": Replicate"]);
  expect(texts(drawn)).toEqual([[3, ": Shard(1) over tp"]]);
  expect(hints.keep(document, [hint(3, ": Shard(1) over tp", false)])).toHaveLength(1);
  expect(drawn).toEqual([]);
});

test("other documents keep theirs, and a server that is gone leaves none", () => {
  window.visibleTextEditors = [editor({})];
  const hints = new StaleHints();
  hints.keep(document, [hint(3, ": Replicate", true)]);
  expect(drawn).toEqual([]);
  window.visibleTextEditors = [editor(document)];
  hints.keep(document, [hint(3, ": Replicate", true)]);
  expect(drawn).toHaveLength(1);
  hints.clear();
  expect(drawn).toEqual([]);
});
