"""Ranks that run one program, up to literals that are functions of their coordinates: a few are recorded, the others are foretold.

``numbers`` is what a rank that is sounded is told of itself, ``asking`` where; ``plan`` says which ranks are recorded, ``templates`` and ``forms`` what the others are then.  ``programs`` alone comes in.
"""
