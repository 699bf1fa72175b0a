"""A project as its settings and its files say it is: which checks there are, found without running anything.

Main type: ``Configuration``.
"""
