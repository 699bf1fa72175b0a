// Packages the extension: bundles, asserts the list of files, writes dist/graphguard-<version>.vsix and asserts its size.
import { execFileSync } from "node:child_process";
import { existsSync, mkdirSync, readFileSync, statSync, writeFileSync } from "node:fs";

const LIMIT_MB = 15;

/** What may be in the package, by the first matching pattern; every pattern marked required must match a file. */
const CONTENT = [
  { pattern: /^package\.json$/, required: true },
  { pattern: /^LICENSE(\.txt)?$/i, required: true },
  { pattern: /^dist\/README\.md$/, required: true },
  { pattern: /^README\.md$/, required: false }, // listed, but the one above is packed in its place
  { pattern: /^docs\/images\/vscode-(squiggle|explorer)\.png$/, required: true },
  { pattern: /^client\/CHANGELOG\.md$/, required: true },
  { pattern: /^client\/dist\/extension\.js$/, required: true },
  { pattern: /^client\/dist\/(explorer|matrix)\.js$/, required: true },
  { pattern: /^client\/NOTICE\.md$/, required: true },
  { pattern: /^client\/dist\/explorer\.css$/, required: true },
  { pattern: /^client\/media\/icon\.png$/, required: true },
  { pattern: /^client\/media\/gutter\/[a-z]+\.svg$/, required: true },
  { pattern: /^client\/media\/walkthrough\/[a-z]+\.md$/, required: true },
  { pattern: /^bundled\/launch\.py$/, required: true },
  { pattern: /^bundled\/engine\/graphguard\/([a-z_]+\/)*[a-z_0-9]+\.py$/, required: true },
  { pattern: /^bundled\/engine\/graphguard(_server)?\/py\.typed$/, required: true },
  { pattern: /^bundled\/engine\/graphguard_server\/([a-z_]+\/)*[a-z_0-9]+\.py$/, required: true },
  { pattern: /^bundled\/engine\/docs\/rules\/[A-Za-z-]+\.md$/, required: true },
  { pattern: /^bundled\/engine\/graphguard-[0-9.]+\.dist-info\/METADATA$/, required: true },
  { pattern: /^bundled\/libs\/(attr|attrs|cattr|cattrs|lsprotocol|networkx|pygls|watchdog)\/.*\.(py|pyi|typed)$/, required: true },
  { pattern: /^bundled\/libs\/networkx\/.*\.(bz2|txt|dat|gml|gz)$/, required: false },
  { pattern: /^bundled\/libs\/typing_extensions\.py$/, required: true },
  { pattern: /^bundled\/libs\/[A-Za-z_]+-[0-9.]+\.dist-info\/.*$/, required: true },
  { pattern: /^bundled\/graphguard-[0-9.]+-py3-none-any\.whl$/, required: true },
  { pattern: /^bundled\/libs\/share\/doc\/.*$/, required: false },
];

const run = (command, ...args) => execFileSync(command, args, { encoding: "utf8", stdio: ["ignore", "pipe", "inherit"] });
const python = existsSync(".venv/bin/python") ? ".venv/bin/python" : process.platform === "win32" ? "python" : "python3";

run(process.execPath, "client/esbuild.mjs");
run(python, "client/bundle.py");

const vsce = "node_modules/@vscode/vsce/vsce";
// In the package the README lies at the root, so what it links to lies elsewhere as seen from it.
mkdirSync("dist", { recursive: true });
writeFileSync("dist/README.md", readFileSync("client/README.md", "utf8").replaceAll("](../", "]("));
const pages = ["--allow-missing-repository", "--no-rewrite-relative-links", "--readme-path", "dist/README.md", "--changelog-path", "client/CHANGELOG.md"];
const files = run(process.execPath, vsce, "ls", "--no-dependencies").split("\n").filter(Boolean);
const strangers = files.filter((file) => !CONTENT.some(({ pattern }) => pattern.test(file)));
const missing = CONTENT.filter(({ pattern, required }) => required && !files.some((file) => pattern.test(file)));
if (strangers.length + missing.length > 0) {
  for (const file of strangers) console.error(`not expected in the package: ${file}`);
  for (const { pattern } of missing) console.error(`missing in the package: ${pattern}`);
  process.exit(1);
}

const { version } = JSON.parse(readFileSync("package.json", "utf8"));
const target = `dist/graphguard-${version}.vsix`;
run(process.execPath, vsce, "package", "--no-dependencies", ...pages, "--out", target);
const megabytes = statSync(target).size / 1e6;
if (megabytes > LIMIT_MB) {
  console.error(`${target} has ${megabytes.toFixed(1)} MB, more than ${LIMIT_MB}`);
  process.exit(1);
}
console.log(`${target}: ${files.length} files, ${megabytes.toFixed(1)} MB`);
