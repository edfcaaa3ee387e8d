"""Retired words: what the glossary calls by another name is not said any more, in code or in documents."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
READ = [
    path
    for pattern in ("src/**/*.py", "src/**/*.js", "src/**/*.html", "docs/**/*.md", "deploy/**/*", "*.md")
    for path in ROOT.glob(pattern)
    if path.is_file() and "__pycache__" not in path.parts
]

RETIRED = {
    r"aloft": "background",
    r"flying|flights?_|FLIGHTS?": "in flight, background job",
    r"is_pressing|PRESSING": "recovery_comes_first",
    r"\bRace\b|is_lost": "Progress.is_stuck",
    r"convoy": "joint step",
    r"worth_carrying": "piggybacked",
    r"last stretch|last_stretch": "final step",
    r"\bTempo\b|\btempo\b": "StepTiming",
    r"Narrator|narration|\bNarrat": "recorder, job events",
    r"\bTold\b": "Emitted",
    r"\btelling\b|look_after|hasten": "progress_line, track, restore_priority",
    r"\bwhat is behind\b|\bwhat comes back\b": "lagging partitions, recovering queries",
    r"\bFacts\b|\bfacts\.|\bStanding\b": "RecoveryState, PartitionStatus",
    r"patience_s|PATIENCE_S|PATIENCE_E": "latency_slack_s, retry_timeout_s",
    r"epoch in hand": "current epoch",
    r"takes? for lost|taken for lost": "declared dead",
    r"\bsilence|\bsilent\b|SILEN": "heartbeat time-out, suspected",
    r"\bmended\b": "fixed",
    r"\bScenes?\b|\bscenes?\b": "FailureCase",
}


@pytest.mark.parametrize(("word", "instead"), RETIRED.items())
def test_retired_words_are_not_used(word: str, instead: str):
    """One word, one meaning: a word that was given up does not come back."""
    pattern = re.compile(word)
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()[:100]}"
        for path in READ
        for number, line in enumerate(path.read_text(errors="ignore").splitlines(), 1)
        if pattern.search(line)
    ]
    assert not found, f"say {instead}:\n" + "\n".join(found)
