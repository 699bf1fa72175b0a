"""What checks of a framework's programs need beside GraphGuard: its worlds, configurations without fused kernels, its training step.

One module a framework, which it imports itself: nothing here is loaded before a check asks for it.
"""
