"""From calls on memory to a graph of values: views, storages, collectives, and what a graph leaves out.

The main type is :class:`~graphguard.trace.graph.builder.Builder`; :func:`~graphguard.trace.graph.functional.functionalise` is the way through.
The recorder comes in, and who asks how tensors lie in memory.
"""
