"""Edits of the ranks' graphs as data, what each does to a graph, and the slice of a program that they are looked for in.

Main types: ``Edit`` and ``Slice``.  Nothing here knows of source texts.
"""
