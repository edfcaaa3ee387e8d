"""What `resurge move`, `drain`, `balance` and `scale` share: ask the running driver, wait, and say what came of it."""

import uuid
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from resurge.model.requests import Ask

Url = Annotated[str, typer.Argument(metavar="URL", help="The checkpoint URL that the job runs with.")]
Timeout = Annotated[float, typer.Option("--timeout", metavar="SECONDS", min=1, help="How long to wait for the job to answer.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the final answer as JSON.")]


def new_request() -> str:
    """A name that no other request has."""
    return uuid.uuid4().hex[:12]


def asked(url: str, ask: "Ask", timeout_s: float, *, as_json: bool) -> None:
    """Ask the running driver, print its answers, and exit with 1 unless it is done."""
    import msgspec

    from resurge.model.requests import Verdict
    from resurge.storage.requests import carried_out
    from resurge.storage.stored_job import open_job

    job = open_job(url)
    accepted = None if as_json else lambda answer: print(f"accepted: {answer.text}")
    final = carried_out(job.store, job.generation, ask, timeout_s, accepted)
    if as_json:
        print(msgspec.json.encode(final).decode())
    elif final.verdict is Verdict.DONE:
        print(f"done in {final.took_s:.1f} s, with a pause of {final.pause_s * 1000:.0f} ms: {final.text}")
    else:
        print(f"{final.verdict.value}: {final.text}")
    if final.verdict is not Verdict.DONE:
        raise typer.Exit(1)
