"""Every exception that Resurge raises on purpose, as a tree."""

from resurge.redaction import redacted


class ResurgeError(Exception):
    """Anything Resurge refuses or cannot do; the message says what was expected, what came and what to do.

    Credentials in the message are hidden, whoever wrote them there.
    """

    def __init__(self, *arguments: object) -> None:
        super().__init__(*(redacted(each) if isinstance(each, str) else each for each in arguments))


class TopologyError(ResurgeError):
    """A topology that cannot run: a cycle, an unknown input, a bad priority, a schema that does not fit."""


class ProblemError(ResurgeError):
    """A planning problem that is not well-formed; the message names the field."""


class InfeasibleError(ResurgeError):
    """A well-formed planning problem that no plan can satisfy; the message says which constraint and why."""


class ProtocolError(ResurgeError):
    """An event that a state machine does not accept in its present state; the state is unchanged."""


class StorageError(ResurgeError):
    """The durable store cannot be read or written."""


class CorruptFileError(StorageError):
    """A stored file is torn or altered; the message names it."""


class CheckpointDamagedError(CorruptFileError):
    """A file of a checkpoint is torn, altered or missing; the message names it. An older checkpoint may be whole."""


class CopyDamagedError(CorruptFileError):
    """A copy of a state on a node is torn, altered or missing; the message names it. The state may be whole elsewhere."""


class StaleGenerationError(StorageError):
    """Another driver has taken over the job; this one must stop without writing."""


class IncompatibleJobError(ResurgeError):
    """The topology given now does not fit the checkpointed job."""


class SourceError(ResurgeError):
    """A source could not list or read its input."""


class BadFileError(SourceError):
    """A whole file that cannot be read as its source declares."""


class SinkError(ResurgeError):
    """A sink could not stage or publish its output."""


class BadRowError(ResurgeError):
    """A malformed input row, under the policy that such rows fail the job."""


class JobError(ResurgeError):
    """An epoch could not be run."""


class EngineError(JobError):
    """Spark itself failed at a job, though none of its nodes was seen to be lost; trying again may help."""


class UnfitNodeError(JobError):
    """A node cannot run the job's tasks: its versions or its code are not those of the driver."""


class ClusterError(ResurgeError):
    """The embedded cluster could not do what was asked."""


class SimulationError(ResurgeError):
    """A simulated run broke a promise; the message says which, when and for which partition."""


class DashboardError(ResurgeError):
    """The dashboard, metrics or traces cannot be shown; the message says what is missing."""
