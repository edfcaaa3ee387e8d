"""Studies: the experiments of the papers, run again, each with its measurements and its report."""
