"""Problems for the tests of key group moves, and checks that share no code with the planners."""

import random
from dataclasses import replace

from resurge.planning.key_group_moves import MoveNode, MovePartition, MovePlan, MoveProblem


def random_problem(chance: random.Random, *, drains: int = 0, most_moves: int | None = None) -> MoveProblem:
    """A few nodes of two sizes in racks, with partitions of two or three levels that lie unevenly, some with copies."""
    names = [f"n{index}" for index in range(chance.randint(2, 5))]
    nodes = {
        name: MoveNode(chance.choice([1.0, 2.0]), chance.choice([None, "r1", "r2"]), drains=index < drains)
        for index, name in enumerate(names)
    }
    crowded = names[: max(1, len(names) // 2)]
    partitions = {}
    for index in range(chance.randint(1, 14)):
        node = chance.choice(crowded if chance.random() < 0.6 else names)
        others = [name for name in names if name != node]
        copies = chance.sample(others, k=chance.randint(0, min(2, len(others)))) if chance.random() < 0.4 else []
        cost = chance.uniform(0.0, 0.4)
        partitions[f"p/{index}"] = MovePartition(node, cost, chance.randint(0, 2), chance.randrange(10**9), copies)
    apart = [chance.sample(list(partitions), k=2)] if len(partitions) > 3 and chance.random() < 0.4 else []
    return MoveProblem(nodes, partitions, apart, most_moves, move_cost=chance.choice([0.0, 0.01, 0.1]), byte_cost=1e-11)


def large_problem(nodes: int, partitions: int, chance: random.Random) -> MoveProblem:
    """Many nodes and partitions, half of the nodes nearly empty."""
    names = [f"n{index}" for index in range(nodes)]
    load = 0.5 * nodes / partitions
    return MoveProblem(
        {name: MoveNode(2.0) for name in names},
        {
            f"p/{index}": MovePartition(names[index % (nodes // 2)], load * chance.uniform(0.5, 1.5), index % 3, 1000)
            for index in range(partitions)
        },
    )


def placement_after(problem: MoveProblem, plan: MovePlan) -> dict[str, str]:
    """Where every partition is once the plan has been carried out."""
    placement = {name: partition.node for name, partition in problem.partitions.items()}
    for move in plan.moves:
        assert placement[move.partition] == move.source != move.target
        placement[move.partition] = move.target
    return placement


def assert_keeps_constraints(problem: MoveProblem, plan: MovePlan) -> None:
    """Capacities, drains, domains of copies, partitions that must be apart, the number of moves, the score."""
    placement = placement_after(problem, plan)
    domain = {name: node.domain or f"only {name}" for name, node in problem.nodes.items()}
    for name, node in problem.nodes.items():
        here = [partition for partition, place in placement.items() if place == name]
        has_guests = any(problem.partitions[partition].node != name for partition in here)
        assert not (node.drains and here)
        load = sum(problem.partitions[partition].cost for partition in here)
        assert not has_guests or load <= node.capacity * (1 + 1e-6), (name, load)
    for move in plan.moves:
        copies = problem.partitions[move.partition].copies
        assert move.is_assisted == (move.target in copies)
        assert move.is_assisted or domain[move.target] not in {domain[copy] for copy in copies}
        assert move.shipped_bytes == (0 if move.is_assisted else problem.partitions[move.partition].state_bytes)
    moved = {move.partition for move in plan.moves}
    for names in problem.apart:
        for one in names:
            for other in names:
                if one < other and (one in moved or other in moved):
                    assert domain[placement[one]] != domain[placement[other]]
    if problem.most_moves is not None:
        chosen = [move for move in plan.moves if not problem.nodes[move.source].drains]
        assert len(chosen) <= problem.most_moves
    assert abs(plan.score - score_of(problem, plan)) <= 1e-9 * max(1.0, plan.score)


def score_of(problem: MoveProblem, plan: MovePlan) -> float:
    """The score by its definition."""
    placement = placement_after(problem, plan)
    total = 0.0
    for level in {partition.level for partition in problem.partitions.values()}:
        loads = dict.fromkeys(problem.nodes, 0.0)
        for name, partition in problem.partitions.items():
            if partition.level == level:
                loads[placement[name]] += partition.cost
        total += max(load / problem.nodes[name].capacity for name, load in loads.items())
    price = sum(problem.move_cost + problem.byte_cost * move.shipped_bytes for move in plan.moves)
    return total + price / len(problem.nodes)


def without_most_partitions(problem: MoveProblem, kept: int) -> MoveProblem:
    """The same problem with its first few partitions."""
    partitions = dict(list(problem.partitions.items())[:kept])
    apart = [names for names in problem.apart if set(names) <= set(partitions)]
    return replace(problem, partitions=partitions, apart=apart)
