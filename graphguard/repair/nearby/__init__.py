"""Edits made of what the files have already, near a finding, where no edit of the graphs says what to write.

``near`` orders and bounds them; every other file is one kind of mistake of texts, with its drafts.  Each draft is recorded and proved again before it is shown.
"""
