"""Which code of the user's does the same on another module: proved by reading it, nothing of it is run.

The main type is :class:`~graphguard.trace.pure.lookups.Lookups`; :class:`~graphguard.trace.pure.lookups.Doubt` is raised where nothing is proved.
Copies of layers (``elide``) come in, and who asks for a function's text.
"""
