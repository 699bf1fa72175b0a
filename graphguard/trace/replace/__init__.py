"""What PyTorch, Python and numpy do differently while a program is recorded, one replacement a file.

Each has ``install`` or ``watch``; :class:`~graphguard.trace.calls.tape.Tape` is what they know of the recording.
``worlds.patches``, which puts them in place, comes in, and who needs what one of them notes.
"""
