"""Programs written after mistakes in public code, each before anything was changed for it: whether the finding is at the right line, with the right rule.

A program holds the bug; comments say what the repaired one has instead (:mod:`benchmarks.strangers.program`).
"""
