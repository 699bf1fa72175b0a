// How results are called, here as on the command line.
import type { RunState } from "./protocol";

type Verdict = Extract<RunState, "proved" | "assumed" | "broken" | "unknown" | "error">;

/** What is said of one check. */
export const VERDICTS: Readonly<Record<Verdict, string>> = {
  proved: "refines",
  assumed: "refines, with assumptions",
  broken: "broken",
  unknown: "unknown",
  error: "could not run",
};

/** What is said of several, behind their number. */
export const COUNTED: Readonly<Record<Verdict, string>> = { ...VERDICTS, proved: "refine", assumed: "refine with assumptions" };

/** The word for a state: a verdict's, else the state's own name, as long as a check runs. */
export const wordOf = (state: RunState): string => (state in VERDICTS ? VERDICTS[state as Verdict] : state);
