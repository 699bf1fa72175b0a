"""From a repair of the graphs to edited sources worth tracing, best first."""
