"""What operators of the user's own have in common: a declared output, state and determinism class."""

from collections.abc import Iterable
from dataclasses import dataclass, field

import polars as pl

from resurge.errors import JobError, TopologyError
from resurge.model.operator import Determinism, StreamShape
from resurge.operators.keyed import KeyedOperator


@dataclass(frozen=True)
class UserProcess(KeyedOperator):
    """A keyed operator that calls functions of the user's, of which only what is declared is known."""

    event_time: str | None = field(default=None, kw_only=True)
    event_time_delay_us: int = field(default=0, kw_only=True)
    declared: Determinism = field(default=Determinism.DETERMINISTIC, kw_only=True)

    @property
    def determinism(self) -> Determinism:
        """What the user declares."""
        return self.declared

    @property
    def keeps_key(self) -> bool:
        """A user's function may emit rows of other keys."""
        return False

    def watermark_delay_us(self) -> int:
        """What the user declares."""
        return self.event_time_delay_us

    def declared_shape(self, given: StreamShape, output: pl.Schema, state: Iterable[str]) -> StreamShape:
        """The shape of the declared output; refuse one without columns, a key that is none, and state that has a key's name."""
        key = self.key_columns(given)
        for name in state:
            if name in key:
                raise TopologyError(f"{self.described}: state {name!r} has the name of a key column; expected another: rename it")
        if not output:
            raise TopologyError(f"{self.described} declares no output columns; expected at least one")
        shape = StreamShape(output, self.event_time)
        if self.event_time is not None and shape.column(self.event_time, self.described).base_type() != pl.Datetime:
            raise TopologyError(
                f"{self.described}: event time {self.event_time!r} is {output[self.event_time]}; expected Datetime"
            )
        return shape


def fitting(frame: pl.DataFrame, schema: pl.Schema, described: str) -> pl.DataFrame:
    """A frame that a user made, if it has the declared columns."""
    if dict(frame.schema) != dict(schema):
        raise JobError(f"{described} gave columns {dict(frame.schema)}; expected {dict(schema)}: select and cast them")
    return frame.select(*schema)
