"""Source files as repairs see them: their text, the places of nodes in it, and what they call things.

Main type: ``Program``, a file with its syntax tree.  Nothing here knows of edits of graphs.
"""
