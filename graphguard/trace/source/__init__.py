"""The user's files: which are theirs, what their texts say, how they are compiled and imported, and which of their lines runs.

The main type is :class:`~graphguard.trace.source.sources.ProjectFiles`; :class:`~graphguard.trace.source.errors.TracingError` is what becomes a diagnostic.
Everybody comes in; it imports no other room.
"""
