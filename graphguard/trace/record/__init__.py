"""The recorder: writes down every operator of one program, and answers what it asks of numbers that a recording does not have.

The main types are :class:`~graphguard.trace.record.capture.Recording`, one program, and :class:`~graphguard.trace.record.recorder.Recorder` in it.
``claims`` and ``programs`` come in, by ``capture``.
"""
