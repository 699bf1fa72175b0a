import { fileURLToPath } from "node:url";
import { defineConfig } from "vitest/config";

export default defineConfig({
  test: {
    include: ["test/**/*.test.ts"],
    // The editor's module exists only inside an editor.
    alias: { vscode: fileURLToPath(new URL("test/vscode.ts", import.meta.url)) },
  },
});
