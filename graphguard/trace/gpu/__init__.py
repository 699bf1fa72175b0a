"""CUDA on a machine without a GPU: the device that a rank has, and what programs ask of it.

The main function is :func:`~graphguard.trace.gpu.cuda.install`.
The world of a rank comes in, the recorder, and what tells the user of CUDA.
"""
