"""What spark-submit runs: the resurge command. Arguments are those of `resurge`."""

from resurge.cli.main import run

run()
