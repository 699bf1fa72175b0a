// As much of the editor's module as the tested code touches: plain objects that remember what they were told.

export class EventEmitter<T> {
  private listeners = new Set<(value: T) => void>();
  readonly event = (listener: (value: T) => void) => {
    this.listeners.add(listener);
    return { dispose: () => this.listeners.delete(listener) };
  };
  fire(value: T): void {
    this.listeners.forEach((listener) => listener(value));
  }
  dispose(): void {
    this.listeners.clear();
  }
}

export class Position {
  constructor(
    readonly line: number,
    readonly character: number,
  ) {}
}

export class Range {
  readonly start: Position;
  readonly end: Position;
  constructor(...ends: [Position, Position] | [number, number, number, number]) {
    [this.start, this.end] = ends.length === 2 ? ends : [new Position(ends[0], ends[1]), new Position(ends[2], ends[3])];
  }
}

export class ThemeColor {
  constructor(readonly id: string) {}
}

export class Location {
  constructor(
    readonly uri: unknown,
    readonly range: Range,
  ) {}
}

export class TestMessage {
  location: Location | undefined;
  constructor(readonly message: string) {}
}

export class TestRunRequest {
  constructor(
    readonly include?: readonly TestItem[],
    readonly exclude?: readonly TestItem[],
  ) {}
}

export class TestItems {
  private items = new Map<string, TestItem>();
  constructor(private readonly parent?: TestItem) {}
  add(item: TestItem): void {
    item.parent = this.parent;
    this.items.set(item.id, item);
  }
  get(id: string): TestItem | undefined {
    return this.items.get(id);
  }
  delete(id: string): void {
    this.items.delete(id);
  }
  forEach(visit: (item: TestItem) => void): void {
    [...this.items.values()].forEach(visit);
  }
}

export class TestItem {
  readonly children = new TestItems(this);
  parent: TestItem | undefined;
  range: Range | undefined;
  description: string | undefined;
  constructor(
    readonly id: string,
    readonly label: string,
    readonly uri: unknown,
  ) {}
}

/** What happened in the test runs, in order, as ``word id``. */
export const testEvents: string[] = [];
/** What the test runs printed. */
export const testOutput: string[] = [];
export const runProfiles: { run: (request: TestRunRequest, token: unknown) => Promise<void> }[] = [];

const testRun = () => ({
  enqueued: ({ id }: TestItem) => testEvents.push(`enqueued ${id}`),
  started: ({ id }: TestItem) => testEvents.push(`started ${id}`),
  passed: ({ id }: TestItem, milliseconds: number) => testEvents.push(`passed ${id} in ${milliseconds}`),
  failed: ({ id }: TestItem, message: TestMessage) => testEvents.push(`failed ${id} at ${message.location?.range.start.line}: ${message.message}`),
  errored: ({ id }: TestItem) => testEvents.push(`errored ${id}`),
  skipped: ({ id }: TestItem) => testEvents.push(`skipped ${id}`),
  appendOutput: (text: string) => testOutput.push(text),
  end: () => testEvents.push("end"),
});

export const tests = {
  createTestController: () => ({
    items: new TestItems(),
    createRunProfile: (_label: string, _kind: number, run: (request: TestRunRequest, token: unknown) => Promise<void>) => runProfiles.push({ run }),
    createTestItem: (id: string, label: string, uri: unknown) => new TestItem(id, label, uri),
    createTestRun: testRun,
    invalidateTestResults: ({ id }: TestItem) => testEvents.push(`invalidated ${id}`),
    dispose: () => undefined,
  }),
};

export const TestRunProfileKind = { Run: 1 };
export const LanguageStatusSeverity = { Information: 0, Warning: 1, Error: 2 };
export const Uri = { parse: (text: string) => ({ toString: () => text }), joinPath: () => ({}) };
export const workspace = { asRelativePath: String, getConfiguration: () => ({ get: (_: string, fallback: unknown) => fallback }) };
export const DecorationRangeBehavior = { ClosedClosed: 1 };
interface Editor {
  readonly document: unknown;
  setDecorations(type: unknown, options: readonly unknown[]): void;
}
export const window = { createTextEditorDecorationType: () => ({}), visibleTextEditors: [] as Editor[] };
export const commands = {};
export const languages = {};
