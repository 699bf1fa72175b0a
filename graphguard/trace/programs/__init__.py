"""All programs of one check, each recorded in a process of its own and put together as a capture; and the worker, which is asked for that.

The main types are :class:`~graphguard.trace.programs.job.Job` and :class:`~graphguard.trace.programs.job.Recorded`.
``checks`` and the command line come in, and ``python -m graphguard.trace``.
"""
