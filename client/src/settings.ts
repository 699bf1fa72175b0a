// The settings of the section "graphguard", read in one place.
import * as vscode from "vscode";

export type Notifications = "always" | "onError" | "off";

export interface ServerSettings {
  readonly mode: "change" | "save" | "manual";
  readonly codeLens: boolean;
  readonly inlayHints: boolean;
  readonly semanticTokens: boolean;
}

/** Settings that need a new server process. */
const RESTARTING = ["graphguard.interpreter", "graphguard.importStrategy"];

const section = () => vscode.workspace.getConfiguration("graphguard");

export function serverSettings(): ServerSettings {
  const settings = section();
  return {
    mode: settings.get("mode", "change"),
    codeLens: settings.get("codeLens", true),
    inlayHints: settings.get("inlayHints", false),
    semanticTokens: settings.get("semanticTokens", false),
  };
}

export const importStrategy = (): "useBundled" | "fromEnvironment" => section().get("importStrategy", "useBundled");
export const notifications = (): Notifications => section().get("showNotifications", "onError");
export const gutterShown = (): boolean => section().get("gutter", true);

export function needsRestart(event: vscode.ConfigurationChangeEvent): boolean {
  return RESTARTING.some((name) => event.affectsConfiguration(name));
}
