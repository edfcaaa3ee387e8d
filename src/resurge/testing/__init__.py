"""Test equipment: a runner without Spark, nodes that are killed or slowed down on cue, laws that a sink must keep. Nothing in production imports it."""
