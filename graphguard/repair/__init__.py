"""From a failed proof to findings and proved fixes: hypotheses on the graph, re-proof, source edits."""
