"""Operator calls as they are recorded, on memory, and what is known of operators and of the tensors that they are given.

The main types are :class:`~graphguard.trace.calls.events.Event` and :class:`~graphguard.trace.calls.tape.Tape`, the recording that is under way.
All that replaces, records or translates calls comes in; the recorder itself is above, in ``record``.
"""
