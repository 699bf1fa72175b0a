"""Defects of parts: which rows a rank reads, sends, joins, masks or numbers, and where it should.

One family of defects a file: what it looks like in the graphs, and how it is mended.
"""
