// The configurations in docs/editors.md: what is documented is what is tested.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, realpathSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { example, ROOT } from "./code.ts";

const SECONDS = 240;

/** The first block of a language in docs/editors.md. */
export function documented(language: string): string {
  const text = readFileSync(path.join(ROOT, "docs/editors.md"), "utf8");
  const block = new RegExp(`\`\`\`${language}\n([\\s\\S]*?)\`\`\``).exec(text)?.[1];
  assert(block !== undefined, `docs/editors.md has no ${language} block`);
  return block;
}

/** Runs an editor on a copy of an example with the documented configuration, in a process group of its own. */
export async function runEditor(command: string, args: readonly string[], language: string, name: string): Promise<{ code: number | null; output: string }> {
  const folder = realpathSync(mkdtempSync(path.join(tmpdir(), "graphguard-e2e-")));
  mkdirSync(path.join(folder, "home"));
  const config = path.join(folder, `config.${language}`);
  const file = path.join(folder, name);
  writeFileSync(config, documented(language));
  writeFileSync(file, example(name));
  writeFileSync(path.join(folder, "pyproject.toml"), "");
  const env = {
    ...process.env,
    HOME: path.join(folder, "home"),
    PATH: `${path.join(ROOT, ".venv/bin")}:${process.env["PATH"]}`,
    GRAPHGUARD_CONFIG: config,
    GRAPHGUARD_FILE: file,
  };
  const child = spawn(command, args, { cwd: folder, env, detached: true, stdio: ["ignore", "pipe", "pipe"] });
  const chunks: string[] = [];
  child.stdout.on("data", (data: Buffer) => chunks.push(data.toString()));
  child.stderr.on("data", (data: Buffer) => chunks.push(data.toString()));
  const { pid } = child;
  assert(pid !== undefined, `${command} did not start`);
  const timer = setTimeout(() => process.kill(-pid, "SIGKILL"), SECONDS * 1000);
  const code = await new Promise<number | null>((resolve) => child.once("exit", resolve));
  clearTimeout(timer);
  rmSync(folder, { recursive: true, force: true });
  return { code, output: chunks.join("") };
}
