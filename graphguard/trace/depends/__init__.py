"""What a check depends on beside its programs: files, the machine, generators, the process; and captures on disk, found by that.

The main type is :class:`~graphguard.trace.depends.footprint.Footprint`.
The worker, its programs and ``checks`` come in, and replacements that answer a program's questions.
"""
