"""One rank's world: ``torch.distributed`` and the environment as they are on that rank of the job, without the job.

The main type is :class:`~graphguard.trace.worlds.world.World`; ``patches`` puts every replacement in place.
The recorder and the programs of a check come in.
"""
