import { beforeEach, describe, expect, test } from "vitest";
import { EventEmitter, runProfiles, testEvents, testOutput, TestRunRequest } from "./vscode";
import type { Check, CheckRun, ChecksUpdate } from "../src/protocol";
import { Results } from "../src/results";
import type { Phase, Server } from "../src/server";
import { TestExplorer } from "../src/testExplorer";

const KEY = "mlp [tp=2]";
const run = (more: Partial<CheckRun> = {}): CheckRun => ({ mesh: { tp: 2 }, state: "proved", stale: false, described: true, cached: false, seconds: 0.5, headline: "", message: "", ...more });
const range = (line: number) => ({ start: { line, character: 0 }, end: { line, character: 3 } });
const check = (runs: CheckRun[]): Check => ({ id: "mlp", name: "mlp", uri: "file:///mlp.py", range: range(9), runs });
const broken = run({ state: "broken", message: "'y' is a partial sum\ncounterexample: …", location: { uri: "file:///mlp.py", range: range(4) } });

let updates: EventEmitter<ChecksUpdate>;
let phases: EventEmitter<Phase>;
let requests: [string, unknown][];
let revision = 0;
let cancellation: EventEmitter<void>;
let answer: unknown;

const token = { onCancellationRequested: (listener: () => void) => cancellation.event(listener) };
const send = (...runs: CheckRun[]) => updates.fire({ revision: (revision += 1), checks: [check(runs)] });
const events = () => testEvents.splice(0);

beforeEach(() => {
  updates = new EventEmitter();
  phases = new EventEmitter();
  cancellation = new EventEmitter();
  answer = { queued: 1 };
  requests = [];
  runProfiles.splice(0);
  testEvents.splice(0);
  testOutput.splice(0);
  const server = {
    onChecks: updates.event,
    onPhase: phases.event,
    asUri: (uri: string) => uri,
    request: async (method: string, params: unknown) => {
      requests.push([method, params]);
      return answer;
    },
  } as unknown as Server;
  new TestExplorer(server, new Results(server));
});

describe("a result that nobody asked for here", () => {
  test("is shown once, with its duration", () => {
    send(run());
    send(run());
    expect(events()).toEqual([`started ${KEY}`, `passed ${KEY} in 500`, "end"]);
  });

  test("that is broken fails at its line with its counterexample", () => {
    send(broken);
    expect(events()[1]).toBe(`failed ${KEY} at 4: 'y' is a partial sum\ncounterexample: …`);
  });

  test("is printed once where all meshes say the same", () => {
    send(broken, { ...broken, mesh: { tp: 4 } }, { ...broken, mesh: { tp: 8 } });
    expect(testOutput).toEqual(["mlp tp=2: 'y' is a partial sum\r\ncounterexample: …\r\n", "mlp tp=4: as mlp tp=2\r\n", "mlp tp=8: as mlp tp=2\r\n"]);
  });

  test("is not shown again while fixes are looked for", () => {
    send(broken);
    events();
    send({ ...broken, seconds: 0.9 });
    send({ ...broken, seconds: 1.4, message: `${broken.message}\nfix: all_reduce(y)` });
    expect(events()).toEqual([]);
  });

  test("that is unknown is no failure", () => {
    send(run({ state: "unknown" }));
    expect(events()).toContain(`skipped ${KEY}`);
  });

  test("is marked out of date as soon as it is", () => {
    send(run());
    events();
    send(run({ stale: true }));
    expect(events()).toEqual([`invalidated ${KEY}`]);
  });

  test("of an older revision is not shown", () => {
    send(run());
    events();
    updates.fire({ revision: 0, checks: [check([broken])] });
    expect(events()).toEqual([]);
  });

  test("is out of date when the server is gone", () => {
    send(run());
    events();
    phases.fire({ kind: "stopped" });
    expect(events()).toEqual([`invalidated ${KEY}`]);
  });
});

describe("a run of the user's", () => {
  test("goes from queued over running to its result, even an unchanged one", async () => {
    send(run());
    events();
    const done = runProfiles[0]?.run(new TestRunRequest(), token);
    send(run({ state: "tracing", stale: true }));
    send(run({ state: "proving", stale: true }));
    send(run());
    await done;
    expect(requests).toEqual([["graphguard/run", { checks: [{ id: "mlp", mesh: { tp: 2 } }], force: true }]]);
    expect(events()).toEqual([`enqueued ${KEY}`, `started ${KEY}`, `passed ${KEY} in 500`, "end"]);
  });

  test("ends when it is cancelled, in the server too", async () => {
    send(run());
    events();
    const done = runProfiles[0]?.run(new TestRunRequest(), token);
    send(run({ state: "tracing", stale: true }));
    cancellation.fire();
    await done;
    expect(requests.map(([method]) => method)).toEqual(["graphguard/run", "graphguard/cancel"]);
    expect(events().slice(-2)).toEqual([`skipped ${KEY}`, "end"]);
  });

  test("ends when the server dies under it", async () => {
    send(run());
    events();
    const done = runProfiles[0]?.run(new TestRunRequest(), token);
    send(run({ state: "tracing", stale: true }));
    phases.fire({ kind: "stopped" });
    await done;
    expect(events().slice(-2)).toEqual([`skipped ${KEY}`, "end"]);
  });

  test("ends at once where no server runs", async () => {
    send(run());
    events();
    answer = undefined;
    await runProfiles[0]?.run(new TestRunRequest(), token);
    expect(events().at(-1)).toBe("end");
  });
});
