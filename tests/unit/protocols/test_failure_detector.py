"""A hung node is found in seconds; a slow one is left alone."""

import itertools
import random

import pytest

from resurge.errors import ProtocolError
from resurge.model.names import NodeId
from resurge.protocols.failure_detector import TRANSITIONS, FailureDetector, Health, NodeHealth, Signal, Timeouts

HUNG, SLOW, FINE = NodeId("hung"), NodeId("slow"), NodeId("fine")
LOOK_S = 0.25


def looked_at(watch: FailureDetector, now_s: float, *heard: NodeId) -> FailureDetector:
    """One look."""
    return watch.polled(heard, now_s)


def test_a_node_that_answers_no_more_is_dead_within_seconds_and_the_others_are_not() -> None:
    """It is suspected first, so that somebody can be told who is waited for."""
    watch = FailureDetector().watching([HUNG, FINE])
    now_s = 0.0
    for _ in range(200):
        now_s += LOOK_S
        watch = looked_at(watch, now_s, HUNG, FINE)
    hung_s = now_s
    seen = []
    while watch.nodes[HUNG].health is not Health.DEAD:
        now_s += LOOK_S
        watch = looked_at(watch, now_s, FINE)
        seen.append(watch.nodes[HUNG].health)
    assert now_s - hung_s <= Timeouts().least_s + LOOK_S
    assert list(dict.fromkeys(seen)) == [Health.HEALTHY, Health.SUSPECTED, Health.DEAD]
    assert watch.nodes[FINE].health is Health.HEALTHY


@pytest.mark.parametrize("seed", range(20))
def test_a_node_whose_pauses_grow_is_slow_and_not_dead(seed: int) -> None:
    """Such as one whose machine is overloaded, or that collects garbage: pauses up to three times as long as any before."""
    rng = random.Random(seed)
    watch = FailureDetector().watching([SLOW])
    now_s, answers_s, longest_s = 0.0, 0.0, 0.5
    for _ in range(4_000):
        now_s += LOOK_S
        is_heard = now_s >= answers_s
        watch = looked_at(watch, now_s, *([SLOW] if is_heard else []))
        assert watch.nodes[SLOW].health is not Health.DEAD, f"seed {seed}, at {now_s:.2f} s"
        if is_heard:
            pause_s = rng.uniform(0, 3 * longest_s)
            longest_s = min(max(longest_s, pause_s), 2.0)
            answers_s = now_s + pause_s


def test_a_slow_node_that_hangs_is_dead_after_some_more_time_but_not_for_ever() -> None:
    """Its habit gives it more time, up to a limit."""
    pauses = {usual_s: Timeouts().timeout_s(usual_s) for usual_s in (0.0, 0.1, 1.0, 3.0, 100.0)}
    assert list(pauses.values()) == sorted(pauses.values())
    assert pauses[0.0] == Timeouts().least_s
    assert pauses[100.0] == Timeouts().most_s


def test_a_driver_that_stood_still_takes_nobody_for_dead() -> None:
    """It could not hear anybody meanwhile: the first looks after it do not count the pause."""
    watch = FailureDetector().watching([FINE])
    watch = looked_at(watch, 1.0, FINE)
    watch = looked_at(watch, 601.0)
    assert watch.nodes[FINE].health is Health.HEALTHY
    assert looked_at(watch, 601.2, FINE).nodes[FINE].health is Health.HEALTHY


def test_habits_are_forgotten() -> None:
    """A node that was slow an hour ago has no more time than others."""
    watch = FailureDetector().watching([FINE])
    for now_s in (1.0, 2.0, 3.0):
        watch = looked_at(watch, now_s)
    for look in range(400):
        watch = looked_at(watch, 3.0 + look * LOOK_S, FINE)
    assert watch.nodes[FINE].usual_s < 0.01


def test_a_dead_node_stays_dead_whatever_it_says() -> None:
    """And one that is forgotten and watched again is a new one."""
    watch = FailureDetector().watching([HUNG]).removed([HUNG])
    watch = looked_at(watch, 1.0, HUNG)
    assert watch.of(Health.DEAD).keys() == {HUNG}
    assert watch.watching([]).watching([HUNG]).nodes[HUNG].health is Health.HEALTHY


def test_every_sign_is_accepted_or_refused_by_the_table() -> None:
    """A refused sign names the state and what it accepts."""
    for health, sign in itertools.product(Health, Signal):
        if (health, sign) in TRANSITIONS:
            assert NodeHealth(health).after(sign).health is TRANSITIONS[health, sign]
        else:
            with pytest.raises(ProtocolError, match=f"{health.name} cannot handle {sign.name}; it accepts ANSWERED, REMOVED"):
                NodeHealth(health).after(sign)
