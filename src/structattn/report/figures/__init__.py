"""The figures of a report: each module draws one kind of figure from run folders."""
