"""Forked children that run user code: what they say, what they may use, how they end.

The main type is :class:`~graphguard.trace.process.children.Family`.
The worker, its programs and ``checks`` come in; it imports no other room.
"""
