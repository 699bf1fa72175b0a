import { describe, expect, test } from "vitest";
import type { Group } from "../src/protocol";
import { Tree } from "../webview/tree";

/** ``a`` (rows 0 to 39) holds ``b`` and ``c``; ``d`` stands alone; rows 40 to 49 are in no module. */
const GROUPS: Group[] = [
  { name: "a", depth: 0, from: 0, to: 40, proved: 35 },
  { name: "b", depth: 1, from: 0, to: 20, proved: 20 },
  { name: "c", depth: 1, from: 21, to: 40, proved: 15 },
  { name: "d", depth: 0, from: 50, to: 60, proved: 0 },
];
const shown = (tree: Tree) => tree.lines.map((line) => ("row" in line ? line.row : (tree.groups[line.group] as Group).name));

describe("the tree of modules", () => {
  test("is unfolded around the break, and folded elsewhere", () => {
    const tree = new Tree(GROUPS, 60, [22], 22);
    expect(shown(tree).slice(0, 5)).toEqual(["a", "b", 20, "c", 21]);
    expect(shown(tree).at(-1)).toBe("d");
    expect(tree.lineOf(22)).toBe(5);
    expect(tree.lineOf(3)).toBeUndefined();
  });

  test("is unfolded altogether where it is small", () => {
    expect(new Tree([{ name: "a", depth: 0, from: 0, to: 3, proved: 3 }], 4, []).lines).toHaveLength(5);
  });

  test("unfolds what hides a row, and nothing else", () => {
    const tree = new Tree(GROUPS, 60, [22], 22);
    expect(tree.show(55)).toBe(tree.lineOf(55));
    expect(shown(tree).slice(-11)).toEqual(["d", 50, 51, 52, 53, 54, 55, 56, 57, 58, 59]);
    expect(tree.isOpen(1)).toBe(false);
  });

  test("keeps what was unfolded when the same modules come again", () => {
    const before = new Tree(GROUPS, 60, [22], 22);
    before.set(3, true);
    before.set(2, false);
    const after = new Tree(GROUPS, 60, [], undefined, before.unfolded);
    expect([0, 1, 2, 3].map((group) => after.isOpen(group))).toEqual([true, false, false, true]);
  });

  test("tells of every module whether it is in relation, broken or behind the break", () => {
    const tree = new Tree(GROUPS, 60, [22, 23], 22);
    expect([0, 1, 2, 3].map((group) => tree.state(group))).toEqual(["broken", "proved", "broken", "off"]);
    expect(tree.breaksIn(0)).toBe(2);
  });

  test("names a folded module's own modules, the broken one in any case", () => {
    const many: Group[] = [{ name: "all", depth: 0, from: 0, to: 100, proved: 99 }];
    for (let index = 0; index < 10; index += 1) {
      many.push({ name: `${index}`, depth: 1, from: index * 10, to: index * 10 + 10, proved: 10 });
    }
    const { shown: chips, left } = new Tree(many, 100, [95]).chips(0);
    expect(chips.map((child) => (many[child] as Group).name)).toEqual(["0", "1", "2", "3", "4", "9"]);
    expect(left).toBe(4);
  });

  test("knows the module around a line", () => {
    const tree = new Tree(GROUPS, 60, [22], 22);
    expect(tree.parent({ row: 22 })).toBe(2);
    expect(tree.parent({ group: 2 })).toBe(0);
    expect(tree.parent({ group: 0 })).toBeUndefined();
    expect(tree.parent({ row: 45 })).toBeUndefined();
    expect(tree.depth({ row: 22 })).toBe(2);
  });

  test("unfolds a module with all that is in it", () => {
    const tree = new Tree(GROUPS, 60, [55], 55);
    tree.unfold(0);
    expect([0, 1, 2].map((group) => tree.isOpen(group))).toEqual([true, true, true]);
    expect(tree.lines).toHaveLength(64);
  });
});
