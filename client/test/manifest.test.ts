// The manifest against the code: what is offered exists, what exists is offered.
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { describe, expect, test } from "vitest";

const root = fileURLToPath(new URL("../../", import.meta.url));
const manifest = JSON.parse(readFileSync(`${root}package.json`, "utf8"));
const code = readdirSync(`${root}client/src`)
  .map((file) => readFileSync(`${root}client/src/${file}`, "utf8"))
  .join("\n");
const protocol = readFileSync(`${root}server/graphguard_server/serving/protocol.py`, "utf8");

describe("commands", () => {
  const names: string[] = manifest.contributes.commands.map(({ command }: { command: string }) => command.replace("graphguard.", ""));

  test.each(names)("%s is registered", (name) => {
    expect(code).toMatch(new RegExp(`"graphguard\\.${name}", |^    ${name}: `, "m"));
  });

  test("have other names than the server's, which the client registers itself", () => {
    const server = [...protocol.matchAll(/"graphguard\/(\w+)"/g)].map(([, name]) => name);
    expect(names.filter((name) => server.includes(name))).toEqual([]);
  });
});

test("every message of the client is in the server's table", () => {
  const used = [...readFileSync(`${root}client/src/protocol.ts`, "utf8").matchAll(/"(graphguard\/\w+)"/g)].map(([, name]) => name);
  expect(used.length).toBeGreaterThan(5);
  expect(used.filter((name) => !protocol.includes(`"${name}"`))).toEqual([]);
});

describe("settings", () => {
  const settings = Object.entries<{ scope: string; markdownDescription: string }>(manifest.contributes.configuration.properties);

  test.each(settings)("%s has a scope and a description", (_, { scope, markdownDescription }) => {
    expect(scope).toBeTruthy();
    expect(markdownDescription).toMatch(/\.$/);
  });

  test("that choose what is run cannot be set by a workspace", () => {
    for (const name of ["graphguard.interpreter", "graphguard.importStrategy"]) {
      expect(manifest.contributes.configuration.properties[name].scope).toBe("machine");
    }
  });
});

test("an untrusted workspace starts nothing", () => {
  expect(manifest.capabilities.untrustedWorkspaces.supported).toBe(false);
});

test("files of the walkthrough and the icon exist, and its commands too", () => {
  const steps = manifest.contributes.walkthroughs[0].steps as { media: { markdown: string }; description: string }[];
  for (const file of [manifest.icon, ...steps.map(({ media }) => media.markdown)]) {
    expect(existsSync(root + file)).toBe(true);
  }
  const known = manifest.contributes.commands.map(({ command }: { command: string }) => command);
  const used = steps.flatMap(({ description }) => [...description.matchAll(/command:(graphguard\.\w+)/g)].map(([, name]) => name));
  expect(used.filter((name) => !known.includes(name))).toEqual([]);
});
