"""Language features: what is shown at a line, and what can be done there."""
